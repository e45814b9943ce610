//! Layouts of the user: the number of warps that they are for.

use crate::ir::{BlockId, Module};

/// Bits of the lane number.
pub const LANE_BITS: usize = 5;

/// Returns the number of warps of the user's layouts in a body: the maximum, if there are any.
pub fn chosen_warps(module: &Module, body: BlockId) -> Option<u32> {
    let mut threads = None;
    module.walk(body, &mut |id| threads = threads.max(module.op(id).distribution().map(|layout| layout.num_threads())));
    threads.map(|threads| (threads >> LANE_BITS) as u32)
}
