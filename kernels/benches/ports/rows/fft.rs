//! Rows of Fourier transforms of rows of complex numbers.

use std::f64::consts::PI;

use cutlet as ct;
use cutlet::Stream;
use cutlet_kernels::numbers::{Fft, Transform};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Rows of N = F · F · F numbers. The original has matrices of roots of one as operands.
fn of_fft<const ROWS: usize, const N: usize, const F: usize>() -> Case {
    let data = |device: ct::Device| {
        let roots = |rows: usize, columns: usize, of: usize| {
            device.from_fn([rows * columns * 2], |[at]| {
                let angle = -2.0 * PI * ((at / 2 / columns) * (at / 2 % columns)) as f64 / of as f64;
                if at % 2 == 0 { angle.cos() as f32 } else { angle.sin() as f32 }
            })
        };
        Ok(Data {
            inputs: vec![("x", random::<f32>(device, 1, ROWS * 2 * N, 1.0)?)],
            outputs: vec![("y", device.zeros([ROWS * 2 * N])?)],
            numbers: vec![("w", roots(F, F, F)?), ("t0", roots(F, F * F, N)?), ("t1", roots(F, F, F * F)?)],
            integers: vec![],
            kept: Some(Box::new(Fft::new(device, [ROWS, N])?)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let Data { inputs, outputs, kept: Some(kept), .. } = data else { return Ok(()) };
        let Some(fft) = kept.downcast_mut::<Fft>() else { return Ok(()) };
        let shape = [ROWS, 2 * N];
        fft.run(stream, matrix(&inputs[0].1, shape)?, matrix_mut(&mut outputs[0].1, shape)?, Transform::Forward)
    };
    let error = |data: &Data<f32>| {
        let mut worst = 0.0f64;
        for row in places(ROWS) {
            let x = data.read("x", row * 2 * N, 2 * N)?;
            let mut want = Vec::new();
            for k in 0..N {
                let term = |(n, z): (usize, &[f64])| {
                    let (sin, cos) = (-2.0 * PI * (k * n % N) as f64 / N as f64).sin_cos();
                    [z[0] * cos - z[1] * sin, z[0] * sin + z[1] * cos]
                };
                want.extend(x.chunks_exact(2).enumerate().map(term).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]));
            }
            worst = worst.max(difference(&values(&data.outputs[0].1, row * 2 * N, 2 * N)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    Case::new(format!("fft c64 {ROWS} {N}"), 1e-4, (16 * ROWS * N) as f64, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_fft::<3, 64, 4>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_fft::<65_536, 512, 8>(), of_fft::<8192, 4096, 16>()]
}
