//! Splits a TMA store to fit the shared memory available.

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::schedule::ir::tma_store::StoreSplit;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;

/// Bytes of shared memory available to a store even if the kernel uses less elsewhere. With this
/// number, two CTAs still fit on an SM.
const MIN_CAPACITY: u32 = 32 << 10;

/// Limits of a split: a store of this number of parts, or with parts of at most this number of
/// bytes, is split further only for lack of shared memory.
const MAX_PARTS: u32 = 4;
const SMALL_PART_BYTES: u32 = 16 << 10;

impl StoreSplit {
    /// Returns the split of a tile that the whole CTA stores. With several parts, TMA transfers
    /// the first one while threads write the next one. If they do not all fit, at least two are in
    /// flight unless memory suffices for one only.
    pub fn for_block(tile: &TmaBoxLayout, smem: &SharedMemory) -> Option<StoreSplit> {
        let fitting = |capacity: u32| split_to_fit(tile, capacity.saturating_sub(SWIZZLE_ATOM_BYTES), SMALL_PART_BYTES);
        fitting(smem.reusable().max(MIN_CAPACITY + SWIZZLE_ATOM_BYTES).min(smem.free()))
            .or_else(|| fitting(smem.free()))
    }

    /// Returns the split of the boxes of one warp into parts that fit `capacity` bytes. `warps`:
    /// number of warps that store the tile.
    pub fn for_warp(tile: &TmaBoxLayout, capacity: u32, warps: u32) -> Option<StoreSplit> {
        let split = split_to_fit(tile, capacity, SMALL_PART_BYTES / warps)?;
        // The distance between the staging buffers of warps is a power of two.
        Some(StoreSplit { in_flight: 1 << split.in_flight.ilog2(), ..split })
    }

    /// Returns the split of the boxes of one warp if the staging buffers of all warps share a
    /// pipeline stage of `bytes` bytes.
    pub fn for_stage(tile: &TmaBoxLayout, bytes: u32, warps: u32) -> Option<StoreSplit> {
        StoreSplit::for_warp(tile, bytes / warps / SWIZZLE_ATOM_BYTES * SWIZZLE_ATOM_BYTES, warps)
    }
}

/// Splits a tile of boxes into parts that fit `capacity` bytes. `small`: bytes of a part that needs
/// no further split.
fn split_to_fit(tile: &TmaBoxLayout, capacity: u32, small: u32) -> Option<StoreSplit> {
    let whole = tile.bytes();
    (0..=tile.split_bits).find_map(|bits| {
        let (count, bytes) = (1 << bits, whole >> bits);
        let in_flight = (capacity / bytes).min(count);
        let last = bits == tile.split_bits;
        let small = count >= MAX_PARTS || bytes <= small;
        let fits = in_flight > 1 || count == in_flight || (last && in_flight == 1);
        (fits && (small || last)).then_some(StoreSplit { count, bytes, in_flight })
    })
}
