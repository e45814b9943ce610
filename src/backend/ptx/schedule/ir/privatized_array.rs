//! A privatized array in shared memory, as data.
//!
//! Atomics on these elements update the privatized array. It starts at zero, and the end of the
//! kernel adds it to the array. Lanes that access one bank of shared memory at the same time are
//! serialized. So the first elements have several replicas, up to one per lane, each in its own
//! bank.

use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{AtomicMode, OpId, Value};

/// The number of privatized elements.
pub const BINS: u32 = 2048;

/// The number of replicated elements, which are the first ones.
pub const REPLICATED_BINS: u32 = 256;

/// A privatized array: the replicas of the replicated bins, then the single bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivatizedArray {
    /// The first atomic on the array.
    pub first: OpId,
    /// The array.
    pub array: Value,
    pub mode: AtomicMode,
    pub buffer: Buffer,
    /// Replicas of a replicated bin.
    pub replicas: u32,
}

impl PrivatizedArray {
    /// Returns the bytes of all replicas of one bin.
    pub fn bin_bytes(self) -> u32 {
        4 * self.replicas
    }

    /// Returns the offset of the single bins, in bytes.
    pub fn single_bins_offset(self) -> u32 {
        REPLICATED_BINS * self.bin_bytes()
    }

    pub fn bytes(self) -> u32 {
        self.single_bins_offset() + 4 * (BINS - REPLICATED_BINS)
    }
}
