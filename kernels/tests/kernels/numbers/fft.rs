//! Fourier transforms against a recursive one in f64.

use std::f64::consts::TAU;

use cutlet as ct;
use cutlet_kernels::numbers::{Fft, Transform};

use crate::support::{device, random};

/// Transform of the even and of the odd numbers, recursively. `sign` is -1, or 1 for the inverse
/// without its factor.
fn reference(z: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
    let n = z.len();
    if n == 1 {
        return z.to_vec();
    }
    let half = |first: usize| reference(&z.iter().skip(first).step_by(2).copied().collect::<Vec<_>>(), sign);
    let (even, odd) = (half(0), half(1));
    let mut result = vec![[0.0; 2]; n];
    for k in 0..n / 2 {
        let (sine, cosine) = (sign * TAU * k as f64 / n as f64).sin_cos();
        let [a, b] = odd[k];
        let turned = [a * cosine - b * sine, a * sine + b * cosine];
        result[k] = [even[k][0] + turned[0], even[k][1] + turned[1]];
        result[k + n / 2] = [even[k][0] - turned[0], even[k][1] - turned[1]];
    }
    result
}

fn pairs(of: &[f64]) -> Vec<[f64; 2]> {
    of.chunks(2).map(|pair| [pair[0], pair[1]]).collect()
}

fn check(rows: usize, n: usize) -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let (x, exact) = random::<f32, 2>(n as u64, [rows, 2 * n], 1.0)?;
    let mut y = device.zeros([rows, 2 * n])?;
    let mut plan = Fft::new(device, [rows, n])?;
    for (transform, sign, factor) in [(Transform::Forward, -1.0, 1.0), (Transform::Inverse, 1.0, 1.0 / n as f64)] {
        plan.run(&stream, x.view(), y.view_mut(), transform)?;
        let got: Vec<f64> = y.to_vec()?.iter().map(|&x| x.into()).collect();
        for row in 0..rows {
            let want = reference(&pairs(&exact[row * 2 * n..][..2 * n]), sign);
            let scale = factor * (n as f64).sqrt();
            for (k, (got, want)) in pairs(&got[row * 2 * n..][..2 * n]).iter().zip(want).enumerate() {
                let distance = (got[0] - want[0] * factor).hypot(got[1] - want[1] * factor);
                assert!(distance < 2e-6 * scale, "{n}, row {row}, {transform:?}: number {k} differs by {distance}");
            }
        }
    }
    Ok(())
}

#[test]
fn one_pass() -> ct::Result<()> {
    check(3, 1)?;
    check(5, 2)?;
    check(37, 256)?;
    check(3, 2048)?;
    check(1, 8192)?;
    check(1, 1 << 14)
}

#[test]
fn two_passes() -> ct::Result<()> {
    check(1, 1 << 15)?;
    check(1, 1 << 17)
}

#[test]
fn views_and_errors() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let (x, _) = random::<f32, 2>(3, [6, 64], 1.0)?;
    let (mut y, mut z) = (device.zeros([3, 64])?, device.zeros([6, 64])?);
    Fft::new(device, [3, 32])?.run(&stream, x.step(0, 2)?, y.view_mut(), Transform::Forward)?;
    Fft::new(device, [6, 32])?.run(&stream, x.view(), z.view_mut(), Transform::Forward)?;
    assert_eq!(y.to_vec()?, z.step(0, 2)?.to_vec()?);
    assert!(Fft::new(device, [1, 48]).is_err());
    assert!(Fft::new(device, [1, 1 << 21]).is_err());
    let error = Fft::new(device, [2, 32])?.run(&stream, x.view(), y.view_mut(), Transform::Forward);
    assert!(error.expect_err("6 rows").to_string().contains("2 rows of 32 numbers: array of [6, 64]"));
    Ok(())
}
