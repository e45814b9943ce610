//! Splits a TMA store to fit the shared memory available.

use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::schedule::ir::tma_store::StoreSplit;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::backend::ptx::smem::tma_box::TmaBoxLayout;

/// Shared memory that a store may take beyond what the kernel has already: little enough that two tile
/// blocks stay on a multiprocessor.
const MODEST_BYTES: u32 = 32 << 10;

/// Parts beyond which a store is cut only for want of memory, and bytes below which a part is not cut.
const MOST_PARTS: u32 = 4;
const SMALL_PART: u32 = 16 << 10;

impl StoreSplit {
    /// Those of a tile that the whole block writes: a few, so that the first is on its way while the next is written; where
    /// they do not all fit, at least two at a time.
    pub fn of_block(tile: &TmaBoxLayout, shared: &SharedMemory) -> Option<StoreSplit> {
        let fitting = |room: u32| parts_in(tile, room.saturating_sub(SWIZZLE_ATOM_BYTES), SMALL_PART);
        fitting(shared.reusable().max(MODEST_BYTES + SWIZZLE_ATOM_BYTES).min(shared.free()))
            .or_else(|| fitting(shared.free()))
    }

    /// Those of a warp's boxes in so many bytes, where there are so many warps.
    pub fn of_warp(tile: &TmaBoxLayout, room: u32, warps: u32) -> Option<StoreSplit> {
        let parts = parts_in(tile, room, SMALL_PART / warps)?;
        // Places of warps are powers of two apart.
        Some(StoreSplit { in_flight: 1 << parts.in_flight.ilog2(), ..parts })
    }

    /// The same where the boxes of all of them stand in a stage of so many bytes.
    pub fn in_stage(tile: &TmaBoxLayout, bytes: u32, warps: u32) -> Option<StoreSplit> {
        StoreSplit::of_warp(tile, bytes / warps / SWIZZLE_ATOM_BYTES * SWIZZLE_ATOM_BYTES, warps)
    }
}

/// Cuts a tile of boxes to `room` bytes.
fn parts_in(tile: &TmaBoxLayout, room: u32, small: u32) -> Option<StoreSplit> {
    let whole = tile.bytes();
    (0..=tile.split_bits).find_map(|bits| {
        let (count, bytes) = (1 << bits, whole >> bits);
        let slots = (room / bytes).min(count);
        let last = bits == tile.split_bits;
        let small = count >= MOST_PARTS || bytes <= small;
        let fits = slots > 1 || count == slots || (last && slots == 1);
        (fits && (small || last)).then_some(StoreSplit { count, bytes, in_flight: slots })
    })
}
