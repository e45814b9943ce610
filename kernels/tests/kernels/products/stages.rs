//! Prologues and epilogues.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_kernels::products::Configuration;
use cutlet_kernels::products::epilogue::{Activation, Place};
use cutlet_kernels::{Pairs, matmul};

use super::{product, stream, zeros};
use crate::support::{close, device, random};

const SHAPE: [usize; 3] = [45, 150, 40];

/// Operands, and the exact product.
struct Problem {
    a: ct::DeviceArray<f16, 2>,
    b: ct::DeviceArray<f16, 2>,
    c: ct::DeviceArray<f32, 2>,
    sums: Vec<f64>,
}

fn problem([m, n, k]: [usize; 3]) -> ct::Result<Problem> {
    let ((a, x), (b, y)) = (random::<f16, 2>(1, [m, k], 1.0)?, random::<f16, 2>(2, [k, n], 1.0)?);
    let [sums, _] = product([m, n, k], |i, l| x[i * k + l], |l, j| y[l * n + j]);
    Ok(Problem { a, b, c: zeros([m, n])?, sums })
}

/// Returns a function of sum, row and column for all sums.
fn map(sums: &[f64], n: usize, f: impl Fn(f64, usize, usize) -> f64) -> Vec<f64> {
    sums.iter().enumerate().map(|(at, &x)| f(x, at / n, at % n)).collect()
}

fn gelu(x: f64) -> f64 {
    // The complementary error function by its continued fraction or its series (Abramowitz and
    // Stegun, 7.1.5, 7.1.14).
    let z = x.abs() / std::f64::consts::SQRT_2;
    let erf = if z < 4.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..100 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        1.0
    };
    x * (1.0 + erf.copysign(x)) / 2.0
}

#[test]
fn stages_run_in_their_order() -> ct::Result<()> {
    let ([m, n, _], Problem { a, b, mut c, sums }) = (SHAPE, problem(SHAPE)?);
    let ((bias, u), (other, v)) = (random::<f16, 1>(3, [n], 1.0)?, random::<bf16, 2>(4, [m, n], 1.0)?);
    let ((rows, r), (columns, s)) = (random::<f32, 1>(5, [m], 1.0)?, random::<f32, 1>(6, [n], 1.0)?);

    matmul().bias(bias.view()).gelu().residual(other.view()).launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &map(&sums, n, |x, i, j| gelu(x + u[j]) + v[i * n + j]), 2e-5, 0.0);

    let scaled = matmul().scale(0.5).scale_rows(rows.view()).scale_columns(columns.view()).gate(other.view()).relu();
    scaled.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &map(&sums, n, |x, i, j| (0.5 * x * r[i] * s[j] * v[i * n + j]).max(0.0)), 2e-5, 0.0);

    matmul().silu().tanh().launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &map(&sums, n, |x, _, _| (x / (1.0 + (-x).exp())).tanh()), 2e-5, 0.0);
    matmul().round::<bf16>().launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &sums, 1e-5, 4e-3);
    assert!(c.to_vec()?.iter().all(|&x| bf16::from_f32(x).to_f32() == x));
    Ok(())
}

/// Tiles of several strips of columns, also after the last column.
#[test]
fn stages_receive_strips() -> ct::Result<()> {
    let ([m, n, _], Problem { a, b, sums, .. }) = (SHAPE, problem(SHAPE)?);
    let ((bias, u), (other, v)) = (random::<f16, 1>(3, [n], 1.0)?, random::<f16, 2>(4, [m, n], 1.0)?);
    let tiles = || matmul().configuration(Configuration::new([32, 96, 32]));
    let mut c = zeros::<f16, 2>([m, n])?;
    let product = tiles().bias(bias.view()).gelu().residual(other.view());
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &map(&sums, n, |x, i, j| gelu(x + u[j]) + v[i * n + j]), 1e-3, 1e-3);

    let (mut c, mut of_columns) = (zeros::<f32, 2>([m, n / 2])?, zeros::<f32, 1>([n / 2])?);
    let product = tiles().gate_pairs(Activation::GeluTanh).column_sums(of_columns.view_mut());
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let of_tanh = |x: f64| x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh()) / 2.0;
    let value = |i: usize, j: usize| of_tanh(sums[i * n + 2 * j]) * sums[i * n + 2 * j + 1];
    let want: Vec<f64> = (0..m * n / 2).map(|at| value(at / (n / 2), at % (n / 2))).collect();
    close(&c, &want, 1e-4, 1e-5);
    let columns: Vec<f64> = (0..n / 2).map(|j| (0..m).map(|i| want[i * n / 2 + j]).sum()).collect();
    close(&of_columns, &columns, 1e-3, 0.0);
    Ok(())
}

/// Infinities, numbers that are none, and small results far from zero.
#[test]
fn activations_of_extremes() -> ct::Result<()> {
    let inputs = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -6.0, -9.5, 12.0, 3e38, -3e38];
    let (a, b) = (device().array(&inputs, [9, 1])?, device().full([1, 1], 1.0f32)?);
    let mut c = zeros::<f32, 2>([9, 1])?;
    let small = [-5.919_525_87e-9, -9.969_789_322e-21];
    matmul().gelu().launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let want = [f64::INFINITY, 0.0, f64::NAN, 0.0, small[0], small[1], 12.0, 3e38, 0.0];
    close(&c, &want, 1e-30, 1e-5);
    Ok(())
}

#[test]
fn a_function_is_a_stage() -> ct::Result<()> {
    let ([m, n, _], Problem { a, b, mut c, sums }) = (SHAPE, problem(SHAPE)?);
    let ((limits, u), (other, v)) = (random::<f32, 1>(3, [n], 5.0)?, random::<f32, 2>(4, [m, n], 1.0)?);
    let function = |x: Tile<f32, 2>, (limits, other, scale): (Array<f32, 1>, Array<f32, 2>, Scalar<f32>), at: Place| {
        let limits = limits.load(at.column, [x.shape()[1]]);
        x.min(limits) * scale + other.load((at.row, at.column), x.shape())
    };
    let product = matmul().apply((limits.view(), other.view(), 3.0f32), function);
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    close(&c, &map(&sums, n, |x, i, j| x.min(u[j]) * 3.0 + v[i * n + j]), 5e-5, 0.0);
    Ok(())
}

#[test]
fn pairs_of_columns_are_gated() -> ct::Result<()> {
    let ([m, n, _], Problem { a, b, sums, .. }) = (SHAPE, problem(SHAPE)?);
    let (bias, u) = random::<f16, 1>(3, [n / 2], 1.0)?;
    let (mut c, mut of_rows) = (zeros::<f32, 2>([m, n / 2])?, zeros::<f32, 1>([m])?);
    let product = matmul().gate_pairs(Activation::Silu).bias(bias.view()).row_sums(of_rows.view_mut());
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let value = |i: usize, j: usize| {
        let (x, y) = (sums[i * n + 2 * j], sums[i * n + 2 * j + 1]);
        x / (1.0 + (-x).exp()) * y + u[j]
    };
    let want: Vec<f64> = (0..m * n / 2).map(|at| value(at / (n / 2), at % (n / 2))).collect();
    close(&c, &want, 1e-4, 0.0);
    let rows: Vec<f64> = want.chunks(n / 2).map(|row| row.iter().sum()).collect();
    close(&of_rows, &rows, 1e-3, 0.0);
    Ok(())
}

#[test]
fn rows_and_columns_are_added() -> ct::Result<()> {
    let ([m, n, _], Problem { a, b, mut c, sums }) = (SHAPE, problem(SHAPE)?);
    let (mut of_rows, mut of_columns) = (zeros::<f32, 1>([m])?, zeros::<f32, 1>([n])?);
    // exp(0) of the elements after the last row and column is not added.
    let product = matmul().scale(0.1).apply((), |x: Tile<f32, 2>, (), _| x.exp());
    let product = product.row_sums(of_rows.view_mut()).column_sums(of_columns.view_mut());
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let values = map(&sums, n, |x, _, _| (0.1 * x).exp());
    close(&c, &values, 0.0, 1e-5);
    let rows: Vec<f64> = values.chunks(n).map(|row| row.iter().sum()).collect();
    let columns: Vec<f64> = (0..n).map(|j| (0..m).map(|i| values[i * n + j]).sum()).collect();
    close(&of_rows, &rows, 0.0, 1e-5);
    close(&of_columns, &columns, 0.0, 1e-5);
    Ok(())
}

#[test]
fn heads_are_rotated() -> ct::Result<()> {
    let [m, n, k] = [20, 96, 24];
    let dim = 16;
    let Problem { a, b, mut c, sums } = problem([m, n, k])?;
    let ((cos, u), (sin, v)) = (random::<f32, 2>(3, [m, dim / 2], 1.0)?, random::<f32, 2>(4, [m, dim / 2], 1.0)?);
    for pairs in [Pairs::Halves, Pairs::Adjacent] {
        let product = matmul().rotate(cos.view(), sin.view(), [dim, 64], pairs);
        product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
        let rotated = |x: f64, i: usize, j: usize| {
            if j >= 64 {
                return x;
            }
            let (head, d) = (j / dim * dim, j % dim);
            let at = |d: usize| sums[i * n + head + d];
            let (p, first, other) = match pairs {
                Pairs::Halves => (d % (dim / 2), d < dim / 2, (d + dim / 2) % dim),
                Pairs::Adjacent => (d / 2, d % 2 == 0, d ^ 1),
            };
            let (cos, sin) = (u[i * dim / 2 + p], v[i * dim / 2 + p]);
            if first { x * cos - at(other) * sin } else { x * cos + at(other) * sin }
        };
        close(&c, &map(&sums, n, rotated), 2e-5, 0.0);
    }
    Ok(())
}

#[test]
fn blocks_are_quantized() -> ct::Result<()> {
    let [m, n, k] = [20, 300, 24];
    let Problem { a, b, sums, .. } = problem([m, n, k])?;
    let (mut c, mut scales) = (zeros::<f8e4m3fn, 2>([m, n])?, zeros::<f32, 2>([3, m])?);
    let product = matmul().quantize_blocks(scales.view_mut(), 448.0);
    product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let largest = |i: usize, block: usize| {
        let row = &sums[i * n..][..n][block * 128..];
        row.iter().take(128).fold(0.0f64, |largest, x| largest.max(x.abs()))
    };
    let want: Vec<f64> = (0..3 * m).map(|at| largest(at % m, at / m) / 448.0).collect();
    close(&scales, &want, 0.0, 1e-5);
    // Half a unit in the last place: 2^-4 of the number, or the half of the least subnormal number.
    for (at, (code, &x)) in c.to_vec()?.iter().zip(&sums).enumerate() {
        let scale = want[at % n / 128 * m + at / n];
        assert!((code.to_f64() * scale - x).abs() <= x.abs() / 15.9 + scale / 1000.0, "element {at}");
    }
    Ok(())
}

#[test]
fn the_left_operand_is_converted() -> ct::Result<()> {
    let [m, n, k] = SHAPE;
    let ((a, x), (b, y)) = (random::<f32, 2>(1, [m, k], 1.0)?, random::<f16, 2>(2, [k, n], 1.0)?);
    let ((rows, r), (weight, w)) = (random::<f32, 1>(3, [m], 1.0)?, random::<bf16, 1>(4, [k], 1.0)?);
    let mut c = zeros::<f32, 2>([m, n])?;
    let half = |x: f64| f16::from_f64(x).to_f64();
    matmul().cast_left().launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let [want, _] = product([m, n, k], |i, l| half(x[i * k + l]), |l, j| y[l * n + j]);
    close(&c, &want, 2e-5, 0.0);
    let product_of_norm = matmul().normalize_left(rows.view(), weight.view()).relu();
    product_of_norm.launch(&stream(), a.view(), b.view(), c.view_mut())?;
    let [want, _] = product([m, n, k], |i, l| half(x[i * k + l] * r[i] * w[l]), |l, j| y[l * n + j]);
    close(&c, &map(&want, n, |x, _, _| x.max(0.0)), 5e-3, 0.0);
    Ok(())
}
