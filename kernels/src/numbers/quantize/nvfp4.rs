//! nvfp4: codes f4e2m1fn with a scale f8e4m3fn for each 16 columns, and one of f32 for the tensor
//! (NVIDIA, "Pretraining Large Language Models with NVFP4", 2025).
//!
//! A number is code x scale of the block x scale of the tensor. The scale of the tensor maps its
//! largest magnitude to the largest code and the largest scale of a block: 6 x 448.

use cutlet as ct;
use cutlet::packed::{NarrowTile, PackedArray, PackedArrayMut, PackedDeviceArray, f4e2m1fn, f8e4m3fn};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::{Rounded, apart, bits};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

const TILE: [usize; 2] = [8, 512];
const BLOCK: usize = 16;
/// Largest code, and largest scale of a block.
const LARGEST: [f32; 2] = [6.0, 448.0];

fn clear(scale: ArrayMut<f32, 1>) {
    scale.store(0, ct::zeros([1]));
}

/// Raises the scale to that of the tiles of a block.
fn largest<T: Number>(x: Array<T, 2>, scale: ArrayMut<f32, 1>) {
    let columns = x.num_tiles(1, TILE);
    let tiles = ct::range(ct::bid(0), x.num_tiles(0, TILE) * columns).step(ct::num_blocks(0));
    let largest = ct::fold(tiles, ct::zeros::<f32, 2>(TILE), |largest, i| {
        largest.max(x.load((i / columns, i % columns), TILE).cast::<f32>().abs())
    });
    let of_tensor = largest.reduce_max([0, 1]).item() / (LARGEST[0] * LARGEST[1]);
    scale.entry(0).atomic_max_with(of_tensor, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
}

fn quantize<T: Number>(
    (x, of_tensor): (Array<T, 2>, Array<f32, 1>),
    (codes, scales): (PackedArrayMut<f4e2m1fn, 2>, ArrayMut<f8e4m3fn, 2>),
    seed: (Scalar<u64>, Scalar<u64>),
    stochastic: bool,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let blocks = apart(TILE, [1, BLOCK]);
    let of_tensor = of_tensor.load_scalar(0);
    let factor = of_tensor.gt(0.0).select(1.0f32 / of_tensor, 0.0);
    let x = x.load(at, TILE).cast::<f32>().reshape(blocks);
    let scale = (x.abs().reduce_max(3) * factor / LARGEST[0]).cast::<f8e4m3fn>();
    scales.store(at, scale.reshape([blocks[0], blocks[2]]));
    let scale = scale.cast::<f32>();
    let factor = scale.gt(0.0).select(factor / scale, 0.0);
    let x = (x * factor).reshape(TILE);
    codes.store(
        at,
        match stochastic {
            true => x.cast_narrow_stochastic(bits(seed, at, TILE)),
            false => NarrowTile::from_codes(nearest(x)),
        },
    );
}

/// Codes of the nearest numbers, of an even code between two of them.
///
/// Codes are steps of 1/2 up to 2, of 1 up to 4, and of 2 up to 6: the least of three numbers of
/// steps. The sum with a number whose last bit is a step has the number of steps in its last bits.
fn nearest(x: Tile<f32, 2>) -> Tile<u8, 2> {
    let steps = [(1 << 22, 0), (1 << 23, 2), (1 << 24, 4)].map(|(ulps, first)| {
        let sum = x.abs() + 1.5 * ulps as f32;
        sum.bitcast::<i32>() - ((1.5 * ulps as f32).to_bits() as i32 - first)
    });
    let magnitude = steps[0].min(steps[1]).min(steps[2]).min(7);
    (magnitude | ((x.bitcast::<i32>() >> 28) & 8)).cast::<u8>()
}

fn dequantize<T: Number>(
    (codes, scales, of_tensor): (PackedArray<f4e2m1fn, 2>, Array<f8e4m3fn, 2>, Array<f32, 1>),
    y: ArrayMut<T, 2>,
) {
    let at = [ct::bid(1), ct::bid(0)];
    let [a, b, c, d] = apart(TILE, [1, BLOCK]);
    let scale = scales.load(at, [a, c]).cast::<f32>().reshape([a, 1, c, 1]) * of_tensor.load_scalar(0);
    let x = codes.load(at, TILE).cast::<f32>().reshape([a, b, c, d]) * scale;
    y.store(at, x.reshape(TILE).cast::<T>());
}

fn grid([rows, columns]: [usize; 2]) -> [usize; 2] {
    [columns.div_ceil(TILE[1]), rows.div_ceil(TILE[0])]
}

#[track_caller]
fn check(x: [usize; 2], codes: [usize; 2], scales: [usize; 2], of_tensor: usize) -> ct::Result<()> {
    let fits = x == codes && scales == [x[0], x[1].div_ceil(BLOCK)] && of_tensor == 1;
    require(fits, || format!("nvfp4 of {x:?}: codes {codes:?}, scales {scales:?}, {of_tensor} scales of the tensor"))
}

/// Queues the scale of a tensor for [`quantize_nvfp4`], of shape (1): the largest magnitude over 6
/// x 448.
///
/// # Errors
/// [`ct::Error::Argument`] for a result of another shape; those of the launch.
#[track_caller]
pub fn nvfp4_tensor_scale<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    mut scale: DeviceViewMut<f32, 1>,
) -> ct::Result<()> {
    require(scale.len() == 1, || format!("{} scales of a tensor", scale.len()))?;
    ct::Launch::new(1).stream(stream).run(clear, (scale.reborrow(),))?;
    if x.is_empty() {
        return Ok(());
    }
    let tiles: usize = grid(x.shape()).iter().product();
    ct::Launch::new(tiles.min(4 * num_multiprocessors(stream))).stream(stream).run(largest::<T>, (x, scale))
}

/// Queues the quantisation of numbers of shape (rows, columns) by the scale of the tensor, of shape
/// (1): codes of the same shape, and scales of shape (rows, columns / 16).
///
/// ```
/// use cutlet_kernels::numbers::{Rounded, nvfp4_tensor_scale, quantize_nvfp4};
///
/// let device = cutlet::Device::cpu();
/// let (stream, x) = (device.default_stream(), device.full([2, 32], -3.0f32)?);
/// let (mut codes, mut scales) = (device.packed_zeros([2, 32])?, device.zeros([2, 2])?);
/// let mut of_tensor = device.zeros([1])?;
/// nvfp4_tensor_scale(&stream, x.view(), of_tensor.view_mut())?;
/// let from = (x.view(), of_tensor.view());
/// quantize_nvfp4(&stream, from, (&mut codes, scales.view_mut()), Rounded::Nearest)?;
/// assert_eq!((codes.to_vec()?[0].to_f32(), scales.to_vec()?[0].to_f32()), (-6.0, 448.0));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn quantize_nvfp4<T: Number>(
    stream: &Stream,
    (x, of_tensor): (DeviceView<T, 2>, DeviceView<f32, 1>),
    (codes, scales): (&mut PackedDeviceArray<f4e2m1fn, 2>, DeviceViewMut<f8e4m3fn, 2>),
    rounded: Rounded,
) -> ct::Result<()> {
    check(x.shape(), codes.shape(), scales.shape(), of_tensor.len())?;
    if x.is_empty() {
        return Ok(());
    }
    let (stochastic, seed) = rounded.args();
    let launch = ct::Launch::new(grid(x.shape())).stream(stream);
    launch.run(quantize::<T>, ((x, of_tensor), (codes, scales), seed, ct::Constant(stochastic)))
}

/// Queues the numbers of codes and scales: the inverse of [`quantize_nvfp4`].
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of the launch.
#[track_caller]
pub fn dequantize_nvfp4<T: Number>(
    stream: &Stream,
    codes: &PackedDeviceArray<f4e2m1fn, 2>,
    (scales, of_tensor): (DeviceView<f8e4m3fn, 2>, DeviceView<f32, 1>),
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    check(y.shape(), codes.shape(), scales.shape(), of_tensor.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(grid(y.shape())).stream(stream);
    launch.run(dequantize::<T>, ((codes, scales, of_tensor), y))
}
