//! Splits a TMA store to fit the shared memory available.

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::schedule::ir::tma_store::StoreSplit;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;

/// Shared memory that a store may take beyond what the kernel has already: little enough that two
/// tile blocks stay on a multiprocessor.
const MIN_CAPACITY: u32 = 32 << 10;

/// Parts beyond which a store is cut only for want of memory, and bytes below which a part is not
/// cut.
const MAX_PARTS: u32 = 4;
const SMALL_PART_BYTES: u32 = 16 << 10;

impl StoreSplit {
    /// Those of a tile that the whole block writes: a few, so that the first is on its way while
    /// the next is written; where they do not all fit, at least two at a time.
    pub fn for_block(tile: &TmaBoxLayout, smem: &SharedMemory) -> Option<StoreSplit> {
        let fitting = |capacity: u32| split_to_fit(tile, capacity.saturating_sub(SWIZZLE_ATOM_BYTES), SMALL_PART_BYTES);
        fitting(smem.reusable().max(MIN_CAPACITY + SWIZZLE_ATOM_BYTES).min(smem.free()))
            .or_else(|| fitting(smem.free()))
    }

    /// Those of a warp's boxes in so many bytes, where there are so many warps.
    pub fn for_warp(tile: &TmaBoxLayout, capacity: u32, warps: u32) -> Option<StoreSplit> {
        let split = split_to_fit(tile, capacity, SMALL_PART_BYTES / warps)?;
        // Places of warps are powers of two apart.
        Some(StoreSplit { in_flight: 1 << split.in_flight.ilog2(), ..split })
    }

    /// The same where the boxes of all of them stand in a stage of so many bytes.
    pub fn for_stage(tile: &TmaBoxLayout, bytes: u32, warps: u32) -> Option<StoreSplit> {
        StoreSplit::for_warp(tile, bytes / warps / SWIZZLE_ATOM_BYTES * SWIZZLE_ATOM_BYTES, warps)
    }
}

/// Splits a tile of boxes to `room` bytes.
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
