//! A privatized array in shared memory, as data.
//!
//! What atomics do to these elements goes to the copy, which starts at zero and is added to the array at the end. Lanes that
//! meet in one bank of shared memory wait for each other. So of the very first elements there are several copies side by
//! side, up to one a lane, each in a bank of its own.

use crate::backend::ptx::shared::Buffer;
use crate::ir::{AtomicMode, OpId, Value};

/// Elements that have a copy.
pub const BINS: u32 = 2048;

/// Of these, the first ones have several.
pub const REPLICATED_BINS: u32 = 256;

/// The copy: several of the near ones, side by side, and then one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivatizedArray {
    /// The first atomic that works on it.
    pub first: OpId,
    /// The array.
    pub array: Value,
    pub mode: AtomicMode,
    pub buffer: Buffer,
    /// Copies of a near element.
    pub replicas: u32,
}

impl PrivatizedArray {
    /// Bytes of the copies of a near element.
    pub fn bin_bytes(self) -> u32 {
        4 * self.replicas
    }

    /// Where the elements that are not near begin.
    pub fn single_bins_offset(self) -> u32 {
        REPLICATED_BINS * self.bin_bytes()
    }

    pub fn bytes(self) -> u32 {
        self.single_bins_offset() + 4 * (BINS - REPLICATED_BINS)
    }
}
