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
    pub(super) registers: Option<StampRegisters>,
    /// Line of the current step.
    pub(super) line: u32,
    /// Lines of the steps of waits that are emitted inside later steps.
    pub(super) waits: FxHashMap<WaitKey, u32>,
    pub(super) run: Option<Run>,
    /// Steps have stamps although these prevent the overlap of computations.
    pub(super) has_all: bool,
    /// The last read of the clock in the text.
    pub(super) last: Option<ClockRead>,
}

/// A read of the clock.
#[derive(Clone, Copy)]
pub(super) struct ClockRead {
    pub(super) clock: Reg,
    /// Number of lines after the read and its record.
    pub(super) lines: usize,
}

/// A run of computations with one record. ptxas interleaves them, so they have no order in the
/// code, and a clock between them would fix one.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) start: ClockRead,
    /// Lines of the first and the last step.
    pub(super) steps: [u32; 2],
    /// The largest computation, with the number of its elements.
    pub(super) line: u32,
    pub(super) op: OpId,
    pub(super) elements: i64,
}

/// Registers of a recorder.
#[derive(Clone, Copy)]
pub(super) struct StampRegisters {
    /// Number of records.
    pub(super) count: Reg,
    /// Address of the slot.
    pub(super) slot: Reg,
    /// The last read of the clock.
    pub(super) now: Reg,
    /// Zero, which ptxas does not know.
    pub(super) zero: Reg,
}

/// Step of a wait that may be emitted inside a later step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitKey {
    /// The wait for the tiles of a channel.
    Stage(usize),
    Mma,
    Order,
}
