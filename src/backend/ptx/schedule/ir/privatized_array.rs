//! A privatized array in shared memory, as data.
//!
//! What atomics do to these elements goes to the copy, which starts at zero and is added to the array at the end. Lanes that
//! meet in one bank of shared memory wait for each other. So of the very first elements there are several copies side by
//! side, up to one a lane, each in a bank of its own.

use crate::backend::ptx::shared::Buffer;
use crate::ir::{AtomicMode, OpId, Value};

/// Elements that have a copy.
pub const WORDS: u32 = 2048;

/// Of these, the first ones have several.
pub const NEAR: u32 = 256;

/// The copy: several of the near ones, side by side, and then one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private {
    /// The first atomic that works on it.
    pub first: OpId,
    /// The array.
    pub root: Value,
    pub mode: AtomicMode,
    pub place: Buffer,
    /// Copies of a near element.
    pub copies: u32,
}

impl Private {
    /// Bytes of the copies of a near element.
    pub fn row(self) -> u32 {
        4 * self.copies
    }

    /// Where the elements that are not near begin.
    pub fn far(self) -> u32 {
        NEAR * self.row()
    }

    pub fn bytes(self) -> u32 {
        self.far() + 4 * (WORDS - NEAR)
    }
}
