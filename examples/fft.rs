//! Fourier transforms of rows of complex numbers, and their inverse: `cargo run --example fft`.

use cutlet as ct;
use cutlet::math::{ComplexArray, ComplexArrayMut, c64};
use cutlet::prelude::*;

/// A block transforms some rows: threads hold 16 numbers in registers, and exchange them between
/// steps.
pub fn fft(x: ComplexArray<f32, 2>, y: ComplexArrayMut<f32, 2>, [rows, n]: [usize; 2], inverse: bool) {
    let at = (ct::bid(0), 0);
    let z = x.load(at, [rows, n]);
    y.store(at, if inverse { ct::math::ifft(z, 1) } else { ct::math::fft(z, 1) });
}

fn main() -> ct::Result<()> {
    let ([m, n], rows) = ([11, 256], 4);
    let number = |at: usize| c64::new((at as f32 * 0.37).sin(), (at as f32 * 0.11).cos());
    let host: Vec<c64> = (0..m * n).map(number).collect();
    let device = ct::Device::first()?;
    let x = device.complex(&host, [m, n])?;
    let (mut y, mut z) = (device.complex_zeros([m, n])?, device.complex_zeros([m, n])?);
    let extents = Constant([rows, n]);
    ct::launch(fft, m.div_ceil(rows), (&x, &mut y, extents, Constant(false)))?;
    ct::launch(fft, m.div_ceil(rows), (&y, &mut z, extents, Constant(true)))?;

    let (y, z) = (y.to_vec()?, z.to_vec()?);
    // By the definition: a sum of all numbers of the row, each rotated.
    let want = |row: usize, k: usize| {
        (0..n).fold([0.0; 2], |[re, im], j| {
            let (sine, cosine) = (-std::f64::consts::TAU * (j * k % n) as f64 / n as f64).sin_cos();
            let (a, b) = (f64::from(host[row * n + j].re), f64::from(host[row * n + j].im));
            [re + a * cosine - b * sine, im + a * sine + b * cosine]
        })
    };
    let distance = |z: c64, [re, im]: [f64; 2]| (f64::from(z.re) - re).hypot(f64::from(z.im) - im);
    let there = (0..m * n).map(|at| distance(y[at], want(at / n, at % n)) / n as f64);
    let back = (0..m * n).map(|at| distance(z[at], [host[at].re.into(), host[at].im.into()]));
    let error = there.chain(back).max_by(f64::total_cmp).unwrap_or(0.0);
    println!("fft: {m} x {n} there and back, {}, largest error {error:.1e}", device.name());
    assert!(error <= 2e-6, "wrong results");
    Ok(())
}
