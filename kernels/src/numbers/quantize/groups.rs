//! Codes of 1 to 8 bits with a scale for each group of columns, and a zero for unsigned ones.
//!
//! * Signed integers and floats: the scale is the largest magnitude over the largest code.
//! * Unsigned integers: the scale is the difference of the largest and the least number over the
//!   largest code, and the zero is the least number.
//!
//! A number is code x scale + zero.

use cutlet as ct;
use cutlet::packed::{IntN, Narrow, NarrowFormat, PackedArray, PackedArrayMut, PackedDeviceArray, UIntN, f4e2m1fn};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::{Rounded, apart, bits, scale_of};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Rows and columns of a tile.
const TILE: [usize; 2] = [8, 512];

/// Returns the tile for groups of this number of columns. Random bits need registers.
fn tile(group: usize, stochastic: bool) -> [usize; 2] {
    [if stochastic { TILE[0] / 2 } else { TILE[0] }, TILE[1].max(group)]
}

/// Codes: integers `IntN` and `UIntN` of 1 to 7 bits, i8, u8, and f4e2m1fn. An `IntN` of one bit
/// has no positive code and is none of them: 0 and -1 times a negative scale would be another
/// format.
pub trait Code: Narrow {}
impl<const B: u32> Code for IntN<B> {}
impl<const B: u32> Code for UIntN<B> {}
impl Code for i8 {}
impl Code for u8 {}
impl Code for f4e2m1fn {}

/// Returns the largest code.
fn largest<F: Narrow>() -> f32 {
    match F::FORMAT {
        NarrowFormat::Int(bits) => ((1u32 << (bits - 1)) - 1) as f32,
        NarrowFormat::UInt(bits) => ((1u32 << bits) - 1) as f32,
        _ => 6.0,
    }
}

/// Returns true if codes are whole numbers from 0 on.
fn has_zeros<F: Narrow>() -> bool {
    matches!(F::FORMAT, NarrowFormat::UInt(_))
}

/// Columns of a group, and whether the rounding is stochastic.
type Form = (usize, bool);

fn quantize<T: Number, F: Code>(
    x: Array<T, 2>,
    (codes, scales, zeros): (PackedArrayMut<F, 2>, ArrayMut<f32, 2>, Option<ArrayMut<f32, 2>>),
    seed: (Scalar<u64>, Scalar<u64>),
    (group, stochastic): Form,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let tile = tile(group, stochastic);
    let groups = apart(tile, [1, group]);
    let of_groups = [groups[0], groups[2]];
    let x = x.load(at, tile).cast::<f32>().reshape(groups);
    let (x, scale) = match zeros {
        Some(zeros) => {
            let least = x.reduce_min(3);
            let scale = scale_of(x.reduce_max(3) - least, largest::<F>());
            zeros.store(at, least.reshape(of_groups));
            ((x - least) * (1.0 / scale), scale)
        }
        None => {
            let scale = scale_of(x.abs().reduce_max(3), largest::<F>());
            (x * (1.0 / scale), scale)
        }
    };
    scales.store(at, scale.reshape(of_groups));
    let x = x.reshape(tile);
    let is_integer = matches!(F::FORMAT, NarrowFormat::Int(_) | NarrowFormat::UInt(_));
    codes.store(
        at,
        match (stochastic, is_integer) {
            (true, _) => x.cast_narrow_stochastic::<F>(bits(seed, at, tile)),
            // Floats become integers toward zero.
            (false, true) => x.round_ties_even().cast_narrow::<F>(),
            (false, false) => x.cast_narrow::<F>(),
        },
    );
}

fn dequantize<T: Number, F: Code>(
    (codes, scales, zeros): (PackedArray<F, 2>, Array<f32, 2>, Option<Array<f32, 2>>),
    y: ArrayMut<T, 2>,
    group: usize,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let tile = tile(group, false);
    let groups = apart(tile, [1, group]);
    let load = |of: Array<f32, 2>| of.load(at, [groups[0], groups[2]]).reshape([groups[0], 1, groups[2], 1]);
    let x = codes.load(at, tile).cast::<f32>().reshape(groups) * load(scales);
    let x = zeros.map_or(x, |zeros| x + load(zeros));
    y.store(at, x.reshape(tile).cast::<T>());
}

#[track_caller]
fn check<F: Code>(
    x: [usize; 2],
    codes: [usize; 2],
    scales: [usize; 2],
    zeros: Option<[usize; 2]>,
) -> ct::Result<usize> {
    require(x == codes, || format!("quantisation: numbers of shape {x:?} and codes of shape {codes:?}"))?;
    let group = x[1].checked_div(scales[1]).unwrap_or(1);
    let fits = scales == [x[0], x[1] / group.max(1)] && group.is_power_of_two() && x[1].is_multiple_of(group);
    require(fits || x[0] * x[1] == 0, || {
        format!("quantisation of {x:?}: scales of shape {scales:?}; groups have a power of two of columns")
    })?;
    let bits = if largest::<F>() > 0.0 { F::BITS } else { 0 };
    require(bits > 0, || format!("{} has no positive code", F::NAME))?;
    require(zeros.is_some() == has_zeros::<F>(), || format!("{}: zeros belong to unsigned codes alone", F::NAME))?;
    require(zeros.is_none_or(|shape| shape == scales), || format!("zeros of shape {zeros:?}, scales of {scales:?}"))?;
    Ok(group)
}

fn grid([rows, columns]: [usize; 2], tile: [usize; 2]) -> [usize; 2] {
    [columns.div_ceil(tile[1]), rows.div_ceil(tile[0])]
}

/// Queues the quantisation of numbers of shape (rows, columns) to packed codes, with a scale for
/// each group of columns: scales of shape (rows, columns / group). Unsigned codes have a zero for
/// each group, too.
///
/// ```
/// use cutlet::packed::i4;
/// use cutlet_kernels::numbers::{Rounded, quantize_groups};
///
/// let device = cutlet::Device::cpu();
/// let x = device.from_fn([1, 32], |[_, j]| j as f32)?;
/// let (mut codes, mut scales) = (device.packed_zeros::<i4, 2>([1, 32])?, device.zeros([1, 1])?);
/// let stream = device.default_stream();
/// quantize_groups(&stream, x.view(), &mut codes, (scales.view_mut(), None), Rounded::Nearest)?;
/// assert_eq!((codes.to_vec()?[31], scales.to_vec()?[0]), (i4::saturating(7), 31.0 / 7.0));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn quantize_groups<T: Number, F: Code>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    codes: &mut PackedDeviceArray<F, 2>,
    (scales, zeros): (DeviceViewMut<f32, 2>, Option<DeviceViewMut<f32, 2>>),
    rounded: Rounded,
) -> ct::Result<()> {
    let group = check::<F>(x.shape(), codes.shape(), scales.shape(), zeros.as_ref().map(|of| of.shape()))?;
    if x.is_empty() {
        return Ok(());
    }
    let (stochastic, seed) = rounded.args();
    let hints = if stochastic { Hints::new().num_warps(8) } else { Hints::new() };
    let launch = ct::Launch::new(grid(x.shape(), tile(group, stochastic))).stream(stream).hints(hints);
    launch.run(quantize::<T, F>, (x, (codes, scales, zeros), seed, ct::Constant((group, stochastic))))
}

/// Queues the numbers of packed codes: the inverse of [`quantize_groups`].
///
/// ```
/// use cutlet::packed::u4;
/// use cutlet_kernels::numbers::dequantize_groups;
///
/// let device = cutlet::Device::cpu();
/// let codes = device.packed(&[0, 15].map(u4::saturating), [1, 2])?;
/// let (scales, zeros) = (device.array(&[2.0f32], [1, 1])?, device.array(&[-3.0f32], [1, 1])?);
/// let mut y = device.zeros::<f32, 2>([1, 2])?;
/// let stream = device.default_stream();
/// dequantize_groups(&stream, &codes, (scales.view(), Some(zeros.view())), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [-3.0, 27.0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn dequantize_groups<T: Number, F: Code>(
    stream: &Stream,
    codes: &PackedDeviceArray<F, 2>,
    (scales, zeros): (DeviceView<f32, 2>, Option<DeviceView<f32, 2>>),
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let group = check::<F>(y.shape(), codes.shape(), scales.shape(), zeros.map(|of| of.shape()))?;
    if y.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(grid(y.shape(), tile(group, false))).stream(stream);
    launch.run(dequantize::<T, F>, ((codes, scales, zeros), y, ct::Constant(group)))
}
