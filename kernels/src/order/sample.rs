//! Sampling of tokens from logits, with temperature, top-k, top-p and min-p, without a sort.
//!
//! A row has a block. All filters keep the logits from some threshold on:
//!
//! 1. The largest logit and the sum of the exponentials determine the probabilities, as whole
//!    numbers of 2^-31.
//! 2. top-k: a radix select finds the k-th logit. Equal logits are kept, too.
//! 3. top-p: a radix select by probabilities finds the smallest set with that part of the
//!    probability which top-k leaves.
//! 4. min-p: logits from the logarithm of this part of the largest probability on.
//! 5. The sums of the kept probabilities of each tile choose a tile, and a scan in it a token.
//!
//! The probabilities are whole numbers, so that the token does not depend on the order of
//! additions.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::key::Key;
use super::select::{Keys, select};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Elements of a tile, and most tiles of a row.
const TILE: usize = 4096;
const MAX_TILES: usize = 1024;
/// Returns the elements of a tile, fewer for short rows.
fn tile(columns: usize) -> usize {
    columns.next_power_of_two().clamp(512, TILE)
}

/// A probability of 1.
const ONE: f32 = (1u32 << 31) as f32;

/// Parameters of each row. None: not limited.
type Filters = [Option<Array<f32, 1>>; 3];

/// Uniform numbers of each row, else those of a seed and an offset.
type Numbers = (Option<Array<f32, 1>>, Scalar<u64>, Scalar<u64>);

fn tokens<T: Number>(
    (logits, tokens): (Array<T, 2>, ArrayMut<i32, 1>),
    ([temperature, top_p, min_p], top_k): (Filters, Option<Array<i32, 1>>),
    (numbers, seed, offset): Numbers,
    tile: usize,
) {
    let row = ct::bid(0);
    let tiles = logits.num_tiles(1, [1, tile]);
    let temperature = temperature.map_or(ct::scalar(1.0f32), |of| of.load_scalar(row));
    let is_greedy = temperature.le(0.0);
    let factor = is_greedy.select(1.0f32, 1.0f32 / temperature);
    let columns = ct::arange(0..tile);
    let is_inside = |i: Scalar<i32>| (columns + i * tile).lt(logits.extent(1));
    let load = |i: Scalar<i32>| {
        let x = logits.load((row, i), [1, tile]).reshape([tile]).cast::<f32>() * factor;
        is_inside(i).select(x, f32::NEG_INFINITY)
    };
    let (max, sum) = ct::fold(..tiles, (ct::scalar(f32::MIN), ct::scalar(0.0f32)), |(max, sum), i| {
        let x = load(i);
        let above = max.max(x.reduce_max(0).item());
        (above, sum * (max - above).exp() + (x - above).exp().sum(0).item())
    });
    let weights = |x: Tile<f32, 1>| ((x - max).exp() * (ONE / sum)).round_ties_even().cast::<u32>();
    let key = |x: Tile<f32, 1>| f32::digits(x, 0, 32);
    let key_of = |x: Scalar<f32>| key(x.to_tile::<1>()).item();
    let mut threshold = ct::scalar(0u32);
    if let Some(k) = top_k {
        let all = logits.extent(1);
        let k = k.load_scalar(row);
        let k = (k.le(0) | k.gt(all)).select(all, k).cast::<u32>();
        let of_tile = |i| Keys { keys: key(load(i)), weights: None, regarded: is_inside(i) };
        threshold = select(tiles, of_tile, |_| k);
    }
    let kept = |i, threshold: Scalar<u32>| {
        let x = load(i);
        let keys = key(x);
        Keys { keys, weights: Some(weights(x)), regarded: is_inside(i) & keys.ge(threshold) }
    };
    // Sums of the kept probabilities of each tile.
    let sums = |threshold: Scalar<u32>| {
        let sums = ct::scratch::<u32, 1>([MAX_TILES]);
        sums.store(0, ct::zeros([MAX_TILES]));
        ct::fold(..tiles, (), |(), i| {
            let Keys { weights, regarded, .. } = kept(i, threshold);
            sums.store(i, regarded.select(weights.unwrap_or(ct::zeros([tile])), 0).sum(0));
        });
        sums.load(0, [MAX_TILES])
    };
    if let Some(p) = top_p {
        let p = p.load_scalar(row);
        let target = |all: Scalar<u32>| (p * all.cast::<f32>()).cast::<u32>().max(1).min(all);
        let at = select(tiles, |i| kept(i, threshold), target);
        threshold = p.lt(1.0).select(threshold.max(at), threshold);
    }
    if let Some(p) = min_p {
        threshold = threshold.max(key_of(max + p.load_scalar(row).min(1.0).log()));
    }
    threshold = is_greedy.select(key_of(max), threshold);
    let number = match numbers {
        Some(numbers) => numbers.load_scalar(row),
        None => ct::random::Philox::new(seed, offset).uniform::<f32, 1>(ct::at(row), [1]).item(),
    };
    let number = (is_greedy.select(0.0f32, number) * 2f32.powi(24)).cast::<u32>().min((1 << 24) - 1);
    // The first position at which the sum exceeds the target.
    let find = |weights: Tile<u32, 1>, target: Scalar<u32>| {
        let all = weights.cumsum(0);
        let before = all.le(target).cast::<i32>().sum(0).item();
        (before, target - all.le(target).select(weights, 0).sum(0).item())
    };
    let of_tiles = sums(threshold);
    let all = of_tiles.sum(0).item();
    let target = ((number.cast::<u64>() * all.cast::<u64>()) >> 24).wrapping_cast::<u32>();
    let (at_tile, left) = find(of_tiles, target);
    let Keys { weights, regarded, .. } = kept(at_tile, threshold);
    let (column, _) = find(regarded.select(weights.unwrap_or(ct::zeros([tile])), 0), left);
    tokens.entry(row).store((at_tile * tile + column).min(logits.extent(1) - 1));
}

/// Uniform numbers from 0 to below 1 that choose tokens.
#[derive(Clone, Copy, Debug)]
pub enum Draws<'a> {
    /// A number for each row.
    Numbers(DeviceView<'a, f32, 1>),
    /// Numbers of the generator Philox at the positions of the rows.
    Seed {
        /// Seed of the generator.
        seed: u64,
        /// Offset, another one for each step.
        offset: u64,
    },
}

/// Sampling of a token for each row of logits.
///
/// ```
/// use cutlet_kernels::order::{Draws, Sampling};
///
/// let device = cutlet::Device::cpu();
/// let logits = device.array(&[0.0f32, 5.0, 4.9, -3.0], [1, 4])?;
/// let (k, draw) = (device.array(&[2], [1])?, device.array(&[0.6f32], [1])?);
/// let mut token = device.zeros([1])?;
/// let sampling = Sampling::new().top_k(k.view());
/// sampling.sample(&device.default_stream(), logits.view(), Draws::Numbers(draw.view()), token.view_mut())?;
/// assert_eq!(token.to_vec()?, [2]);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling<'a> {
    temperature: Option<DeviceView<'a, f32, 1>>,
    top_k: Option<DeviceView<'a, i32, 1>>,
    top_p: Option<DeviceView<'a, f32, 1>>,
    min_p: Option<DeviceView<'a, f32, 1>>,
}

impl<'a> Sampling<'a> {
    /// Samples from all tokens, with temperature 1.
    #[must_use]
    pub fn new() -> Sampling<'a> {
        Sampling::default()
    }

    /// Divides the logits of each row by a number. 0: the largest logit, the first of equal ones.
    #[must_use]
    pub fn temperature(mut self, temperature: DeviceView<'a, f32, 1>) -> Sampling<'a> {
        self.temperature = Some(temperature);
        self
    }

    /// Keeps the k largest logits of each row, and those equal to the last of them. 0: all.
    #[must_use]
    pub fn top_k(mut self, top_k: DeviceView<'a, i32, 1>) -> Sampling<'a> {
        self.top_k = Some(top_k);
        self
    }

    /// Keeps the smallest set of the most probable tokens with this part of the probability that
    /// top-k leaves.
    #[must_use]
    pub fn top_p(mut self, top_p: DeviceView<'a, f32, 1>) -> Sampling<'a> {
        self.top_p = Some(top_p);
        self
    }

    /// Keeps tokens with at least this part of the largest probability.
    #[must_use]
    pub fn min_p(mut self, min_p: DeviceView<'a, f32, 1>) -> Sampling<'a> {
        self.min_p = Some(min_p);
        self
    }

    /// Queues the choice of tokens, of shape (rows), from logits of shape (rows, vocabulary).
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for other shapes, an empty vocabulary, or one of more than 2^22
    /// tokens; those of the launch.
    #[track_caller]
    pub fn sample<T: Number>(
        self,
        stream: &Stream,
        logits: DeviceView<T, 2>,
        draws: Draws,
        tokens_of_rows: DeviceViewMut<i32, 1>,
    ) -> ct::Result<()> {
        let [rows, columns] = logits.shape();
        let (numbers, seed, offset) = match draws {
            Draws::Numbers(numbers) => (Some(numbers), 0, 0),
            Draws::Seed { seed, offset } => (None, seed, offset),
        };
        let floats = [self.temperature, self.top_p, self.min_p, numbers];
        let lens = floats.iter().flatten().map(|of| of.len()).chain(self.top_k.map(|of| of.len()));
        let lens: Vec<usize> = lens.chain([tokens_of_rows.len()]).collect();
        require(lens.iter().all(|&len| len == rows), || format!("sampling of {rows} rows: arrays of {lens:?}"))?;
        require((1..=TILE * MAX_TILES).contains(&columns), || format!("sampling from {columns} tokens"))?;
        if rows == 0 {
            return Ok(());
        }
        let filters = [self.temperature, self.top_p, self.min_p];
        let warps = (tile(columns) / 256) as u32;
        let launch = ct::Launch::new(rows).stream(stream).hints(Hints::new().num_warps(warps));
        let args =
            ((logits, tokens_of_rows), (filters, self.top_k), (numbers, seed, offset), ct::Constant(tile(columns)));
        launch.run(tokens::<T>, args)
    }
}

/// Queues the positions of the largest logits of each row, of shape (rows); the first of equal
/// ones.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (logits, mut token) = (device.array(&[0.0f32, 5.0, 4.9], [1, 3])?, device.zeros([1])?);
/// cutlet_kernels::order::greedy(&device.default_stream(), logits.view(), token.view_mut())?;
/// assert_eq!(token.to_vec()?, [1]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for other shapes; those of the launch.
#[track_caller]
pub fn greedy<T: Number>(stream: &Stream, logits: DeviceView<T, 2>, tokens: DeviceViewMut<i32, 1>) -> ct::Result<()> {
    let [rows, columns] = logits.shape();
    require(tokens.len() == rows, || format!("the largest of {rows} rows: {} results", tokens.len()))?;
    if rows * columns == 0 {
        return Ok(());
    }
    let warps = (tile(columns) / 256) as u32;
    let launch = ct::Launch::new(rows).stream(stream).hints(Hints::new().num_warps(warps));
    launch.run(largest::<T>, (logits, tokens, ct::Constant(tile(columns))))
}

/// Each place of the tiles has its largest element and the number of its tile.
fn largest<T: Number>(logits: Array<T, 2>, tokens: ArrayMut<i32, 1>, tile: usize) {
    ct::require_rowwise(0);
    let row = ct::bid(0);
    let start = (ct::full::<f32, 1>([tile], f32::NEG_INFINITY), ct::zeros::<i32, 1>([tile]));
    let padded = ct::LoadOptions::new().padding(Padding::NegInf);
    let (max, at) = ct::fold(..logits.num_tiles(1, [1, tile]), start, |(max, at), i| {
        let x = logits.load_with((row, i), [1, tile], padded.clone()).reshape([tile]).cast::<f32>();
        let is_larger = x.gt(max);
        (is_larger.select(x, max), is_larger.select(ct::full([tile], i), at))
    });
    let positions = at * tile as i32 + ct::arange(0..tile);
    let first = max.eq(max.reduce_max(0)).select(positions, i32::MAX).reduce_min(0).item();
    tokens.entry(row).store(first);
}
