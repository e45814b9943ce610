//! Arrays of random numbers, made on the device.

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;
use cutlet::{Backend, Device, DeviceArray};

/// Elements of a tile.
const TILE: usize = 1024;

fn uniform<T: Float>(y: ArrayMut<T, 1>, middle: Scalar<f32>, spread: Scalar<f32>) {
    let numbers = ct::random::Philox::new(7, 0).uniform(ct::bid(0), [TILE]);
    y.store(ct::bid(0), ((numbers * 2.0 - 1.0) * spread + middle).cast::<T>());
}

/// Returns an array of numbers around a middle. The interpreter gets the middle alone: values do
/// not matter to the cost model and to ptxas.
pub fn numbers<T: Float, const R: usize>(
    device: Device,
    shape: [usize; R],
    middle: f32,
    spread: f32,
) -> ct::Result<DeviceArray<T, R>> {
    if device.backend() == Backend::Cpu {
        return device.full(shape, T::from_f64(f64::from(middle)));
    }
    let count = shape.iter().product::<usize>();
    let mut y = device.zeros::<T, 1>([count])?;
    ct::launch(uniform::<T>, count.div_ceil(TILE), (&mut y, middle, spread))?;
    y.into_shape(shape)
}

fn dominant(y: ArrayMut<f32, 3>, n: usize) {
    let shape = [1, 32, 32];
    let [j, i, b] = [0, 1, 2].map(ct::bid);
    let rows = i * 32 + ct::indices(shape, 1);
    let columns = j * 32 + ct::indices(shape, 2);
    // A symmetric function of row and column.
    let other = ((rows * columns + b).cast::<f32>() * 0.7).sin();
    y.store((b, i, j), rows.eq(columns).select(n as f32 + 8.0, other));
}

/// Returns symmetric matrices whose diagonal outweighs the other elements; of zeros for the
/// interpreter.
pub fn matrices(device: Device, count: usize, n: usize) -> ct::Result<DeviceArray<f32, 3>> {
    let mut y = device.zeros([count, n, n])?;
    if device.backend() != Backend::Cpu {
        let tiles = n.div_ceil(32);
        ct::launch(dominant, [tiles, tiles, count], (&mut y, Constant(n)))?;
    }
    Ok(y)
}
