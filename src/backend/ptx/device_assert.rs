//! Assertions of a kernel, and the note that a failing assertion writes.

use std::sync::Arc;

use crate::dtype::DType;
use crate::error::Location;

/// An assertion of a kernel.
///
/// On failure, the kernel writes the assertion's number, the place and the values to a note in
/// 32-bit words (see [`NoteField`]). Its address is the parameter
/// [`ParamKind::Failure`](super::ParamKind::Failure).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    /// The format of the values, or plain text if there are none.
    pub message: Arc<str>,
    /// The user's place.
    pub location: Option<Location>,
    /// Types of the values.
    pub values: Vec<DType>,
    /// Shape of the condition.
    pub shape: Vec<i64>,
}

/// A field of a note. The first word is the state: 0 free, 1 claimed, 2 complete.
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

/// Returns the words of a note with space for each of these assertions; 0 if there are none.
pub fn note_words(assertions: &[Assertion]) -> usize {
    assertions.iter().map(|assertion| NoteField::Value(assertion.values.len()).word()).max().unwrap_or(0)
}
