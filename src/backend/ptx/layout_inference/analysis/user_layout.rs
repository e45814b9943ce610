//! Layouts of the user: the number of warps that they are for.

use crate::ir::{BlockId, Module};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Bits of the lane number.
pub const LANE_BITS: usize = 5;

/// Returns the number of warps of the user's layouts in a body: the maximum, if there are any.
pub fn chosen_warps(module: &Module, body: BlockId) -> Option<u32> {
    let mut threads = None;
    module.walk(body, &mut |id| {
        let whole = module.op(id).distribution().filter(|layout| !layout.is_partial());
        threads = threads.max(whole.map(|layout| layout.num_threads()));
    });
    threads.map(|threads| (threads >> LANE_BITS) as u32)
}

/// Returns the layout of a tile with the bits `slots` of an element in registers.
///
/// The bits below the lowest slot belong to the lowest bits of the thread number, and the bits
/// above it to the highest ones. Replicas are between them. Tiles with the same outer extents hence
/// have the same threads in their outer positions. If there are more bits than threads, the lowest
/// ones are registers, too.
pub fn completed(shape: &[i64], slots: &[u32], num_warps: usize) -> Layout {
    let count: i64 = shape.iter().product();
    let least = slots.iter().copied().min().unwrap_or(1);
    let mut rest: Vec<u32> =
        (0..count.trailing_zeros()).map(|bit| 1 << bit).filter(|bit| !slots.contains(bit)).collect_vec();
    let threads = LANE_BITS + num_warps.trailing_zeros() as usize;
    let surplus = rest.len().saturating_sub(threads);
    let mut registers = [slots, &rest[..surplus]].concat();
    sort::natural(&mut registers);
    rest.drain(..surplus);
    let inner = rest.iter().filter(|&&bit| bit < least).count();
    let replicas = vec![0; threads - rest.len()];
    let bases = [&rest[..inner], &replicas, &rest[inner..]].concat();
    let (lanes, warps) = bases.split_at(LANE_BITS);
    Layout::new(shape, registers, lanes.to_vec(), warps.to_vec())
}
