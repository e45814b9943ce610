//! Pairs of token and expert in the order of experts, padded to tiles of rows.
//!
//! A counting sort in three launches, as the passes of a radix sort: counts of each block; sums
//! over blocks and experts; places by the rank of each pair among the equal ones of its block.
//! Pairs of an expert remain in their order.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, Stream};

use crate::check::require;
use crate::launch::Run;

/// Pairs of a tile block.
const PAIRS: usize = 1024;
/// Elements of a tile of counts.
const COUNTS: usize = 4096;

/// Experts of the pairs of this block; -1 after the last pair.
fn experts_of(pairs: Array<i32, 1>) -> Tile<i32, 1> {
    let at = ct::bid(0) * PAIRS + ct::arange(0..PAIRS);
    ct::select(at.lt(pairs.extent(0)), pairs.load(ct::bid(0), [PAIRS]), -1)
}

/// Counts of the experts of each block. All places are marked as free.
fn count(experts: Array<i32, 1>, counts: ArrayMut<i32, 2>, pairs: ArrayMut<i32, 1>, bins: usize) {
    counts.store((ct::bid(0), 0), experts_of(experts).histogram(bins).unsqueeze(0));
    let free = ct::full([PAIRS], experts.extent(0));
    let tiles = ct::range(ct::bid(0), pairs.num_tiles(0, [PAIRS])).step(ct::num_blocks(0));
    ct::for_each(tiles, |i| pairs.store(i, free));
}

/// First place of each expert, of each block and expert, and the expert of each tile of rows. One
/// block.
fn sum(
    counts: ArrayMut<i32, 2>,
    (starts, of_tile): (ArrayMut<i32, 1>, ArrayMut<i32, 1>),
    tile: usize,
    [blocks, bins]: [usize; 2],
) {
    let (shape, tiles) = ([blocks, bins], counts.num_tiles(0, [blocks, bins]));
    let zero = || ct::zeros::<i32, 2>([1, bins]);
    let totals = ct::fold(..tiles, zero(), |sum, i| sum + counts.load((i, 0), shape).sum(0));
    let padded = (totals + (tile as i32 - 1)) / tile as i32 * tile as i32;
    let ends = padded.cumsum(1);
    let first = ends - padded;
    let experts = starts.extent(0) - 1;
    starts.slice(0, ..experts).store(0, first.squeeze(0));
    let all = padded.sum(1);
    starts.store_scalar(experts, all.item());
    ct::fold(..tiles, first, |first, i| {
        let part = counts.load((i, 0), shape);
        let before = part.cumsum_with(0, ct::ScanOptions::new().exclusive());
        counts.store((i, 0), first + before);
        first + part.sum(0)
    });
    // The number of experts that end at or before the tile; -1 after the last tile.
    let rows = COUNTS / bins.min(COUNTS);
    ct::for_each(..of_tile.num_tiles(0, [rows]), |i| {
        let place = (i * rows + ct::arange(0..rows)) * tile as i32;
        let expert = ends.le(place.unsqueeze(1)).cast::<i32>().sum(1).reshape([rows]);
        of_tile.store(i, ct::select(place.lt(all.reshape([1])), expert, -1));
    });
}

/// Place of each pair, and the pair of each place.
fn place(
    experts: Array<i32, 1>,
    counts: Array<i32, 2>,
    (pairs, places): (ArrayMut<i32, 1>, ArrayMut<i32, 1>),
    bins: usize,
) {
    let experts = experts_of(experts);
    let (rank, _) = experts.ranks(bins);
    let inside = experts.ge(0) & experts.lt(bins as i32);
    let place = counts.gather((ct::bid(0), experts)) + rank;
    let pair = ct::bid(0) * PAIRS + ct::arange(0..PAIRS);
    places.store(ct::bid(0), ct::select(inside, place, -1));
    pairs.scatter(ct::select(inside, place, -1), pair);
}

/// Pairs of token and expert in the order of experts. The rows of each expert begin at a multiple
/// of the tile.
///
/// Pair `token * taken + slot` is the choice `slot` of a token. Arrays are allocated once;
/// [`Alignment::launch`] allocates nothing.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::Alignment;
///
/// let device = ct::Device::cpu();
/// let experts = device.array(&[2, 0, 2, 1], [2, 2])?; // two of three experts for each of two tokens
/// let mut alignment = Alignment::new(&device.default_stream(), [2, 2], 3, 2)?;
/// alignment.launch(&device.default_stream(), experts.view())?;
/// assert_eq!(alignment.places().to_vec()?, [4, 0, 5, 2]);
/// assert_eq!(alignment.starts().to_vec()?, [0, 2, 4, 6]);
/// assert_eq!(alignment.pairs().to_vec()?[..6], [1, 4, 3, 4, 0, 2]); // 4: no pair
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Debug)]
pub struct Alignment {
    tokens: [usize; 2],
    experts: usize,
    tile: usize,
    counts: DeviceArray<i32, 2>,
    starts: DeviceArray<i32, 1>,
    of_tile: DeviceArray<i32, 1>,
    pairs: DeviceArray<i32, 1>,
    places: DeviceArray<i32, 1>,
}

impl Alignment {
    /// Allocates the arrays for some tokens with `taken` of all experts each, and tiles of `tile`
    /// rows.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if there are no or more than 4096 experts, or the tile is not a
    /// power of two; those of the allocation.
    #[track_caller]
    pub fn new(stream: &Stream, [tokens, taken]: [usize; 2], experts: usize, tile: usize) -> ct::Result<Alignment> {
        require((1..=4096).contains(&experts), || format!("{experts} experts; the number is 1 to 4096"))?;
        require(tile.is_power_of_two() && tile <= 4096, || format!("tiles of {tile} rows"))?;
        let (device, count) = (stream.device(), tokens * taken);
        // Each expert with rows has at most tile - 1 free places.
        let tiles = (count + experts.min(count) * (tile - 1)) / tile;
        let blocks = count.div_ceil(PAIRS);
        Ok(Alignment {
            tokens: [tokens, taken],
            experts,
            tile,
            counts: device.zeros([blocks, experts.next_power_of_two()])?,
            starts: device.zeros([experts + 1])?,
            of_tile: device.zeros([tiles])?,
            pairs: device.zeros([tiles * tile])?,
            places: device.zeros([count])?,
        })
    }

    /// Queues the alignment for the experts of each token, of shape (tokens, taken). Pairs with an
    /// expert outside of the experts have the place -1.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another shape; those of the launches.
    #[track_caller]
    pub fn launch(&mut self, stream: &Stream, experts: DeviceView<i32, 2>) -> ct::Result<()> {
        let Alignment { tokens, tile, counts, starts, of_tile, pairs, places, .. } = self;
        require(experts.shape() == *tokens, || format!("experts of {:?}, for {tokens:?} pairs", experts.shape()))?;
        let (all, [blocks, bins]) = (tokens[0] * tokens[1], counts.shape());
        if all == 0 {
            return Ok(());
        }
        let experts = experts.reshape([all])?;
        let launch = |blocks: usize| ct::Launch::new(blocks).stream(stream);
        launch(blocks).run(count, (experts, &mut *counts, &mut *pairs, ct::Constant(bins)))?;
        let shape = [(COUNTS / bins).clamp(1, 64).min(blocks.next_power_of_two()), bins];
        let results = (&mut *starts, &mut *of_tile);
        launch(1).run(sum, (&mut *counts, results, ct::Constant(*tile), ct::Constant(shape)))?;
        launch(blocks).run(place, (experts, &*counts, (pairs, places), ct::Constant(bins)))
    }

    /// Tokens, and experts of each token.
    #[must_use]
    pub fn tokens(&self) -> [usize; 2] {
        self.tokens
    }

    /// Number of experts.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows of a tile.
    #[must_use]
    pub fn tile(&self) -> usize {
        self.tile
    }

    /// First place of each expert, and after them the end of the last one.
    #[must_use]
    pub fn starts(&self) -> DeviceView<'_, i32, 1> {
        self.starts.view()
    }

    /// Expert of each tile of rows; -1 after the last one.
    #[must_use]
    pub fn of_tile(&self) -> DeviceView<'_, i32, 1> {
        self.of_tile.view()
    }

    /// Pair of each place; the number of pairs at free places.
    #[must_use]
    pub fn pairs(&self) -> DeviceView<'_, i32, 1> {
        self.pairs.view()
    }

    /// Place of each pair.
    #[must_use]
    pub fn places(&self) -> DeviceView<'_, i32, 1> {
        self.places.view()
    }

    /// Number of places: rows of the arrays that [`super::product`] writes.
    #[must_use]
    pub fn num_places(&self) -> usize {
        self.pairs.len()
    }
}
