//! Rows of the comparison with the triangular systems of FlagGems, which solve in place.

use cutlet as ct;
use cutlet::Stream;
use cutlet::ops::MatrixFloat;
use cutlet_kernels::linalg::{Triangle, solve_triangular};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, values};

/// A number from -1 to 1 by a hash of the place.
fn number(at: usize) -> f64 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64 as f64 / 2f64.powi(63)
}

/// A lower triangular system with many right-hand sides.
fn of_system<T: MatrixFloat, const N: usize, const K: usize>() -> Case {
    let data = |device: ct::Device| {
        let element = |[at]: [usize; 1]| {
            let (row, column) = (at / N, at % N);
            T::from_f64(if row == column { 1.5 + 0.5 * number(at) } else { 0.05 * number(at) })
        };
        Ok(Data {
            inputs: vec![
                ("a", device.from_fn([N * N], element)?),
                ("b", device.from_fn([N * K], |[at]| T::from_f64(number(at + N * N)))?),
            ],
            outputs: vec![("x", device.zeros([N * K])?), ("inverses", device.zeros([K.div_ceil(8) * 32])?)],
            numbers: vec![],
            integers: vec![("sync", device.zeros([1])?)],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let Data { inputs, outputs, .. } = data;
        let (a, b) = (matrix(&inputs[0].1, [1, N, N])?, matrix(&inputs[1].1, [1, N, K])?);
        solve_triangular(stream, Triangle::default(), a, b, matrix_mut(&mut outputs[0].1, [1, N, K])?)
    };
    let reset = |_: &Stream, data: &mut Data<T>| {
        let Data { inputs, outputs, .. } = data;
        outputs[0].1.view_mut().copy_from_array(&inputs[1].1.view())
    };
    let error = |data: &Data<T>| {
        let (a, b) = (data.read("a", 0, N * N)?, data.read("b", 0, N * K)?);
        let found = values(&data.outputs[0].1, 0, N * K)?;
        let mut worst = 0.0f64;
        for column in [0, 1, K / 2, K - 1] {
            let mut want: Vec<f64> = Vec::with_capacity(N);
            for i in 0..N {
                let sum: f64 = a[i * N..].iter().zip(&want).map(|(a, x)| a * x).sum();
                want.push((b[i * K + column] - sum) / a[i * N + i]);
            }
            let found: Vec<f64> = (0..N).map(|i| found[i * K + column]).collect();
            worst = worst.max(difference(&found, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let tolerance = if size_of::<T>() == 4 { 1e-4 } else { 1e-12 };
    let name = format!("triangular system {} {N} {K}", T::NAME);
    Case::new(name, tolerance, 0.0, (N * N * K) as f64, functions)
}

pub fn small() -> Vec<Case> {
    vec![of_system::<f32, 150, 20>(), of_system::<f64, 150, 20>()]
}

pub fn cases() -> Vec<Case> {
    vec![of_system::<f32, 512, 512>(), of_system::<f32, 1024, 1024>(), of_system::<f64, 1024, 1024>()]
}
