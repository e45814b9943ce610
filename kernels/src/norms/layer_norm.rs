//! Layer norm over the last axis.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{TILE, grid, whole};
use crate::Number;
use crate::launch::Run;

/// The elements of a row that a tile has, as 1 or 0.
fn inside(j: Scalar<i32>, columns: Scalar<i32>, tile: usize) -> Tile<f32, 4> {
    (j * tile + ct::arange(0..tile)).lt(columns).cast::<f32>().reshape([1, 1, 1, tile])
}

/// A row a block, in one tile.
fn rows<T: Number>(
    x: Array<T, 4>,
    weight: Array<T, 1>,
    bias: Array<T, 1>,
    y: ArrayMut<T, 4>,
    epsilon: Scalar<f32>,
    tile: usize,
) {
    let (row, shape) = ((ct::bid(2), ct::bid(1), ct::bid(0), 0), [1, 1, 1, tile]);
    let count = x.extent(3).cast::<f32>();
    let wide = x.load(row, shape).cast::<f32>();
    let centered = (wide - wide.sum(3) / count) * inside(ct::scalar(0), x.extent(3), tile);
    let scale = ((centered * centered).sum(3) / count + epsilon).rsqrt();
    let [weight, bias] = [weight, bias].map(|a| a.load(0, [tile]).cast::<f32>().reshape(shape));
    y.store(row, (centered * scale).fma(weight, bias).cast::<T>());
}

/// A row a block, in many tiles: for the mean, for the variance, and for the results.
fn long_rows<T: Number>(
    x: Array<T, 4>,
    weight: Array<T, 1>,
    bias: Array<T, 1>,
    y: ArrayMut<T, 4>,
    epsilon: Scalar<f32>,
    tile: usize,
) {
    let shape = [1, 1, 1, tile];
    let place = |j: Scalar<i32>| (ct::bid(2), ct::bid(1), ct::bid(0), j);
    let load = |j| x.load(place(j), shape).cast::<f32>();
    let (tiles, columns) = (x.num_tiles(3, shape), x.extent(3));
    let count = columns.cast::<f32>();
    let mean = ct::fold(..tiles, ct::zeros(shape), |sum: Tile<f32, 4>, j| sum + load(j)).sum(3) / count;
    let squares = ct::fold(..tiles, ct::zeros(shape), |sum: Tile<f32, 4>, j| {
        let centered = (load(j) - mean) * inside(j, columns, tile);
        centered.fma(centered, sum)
    });
    let scale = (squares.sum(3) / count + epsilon).rsqrt();
    ct::fold(..tiles, (), |(), j| {
        let [weight, bias] = [weight, bias].map(|a| a.load(j, [tile]).cast::<f32>().reshape(shape));
        y.store(place(j), ((load(j) - mean) * scale).fma(weight, bias).cast::<T>());
    });
}

/// Queues the layer norm of the rows along the last axis: (x - mean) / √(variance + epsilon) · weight + bias. Rows may have
/// any length. The variance is that of the differences from the mean.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32, 3.0], [1, 1, 1, 2])?;
/// let (weight, bias, mut y) = (device.full([2], 2.0)?, device.full([2], 10.0)?, device.zeros([1, 1, 1, 2])?);
/// cutlet_kernels::layer_norm(&device.default_stream(), x.view(), [weight.view(), bias.view()], y.view_mut(), 0.0)?;
/// assert_eq!(y.to_vec()?, [8.0, 12.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn layer_norm<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 4>,
    [weight, bias]: [DeviceView<T, 1>; 2],
    y: DeviceViewMut<T, 4>,
    epsilon: f32,
) -> ct::Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(grid(x.shape())).stream(stream);
    match whole(x.shape()) {
        Some(tile) => launch.run(rows::<T>, (x, weight, bias, y, epsilon, ct::Constant(tile))),
        None => launch.run(long_rows::<T>, (x, weight, bias, y, epsilon, ct::Constant(TILE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};

    fn generates<T: Number>() -> ct::Result<()> {
        let (x, w) = (ct::ArraySpec::<T, 4>::new([1, 2, 30, 1024]), ct::ArraySpec::<T, 1>::new([1024]));
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(rows::<T>, (x, w, w, x.mutable(), 1e-5f32, ct::Constant(1024))).target(target).ptx()?;
            ct::inspect(long_rows::<T>, (x, w, w, x.mutable(), 1e-5f32, ct::Constant(TILE))).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()?;
        generates::<bf16>()
    }

    /// Rows of odd lengths, also longer than a tile, by both kernels.
    #[test]
    fn rows_are_normalised() -> ct::Result<()> {
        let device = ct::Device::cpu();
        for (columns, tile) in [(1, 1), (77, 128), (77, 16), (100, 32)] {
            let value = |i: usize, j: usize| ((i * 31 + j * 17) % 13) as f32 + 100.0;
            let x = device.from_fn([1, 1, 3, columns], |[_, _, i, j]| value(i, j))?;
            let (weight, bias) = (device.from_fn([columns], |[j]| j as f32 / 8.0)?, device.full([columns], 0.5)?);
            let mut y = device.zeros([1, 1, 3, columns])?;
            let args = (&x, &weight, &bias, &mut y, 1e-5f32, ct::Constant(tile));
            match tile >= columns {
                true => ct::launch(rows::<f32>, 3, args)?,
                false => ct::launch(long_rows::<f32>, 3, args)?,
            }
            for (at, y) in y.to_vec()?.into_iter().enumerate() {
                let (i, j) = (at / columns, at % columns);
                let mean = (0..columns).map(|j| value(i, j) as f64).sum::<f64>() / columns as f64;
                let variance = (0..columns).map(|j| (value(i, j) as f64 - mean).powi(2)).sum::<f64>() / columns as f64;
                let want = (value(i, j) as f64 - mean) / (variance + 1e-5).sqrt() * j as f64 / 8.0 + 0.5;
                assert!((y as f64 - want).abs() < 1e-4, "{columns} in tiles of {tile}, ({i}, {j}): {y}, not {want}");
            }
        }
        Ok(())
    }
}
