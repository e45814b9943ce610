//! Products of many pairs of matrices: `cargo run --example batched_matmul`.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

/// One tile of one product: arrays of `T`, multiplied as `I`.
fn product<T, I>(
    a: Array<T, 3>,
    b: Array<T, 3>,
    c: ArrayMut<T, 3>,
    [tm, tn, tk]: [usize; 3],
    [batch, i, j]: [Scalar<i32>; 3],
) where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    let acc = ct::fold(..a.num_tiles(2, [1, tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        let a = a.load((batch, i, k), [1, tm, tk]).squeeze(0).cast::<I>();
        let b = b.load((batch, k, j), [1, tk, tn]).squeeze(0).cast::<I>();
        ct::mma(a, b, acc)
    });
    c.store((batch, i, j), acc.cast::<T>().reshape([1, tm, tn]));
}

/// A block computes one tile of one product.
pub fn batched_matmul<T, I>(a: Array<T, 3>, b: Array<T, 3>, c: ArrayMut<T, 3>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    product::<T, I>(a, b, c, tile, [ct::bid(2), ct::bid(0), ct::bid(1)]);
}

/// Persistent kernel: each of the blocks that run at a time computes one tile after another,
/// product by product.
pub fn batched_matmul_persistent<T, I>(a: Array<T, 3>, b: Array<T, 3>, c: ArrayMut<T, 3>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    let [batches, rows, columns] = [0, 1, 2].map(|axis| c.num_tiles(axis, [1, tile[0], tile[1]]));
    let each = rows * columns;
    ct::fold(ct::range(ct::bid(0), batches * each).step(ct::num_blocks(0)), (), |(), index| {
        let place = index % each;
        product::<T, I>(a, b, c, tile, [index / each, place % rows, place / rows]);
    });
}

fn main() -> ct::Result<()> {
    let ([batch, m, n, k], tile) = ([3, 70, 50, 40], [64, 64, 32]);
    let (x, y) = (|at: usize| (at as f32 * 0.37).sin(), |at: usize| (at as f32 * 0.11).cos());
    let device = ct::Device::first()?;
    let a = device.from_fn([batch, m, k], |[h, i, j]| x((h * m + i) * k + j))?;
    let b = device.from_fn([batch, k, n], |[h, i, j]| y((h * k + i) * n + j))?;
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch];
    for persistent in [false, true] {
        let mut c = device.zeros([batch, m, n])?;
        match persistent {
            false => ct::launch(batched_matmul::<f32, tf32>, grid, (&a, &b, &mut c, Constant(tile)))?,
            true => ct::launch(batched_matmul_persistent::<f32, tf32>, 4, (&a, &b, &mut c, Constant(tile)))?,
        }

        let c = c.to_vec()?;
        // Errors are relative to the magnitude of the terms.
        let error = |at: usize| {
            let (h, i, j) = (at / n / m, at / n % m, at % n);
            let terms = || (0..k).map(|l| f64::from(x((h * m + i) * k + l)) * f64::from(y((h * k + l) * n + j)));
            (f64::from(c[at]) - terms().sum::<f64>()).abs() / terms().map(f64::abs).sum::<f64>()
        };
        let error = (0..batch * m * n).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
        println!("batched_matmul: tf32 {batch} x {m} x {n} x {k}, {}, largest error {error:.1e}", device.name());
        // Half a unit in the last place of both inputs.
        assert!(error <= 1e-3, "wrong results");
    }
    Ok(())
}
