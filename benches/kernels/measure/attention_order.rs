//! How many blocks attention takes, and how many heads it goes through at a time.

/// Keys and values that may stand in a GPU's second-level cache, in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// The length of sequences from which on a tile takes so long that the start of a block for it does not count.
const LONG: usize = 4096;

/// Blocks for so many tiles on a GPU that runs `most` at a time: where all tiles take as long, no more than it takes
/// to be done as soon; where they do not and are long, one for each tile, so that the next one starts wherever there is room.
pub fn blocks(tiles: usize, most: usize, seq: usize, causal: bool) -> usize {
    match causal {
        true if seq >= LONG => tiles,
        true => tiles.min(most),
        false => tiles.div_ceil(tiles.div_ceil(most)),
    }
}

/// How many heads are gone through at a time, with keys and values of elements of `bytes` each: one, since its tiles of
/// queries share them; if it is causal, as many as stay in the cache, so that there are tiles of all lengths.
pub fn section(seq: usize, dim: usize, bytes: usize, causal: bool) -> i32 {
    let heads = CACHE_BYTES / (2 * seq * dim * bytes);
    if causal { heads.clamp(1, 1 << 20) as i32 } else { 1 }
}
