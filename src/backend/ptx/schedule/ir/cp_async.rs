//! Multistage `cp.async` copies of a loop, as data.

use super::load_path::LoadPath;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::ir::OpId;
use crate::layout::{Access, Side};
use crate::util::collect::CollectVec as _;

/// A load by multistage `cp.async` copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsync {
    pub load: OpId,
    /// Each thread copies the elements that it reads, or a thread with the same elements does.
    pub thread_private: bool,
    /// Offset of the tile in a stage, in bytes.
    pub smem_offset: usize,
    /// The number of elements of one access.
    pub vector: usize,
    /// Byte offset of each thread bit, by XOR.
    pub thread_offsets: Vec<u32>,
    /// Mask of thread bits. Threads that differ in these bits alone read the same elements, and
    /// share the copy of the thread in which all of these bits are 0.
    pub replicas: u32,
    pub accesses: Vec<CpAsyncAccess>,
}

/// One access of each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsyncAccess {
    /// The first register of the access.
    pub register: usize,
    /// The value of an XOR with the thread's offset.
    pub xor: u32,
    /// Bytes that are added to the result of the XOR.
    pub offset: u32,
}

impl CpAsync {
    /// Returns the path of the load.
    pub fn load_path(&self) -> LoadPath {
        LoadPath::CpAsync { thread_private: self.thread_private }
    }

    pub fn from_side(load: OpId, offset: usize, side: Side) -> CpAsync {
        let vector = side.accesses.first().map_or(0, |access| access.registers.len());
        let to_access =
            |access: &Access| CpAsyncAccess { register: access.registers[0], xor: access.xor, offset: access.offset };
        let accesses = side.accesses.iter().map(to_access).collect_vec();
        let thread_offsets = side.thread;
        CpAsync { load, thread_private: false, smem_offset: offset, vector, accesses, thread_offsets, replicas: 0 }
    }
}

/// The copies of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsyncPlan {
    pub copies: Vec<CpAsync>,
    /// Ops of the body that compute the indices of the copies, in program order.
    pub address_ops: Vec<OpId>,
    pub stage_bytes: usize,
    pub stages: usize,
    /// MMAs are asynchronous: the head of an iteration waits for those of the previous iteration.
    pub async_mma: bool,
    /// A barrier at the head of each iteration: the copies of all threads have arrived, and no
    /// thread reads the stage that is filled next. Thread-private copies need none.
    pub barrier_at_head: bool,
}

impl CpAsyncPlan {
    /// Returns the bytes of all stages.
    pub fn bytes(&self) -> u32 {
        (self.stage_bytes * self.stages) as u32
    }

    /// Returns the alignment of the first stage, in bytes.
    pub fn align(&self) -> u32 {
        SWIZZLE_ATOM_BYTES
    }

    /// Returns true if the lanes of a warp read elements that one of them has copied, and the head
    /// of an iteration has no barrier.
    pub fn needs_warp_sync(&self) -> bool {
        !self.barrier_at_head && self.copies.iter().any(|copy| copy.replicas != 0)
    }

    /// Returns true if all copies are thread-private.
    pub fn is_thread_private(&self) -> bool {
        self.copies.iter().all(|copy| copy.thread_private)
    }
}
