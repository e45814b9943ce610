//! e4m3 and e5m2 with a scale for each row, or for each block: 1 x 128 and 128 x 128 of f32
//! (DeepSeek-V3, 2024), and 1 x 32 of powers of two (mxfp8: OCP Microscaling Formats, 2023).
//!
//! A scale is the largest magnitude over the largest number of the format. A power of two is the
//! next one from there on, so that no number saturates.

use cutlet as ct;
use cutlet::packed::f8e8m0fnu;
use cutlet::prelude::*;
use cutlet::random::StochasticFloat;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::{Rounded, apart, bits, scale_of};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Longest row of one tile, and tile of longer rows.
const ROW: usize = 8192;

/// Formats of 8 bits: f8e4m3fn and f8e5m2.
pub trait Float8: StochasticFloat + ByteSized {
    /// Largest finite number.
    const LARGEST: f32;
}
impl Float8 for f8e4m3fn {
    const LARGEST: f32 = 448.0;
}
impl Float8 for f8e5m2 {
    const LARGEST: f32 = 57344.0;
}

/// Types of scales: f32, and f8e8m0fnu for powers of two.
pub trait BlockScale: ByteSized {
    /// The scales as stored, and their values.
    #[doc(hidden)]
    fn rounded(scale: Tile<f32, 4>) -> (Tile<Self, 4>, Tile<f32, 4>);
}

impl BlockScale for f32 {
    fn rounded(scale: Tile<f32, 4>) -> (Tile<f32, 4>, Tile<f32, 4>) {
        (scale, scale)
    }
}

impl BlockScale for f8e8m0fnu {
    fn rounded(scale: Tile<f32, 4>) -> (Tile<f8e8m0fnu, 4>, Tile<f32, 4>) {
        let exponent = ((scale.bitcast::<u32>() + 0x7f_ffff) >> 23).max(1).min(254);
        (exponent.cast::<u8>().bitcast(), (exponent << 23).bitcast())
    }
}

/// Extents of a tile and of a block, and whether the rounding is stochastic.
type Form = ([usize; 2], [usize; 2], bool);

fn quantize<T: Number, F: Float8, S: BlockScale>(
    x: Array<T, 2>,
    (codes, scales): (ArrayMut<F, 2>, ArrayMut<S, 2>),
    seed: (Scalar<u64>, Scalar<u64>),
    (tile, block, stochastic): Form,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let blocks = apart(tile, block);
    let x = x.load(at, tile).cast::<f32>().reshape(blocks);
    let (stored, scale) = S::rounded(scale_of(x.abs().reduce_max([1, 3]), F::LARGEST));
    scales.store(at, stored.reshape([blocks[0], blocks[2]]));
    let x = (x * (1.0 / scale)).reshape(tile);
    let rounded = if stochastic { x.cast_stochastic::<F>(bits(seed, at, tile)) } else { x.cast::<F>() };
    codes.store(at, rounded);
}

/// A row with a scale, which has more than a tile.
fn quantize_long_rows<T: Number, F: Float8>(
    x: Array<T, 2>,
    (codes, scales): (ArrayMut<F, 2>, ArrayMut<f32, 2>),
    seed: (Scalar<u64>, Scalar<u64>),
    (tile, stochastic): ([usize; 2], bool),
) {
    let row = ct::bid(0);
    let tiles = x.num_tiles(1, tile);
    let load = |j: Scalar<i32>| x.load((row, j), tile).cast::<f32>();
    let largest = ct::fold(..tiles, ct::zeros::<f32, 2>(tile), |largest, j| largest.max(load(j).abs()));
    let scale = scale_of(largest.reduce_max(1).reshape([1; 4]), F::LARGEST).reshape([1, 1]);
    scales.store((row, 0), scale);
    let factor = 1.0 / scale;
    ct::fold(..tiles, (), |(), j| {
        let x = load(j) * factor;
        let rounded = if stochastic { x.cast_stochastic::<F>(bits(seed, [row, j], tile)) } else { x.cast::<F>() };
        codes.store((row, j), rounded);
    });
}

fn dequantize<T: Number, F: Float8, S: BlockScale>(
    (codes, scales): (Array<F, 2>, Array<S, 2>),
    y: ArrayMut<T, 2>,
    (tile, block, _): Form,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let [a, b, c, d] = apart(tile, block);
    let scale = scales.load(at, [a, c]).cast::<f32>().reshape([a, 1, c, 1]);
    let x = codes.load(at, tile).cast::<f32>().reshape([a, b, c, d]) * scale;
    y.store(at, x.reshape(tile).cast::<T>());
}

/// Blocks with a scale each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// One row and 128 columns.
    Block1x128,
    /// 128 rows and columns.
    Block128x128,
    /// One row and 32 columns: mxfp8 with scales of f8e8m0fnu.
    Block1x32,
}

impl Scales {
    /// Returns the extents of a block.
    #[must_use]
    pub fn block(self) -> [usize; 2] {
        match self {
            Scales::Block1x128 => [1, 128],
            Scales::Block128x128 => [128, 128],
            Scales::Block1x32 => [1, 32],
        }
    }

    /// Returns the shape of the scales of an array: blocks at its end may be parts.
    #[must_use]
    pub fn shape(self, [rows, columns]: [usize; 2]) -> [usize; 2] {
        let [r, c] = self.block();
        [rows.div_ceil(r), columns.div_ceil(c)]
    }

    fn tile(self) -> [usize; 2] {
        match self {
            Scales::Block128x128 => [128, 128],
            _ => [8, 512],
        }
    }
}

#[track_caller]
fn check(what: &str, x: [usize; 2], codes: [usize; 2], [scales, want]: [[usize; 2]; 2]) -> ct::Result<()> {
    require(x == codes, || format!("{what}: numbers of shape {x:?} and codes of shape {codes:?}"))?;
    require(scales == want, || format!("{what} of {x:?}: scales of shape {scales:?} and not {want:?}"))
}

fn grid([rows, columns]: [usize; 2], tile: [usize; 2]) -> [usize; 2] {
    [columns.div_ceil(tile[1]), rows.div_ceil(tile[0])]
}

/// Queues the quantisation of numbers of shape (rows, columns) to codes of the same shape, with a
/// scale for each block: f32, or f8e8m0fnu for powers of two. A number is its code times the scale
/// of its block.
///
/// ```
/// use cutlet::packed::{f8e4m3fn, f8e8m0fnu};
/// use cutlet_kernels::numbers::{Rounded, Scales, quantize_blocks};
///
/// let device = cutlet::Device::cpu();
/// let x = device.full([4, 64], 3.0f32)?;
/// let (mut codes, mut scales) = (device.zeros::<f8e4m3fn, 2>([4, 64])?, device.zeros::<f8e8m0fnu, 2>([4, 2])?);
/// let (results, blocks) = ((codes.view_mut(), scales.view_mut()), Scales::Block1x32);
/// quantize_blocks(&device.default_stream(), x.view(), results, blocks, Rounded::Nearest)?;
/// assert_eq!(codes.to_vec()?[0].to_f32() * scales.to_vec()?[0].to_f32(), 3.0);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn quantize_blocks<T: Number, F: Float8, S: BlockScale>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    (codes, scales): (DeviceViewMut<F, 2>, DeviceViewMut<S, 2>),
    blocks: Scales,
    rounded: Rounded,
) -> ct::Result<()> {
    let (shape, tile) = (x.shape(), blocks.tile());
    check("quantisation", shape, codes.shape(), [scales.shape(), blocks.shape(shape)])?;
    if x.is_empty() {
        return Ok(());
    }
    let (stochastic, seed) = rounded.args();
    let form = ct::Constant((tile, blocks.block(), stochastic));
    let launch = ct::Launch::new(grid(shape, tile)).stream(stream);
    launch.run(quantize::<T, F, S>, (x, (codes, scales), seed, form))
}

/// Queues the quantisation of numbers of shape (rows, columns) with a scale for each row, of shape
/// (rows, 1).
///
/// ```
/// use cutlet::packed::f8e5m2;
/// use cutlet_kernels::numbers::{Rounded, quantize_rows};
///
/// let device = cutlet::Device::cpu();
/// let x = device.array(&[1.0f32, -2.0], [1, 2])?;
/// let (mut codes, mut scales) = (device.zeros::<f8e5m2, 2>([1, 2])?, device.zeros([1, 1])?);
/// let results = (codes.view_mut(), scales.view_mut());
/// quantize_rows(&device.default_stream(), x.view(), results, Rounded::Nearest)?;
/// assert_eq!(codes.to_vec()?[1].to_f32() * scales.to_vec()?[0], -2.0);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn quantize_rows<T: Number, F: Float8>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    (codes, scales): (DeviceViewMut<F, 2>, DeviceViewMut<f32, 2>),
    rounded: Rounded,
) -> ct::Result<()> {
    let [rows, columns] = x.shape();
    check("quantisation of rows", x.shape(), codes.shape(), [scales.shape(), [rows, 1]])?;
    if x.is_empty() {
        return Ok(());
    }
    let (stochastic, seed) = rounded.args();
    let results = (codes, scales);
    if columns > ROW {
        let form = ct::Constant(([1, ROW / 2], stochastic));
        return ct::Launch::new(rows).stream(stream).run(quantize_long_rows::<T, F>, (x, results, seed, form));
    }
    let extent = columns.next_power_of_two();
    let tile = [(2048 / extent).max(1), extent];
    let form = ct::Constant((tile, [1, extent], stochastic));
    let launch = ct::Launch::new([1, rows.div_ceil(tile[0])]).stream(stream);
    launch.run(quantize::<T, F, f32>, (x, results, seed, form))
}

/// Queues the numbers of codes with a scale for each block: the inverse of [`quantize_blocks`].
///
/// ```
/// use cutlet::packed::f8e4m3fn;
/// use cutlet_kernels::numbers::{Scales, dequantize_blocks};
///
/// let device = cutlet::Device::cpu();
/// let codes = device.full([2, 128], f8e4m3fn::from_f32(1.5))?;
/// let (scales, mut y) = (device.array(&[2.0f32, 4.0], [2, 1])?, device.zeros::<f32, 2>([2, 128])?);
/// let from = (codes.view(), scales.view());
/// dequantize_blocks(&device.default_stream(), from, y.view_mut(), Scales::Block1x128)?;
/// assert_eq!((y.to_vec()?[0], y.to_vec()?[128]), (3.0, 6.0));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn dequantize_blocks<T: Number, F: Float8, S: BlockScale>(
    stream: &Stream,
    (codes, scales): (DeviceView<F, 2>, DeviceView<S, 2>),
    y: DeviceViewMut<T, 2>,
    blocks: Scales,
) -> ct::Result<()> {
    let (shape, tile) = (y.shape(), blocks.tile());
    check("dequantisation", shape, codes.shape(), [scales.shape(), blocks.shape(shape)])?;
    if y.is_empty() {
        return Ok(());
    }
    let form = ct::Constant((tile, blocks.block(), false));
    let launch = ct::Launch::new(grid(shape, tile)).stream(stream);
    launch.run(dequantize::<T, F, S>, ((codes, scales), y, form))
}
