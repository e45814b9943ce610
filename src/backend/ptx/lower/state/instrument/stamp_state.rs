//! State of the time stamps of a kernel.

use rustc_hash::FxHashMap;

use crate::backend::ptx::isa::inst::{Operand, Reg};
use crate::backend::ptx::measured::StampSite;
use crate::backend::ptx::schedule::SeqId;
use crate::ir::OpId;

/// State of the stamps of a kernel.
pub struct Stamps {
    /// The parameter with the address of the records.
    pub(super) address: Operand,
    /// Lines of the steps in the printed schedule.
    pub(super) lines: FxHashMap<(SeqId, usize), u32>,
    pub(super) sites: Vec<StampSite>,
    pub(super) recorders: u32,
    pub(super) cursor: Option<Cursor>,
    /// Line of the current step.
    pub(super) line: u32,
    /// Lines of the steps of waits that are emitted inside later steps.
    pub(super) waits: FxHashMap<WaitKey, u32>,
    pub(super) run: Option<Run>,
    pub(super) variant: u32,
    /// The last read of the clock, and the number of lines after it and its record.
    pub(super) last: Option<(Reg, usize)>,
}

pub(super) const COARSE: u32 = 1;
pub(super) const FUSE: u32 = 2;
pub(super) const BRANCH: u32 = 4;
pub(super) const NO_MMA_END: u32 = 8;
pub(super) const NO_STORE: u32 = 16;

/// A run of computations with one record. ptxas interleaves them, so they have no order in the
/// code, and a clock between them would fix one.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) start: Reg,
    /// The largest computation, with the number of its elements.
    pub(super) line: u32,
    pub(super) op: OpId,
    pub(super) elements: i64,
    /// The number of lines after the start.
    pub(super) lines: usize,
}

/// Registers of a recorder.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// Number of records.
    pub(super) count: Reg,
    /// Offset of the slot in bytes.
    pub(super) slot: Reg,
}

/// Step of a wait that may be emitted inside a later step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKey {
    /// The wait for the tiles of a channel.
    Stage(usize),
    Mma,
    Order,
}
