//! Loads in loops whose tiles are reduced along an axis that is not contiguous in memory, as
//! columns of a row-major array are.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::permutation::as_axes;
use super::view_shape::{ViewShape, contiguous_axis};
use crate::ir::{Module, OpId, Opcode, RegionTree, Value};

/// Bytes of a row of such a tile that the lanes of a warp load together: a cache line. The other
/// lanes load further rows.
pub const ROW_BYTES: usize = 128;

/// A load whose tile is reduced along a strided axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedReduction {
    pub load: OpId,
    /// The contiguous axis, and the reduced axis.
    pub contiguous: usize,
    pub reduced: usize,
}

/// Returns the loads of loop bodies that are reduced in the same body, along one strided axis. Only
/// kernels without MMAs have some: there, the layout of the load is the one of the reduction.
pub fn strided_reductions(module: &Module, regions: &RegionTree) -> Vec<StridedReduction> {
    if regions.ops().iter().any(|&id| module.op(id).code.is_mma()) {
        return Vec::new();
    }
    // The reduced axis of each load, `None` if there are several.
    let mut found: FxHashMap<OpId, Option<usize>> = FxHashMap::default();
    let mut order = Vec::new();
    for &id in regions.ops() {
        let op = module.op(id);
        if op.code != Opcode::Reduce || regions.enclosing_loop(id).is_none() {
            continue;
        }
        let start = op.operands.iter().map(|&value| (value, op.dim() as usize));
        for (load, axis) in source_loads(module, regions, id, start.collect_vec()) {
            let known = found.entry(load).or_insert_with(|| {
                order.push(load);
                Some(axis)
            });
            if *known != Some(axis) {
                *known = None;
            }
        }
    }
    let strided = |load: OpId| {
        let reduced = found[&load]?;
        let view = ViewShape::of(module, module.op(load).group(0)[0])?;
        let contiguous = contiguous_axis(module, &view).filter(|_| view.sparse.is_none())?;
        (contiguous != reduced && view.tile[reduced] > 1 && view.tile[contiguous] > 1).then_some(StridedReduction {
            load,
            contiguous,
            reduced,
        })
    };
    order.into_iter().filter_map(strided).collect_vec()
}

/// Returns the loads of the block of `id` from which values are computed elementwise. The axis is
/// that of the loaded tile that corresponds to the axis of the value.
fn source_loads(
    module: &Module,
    regions: &RegionTree,
    id: OpId,
    mut pending: Vec<(Value, usize)>,
) -> Vec<(OpId, usize)> {
    let mut seen = Vec::new();
    let mut loads = Vec::new();
    while let Some((value, axis)) = pending.pop() {
        let Some(maker) = module.defining_op(value) else { continue };
        if seen.contains(&(maker, axis)) || regions.block_of(maker) != regions.block_of(id) {
            continue;
        }
        seen.push((maker, axis));
        let op = module.op(maker);
        match op.code {
            Opcode::LoadView => loads.push((maker, axis)),
            Opcode::Permute => pending.push((op.operands[0], as_axes(op.permutation())[axis])),
            Opcode::Assume => pending.push((op.operands[0], axis)),
            code if code.is_elementwise() => pending.extend(op.operands.iter().map(|&operand| (operand, axis))),
            _ => {}
        }
    }
    loads
}
