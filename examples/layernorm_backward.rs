//! Gradients of layer normalisation: `cargo run --example layernorm_backward`.

use cutlet as ct;
use cutlet::prelude::*;

/// A block processes rows at a distance of the number of blocks. The sums over its rows are one row
/// of the partial sums.
#[allow(clippy::too_many_arguments, reason = "the arrays of the operation")]
pub fn rows(
    dy: Array<f32, 2>,
    x: Array<f32, 2>,
    weight: Array<f32, 1>,
    mean: Array<f32, 1>,
    rstd: Array<f32, 1>,
    dx: ArrayMut<f32, 2>,
    dweight: ArrayMut<f32, 2>,
    dbias: ArrayMut<f32, 2>,
    columns: usize,
) {
    let block = ct::bid(0);
    let tile = columns.next_power_of_two();
    let weight = weight.load(0, [tile]).reshape([1, tile]);
    let zero = ct::zeros::<f32, 2>([1, tile]);
    let every = ct::range(block, dy.extent(0)).step(ct::num_blocks(0));
    let (dweight_part, dbias_part) = ct::fold(every, (zero, zero), |(dweight, dbias), row| {
        let (dy, x) = (dy.load((row, 0), [1, tile]), x.load((row, 0), [1, tile]));
        let (mean, rstd) = (mean.load_scalar(row), rstd.load_scalar(row));
        let normalised = (x - mean) * rstd;
        let scaled = dy * weight;
        let along = (scaled * normalised).sum(1) * (1.0 / columns as f32);
        let level = scaled.sum(1) * (1.0 / columns as f32);
        dx.store((row, 0), (scaled - level - normalised * along) * rstd);
        (dweight + dy * normalised, dbias + dy)
    });
    dweight.store((block, 0), dweight_part);
    dbias.store((block, 0), dbias_part);
}

/// Sums over the rows of two arrays, one stripe of columns a block, always in the same order.
pub fn columns(
    a: Array<f32, 2>,
    b: Array<f32, 2>,
    sum_a: ArrayMut<f32, 1>,
    sum_b: ArrayMut<f32, 1>,
    [rows, columns]: [usize; 2],
) {
    let j = ct::bid(0);
    let zero = ct::zeros::<f32, 2>([rows, columns]);
    let (part_a, part_b) = ct::fold(..a.num_tiles(0, [rows, columns]), (zero, zero), |(part_a, part_b), i| {
        (part_a + a.load((i, j), [rows, columns]), part_b + b.load((i, j), [rows, columns]))
    });
    sum_a.store(j, part_a.sum(0).reshape([columns]));
    sum_b.store(j, part_b.sum(0).reshape([columns]));
}

fn main() -> ct::Result<()> {
    let ([m, n], blocks) = ([60, 500], 8);
    let (x, dy) =
        (|i: usize, j: usize| ((i * 7 + j * 3) as f32 * 0.1).sin(), |i: usize, j: usize| ((i + j) as f32).cos());
    let weight = |j: usize| 1.0 + j as f32 / 1000.0;
    // Mean and reciprocal standard deviation of each row, as the forward pass stores them.
    let mean = |i: usize| (0..n).map(|j| f64::from(x(i, j))).sum::<f64>() / n as f64;
    let rstd =
        |i: usize| 1.0 / ((0..n).map(|j| (f64::from(x(i, j)) - mean(i)).powi(2)).sum::<f64>() / n as f64 + 1e-5).sqrt();
    let (means, rstds): (Vec<f64>, Vec<f64>) = (0..m).map(|i| (mean(i), rstd(i))).unzip();
    let device = ct::Device::first()?;
    let inputs = [device.from_fn([m, n], |[i, j]| dy(i, j))?, device.from_fn([m, n], |[i, j]| x(i, j))?];
    let of_columns = device.from_fn([n], |[j]| weight(j))?;
    let of_rows = [device.from_fn([m], |[i]| means[i] as f32)?, device.from_fn([m], |[i]| rstds[i] as f32)?];
    let (mut dx, mut parts) = (device.zeros([m, n])?, [device.zeros([blocks, n])?, device.zeros([blocks, n])?]);
    let (mut dweight, mut dbias) = (device.zeros([n])?, device.zeros([n])?);
    let [dweights, dbiases] = &mut parts;
    let arguments =
        (&inputs[0], &inputs[1], &of_columns, &of_rows[0], &of_rows[1], &mut dx, dweights, dbiases, Constant(n));
    ct::launch(rows, blocks, arguments)?;
    ct::launch(columns, n.div_ceil(32), (&parts[0], &parts[1], &mut dweight, &mut dbias, Constant([8, 32])))?;

    let (dx, dweight, dbias) = (dx.to_vec()?, dweight.to_vec()?, dbias.to_vec()?);
    let normalised = |i: usize, j: usize| (f64::from(x(i, j)) - means[i]) * rstds[i];
    let scaled = |i: usize, j: usize| f64::from(dy(i, j)) * f64::from(weight(j));
    let of_row = |i: usize| {
        let along = (0..n).map(|j| scaled(i, j) * normalised(i, j)).sum::<f64>() / n as f64;
        let level = (0..n).map(|j| scaled(i, j)).sum::<f64>() / n as f64;
        let want = |j| (scaled(i, j) - level - normalised(i, j) * along) * rstds[i];
        (0..n).map(|j| (f64::from(dx[i * n + j]) - want(j)).abs()).max_by(f64::total_cmp)
    };
    let of_column = |j: usize| {
        let want = (0..m).map(|i| f64::from(dy(i, j)) * normalised(i, j)).sum::<f64>();
        let sum = (0..m).map(|i| f64::from(dy(i, j))).sum::<f64>();
        (f64::from(dweight[j]) - want).abs().max((f64::from(dbias[j]) - sum).abs())
    };
    let error = (0..m).filter_map(of_row).chain((0..n).map(of_column)).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("layernorm_backward: {m} x {n}, {}, largest error {error:.1e}", device.name());
    assert!(error <= 5e-5, "wrong results");
    Ok(())
}
