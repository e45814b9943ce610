//! Failures of a kernel that it reports itself: assertions, and waits beyond a limit. Layout of the
//! note that it writes.
//!
//! A note has 32-bit words. Its address is the parameter
//! [`ParamKind::Failure`](super::ParamKind::Failure).
//! 1. With a wait limit: the tile block that reported first and the number of records
//!    ([`HangField`]), then [`RECORDS`] records ([`RecordField`]).
//! 2. The first failed assertion ([`NoteField`]).

use std::sync::Arc;

use crate::dtype::DType;
use crate::error::{Location, WaitRole};

/// An assertion of a kernel.
///
/// On failure, the kernel writes the assertion's number, the source location and the values to the
/// note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    /// The format of the values, or plain text if there are none.
    pub message: Arc<str>,
    /// The user's source location.
    pub location: Option<Location>,
    /// Types of the values.
    pub values: Vec<DType>,
    /// Shape of the condition.
    pub shape: Vec<i64>,
}

/// An emitted wait, in a kernel with a wait limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// The step of the schedule, for the report.
    pub step: Arc<str>,
    /// Role of the warps.
    pub role: WaitRole,
    /// Object of the wait.
    pub object: WaitObject,
    /// The user's source location.
    pub location: Option<Location>,
}

/// Object of a wait, and the meaning of the two values of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitObject {
    /// An mbarrier: parity of the phase, offset in shared memory in bytes.
    Mbarrier,
    /// A named barrier: its number.
    NamedBarrier,
    /// A value in memory.
    Memory,
}

/// The failures that a kernel reports, by their numbers in a note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureSites {
    /// Assertions.
    pub assertions: Vec<Assertion>,
    /// Limit of each wait in milliseconds.
    pub wait_limit: Option<u32>,
    /// Waits, with a limit.
    pub waits: Vec<WaitSite>,
}

impl FailureSites {
    /// Returns the first word of the note of a failed assertion.
    pub fn assertion_word(&self) -> usize {
        assertion_word(self.wait_limit)
    }

    /// Returns the number of words of a note; 0 if the kernel reports no failures.
    pub fn words(&self) -> usize {
        let assertion = |assertion: &Assertion| NoteField::Value(assertion.values.len()).word();
        self.assertion_word() + self.assertions.iter().map(assertion).max().unwrap_or(0)
    }
}

/// Returns the first word of the note of a failed assertion, in a kernel with this limit of waits.
pub fn assertion_word(wait_limit: Option<u32>) -> usize {
    if wait_limit.is_some() { HangField::Record(RECORDS).word() } else { 0 }
}

/// Records of the tile block that reports first: one for each warp.
pub const WARP_RECORDS: u32 = 32;
/// Records of other tile blocks, by the number of the wait modulo this number.
pub const SITE_RECORDS: u32 = 32;
/// All records of a note.
pub const RECORDS: usize = (WARP_RECORDS + SITE_RECORDS) as usize;
/// Words of a record.
pub const RECORD_WORDS: usize = 10;

/// A field of the part of a note about waits.
#[derive(Clone, Copy, Debug)]
pub enum HangField {
    /// The linear index of the tile block that reported first, with its highest bit set; 0: none.
    Block,
    /// Number of records.
    Count,
    /// A record.
    Record(usize),
}

/// Bit of [`HangField::Block`], which is then not 0.
pub const BLOCK_MARK: u32 = 1 << 31;

impl HangField {
    /// Returns the index of the first word of the field.
    pub fn word(self) -> usize {
        match self {
            HangField::Block => 0,
            HangField::Count => 1,
            HangField::Record(index) => 2 + index * RECORD_WORDS,
        }
    }
}

/// A field of a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordField {
    /// 0 free, 1 claimed, 2 complete.
    State,
    /// Number of the wait.
    Site,
    /// Number of the warp.
    Warp,
    /// Number of the record in order of time.
    Order,
    /// Number of the CTA along an axis.
    Block(usize),
    /// One of two values.
    Value(usize),
}

impl RecordField {
    /// Returns the index of the word in the record.
    pub fn word(self) -> usize {
        match self {
            RecordField::State => 0,
            RecordField::Site => 1,
            RecordField::Warp => 2,
            RecordField::Order => 3,
            RecordField::Block(axis) => 4 + axis,
            RecordField::Value(index) => 7 + index,
        }
    }
}

/// A field of the note of an assertion. The first word is the state: 0 free, 1 claimed, 2 complete.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum NoteField {
    State,
    /// Number of the assertion.
    Site,
    /// Number of the CTA along an axis.
    Block(usize),
    /// Row-major number of the element.
    Element,
    /// Bits of a value, in two words.
    Value(usize),
}

impl NoteField {
    /// Returns the index of the first word of the field.
    pub fn word(self) -> usize {
        match self {
            NoteField::State => 0,
            NoteField::Site => 1,
            NoteField::Block(axis) => 2 + axis,
            NoteField::Element => 5,
            NoteField::Value(index) => 6 + 2 * index,
        }
    }
}
