//! Gated activations.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::norms::{Gate, gated, gated_backward};

use super::tolerance;
use crate::support::{close, device, random};

/// The error function by its series and its continued fraction (Abramowitz and Stegun, 7.1.6 and
/// 7.1.14).
fn erf(x: f64) -> f64 {
    if x.abs() < 3.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= 2.0 * x * x / (2 * n + 1) as f64;
            sum += term;
        }
        return sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60).rev().fold(x.abs(), |f, k| x.abs() + k as f64 / 2.0 / f);
    x.signum() * (1.0 - (-x * x).exp() / fraction / std::f64::consts::PI.sqrt())
}

fn value(gate: Gate, x: f64) -> f64 {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    match gate {
        Gate::Silu => x / (1.0 + (-x).exp()),
        Gate::Gelu => x * (1.0 + erf(x / 2f64.sqrt())) / 2.0,
        Gate::GeluTanh => x * (1.0 + (root * (x + 0.044715 * x * x * x)).tanh()) / 2.0,
        Gate::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

fn slope(gate: Gate, x: f64) -> f64 {
    let step = 1e-5;
    (value(gate, x + step) - value(gate, x - step)) / (2.0 * step)
}

fn both_ways<T: Number>(rows: usize, columns: usize) -> ct::Result<()> {
    let (stream, shape) = (device().default_stream(), [rows, columns]);
    let (absolute, relative) = tolerance::<T>();
    // Halves of the rows of one array.
    let (both, exact) = random::<T, 2>(3, [rows, 2 * columns], 6.0)?;
    let (dy, exact_dy) = random::<T, 2>(4, shape, 1.0)?;
    let (a, b) = both.view().split_at(1, columns)?;
    let of_rows = |at: usize| (at / columns * 2 * columns + at % columns, at);
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh, Gate::Sigmoid] {
        let mut y = device().zeros::<T, 2>(shape)?;
        gated(&stream, [a, b], y.view_mut(), gate)?;
        let want = |at: usize| value(gate, exact[of_rows(at).0]) * exact[of_rows(at).0 + columns];
        close(&y, &(0..rows * columns).map(want).collect::<Vec<f64>>(), absolute * 10.0, relative);
        let (mut da, mut db) = (device().zeros::<T, 2>(shape)?, device().zeros::<T, 2>(shape)?);
        gated_backward(&stream, [a, b, dy.view()], [da.view_mut(), db.view_mut()], gate)?;
        let of_a = |at: usize| exact_dy[at] * exact[of_rows(at).0 + columns] * slope(gate, exact[of_rows(at).0]);
        let of_b = |at: usize| exact_dy[at] * value(gate, exact[of_rows(at).0]);
        close(&da, &(0..rows * columns).map(of_a).collect::<Vec<f64>>(), absolute * 10.0, relative);
        close(&db, &(0..rows * columns).map(of_b).collect::<Vec<f64>>(), absolute * 10.0, relative);
    }
    Ok(())
}

#[test]
fn gates_of_any_length() -> ct::Result<()> {
    for (rows, columns) in [(3, 1), (2, 100), (5, 48), (1, 2500)] {
        both_ways::<f32>(rows, columns)?;
        both_ways::<f16>(rows, columns)?;
        both_ways::<bf16>(rows, columns)?;
    }
    Ok(())
}
