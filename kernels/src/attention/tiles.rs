//! Tiles of attention by shape, element type and target.

use cutlet::{Hints, Target};

/// Returns the columns of a tile for `dim` numbers: a multiple of 16 that a tile may have.
pub fn columns(dim: usize) -> usize {
    let mut columns = dim.next_multiple_of(16);
    while columns.count_ones() > 3 {
        columns += 16;
    }
    columns
}

/// Largest window for which small tiles are faster: with large ones most of the computed scores are
/// outside.
const NARROW_WINDOW: usize = 256;

/// Returns the queries and keys of a tile for `dim` columns of the wider operand, and the hints of
/// the launch.
pub fn prefill(
    size: usize,
    dim: usize,
    [queries, keys]: [usize; 2],
    window: Option<usize>,
    target: Option<Target>,
) -> ([usize; 2], Hints) {
    let is_hopper = target == Some(Target::SM_90A);
    let is_narrow = size == 2 && dim <= 64 && is_hopper && window.is_some_and(|window| window <= NARROW_WINDOW);
    let hints = if is_narrow { Hints::new().occupancy(3) } else { Hints::new() };
    let most = match (size, dim, is_hopper) {
        _ if is_narrow => [64, 64],
        (4, 0..=64, _) => [64, 32],
        (4, _, _) => [32, 16],
        // Three warp groups read the same keys, where the queries fill the multiprocessors.
        (_, 0..=64, true) if queries > 1024 => [192, 128],
        (_, 0..=64, true) => [128, 128],
        (_, 65..=128, true) => [128, 128],
        (_, 129..=192, true) => [128, 96],
        (_, 193..=256, true) => [128, 80],
        (_, _, true) => [64, 64],
        (_, 0..=64, false) => [128, 64],
        (_, 65..=128, false) => [128, 64],
        (_, 129..=256, false) => [64, 32],
        (_, _, false) => [32, 16],
    };
    let tile = [(most[0], queries), (most[1], keys)].map(|(most, extent)| most.min(extent.next_power_of_two().max(16)));
    (tile, hints)
}
