//! Softmax over the last axis.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use super::rows::{TILE, grid, whole};
use crate::Number;
use crate::launch::Run;

/// A row a block, in one tile.
fn rows<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, tile: usize) {
    let row = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    let x = x.load_with(row, [1, 1, 1, tile], LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let e = (x - x.reduce_max(3)).exp();
    y.store(row, (e / e.sum(3)).cast::<T>());
}

/// A row a block, in many tiles: once for maximum and sum, and once for the results.
fn long_rows<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, tile: usize) {
    let shape = [1, 1, 1, tile];
    let place = |j: Scalar<i32>| (ct::bid(2), ct::bid(1), ct::bid(0), j);
    let load = |j| x.load_with(place(j), shape, LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    let tiles = x.num_tiles(3, shape);
    // Not from -inf on: a tile of nothing but -inf adds nothing.
    let start = (ct::full([1, 1, 1, 1], f32::MIN), ct::zeros([1, 1, 1, 1]));
    let (max, sum) = ct::fold(..tiles, start, |(max, sum): (Tile<f32, 4>, Tile<f32, 4>), j| {
        let x = load(j);
        let above = max.max(x.reduce_max(3));
        (above, sum * (max - above).exp() + (x - above).exp().sum(3))
    });
    ct::fold(..tiles, (), |(), j| y.store(place(j), ((load(j) - max).exp() / sum).cast::<T>()));
}

/// Queues the softmax of the rows along the last axis: exponentials over their sum. Rows may have any length.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([1, 1, 2, 4], 3.0f32)?, device.zeros([1, 1, 2, 4])?);
/// cutlet_kernels::softmax(&device.default_stream(), x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [0.25; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn softmax<T: Number>(stream: &Stream, x: DeviceView<T, 4>, y: DeviceViewMut<T, 4>) -> ct::Result<()> {
    if x.is_empty() {
        return Ok(());
    }
    let launch = ct::Launch::new(grid(x.shape())).stream(stream);
    match whole(x.shape()) {
        Some(tile) => launch.run(rows::<T>, (x, y, ct::Constant(tile))),
        None => launch.run(long_rows::<T>, (x, y, ct::Constant(TILE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::norms::rows::LONGEST_TILE;
    use cutlet::element::{bf16, f16};

    fn generates<T: Number>() -> ct::Result<()> {
        let x = ct::ArraySpec::<T, 4>::new([1, 2, 30, 1024]);
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(rows::<T>, (x, x.mutable(), ct::Constant(1024))).target(target).ptx()?;
            ct::inspect(rows::<T>, (x, x.mutable(), ct::Constant(LONGEST_TILE))).target(target).ptx()?;
            ct::inspect(long_rows::<T>, (x, x.mutable(), ct::Constant(TILE))).target(target).ptx()?;
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
