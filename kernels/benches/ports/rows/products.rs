//! Rows of products of matrices and of groups of rows.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::{bf16, f16};
use cutlet_kernels::products::Factor;
use cutlet_kernels::{Number, matmul};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

fn of_matmul<T: Number + Factor, const M: usize, const N: usize, const K: usize>() -> Case {
    let data = move |device: ct::Device| {
        Ok(Data {
            inputs: vec![("a", random::<T>(device, 1, M * K, 1.0)?), ("b", random::<T>(device, 2, K * N, 1.0)?)],
            outputs: vec![("y", device.zeros([M * N])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let (a, b) = (matrix(&data.inputs[0].1, [M, K])?, matrix(&data.inputs[1].1, [K, N])?);
        matmul().launch(stream, a, b, matrix_mut(&mut data.outputs[0].1, [M, N])?)
    };
    let error = |data: &Data<T>| {
        let mut worst = 0.0f64;
        // Columns of b are strided: some columns at a time.
        const COLUMNS: usize = 16;
        for first in [0, N / 2 - 8, N - COLUMNS] {
            let b = matrix(&data.inputs[1].1, [K, N])?.slice(1, first..first + COLUMNS)?.to_vec()?;
            for row in places(M) {
                let a = data.read("a", row * K, K)?;
                let dot = |j: usize| (0..K).map(|k| a[k] * b[k * COLUMNS + j].to_f64()).sum::<f64>();
                let want: Vec<f64> = (0..COLUMNS).map(dot).collect();
                worst = worst.max(difference(&values(&data.outputs[0].1, row * N + first, COLUMNS)?, &want));
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let flops = 2.0 * (M * N * K) as f64;
    Case::new(format!("matmul {} {M} {N} {K}", T::NAME), 8e-3, 0.0, flops, functions)
}

/// Products of groups of rows, each with a matrix of its own. Groups have different sizes.
fn of_groups<const GROUPS: usize, const EACH: usize, const N: usize, const K: usize>() -> Case {
    fn sizes<const GROUPS: usize, const EACH: usize>() -> Vec<i32> {
        let apart = |i: usize| (i / 2 * 37 % (EACH / 2)) as i32;
        (0..GROUPS).map(|i| EACH as i32 + if i % 2 == 0 { apart(i) } else { -apart(i) }).collect()
    }
    let data = move |device: ct::Device| {
        let sizes = sizes::<GROUPS, EACH>();
        let offsets: Vec<i32> = (0..=GROUPS).map(|i| sizes[..i].iter().sum()).collect();
        let inputs = vec![
            ("x", random::<bf16>(device, 1, GROUPS * EACH * K, 1.0)?),
            ("w", random::<bf16>(device, 2, GROUPS * N * K, 1.0)?),
        ];
        Ok(Data {
            inputs,
            outputs: vec![("y", device.zeros([GROUPS * EACH * N])?)],
            numbers: vec![],
            integers: vec![
                ("sizes", device.array(&sizes, [GROUPS])?),
                ("offsets", device.array(&offsets, [GROUPS + 1])?),
                ("order", device.zeros([GROUPS * EACH])?),
            ],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let (x, w) = (matrix(&data.inputs[0].1, [GROUPS * EACH, K])?, matrix(&data.inputs[1].1, [GROUPS, N, K])?);
        let (offsets, y) = (data.integers[1].1.view(), matrix_mut(&mut data.outputs[0].1, [GROUPS * EACH, N])?);
        matmul().launch_grouped(stream, x, w.permute([0, 2, 1])?, offsets, y)
    };
    let error = |data: &Data<bf16>| {
        let offsets = data.integers[1].1.to_vec()?;
        let mut worst = 0.0f64;
        for row in places(GROUPS * EACH) {
            let group = offsets.iter().filter(|&&at| at as usize <= row).count() - 1;
            let x = data.read("x", row * K, K)?;
            for first in [0, N - 16] {
                let w = data.read("w", (group * N + first) * K, 16 * K)?;
                let want: Vec<f64> = w.chunks_exact(K).map(|w| w.iter().zip(&x).map(|(a, b)| a * b).sum()).collect();
                worst = worst.max(difference(&values(&data.outputs[0].1, row * N + first, 16)?, &want));
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let flops = 2.0 * (GROUPS * EACH * N * K) as f64;
    Case::new(format!("grouped product bf16 {GROUPS} {} {N} {K}", GROUPS * EACH), 8e-3, 0.0, flops, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_matmul::<f16, 64, 48, 80>(), of_groups::<4, 16, 32, 48>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![
        of_matmul::<f16, 4096, 4096, 4096>(),
        of_matmul::<bf16, 8192, 8192, 8192>(),
        of_groups::<32, 512, 2048, 4096>(),
    ]
}
