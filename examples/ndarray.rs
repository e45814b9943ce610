//! Arrays of ndarray as arguments of a kernel, with their strides: no copy on the cpu device, one
//! on a GPU.
//!
//! `cargo run --example ndarray --features ndarray`

use cutlet as ct;
use cutlet::prelude::*;

/// Each row minus its mean.
fn centered(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = x.load((ct::bid(0), 0), [1, tile]);
    y.store((ct::bid(0), 0), row - row.sum(1) / x.extent(1).cast::<f32>());
}

fn main() -> ct::Result<()> {
    let x = ndarray::Array2::from_shape_fn((30, 50), |(i, j)| (i * i + 3 * j) as f32);
    // The columns of `x` are the rows of the kernel.
    let columns = x.t();
    let expected = &columns - &columns.mean_axis(ndarray::Axis(1)).expect("columns").insert_axis(ndarray::Axis(1));
    let tile = ct::Constant(32);
    let check = |y: &ndarray::Array2<f32>| assert!((y - &expected).iter().all(|difference| difference.abs() < 1e-3));

    // On the cpu device, in the memory of ndarray.
    let mut y = ndarray::Array2::zeros((50, 30));
    let (given, mut result) = (ct::foreign::ndarray::read(&columns)?, ct::foreign::ndarray::write(&mut y)?);
    ct::launch(centered, 50, (given.view(), result.view_mut(), tile))?;
    check(&y);

    // On the first device, by a copy there and one back, which keep the order in memory.
    let device = ct::Device::first()?;
    let a = ct::foreign::ndarray::array(device, &columns)?;
    let mut b = device.zeros([50, 30])?;
    ct::launch(centered, 50, (&a, &mut b, tile))?;
    check(&ct::foreign::ndarray::to_array(&b.view())?);
    println!("50 rows of strides {:?} on {device}: ok", a.strides());
    Ok(())
}
