//! Sub-steps: layout conversions, shared-memory accesses and barriers of one step.
//!
//! These stand before the step that they belong to, in the order in which it comes to them. What a step computes between them
//! is its own affair.

use std::fmt::{self, Display, Formatter};

use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};
use crate::layout::{Conversion, SumPlan};

/// A layout of the table of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub u32);

/// A part of the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubStep {
    /// Converts a value to another layout.
    ConvertLayout(ConvertLayout),
    /// Writes to shared memory, each thread to its own addresses.
    SmemWrite(Buffer),
    /// Reads from shared memory what other threads have written.
    SmemRead(Buffer),
    /// Begins the global memory access of an op, in a step that does more than this access.
    GlobalAccess(OpId),
    /// What goes through shared memory goes in so many parts: of so many, there is room for some side by side.
    Split { count: u32, beside: u32 },
    /// There is no room for so many bytes in shared memory: the op fails.
    SmemOverflow { bytes: u32, of: u32 },
    /// Waits until all products that run on their own have landed: behind the meeting to come shared memory is written again.
    MmaWaitAll,
    /// The thread that has sent boxes waits until the copy engine has read them, or, `written`, until they are in the array.
    TmaStoreWait { written: bool },
    /// All threads of the agent meet. `always`: whatever they did before, since the step is nothing without it.
    Barrier { always: bool },
}

/// A value in another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertLayout {
    pub value: Value,
    pub to: LayoutId,
    pub kind: ConversionKind,
    /// The plan, in the table of the schedule.
    pub plan: u32,
}

/// The kind of a layout conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionKind {
    /// Renames registers.
    Registers,
    /// Warp shuffles.
    Shuffle,
    /// Swizzled shared memory, with the number of rounds.
    Smem(u32),
    /// Shared memory with affine addresses.
    SmemAffine,
    /// No conversion exists.
    Unsupported,
}

/// The plan of a layout conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConversionPlan {
    /// Registers, shuffles, or a swizzled buffer.
    Layout(Conversion),
    /// Shared memory with affine addresses.
    Affine(SumPlan),
    /// No conversion exists.
    Unsupported,
}

impl ConversionPlan {
    /// The kind of the conversion.
    pub fn kind(&self) -> ConversionKind {
        match self {
            ConversionPlan::Layout(Conversion::Shuffle(_)) => ConversionKind::Shuffle,
            ConversionPlan::Layout(Conversion::Shared(plan)) => ConversionKind::Smem(plan.rounds as u32),
            ConversionPlan::Layout(_) => ConversionKind::Registers,
            ConversionPlan::Affine(_) => ConversionKind::SmemAffine,
            ConversionPlan::Unsupported => ConversionKind::Unsupported,
        }
    }
}

impl SubStep {
    /// Returns true if it waits for other threads or for an asynchronous operation.
    pub fn synchronizes(&self) -> bool {
        matches!(self, SubStep::MmaWaitAll | SubStep::TmaStoreWait { .. } | SubStep::Barrier { .. })
    }
}

impl Display for ConversionKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConversionKind::Registers => f.write_str("by name"),
            ConversionKind::Shuffle => f.write_str("by shuffle"),
            ConversionKind::Smem(rounds) => write!(f, "through memory {rounds}"),
            ConversionKind::SmemAffine => f.write_str("through sums"),
            ConversionKind::Unsupported => f.write_str("never"),
        }
    }
}

impl Display for SubStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let range = |f: &mut Formatter<'_>, what: &str, place: &Buffer| {
            write!(f, "{what} {}..{}", place.offset, place.offset + place.bytes)
        };
        match self {
            SubStep::ConvertLayout(ConvertLayout { value, to, kind: how, plan }) => {
                write!(f, "bring %{} as {to} {how}, C{plan}", value.index())
            }
            SubStep::SmemWrite(place) => range(f, "write", place),
            SubStep::SmemRead(place) => range(f, "read", place),
            SubStep::GlobalAccess(id) => write!(f, "access {}", id.index()),
            SubStep::Split { count, beside } => write!(f, "parts {count}, {beside} beside"),
            SubStep::SmemOverflow { bytes, of } => write!(f, "no room for {bytes} of {of}"),
            SubStep::MmaWaitAll => f.write_str("land all"),
            SubStep::TmaStoreWait { written: false } => f.write_str("drain reads"),
            SubStep::TmaStoreWait { written: true } => f.write_str("drain writes"),
            SubStep::Barrier { always: false } => f.write_str("meet"),
            SubStep::Barrier { always: true } => f.write_str("meet always"),
        }
    }
}
