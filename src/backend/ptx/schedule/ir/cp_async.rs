//! Multistage `cp.async` copies of a loop, as data.

use crate::ir::OpId;
use crate::layout::{Access, Side};

/// Alignment of a buffer in a stage: a whole swizzle pattern.
pub const ALIGN: usize = 1024;

/// A load that is copied ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub load: OpId,
    /// Threads copy their own elements.
    pub own: bool,
    /// Where its tile stands within a stage.
    pub offset: usize,
    /// Elements of one access.
    pub run: usize,
    /// Byte offset of each thread bit, by XOR.
    pub thread: Vec<u32>,
    pub pieces: Vec<Piece>,
}

/// One access of every thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first register of the tile that it fills.
    pub slot: usize,
    /// Where it stands: the thread's offset XOR this,
    pub xor: u32,
    /// plus this.
    pub offset: u32,
}

impl Copy {
    pub fn of_side(load: OpId, offset: usize, side: Side) -> Copy {
        let run = side.accesses.first().map_or(0, |access| access.registers.len());
        let piece = |access: &Access| Piece { slot: access.registers[0], xor: access.xor, offset: access.offset };
        let pieces = side.accesses.iter().map(piece).collect();
        Copy { load, own: false, offset, run, pieces, thread: side.thread }
    }
}

/// The copies of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub copies: Vec<Copy>,
    /// Scalar ops of the body that the indices of the copies come from, in order.
    pub slice: Vec<OpId>,
    pub stage_bytes: usize,
    pub stages: usize,
    /// Products run on their own: the head of an iteration waits for those of the one before.
    pub asynchronous: bool,
    /// Threads meet at the head of each iteration: what all have copied is there, and all are done with the stage that is
    /// filled next. Not where they copy their own elements alone.
    pub meets: bool,
}

impl Ahead {
    /// Bytes of all stages.
    pub fn bytes(&self) -> u32 {
        (self.stage_bytes * self.stages) as u32
    }

    /// Alignment of the first one.
    pub fn align(&self) -> u32 {
        ALIGN as u32
    }

    /// Are these copies of threads' own elements alone?
    pub fn is_own(&self) -> bool {
        self.copies.iter().all(|copy| copy.own)
    }
}
