//! Which tiles of queries each block of attention takes, and in which order.

/// Keys and values that may stand in a GPU's second-level cache, in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// How many heads are gone through at a time, with keys and values of elements of `bytes` each: one, since its tiles of
/// queries share them; if it is causal, as many as stay in the cache, so that there are tiles of all lengths.
pub fn section(seq: usize, dim: usize, bytes: usize, causal: bool) -> usize {
    if causal { (CACHE_BYTES / (2 * seq * dim * bytes)).max(1) } else { 1 }
}

/// How many blocks take tiles on a GPU that runs `most` at a time: where all tiles take as long, no more than it takes to be
/// done as soon.
pub fn blocks(tiles: usize, most: usize, causal: bool) -> usize {
    if causal { tiles.min(most) } else { tiles.div_ceil(tiles.div_ceil(most)) }
}

/// The tiles of each of so many blocks, where each of the `heads` of all sequences has so many of them: where the share of each block
/// begins and the last one ends, then the shares: of each tile 2¹⁶ times its head, and its place there. Sections of heads come one after another; in one of a causal kernel the
/// tiles that see most keys come first, and who would be done first takes the next one: so all are done at the same time.
pub fn shares([heads, tiles]: [usize; 2], section: usize, blocks: usize, causal: bool) -> Vec<i32> {
    assert!(heads < 1 << 15 && tiles <= 1 << 16, "no room for {heads} heads of {tiles} tiles");
    let order = (0..heads).step_by(section).flat_map(|first| {
        let count = section.min(heads - first);
        (0..count * tiles).map(move |at| match causal {
            true => (first + at % count, tiles - 1 - at / count),
            false => (first + at / tiles, at % tiles),
        })
    });
    let mut all = vec![(0, Vec::new()); blocks];
    for (head, tile) in order {
        let (work, share) = all.iter_mut().min_by_key(|(work, _)| *work).expect("a block");
        // To begin with a tile and to end with it takes about as long as to go past one of keys.
        *work += if causal { tile + 2 } else { 1 };
        share.push(((head << 16) + tile) as i32);
    }
    let mut end = blocks as i32 + 1;
    let mut table = vec![end];
    table.extend(all.iter().map(|(_, share)| {
        end += share.len() as i32;
        end
    }));
    table.extend(all.iter().flat_map(|(_, share)| share));
    table
}
