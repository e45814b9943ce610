//! Floats of 12 bits with a scale for each row: e5m6, the upper bits of f16.
//!
//! Eight codes are 96 bits, the first code in the highest ones, and three words of 32 bits.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// The largest number of the format.
const LARGEST: f32 = 65024.0;
/// The least of the largest magnitudes of rows, for which scale and reciprocal are normal.
const MIN_MAGNITUDE: f32 = 1e-30;
/// 2^112: the difference of the exponents' biases of f32 and e5m6.
const BIAS: f32 = 5.192_297e33;
/// Bits of the mantissa of f32 that e5m6 has not.
const CUT: u32 = 23 - 6;
/// Codes of three words.
const GROUP: usize = 8;
/// Most columns of a tile.
const WIDEST: usize = 8192;

/// Returns the codes of numbers that are divided by [`BIAS`]: then exponents are equal, those of
/// subnormal numbers, too. Ties are rounded to the even code.
fn encode(x: Tile<f32, 2>) -> Tile<u32, 2> {
    let bits = x.bitcast::<u32>();
    // The carry of a finite number does not reach the sign.
    let rounded = bits + (((bits >> CUT) & 1) + 0xffff);
    ((rounded >> CUT) & 0x7ff) | ((bits >> 20) & 0x800)
}

/// Stores the words of the codes of tile `i` of a row. Shared memory orders them: three words of a
/// group are not one access.
fn store(words: ArrayMut<u32, 2>, [row, i]: [Scalar<i32>; 2], codes: Tile<u32, 2>) {
    let groups = codes.shape()[1] / GROUP;
    let [a, b, c, d, e, f, g, h] = codes.reshape([groups, GROUP]).unstack(1);
    let own = ct::scratch::<u32, 1>([3 * groups]);
    let first = ct::arange(0..groups) * 3;
    own.scatter(first, (a << 20) | (b << 8) | (c >> 4));
    own.scatter(first + 1, (c << 28) | (d << 16) | (e << 4) | (f >> 8));
    own.scatter(first + 2, (f << 24) | (g << 12) | h);
    for part in 0..3 {
        words.store((row, i * 3 + part), own.load(part, [groups]).unsqueeze(0));
    }
}

fn quantize<T: Number>(x: Array<T, 2>, words: ArrayMut<u32, 2>, scales: ArrayMut<f32, 1>, width: usize) {
    let row = ct::bid(0);
    let load = |i: Scalar<i32>| x.load((row, i), [1, width]).cast::<f32>();
    let first = load(ct::scalar(0));
    let tiles = x.num_tiles(1, [1, width]);
    let largest = ct::fold(ct::scalar(1)..tiles, first.abs().reduce_max(1), |largest: Tile<f32, 2>, i| {
        largest.max(load(i).abs().reduce_max(1))
    });
    let largest = largest.max(MIN_MAGNITUDE);
    scales.store(row, (largest / LARGEST).reshape([1]));
    let factor = (ct::full([1, 1], LARGEST) / largest) * (1.0 / BIAS);
    store(words, [row, ct::scalar(0)], encode(first * factor));
    ct::for_each(ct::scalar(1)..tiles, |i| store(words, [row, i], encode(load(i) * factor)));
}

fn dequantize<T: Number>(words: Array<u32, 3>, scales: Array<f32, 1>, x: ArrayMut<T, 2>, width: usize) {
    let [i, row] = [0, 1].map(ct::bid);
    let groups = width / GROUP;
    let [first, second, third] = [0, 1, 2].map(|word| words.load((row, i, word), [1, groups, 1]));
    let codes = [
        first >> 20,
        first >> 8,
        (first << 4) | (second >> 28),
        second >> 16,
        second >> 4,
        (second << 8) | (third >> 24),
        third >> 12,
        third,
    ];
    let codes = ct::cat(codes, 2).reshape([1, width]);
    let bits = ((codes & 0x7ff) << CUT) | ((codes & 0x800) << 20);
    let number = bits.bitcast::<f32>() * BIAS * scales.load(row, [1]).reshape([1, 1]);
    x.store((row, i), number.cast::<T>());
}

/// Checks the shapes.
#[track_caller]
fn check(name: &str, x: [usize; 2], words: [usize; 3], scales: [usize; 1]) -> ct::Result<()> {
    let [rows, columns] = x;
    require(columns.is_multiple_of(GROUP), || format!("{name}: {columns} columns are no multiple of {GROUP}"))?;
    let wanted = ([rows, columns / GROUP, 3], [rows]);
    require((words, scales) == wanted, || {
        format!("{name}: words {words:?} and scales {scales:?}, not {:?} and {:?}", wanted.0, wanted.1)
    })
}

/// Queues codes e5m6 (5 bits of exponent, 6 of mantissa) of a matrix, and the scale of each row:
/// its largest magnitude over 65024.
///
/// `x` is (rows, columns) with a multiple of 8 columns, of finite numbers. `words` is (rows,
/// columns / 8, 3): eight codes of 12 bits, from the highest bits of the first word on. The words
/// of a row are contiguous.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::numbers::{dequantize_e5m6, quantize_e5m6};
///
/// let device = ct::Device::cpu();
/// let (x, stream) = (device.array(&[1.0f32, -0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 0.75], [1, 8])?, device.default_stream());
/// let (mut words, mut scales, mut y) = (device.zeros([1, 1, 3])?, device.zeros([1])?, device.zeros::<f32, 2>([1, 8])?);
/// quantize_e5m6(&stream, x.view(), words.view_mut(), scales.view_mut())?;
/// dequantize_e5m6(&stream, words.view(), scales.view(), y.view_mut())?;
/// assert!(y.to_vec()?.iter().zip(x.to_vec()?).all(|(y, x)| (y - x).abs() <= x.abs() / 128.0));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn quantize_e5m6<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    words: DeviceViewMut<u32, 3>,
    scales: DeviceViewMut<f32, 1>,
) -> ct::Result<()> {
    let [rows, columns] = x.shape();
    check("quantize_e5m6", x.shape(), words.shape(), scales.shape())?;
    if x.is_empty() {
        return Ok(());
    }
    let width = columns.next_power_of_two().min(WIDEST);
    let hints = Hints::new().num_warps((width / 1024).clamp(1, 8) as u32);
    let launch = ct::Launch::new(rows).hints(hints).stream(stream);
    let words = words.reshape([rows, columns / GROUP * 3])?;
    launch.run(quantize::<T>, (x, words, scales, ct::Constant(width)))
}

/// Queues the numbers of codes e5m6 with a scale for each row, as [`quantize_e5m6`] writes them.
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, and those of the launch.
#[track_caller]
pub fn dequantize_e5m6<T: Number>(
    stream: &Stream,
    words: DeviceView<u32, 3>,
    scales: DeviceView<f32, 1>,
    x: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let [rows, columns] = x.shape();
    check("dequantize_e5m6", x.shape(), words.shape(), scales.shape())?;
    if x.is_empty() {
        return Ok(());
    }
    let width = columns.next_power_of_two().min(2048);
    let launch = ct::Launch::new([columns.div_ceil(width), rows]).stream(stream);
    launch.run(dequantize::<T>, (words, scales, x, ct::Constant(width)))
}
