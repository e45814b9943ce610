//! A privatized array in shared memory, as data.
//!
//! What atomics do to these elements goes to the copy, which starts at zero and is added to the array at the end. Lanes that
//! meet in one bank of shared memory wait for each other. So of the very first elements there are several copies side by
//! side, up to one a lane, each in a bank of its own.

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
    /// Bytes of all replicas of one bin.
    pub fn bin_bytes(self) -> u32 {
        4 * self.replicas
    }

    /// Offset of the single bins, in bytes.
    pub fn single_bins_offset(self) -> u32 {
        REPLICATED_BINS * self.bin_bytes()
    }

    pub fn bytes(self) -> u32 {
        self.single_bins_offset() + 4 * (BINS - REPLICATED_BINS)
    }
}
