//! RMSNorm over the last axis.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::rows::{TILE, grid, whole};
use crate::Number;
use crate::launch::Run;

/// Returns the factor of a row: one over the root of the mean of its squares.
fn scale(squares: Tile<f32, 4>, columns: Scalar<i32>, epsilon: Scalar<f32>) -> Tile<f32, 4> {
    (squares / columns.cast::<f32>() + epsilon).rsqrt()
}

/// A row a block, in one tile.
fn rows<T: Number>(x: Array<T, 4>, weight: Array<T, 1>, y: ArrayMut<T, 4>, epsilon: Scalar<f32>, tile: usize) {
    let row = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    let wide = x.load(row, [1, 1, 1, tile]).cast::<f32>();
    let weight = weight.load(0, [tile]).cast::<f32>().reshape([1, 1, 1, tile]);
    y.store(row, (wide * scale((wide * wide).sum(3), x.extent(3), epsilon) * weight).cast::<T>());
}

/// A row a block, in many tiles: once for the sum of the squares, and once for the results.
fn long_rows<T: Number>(x: Array<T, 4>, weight: Array<T, 1>, y: ArrayMut<T, 4>, epsilon: Scalar<f32>, tile: usize) {
    let shape = [1, 1, 1, tile];
    let place = |j: Scalar<i32>| (ct::bid(2), ct::bid(1), ct::bid(0), j);
    let load = |j| x.load(place(j), shape).cast::<f32>();
    let tiles = x.num_tiles(3, shape);
    let squares = ct::fold(..tiles, ct::zeros(shape), |sum: Tile<f32, 4>, j| load(j).fma(load(j), sum)).sum(3);
    let scale = scale(squares, x.extent(3), epsilon);
    ct::fold(..tiles, (), |(), j| {
        let weight = weight.load(j, [tile]).cast::<f32>().reshape(shape);
        y.store(place(j), (load(j) * scale * weight).cast::<T>());
    });
}

/// Queues the RMSNorm of the rows along the last axis: x / √(mean of x² + epsilon) · weight. Rows may have any length.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, weight, mut y) = (device.full([1, 1, 2, 4], 3.0f32)?, device.full([4], 2.0)?, device.zeros([1, 1, 2, 4])?);
/// cutlet_kernels::rms_norm(&device.default_stream(), x.view(), weight.view(), y.view_mut(), 0.0)?;
/// assert_eq!(y.to_vec()?, [2.0; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn rms_norm<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 4>,
    weight: DeviceView<T, 1>,
    y: DeviceViewMut<T, 4>,
    epsilon: f32,
) -> ct::Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(grid(x.shape())).stream(stream);
    match whole(x.shape()) {
        Some(tile) => launch.run(rows::<T>, (x, weight, y, epsilon, ct::Constant(tile))),
        None => launch.run(long_rows::<T>, (x, weight, y, epsilon, ct::Constant(TILE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};

    fn generates<T: Number>() -> ct::Result<()> {
        let (x, weight) = (ct::ArraySpec::<T, 4>::new([1, 2, 30, 1024]), ct::ArraySpec::<T, 1>::new([1024]));
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(rows::<T>, (x, weight, x.mutable(), 1e-5f32, ct::Constant(1024))).target(target).ptx()?;
            ct::inspect(long_rows::<T>, (x, weight, x.mutable(), 1e-5f32, ct::Constant(TILE))).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()?;
        generates::<bf16>()
    }
}
