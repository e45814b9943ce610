//! Rows of the comparison with flash-linear-attention.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::linalg::inverse_unit_lower;
use cutlet_kernels::recurrent::{DeltaInputs, KimiDelta, LogLinearInputs, States, log_linear_attention};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

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

/// Log-linear attention over whole sequences. The original has partial results of 64 keys each.
fn of_log_linear<const BATCH: usize, const TOKENS: usize, const HEADS: usize, const K: usize, const V: usize>() -> Case
{
    const STEPS: usize = 64;
    let levels = TOKENS.ilog2() as usize + 1;
    let data = move |device: ct::Device| {
        let (count, rows) = (BATCH * TOKENS * HEADS, BATCH * TOKENS);
        let table = |[at]: [usize; 1]| 32 - ((at / STEPS) as i32 ^ (at % STEPS) as i32).leading_zeros() as i32;
        Ok(Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, rows * K, 1.0)?),
                ("k", random::<bf16>(device, 2, rows * K, 0.1)?),
                ("v", random::<bf16>(device, 3, count * V, 1.0)?),
                ("factors", random::<bf16>(device, 4, count * levels, 1.0)?),
            ],
            outputs: vec![("y", device.zeros([count * V])?), ("parts", device.zeros([count * V * K.div_ceil(64)])?)],
            numbers: vec![
                ("gates", device.from_fn([count], |[at]| -0.0005 * (at * 7_919 % 97) as f32)?),
                ("sums", device.zeros([count])?),
            ],
            integers: vec![("table", device.from_fn([STEPS * STEPS], table)?), ("ends", device.zeros([BATCH])?)],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let [q, k] = [0, 1].map(|of| matrix(&inputs[of].1, [BATCH, TOKENS, 1, K]));
        let shape = [BATCH, TOKENS, HEADS, V];
        let factors = &inputs[3].1;
        let levels = factors.len() / (BATCH * TOKENS * HEADS);
        let inputs = LogLinearInputs {
            q: q?,
            k: k?,
            v: matrix(&inputs[2].1, shape)?,
            gates: matrix(&numbers[0].1, [BATCH, TOKENS, HEADS])?,
            factors: matrix(factors, [BATCH, TOKENS, HEADS, levels])?,
        };
        log_linear_attention(stream, inputs, None, matrix_mut(&mut outputs[0].1, shape)?)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        let levels = data.input("factors").len() / (BATCH * TOKENS * HEADS);
        // The original has not written the first result.
        let is_ours = values(&data.outputs[0].1, 0, 1)?[0].is_finite();
        let gates = values(&data.numbers[0].1, 0, BATCH * TOKENS * HEADS)?;
        let (keys, all) = (data.read("k", 0, BATCH * TOKENS * K)?, data.read("v", 0, BATCH * TOKENS * HEADS * V)?);
        for row in places(BATCH * TOKENS * HEADS) {
            let (to, head) = (row / HEADS, row % HEADS);
            let begin = to / TOKENS * TOKENS;
            let (q, factors) = (data.read("q", to * K, K)?, data.read("factors", row * levels, levels)?);
            let (mut want, mut decay) = (vec![0.0; V], 0.0f64);
            for from in (begin..=to).rev() {
                let level = (usize::BITS - ((to - begin) ^ (from - begin)).leading_zeros()) as usize;
                let product: f64 = q.iter().zip(&keys[from * K..]).map(|(q, k)| q * k).sum();
                let weight = factors[level] * decay.exp() * product;
                let v = &all[(from * HEADS + head) * V..];
                want.iter_mut().zip(v).for_each(|(want, v)| *want += weight * v);
                decay += gates[from * HEADS + head];
            }
            let found = if is_ours {
                values(&data.outputs[0].1, row * V, V)?
            } else {
                let parts = values(&data.outputs[1].1, row * K.div_ceil(64) * V, K.div_ceil(64) * V)?;
                (0..V).map(|j| parts[j..].iter().step_by(V).sum()).collect()
            };
            worst = worst.max(difference(&found, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let bytes = (2 * BATCH * TOKENS * (2 * K + HEADS * (2 * V + levels + 2))) as f64;
    // The original rounds the results of parts of the keys to bf16. At the first token, parts of
    // -0.33 and 0.28 cancel.
    Case::new(format!("log-linear attention bf16 {BATCH} {TOKENS} {HEADS} {K}+{V}"), 4e-2, bytes, 0.0, functions)
}

pub fn small() -> Vec<Case> {
    vec![of_inverse::<5, 64>(), of_kimi_chunks::<1, 130, 2, 32>(), of_log_linear::<1, 1024, 2, 64, 32>()]
}

pub fn cases() -> Vec<Case> {
    vec![of_inverse::<8192, 64>(), of_kimi_chunks::<2, 4096, 32, 128>(), of_log_linear::<2, 4096, 32, 128, 64>()]
}
