//! Rows of the comparison with the examples of TileLang and with TileKernels.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::{DeviceArray, Stream};
use cutlet_kernels::images::Convolution;
use cutlet_kernels::norms::sinkhorn;
use cutlet_kernels::numbers::quantize_e5m6;
use cutlet_kernels::order::{Selected, top_k};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Positions of the largest elements of rows, in any order. Ours has the elements, too.
fn of_selector<const ROWS: usize, const N: usize, const K: usize>() -> Case {
    let data = |device: ct::Device| {
        Ok(Data {
            inputs: vec![("x", random::<f32>(device, 1, ROWS * N, 3.0)?)],
            outputs: vec![("y", device.zeros([ROWS * K])?)],
            numbers: vec![],
            integers: vec![
                ("order", device.zeros([ROWS * K])?),
                ("starts", device.zeros([ROWS])?),
                ("ends", device.full([ROWS], N as i32)?),
            ],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let Data { inputs, outputs, integers, .. } = data;
        let y = matrix_mut(&mut outputs[0].1, [ROWS, K])?;
        let positions = matrix_mut(&mut integers[0].1, [ROWS, K])?;
        top_k(stream, matrix(&inputs[0].1, [ROWS, N])?, (y, positions), Selected::Unsorted)
    };
    let reset = |_: &Stream, data: &mut Data<f32>| data.integers[0].1.copy_from(&vec![-1; ROWS * K]);
    let error = |data: &Data<f32>| {
        let all = data.integers[0].1.to_vec()?;
        for row in places(ROWS) {
            let x = data.read("x", row * N, N)?;
            let mut sorted = x.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let mut at: Vec<usize> = all[row * K..][..K].iter().map(|&at| at as usize).collect();
            at.sort_unstable();
            at.dedup();
            if at.len() < K || at.iter().any(|&at| at >= N || x[at] < sorted[K - 1]) {
                return Ok(1.0);
            }
        }
        Ok(0.0)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    Case::new(format!("top-k selector f32 {ROWS} {N} {K}"), 0.0, (4 * ROWS * N) as f64, 0.0, functions)
}

/// A convolution with stride 1 and the padding of its window.
fn of_convolution<const IMAGES: usize, const EXTENT: usize, const INPUTS: usize, const OUTPUTS: usize>() -> Case {
    const WINDOW: usize = 3;
    let data = |device: ct::Device| {
        Ok(Data {
            inputs: vec![
                ("x", random::<f16>(device, 1, IMAGES * EXTENT * EXTENT * INPUTS, 1.0)?),
                ("w", random::<f16>(device, 2, WINDOW * WINDOW * INPUTS * OUTPUTS, 0.1)?),
            ],
            outputs: vec![("y", device.zeros([IMAGES * EXTENT * EXTENT * OUTPUTS])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f16>| {
        let Data { inputs, outputs, .. } = data;
        let x = matrix(&inputs[0].1, [IMAGES, EXTENT, EXTENT, INPUTS])?;
        let w = matrix(&inputs[1].1, [WINDOW, WINDOW, INPUTS, OUTPUTS])?;
        let y = matrix_mut(&mut outputs[0].1, [IMAGES, EXTENT, EXTENT, OUTPUTS])?;
        Convolution { padding: [1, 1], ..Convolution::default() }.forward(stream, x, w, y)
    };
    let error = |data: &Data<f16>| {
        let w = data.read("w", 0, WINDOW * WINDOW * INPUTS * OUTPUTS)?;
        let mut worst = 0.0f64;
        for at in places(IMAGES * EXTENT * EXTENT) {
            let (image, row, column) = (at / EXTENT / EXTENT, at / EXTENT % EXTENT, at % EXTENT);
            let mut want = vec![0.0; OUTPUTS];
            for tap in 0..WINDOW * WINDOW {
                let (r, c) = (row + tap / WINDOW, column + tap % WINDOW);
                if r == 0 || c == 0 || r > EXTENT || c > EXTENT {
                    continue;
                }
                let x = data.read("x", ((image * EXTENT + r - 1) * EXTENT + c - 1) * INPUTS, INPUTS)?;
                for (x, w) in x.iter().zip(w[tap * INPUTS * OUTPUTS..].chunks_exact(OUTPUTS)) {
                    want.iter_mut().zip(w).for_each(|(want, w)| *want += x * w);
                }
            }
            worst = worst.max(difference(&values(&data.outputs[0].1, at * OUTPUTS, OUTPUTS)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let flops = 2.0 * (IMAGES * EXTENT * EXTENT * INPUTS * OUTPUTS * WINDOW * WINDOW) as f64;
    let name = format!("convolution f16 {IMAGES} {EXTENT} {INPUTS} {OUTPUTS} {WINDOW}");
    Case::new(name, 2e-3, 0.0, flops, functions)
}

/// Ten steps of Sinkhorn's normalization of 4 x 4 matrices.
fn of_sinkhorn<const COUNT: usize>() -> Case {
    const N: usize = 4;
    const EPSILON: f32 = 1e-6;
    let data = |device: ct::Device| {
        Ok(Data {
            inputs: vec![("x", random::<f32>(device, 1, COUNT * N * N, 3.0)?)],
            outputs: vec![("y", device.zeros([COUNT * N * N])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let shape = [COUNT, N, N];
        let y = matrix_mut(&mut data.outputs[0].1, shape)?;
        sinkhorn(stream, matrix(&data.inputs[0].1, shape)?, y, 10, EPSILON)
    };
    let error = |data: &Data<f32>| {
        let (mut worst, epsilon) = (0.0f64, f64::from(EPSILON));
        for at in places(COUNT) {
            let mut y: Vec<f64> = data.read("x", at * N * N, N * N)?.iter().map(|x| x.exp()).collect();
            // The softmax has no epsilon in its quotient, and one in its result.
            for step in 0..20 {
                for i in 0..N {
                    let place = |j: usize| if step % 2 == 0 { i * N + j } else { j * N + i };
                    let sum: f64 = (0..N).map(|j| y[place(j)]).sum();
                    let (below, above) = if step == 0 { (0.0, epsilon) } else { (epsilon, 0.0) };
                    (0..N).for_each(|j| y[place(j)] = y[place(j)] / (sum + below) + above);
                }
            }
            worst = worst.max(difference(&values(&data.outputs[0].1, at * N * N, N * N)?, &y));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    Case::new(format!("sinkhorn f32 {COUNT} {N}"), 2e-5, (8 * COUNT * N * N) as f64, 0.0, functions)
}

/// Codes of 12 bits with a scale for each row. The array of the original has pairs of the same
/// numbers.
fn of_e5m6<const ROWS: usize, const COLUMNS: usize>() -> Case {
    let data = |device: ct::Device| {
        let x = random::<bf16>(device, 1, ROWS * COLUMNS, 3.0)?;
        let bits = |x: bf16| u32::from(x.to_bits());
        let pairs: Vec<u32> = x.to_vec()?.chunks_exact(2).map(|x| bits(x[1]) << 16 | bits(x[0])).collect();
        Ok(Data {
            inputs: vec![("x", device.array(&pairs, [pairs.len()])?)],
            outputs: vec![("codes", device.zeros([ROWS * COLUMNS / 8 * 3])?)],
            numbers: vec![("scales", device.zeros([ROWS])?)],
            integers: vec![],
            kept: Some(Box::new(x)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<u32>| {
        let Data { outputs, numbers, kept, .. } = data;
        let Some(x) = kept.as_ref().and_then(|kept| kept.downcast_ref::<DeviceArray<bf16, 1>>()) else { return Ok(()) };
        let words = matrix_mut(&mut outputs[0].1, [ROWS, COLUMNS / 8, 3])?;
        quantize_e5m6(stream, matrix(x, [ROWS, COLUMNS])?, words, numbers[0].1.view_mut())
    };
    let reset = |_: &Stream, data: &mut Data<u32>| {
        data.outputs[0].1.copy_from(&vec![u32::MAX; ROWS * COLUMNS / 8 * 3])?;
        data.numbers[0].1.copy_from(&[f32::NAN; ROWS])
    };
    let error = |data: &Data<u32>| {
        let Some(x) = data.kept.as_ref().and_then(|kept| kept.downcast_ref::<DeviceArray<bf16, 1>>()) else {
            return Ok(1.0);
        };
        let mut worst = 0.0f64;
        for row in places(ROWS) {
            let x = values(x, row * COLUMNS, COLUMNS)?;
            let scale = values(&data.numbers[0].1, row, 1)?[0];
            let words = COLUMNS / 8 * 3;
            let words = data.outputs[0].1.view().slice(0, row * words..(row + 1) * words)?.to_vec()?;
            for (x, words) in x.chunks_exact(8).zip(words.chunks_exact(3)) {
                let all = words.iter().fold(0u128, |all, &word| all << 32 | u128::from(word));
                for (place, x) in x.iter().enumerate() {
                    let code = (all >> (84 - 12 * place)) as i32 & 0xfff;
                    let (exponent, mantissa) = (code >> 6 & 31, f64::from(code & 63));
                    let number = if exponent == 0 { mantissa / 64.0 } else { 1.0 + mantissa / 64.0 };
                    let signed = number * 2f64.powi(exponent.max(1) - 15) * if code < 0x800 { scale } else { -scale };
                    let apart = (signed - x).abs() / x.abs().max(scale * 2f64.powi(-14));
                    worst = worst.max(if apart.is_nan() { 1.0 } else { apart });
                }
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    // Half of the distance of two codes.
    let bytes = (ROWS * COLUMNS * 7 / 2) as f64;
    Case::new(format!("quantize e5m6 bf16 {ROWS} {COLUMNS}"), 1.0 / 127.0, bytes, 0.0, functions)
}

pub fn small() -> Vec<Case> {
    vec![of_selector::<2, 6000, 300>(), of_convolution::<1, 12, 16, 32>(), of_sinkhorn::<200>(), of_e5m6::<3, 512>()]
}

pub fn cases() -> Vec<Case> {
    vec![
        of_selector::<64, 32768, 2048>(),
        of_convolution::<128, 64, 128, 128>(),
        of_sinkhorn::<8192>(),
        of_sinkhorn::<1_048_576>(),
        of_e5m6::<8192, 7168>(),
    ]
}
