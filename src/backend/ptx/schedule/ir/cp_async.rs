//! Multistage `cp.async` copies of a loop, as data.

use crate::ir::OpId;
use crate::layout::{Access, Side};

/// Alignment of a buffer in a stage: a whole swizzle pattern.
pub const ALIGN: usize = 1024;

/// A load that is copied ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsync {
    pub load: OpId,
    /// Threads copy their own elements.
    pub thread_private: bool,
    /// Where its tile stands within a stage.
    pub smem_offset: usize,
    /// Elements of one access.
    pub vector: usize,
    /// Byte offset of each thread bit, by XOR.
    pub thread_offsets: Vec<u32>,
    pub accesses: Vec<CpAsyncAccess>,
}

/// One access of every thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsyncAccess {
    /// The first register of the tile that it fills.
    pub register: usize,
    /// Where it stands: the thread's offset XOR this,
    pub xor: u32,
    /// plus this.
    pub offset: u32,
}

impl CpAsync {
    pub fn of_side(load: OpId, offset: usize, side: Side) -> CpAsync {
        let run = side.accesses.first().map_or(0, |access| access.registers.len());
        let piece =
            |access: &Access| CpAsyncAccess { register: access.registers[0], xor: access.xor, offset: access.offset };
        let pieces = side.accesses.iter().map(piece).collect();
        CpAsync {
            load,
            thread_private: false,
            smem_offset: offset,
            vector: run,
            accesses: pieces,
            thread_offsets: side.thread,
        }
    }
}

/// The copies of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpAsyncPlan {
    pub copies: Vec<CpAsync>,
    /// Scalar ops of the body that the indices of the copies come from, in order.
    pub address_ops: Vec<OpId>,
    pub stage_bytes: usize,
    pub stages: usize,
    /// Products run on their own: the head of an iteration waits for those of the one before.
    pub async_mma: bool,
    /// Threads meet at the head of each iteration: what all have copied is there, and all are done with the stage that is
    /// filled next. Not where they copy their own elements alone.
    pub barrier_at_head: bool,
}

impl CpAsyncPlan {
    /// Bytes of all stages.
    pub fn bytes(&self) -> u32 {
        (self.stage_bytes * self.stages) as u32
    }

    /// Alignment of the first one.
    pub fn align(&self) -> u32 {
        ALIGN as u32
    }

    /// Are these copies of threads' own elements alone?
    pub fn is_thread_private(&self) -> bool {
        self.copies.iter().all(|copy| copy.thread_private)
    }
}
