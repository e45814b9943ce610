//! Layouts of the user.

use crate::ir::{BlockId, Module};

/// Threads of a warp, in bits of their number.
pub const LANE_BITS: usize = 5;

/// Warps that the layouts of a body are for, if the user has chosen any: the most.
pub fn chosen_warps(module: &Module, body: BlockId) -> Option<u32> {
    let mut threads = None;
    module.walk(body, &mut |id| threads = threads.max(module.op(id).distribution().map(|layout| layout.num_threads())));
    threads.map(|threads| (threads >> LANE_BITS) as u32)
}
