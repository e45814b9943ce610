//! Product with packed weights of 1 to 8 bits: `cargo run --example quantized_matmul`.

use cutlet as ct;
use cutlet::packed::{Narrow, NarrowFormat, PackedArray};
use cutlet::prelude::*;

/// Returns the zero point of unsigned codes: the middle of their range.
pub fn center<F: Narrow>() -> f64 {
    match F::FORMAT {
        NarrowFormat::UInt(bits) => f64::from((1u32 << bits) - 1) / 2.0,
        _ => 0.0,
    }
}

/// Extents of a tile of the result and of the sums, and the number of weights of a column that
/// share a scale, a multiple of the tile's.
pub type Extents = ([usize; 3], usize);

/// A tile of weights, as numbers.
pub fn unpacked<F: Narrow>(
    weights: PackedArray<F, 2>,
    scales: Array<f16, 2>,
    (k, j): (Scalar<i32>, Scalar<i32>),
    ([_, tn, tk], group): Extents,
) -> Tile<f16, 2> {
    let codes = weights.load((k, j), [tk, tn]).cast::<f16>();
    let codes = if center::<F>() == 0.0 { codes } else { codes - center::<F>() };
    codes * scales.load((k / (group / tk), j), [1, tn])
}

/// A block computes a tile of the result.
pub fn quantized_matmul<F: Narrow>(
    x: Array<f16, 2>,
    weights: PackedArray<F, 2>,
    scales: Array<f16, 2>,
    y: ArrayMut<f16, 2>,
    extents: Extents,
) {
    let ([tm, tn, tk], _) = extents;
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        ct::mma(x.load((i, k), [tm, tk]), unpacked(weights, scales, (k, j), extents), sum)
    });
    y.store((i, j), sum.cast::<f16>());
}

fn main() -> ct::Result<()> {
    run::<ct::packed::u4>()?;
    run::<ct::packed::i3>()?;
    run::<ct::packed::f6e3m2>()
}

fn run<F: Narrow>() -> ct::Result<()> {
    let ([m, n, k], tile, group) = ([70, 100, 96], [64, 64, 32], 64);
    let number = |at: usize| f16::from_f32((at as f32 * 0.37).sin());
    let scale = |at: usize| f16::from_f32(0.01 + (at % 7) as f32 / 100.0);
    // Any codes except NaN.
    let codes: Vec<F> = (0..k * n).map(|at| F::from_value((at * 5 % 7) as f64 - 3.0 + center::<F>())).collect();
    let device = ct::Device::first()?;
    let (x, weights) = (device.from_fn([m, k], |[i, j]| number(i * k + j))?, device.packed(&codes, [k, n])?);
    let scales = device.from_fn([k.div_ceil(group), n], |[i, j]| scale(i * n + j))?;
    let mut y = device.zeros([m, n])?;
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
    ct::launch(quantized_matmul::<F>, grid, (&x, &weights, &scales, &mut y, Constant((tile, group))))?;

    let y = y.to_vec()?;
    let weight = |i: usize, j: usize| (codes[i * n + j].to_value() - center::<F>()) * scale(i / group * n + j).to_f64();
    // Errors are relative to the magnitude of the terms.
    let error = |at: usize| {
        let terms = || (0..k).map(|l| number(at / n * k + l).to_f64() * weight(l, at % n));
        (y[at].to_f64() - terms().sum::<f64>()).abs() / terms().map(f64::abs).sum::<f64>()
    };
    let error = (0..m * n).map(error).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("quantized_matmul: {} {m} x {n} x {k}, {}, largest error {error:.1e}", F::NAME, device.name());
    assert!(error <= 1e-3, "wrong results");
    Ok(())
}
