//! Sub-steps: layout conversions, shared-memory accesses and barriers of one step.
//!
//! These stand before the step that they belong to, in the order in which it comes to them. What a step computes between them
//! is its own affair.

use std::fmt::{self, Display, Formatter};

use crate::backend::ptx::shared::Buffer;
use crate::ir::{OpId, Value};
use crate::layout::{Conversion, SumPlan};

/// A layout of the table of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub u32);

/// One thing that the next step does when it comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Has a value in another layout.
    Bring(Bring),
    /// Its threads write to shared memory, each to a place of its own.
    Write(Buffer),
    /// They read what others have written there.
    Read(Buffer),
    /// Begins the access of an op, where the step does more than that.
    Access(OpId),
    /// What goes through shared memory goes in so many parts: of so many, there is room for some side by side.
    Parts { count: u32, beside: u32 },
    /// There is no room for so many bytes in shared memory: the op fails.
    NoRoom { bytes: u32, of: u32 },
    /// Waits until all products that run on their own have landed: behind the meeting to come shared memory is written again.
    Land,
    /// The thread that has sent boxes waits until the copy engine has read them, or, `written`, until they are in the array.
    Drain { written: bool },
    /// All threads of the agent meet. `always`: whatever they did before, since the step is nothing without it.
    Meet { always: bool },
}

/// A value in another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bring {
    pub value: Value,
    pub to: LayoutId,
    pub how: How,
    /// The plan, in the table of the schedule.
    pub plan: u32,
}

/// How a value gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its registers have other names.
    Name,
    /// By shuffles within each warp.
    Shuffle,
    /// Through shared memory, so many rounds.
    Shared(u32),
    /// Through shared memory, at addresses that are sums.
    Sums,
    /// Not at all.
    Never,
}

/// What a change of layout takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// By registers, shuffles, or a swizzled buffer.
    By(Conversion),
    /// Through a buffer at addresses that are sums.
    Sums(SumPlan),
    /// There is none.
    Never,
}

impl Change {
    /// In a word.
    pub fn how(&self) -> How {
        match self {
            Change::By(Conversion::Shuffle(_)) => How::Shuffle,
            Change::By(Conversion::Shared(plan)) => How::Shared(plan.rounds as u32),
            Change::By(_) => How::Name,
            Change::Sums(_) => How::Sums,
            Change::Never => How::Never,
        }
    }
}

impl Within {
    /// Does it wait for others, or for what runs on its own?
    pub fn synchronises(&self) -> bool {
        matches!(self, Within::Land | Within::Drain { .. } | Within::Meet { .. })
    }
}

impl Display for How {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            How::Name => f.write_str("by name"),
            How::Shuffle => f.write_str("by shuffle"),
            How::Shared(rounds) => write!(f, "through memory {rounds}"),
            How::Sums => f.write_str("through sums"),
            How::Never => f.write_str("never"),
        }
    }
}

impl Display for Within {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let range = |f: &mut Formatter<'_>, what: &str, place: &Buffer| {
            write!(f, "{what} {}..{}", place.offset, place.offset + place.bytes)
        };
        match self {
            Within::Bring(Bring { value, to, how, plan }) => {
                write!(f, "bring %{} as {to} {how}, C{plan}", value.index())
            }
            Within::Write(place) => range(f, "write", place),
            Within::Read(place) => range(f, "read", place),
            Within::Access(id) => write!(f, "access {}", id.index()),
            Within::Parts { count, beside } => write!(f, "parts {count}, {beside} beside"),
            Within::NoRoom { bytes, of } => write!(f, "no room for {bytes} of {of}"),
            Within::Land => f.write_str("land all"),
            Within::Drain { written: false } => f.write_str("drain reads"),
            Within::Drain { written: true } => f.write_str("drain writes"),
            Within::Meet { always: false } => f.write_str("meet"),
            Within::Meet { always: true } => f.write_str("meet always"),
        }
    }
}
