//! Rows beside flash-linear-attention.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::linalg::inverse_unit_lower;
use cutlet_kernels::recurrent::{DeltaInputs, KimiDelta, States};

use crate::case::{Case, Data, Functions, difference, poison_all, random, values};
use crate::rows::{matrix, matrix_mut, places};

/// Inverses of lower triangular matrices with a diagonal of ones.
fn of_inverse<const COUNT: usize, const N: usize>() -> Case {
    let data = |device: ct::Device| {
        Ok(Data {
            inputs: vec![("a", random::<f32>(device, 1, COUNT * N * N, 0.2)?)],
            outputs: vec![("y", device.zeros([COUNT * N * N])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let shape = [COUNT, N, N];
        inverse_unit_lower(stream, matrix(&data.inputs[0].1, shape)?, matrix_mut(&mut data.outputs[0].1, shape)?)
    };
    let error = |data: &Data<f32>| {
        let mut worst = 0.0f64;
        for at in places(COUNT) {
            let a = data.read("a", at * N * N, N * N)?;
            let mut want = vec![0.0; N * N];
            for i in 0..N {
                want[i * N + i] = 1.0;
                for k in 0..i {
                    for j in 0..=k {
                        want[i * N + j] -= a[i * N + k] * want[k * N + j];
                    }
                }
            }
            worst = worst.max(difference(&values(&data.outputs[0].1, at * N * N, N * N)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    Case::new(format!("inverse of unit lower f32 {COUNT} {N}"), 1e-5, (8 * COUNT * N * N) as f64, 0.0, functions)
}

/// Kimi delta attention over whole sequences.
fn of_kimi_chunks<const BATCH: usize, const TOKENS: usize, const HEADS: usize, const DIM: usize>() -> Case {
    let (count, len) = (BATCH * TOKENS * HEADS, BATCH * TOKENS * HEADS * DIM);
    let data = move |device: ct::Device| {
        let part = || device.zeros::<bf16, 1>([len]);
        let chunk = || device.zeros::<bf16, 1>([count * 64]);
        Ok(Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, len, 0.15)?),
                ("k", random::<bf16>(device, 2, len, 0.15)?),
                ("v", random::<bf16>(device, 3, len, 1.0)?),
            ],
            outputs: vec![
                ("y", part()?),
                ("w", part()?),
                ("u", part()?),
                ("kg", part()?),
                ("new", part()?),
                ("scores", chunk()?),
                ("inverse", chunk()?),
                ("h", device.zeros([BATCH * TOKENS.div_ceil(64) * HEADS * DIM * DIM])?),
            ],
            numbers: vec![
                ("gates", device.from_fn([len], |[at]| -0.002 * (at * 7_919 % 97) as f32)?),
                ("beta", device.from_fn([count], |[at]| 0.01 * (at % 89) as f32)?),
                ("sums", device.zeros([len])?),
                ("diagonal", device.zeros([count * 16])?),
            ],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let shape = [BATCH, TOKENS, HEADS, DIM];
        let [q, k, v] = [0, 1, 2].map(|of| matrix(&inputs[of].1, shape));
        let (gates, rates) = (matrix(&numbers[0].1, shape)?, matrix(&numbers[1].1, [BATCH, TOKENS, HEADS])?);
        let inputs = DeltaInputs { q: q?, k: k?, v: v?, gates, rates };
        let rule = KimiDelta { scale: 1.0 / (DIM as f32).sqrt() };
        rule.chunks(stream, inputs, None, States::default(), matrix_mut(&mut outputs[0].1, shape)?)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for (batch, head) in [(0, 0), (BATCH - 1, HEADS - 1)] {
            let mut state = vec![0.0; DIM * DIM];
            let (mut result, mut want) = (Vec::new(), Vec::new());
            for t in 0..TOKENS {
                let at = (batch * TOKENS + t) * HEADS + head;
                let [q, k, v] = ["q", "k", "v"].map(|name| data.read(name, at * DIM, DIM));
                let (q, k, v) = (q?, k?, v?);
                let gates = values(&data.numbers[0].1, at * DIM, DIM)?;
                let rate = values(&data.numbers[1].1, at, 1)?[0];
                let mut seen = vec![0.0; DIM];
                for (c, row) in state.chunks_exact_mut(DIM).enumerate() {
                    for (x, seen) in row.iter_mut().zip(&mut seen) {
                        *x *= gates[c].exp();
                        *seen += *x * k[c];
                    }
                }
                let mut of_query = vec![0.0; DIM];
                for (c, row) in state.chunks_exact_mut(DIM).enumerate() {
                    for (j, x) in row.iter_mut().enumerate() {
                        *x += k[c] * (v[j] - seen[j]) * rate;
                        of_query[j] += *x * q[c] / (DIM as f64).sqrt();
                    }
                }
                if t % 61 == 0 || t + 1 == TOKENS {
                    want.extend(of_query);
                    result.extend(values(&data.outputs[0].1, at * DIM, DIM)?);
                }
            }
            worst = worst.max(difference(&result, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let name = format!("kimi delta chunks bf16 {BATCH} {TOKENS} {HEADS} {DIM}");
    Case::new(name, 3e-2, (12 * len) as f64, 0.0, functions)
}

pub fn small() -> Vec<Case> {
    vec![of_inverse::<5, 64>(), of_kimi_chunks::<1, 130, 2, 32>()]
}

pub fn cases() -> Vec<Case> {
    vec![of_inverse::<8192, 64>(), of_kimi_chunks::<2, 4096, 32, 128>()]
}
