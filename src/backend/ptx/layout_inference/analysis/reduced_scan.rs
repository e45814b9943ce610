//! Scans whose results are reduced along another axis, as the states of a recurrence are.

use crate::ir::{Module, OpId, Opcode, RegionTree, Uses, Value};

/// Bytes of one tile of such a scan in a thread. The scanned elements of a thread are in registers,
/// and so is a part of the reduced axis.
pub const SCAN_BYTES: u64 = 512;

/// Returns the axis along which the results of a scan, or values that are computed from them
/// elementwise, are reduced in the same block. `None` if there is no such reduction, if there are
/// several axes, or if it is the axis of the scan.
pub fn reduced_axis(module: &Module, regions: &RegionTree, uses: &Uses, scan: OpId) -> Option<usize> {
    let op = module.op(scan);
    let mut axes = Vec::new();
    let mut pending: Vec<Value> = op.results.clone();
    let mut seen = Vec::new();
    while let Some(value) = pending.pop() {
        for &(user, _) in uses.users(value) {
            if seen.contains(&user) || regions.block_of(user) != regions.block_of(scan) {
                continue;
            }
            seen.push(user);
            let user = module.op(user);
            match user.code {
                Opcode::Reduce => axes.push(user.dim() as usize),
                code if code.is_elementwise() => pending.extend(&user.results),
                _ => {}
            }
        }
    }
    axes.dedup();
    match axes[..] {
        [axis] if axis != op.dim() as usize => Some(axis),
        _ => None,
    }
}
