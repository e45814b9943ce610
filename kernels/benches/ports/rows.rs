//! Rows of the comparison with TileGym. Names and arrays are those of `export.py`.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::attention::{Latent, Latents, Order, Prefill};
use cutlet_kernels::losses::{FusedGrpo, Policy};
use cutlet_kernels::moe::{Alignment, Rows, product};
use cutlet_kernels::norms::{Gate, gated, rotary_pair, sparsemax};
use cutlet_kernels::products::Factor;
use cutlet_kernels::recurrent::{DeltaInputs, GatedDeltaRule, States};
use cutlet_kernels::{Number, Pairs, layer_norm, matmul, rms_norm, softmax};

use crate::case::{Case, Data, Functions, difference, poison_all, random, values};

const EPSILON: f32 = 1e-5;

/// Rows that are compared with the reference.
pub fn places(rows: usize) -> impl Iterator<Item = usize> {
    (0..8).map(move |i| (i * 7_919 + 3) % rows).chain([0, rows - 1])
}

pub fn matrix<T: ct::Element, const R: usize>(
    of: &DeviceArray<T, 1>,
    shape: [usize; R],
) -> ct::Result<DeviceView<'_, T, R>> {
    of.reshape(shape)
}

pub fn matrix_mut<T: ct::Element, const R: usize>(
    of: &mut DeviceArray<T, 1>,
    shape: [usize; R],
) -> ct::Result<DeviceViewMut<'_, T, R>> {
    of.view_mut().reshape(shape)
}

/// A row over the rows of matrices. `inputs` have a matrix or a row each; extents are known from their lengths.
fn of_rows<T: Number>(
    name: &str,
    [m, n]: [usize; 2],
    inputs: &'static [(&'static str, bool, f32)],
    ours: fn(&Stream, &mut Data<T>) -> ct::Result<()>,
    error: fn(&Data<T>) -> ct::Result<f64>,
) -> Case {
    let matrices = 1 + inputs.iter().filter(|input| input.1).count();
    let data = move |device: ct::Device| {
        let inputs = inputs.iter().zip(1..).map(|(&(name, whole, scale), seed)| {
            Ok((name, random::<T>(device, seed, if whole { m * n } else { n }, scale)?))
        });
        Ok(Data {
            inputs: inputs.collect::<ct::Result<_>>()?,
            outputs: vec![("y", device.zeros([m * n])?)],
            numbers: vec![("rstd", device.zeros([m])?), ("mean", device.zeros([m])?)],
            integers: vec![],
            kept: None,
        })
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let bytes = (matrices * m * n * size_of::<T>()) as f64;
    let tolerance = if size_of::<T>() == 4 { 1e-5 } else { 8e-3 };
    Case::new(format!("{name} {} {m} {n}", T::NAME), tolerance, bytes, 0.0, functions)
}

/// Extents of the matrices of a row.
fn extents<T: ct::Element>(data: &Data<T>) -> ct::Result<[usize; 2]> {
    let of = data.outputs[0].1.len();
    let m = data.numbers[0].1.len();
    Ok([m, of / m])
}

/// Compares some rows of the first result with a function of the same rows of the inputs.
fn by_rows<T: Number>(data: &Data<T>, reference: impl Fn(&[Vec<f64>]) -> Vec<f64>) -> ct::Result<f64> {
    let [m, n] = extents(data)?;
    let mut worst = 0.0f64;
    for row in places(m) {
        let inputs: ct::Result<Vec<_>> =
            data.inputs.iter().map(|(_, array)| values(array, if array.len() == n { 0 } else { row * n }, n)).collect();
        worst = worst.max(difference(&values(&data.outputs[0].1, row * n, n)?, &reference(&inputs?)));
    }
    Ok(worst)
}

fn of_softmax<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        softmax(stream, matrix(&data.inputs[0].1, shape)?, matrix_mut(&mut data.outputs[0].1, shape)?)
    };
    of_rows("softmax", shape, &[("x", true, 4.0)], ours, |data| {
        by_rows(data, |inputs| {
            let most = inputs[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = inputs[0].iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.iter().map(|e| e / sum).collect()
        })
    })
}

fn of_rms_norm<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let (x, w) = (matrix(&data.inputs[0].1, shape)?, data.inputs[1].1.view());
        rms_norm(stream, x, w, matrix_mut(&mut data.outputs[0].1, shape)?, EPSILON)
    };
    of_rows("rms_norm", shape, &[("x", true, 2.0), ("w", false, 1.0)], ours, |data| {
        by_rows(data, |inputs| {
            let squares = inputs[0].iter().map(|x| x * x).sum::<f64>() / inputs[0].len() as f64;
            let scale = 1.0 / (squares + f64::from(EPSILON)).sqrt();
            inputs[0].iter().zip(&inputs[1]).map(|(x, w)| x * scale * w).collect()
        })
    })
}

fn of_layer_norm<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let (x, by) = (matrix(&data.inputs[0].1, shape)?, [data.inputs[1].1.view(), data.inputs[2].1.view()]);
        layer_norm(stream, x, by, matrix_mut(&mut data.outputs[0].1, shape)?, EPSILON)
    };
    of_rows("layer_norm", shape, &[("x", true, 2.0), ("w", false, 1.0), ("b", false, 1.0)], ours, |data| {
        by_rows(data, |inputs| {
            let count = inputs[0].len() as f64;
            let mean = inputs[0].iter().sum::<f64>() / count;
            let variance = inputs[0].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let scale = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            inputs[0]
                .iter()
                .zip(inputs[1].iter().zip(&inputs[2]))
                .map(|(x, (w, b))| (x - mean) * scale * w + b)
                .collect()
        })
    })
}

fn of_swiglu<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let operands = [matrix(&data.inputs[0].1, shape)?, matrix(&data.inputs[1].1, shape)?];
        gated(stream, operands, matrix_mut(&mut data.outputs[0].1, shape)?, Gate::Silu)
    };
    of_rows("swiglu", shape, &[("a", true, 4.0), ("b", true, 2.0)], ours, |data| {
        by_rows(data, |inputs| inputs[0].iter().zip(&inputs[1]).map(|(a, b)| a / (1.0 + (-a).exp()) * b).collect())
    })
}

/// Rotation of queries and keys: the original rotates in place, so that the results begin as the operands.
fn of_rope<const LENGTH: usize>() -> Case {
    const BATCH: usize = 4;
    const HEADS: [usize; 2] = [32, 8];
    const DIM: usize = 128;
    let lens = HEADS.map(|heads| BATCH * heads * LENGTH * DIM);
    let data = move |device: ct::Device| {
        let angles = |of: fn(f64) -> f64| {
            let angle =
                |at: usize| (at / DIM) as f64 * 1e4f64.powf(-((at % DIM % (DIM / 2)) as f64) / (DIM / 2) as f64);
            device.from_fn([LENGTH * DIM], |[at]| bf16::from_f64(of(angle(at))))
        };
        let [q, k] = [0, 1].map(|of| random::<bf16>(device, 1 + of as i32, lens[of], 2.0));
        Ok(Data {
            inputs: vec![
                ("operand of q", q?),
                ("operand of k", k?),
                ("cos", angles(f64::cos)?),
                ("sin", angles(f64::sin)?),
            ],
            outputs: vec![("q", device.zeros([lens[0]])?), ("k", device.zeros([lens[1]])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let reset = |_: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, .. } = data;
        outputs.iter_mut().zip(inputs).try_for_each(|((_, to), (_, from))| to.copy_from_array(&from.view()))
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, .. } = data;
        let [(_, q), (_, k)] = &mut outputs[..] else { return Ok(()) };
        let [of_q, of_k] = HEADS.map(|heads| [BATCH, heads, LENGTH, DIM]);
        let operands = [matrix(&inputs[0].1, of_q)?, matrix(&inputs[1].1, of_k)?];
        let half = |of: usize| matrix(&inputs[of].1, [LENGTH, DIM])?.slice(1, 0..DIM / 2);
        rotary_pair(stream, operands, [half(2)?, half(3)?], [matrix_mut(q, of_q)?, matrix_mut(k, of_k)?], Pairs::Halves)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for (of, result) in data.outputs.iter().enumerate() {
            for row in places(result.1.len() / DIM) {
                let x = values(&data.inputs[of].1, row * DIM, DIM)?;
                let [cos, sin] =
                    [data.read("cos", row % LENGTH * DIM, DIM)?, data.read("sin", row % LENGTH * DIM, DIM)?];
                let turned = |i: usize| if i < DIM / 2 { -x[i + DIM / 2] } else { x[i - DIM / 2] };
                let want: Vec<f64> = (0..DIM).map(|i| x[i] * cos[i] + turned(i) * sin[i]).collect();
                worst = worst.max(difference(&values(&result.1, row * DIM, DIM)?, &want));
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let bytes = (2 * 2 * (lens[0] + lens[1])) as f64;
    Case::new(format!("rope bf16 {BATCH} {}+{} {LENGTH} {DIM}", HEADS[0], HEADS[1]), 2e-2, bytes, 0.0, functions)
}

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

/// Shape of an attention: batch, heads, heads of keys, length, dim; keys before a query that it sees at most.
trait Shape: 'static {
    const OF: [usize; 5];
    const CAUSAL: bool;
    const WINDOW: Option<usize>;
    const CAP: Option<f32>;
    /// The original stores logarithms of the sums of exponentials, too.
    const LOGS: bool = false;
}

fn of_attention<S: Shape>(name: String) -> Case {
    let [batch, heads, key_heads, length, dim] = S::OF;
    let data = move |device: ct::Device| {
        let of = |seed, heads: usize| random::<bf16>(device, seed, batch * heads * length * dim, 2.0);
        Ok(Data {
            inputs: vec![("q", of(1, heads)?), ("k", of(2, key_heads)?), ("v", of(3, key_heads)?)],
            outputs: vec![("y", device.zeros([batch * heads * length * dim])?)],
            numbers: vec![("logs", device.zeros([batch * heads * length])?)],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let [batch, heads, key_heads, length, dim] = S::OF;
        let (q, k) = ([batch, heads, length, dim], [batch, key_heads, length, dim]);
        let prefill = Prefill::new(1.0 / (dim as f32).sqrt()).causal(S::CAUSAL);
        let prefill = S::WINDOW.map_or(prefill, |window| prefill.window(window + 1));
        let prefill = S::CAP.map_or(prefill, |cap| prefill.softcap(cap));
        let Data { inputs, outputs, numbers, .. } = data;
        let operands = [matrix(&inputs[0].1, q)?, matrix(&inputs[1].1, k)?, matrix(&inputs[2].1, k)?];
        let logs = S::LOGS.then(|| matrix_mut(&mut numbers[0].1, [batch, heads, length])).transpose()?;
        prefill.launch(stream, operands, matrix_mut(&mut outputs[0].1, q)?, logs)
    };
    let error = |data: &Data<bf16>| {
        let [batch, heads, key_heads, length, dim] = S::OF;
        let mut worst = 0.0f64;
        for row in places(batch * heads * length) {
            let (head, query) = (row / length, row % length);
            let of_keys = (head / heads * key_heads + head % heads / (heads / key_heads)) * length * dim;
            let [k, v] = [data.read("k", of_keys, length * dim)?, data.read("v", of_keys, length * dim)?];
            let q = data.read("q", row * dim, dim)?;
            let first = S::WINDOW.map_or(0, |window| query.saturating_sub(window));
            let seen = S::WINDOW.map_or(length, |window| (query + window + 1).min(length));
            let end = if S::CAUSAL { query + 1 } else { seen };
            let score = |j: usize| {
                let score = (0..dim).map(|c| q[c] * k[j * dim + c]).sum::<f64>() / (dim as f64).sqrt();
                S::CAP.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            };
            let scores: Vec<f64> = (first..end).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |c: usize| (first..end).zip(&weights).map(|(j, w)| w * v[j * dim + c]).sum::<f64>() / sum;
            let want: Vec<f64> = (0..dim).map(value).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, row * dim, dim)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let seen = match (S::WINDOW, S::CAUSAL) {
        (Some(window), true) => (window * length) as f64,
        (Some(window), false) => (2 * window * length) as f64,
        (None, causal) => (length * length) as f64 / if causal { 2.0 } else { 1.0 },
    };
    // The approximate tangent of the hardware has 11 bits.
    let tolerance = if S::CAP.is_some() { 2e-2 } else { 1e-2 };
    Case::new(name, tolerance, 0.0, 4.0 * (batch * heads * dim) as f64 * seen, functions)
}

struct Attention<const CAUSAL: bool>;
impl<const CAUSAL: bool> Shape for Attention<CAUSAL> {
    const OF: [usize; 5] = [4, 32, 32, 4096, 128];
    const CAUSAL: bool = CAUSAL;
    const WINDOW: Option<usize> = None;
    const CAP: Option<f32> = None;
}

struct Softcap<const WINDOW: usize>;
impl<const WINDOW: usize> Shape for Softcap<WINDOW> {
    const OF: [usize; 5] = [2, 16, 8, 8192, 128];
    const CAUSAL: bool = true;
    const WINDOW: Option<usize> = if WINDOW > 0 { Some(WINDOW) } else { None };
    const CAP: Option<f32> = Some(50.0);
}

/// Sparsemax of rows in descending order: the original reads them a second time, as the result of a sort.
fn of_sparsemax<const M: usize, const N: usize>() -> Case {
    let data = |device: ct::Device| {
        let element = |at: usize| -0.01 * (at % N) as f32 * (1.0 + (at / N % 5) as f32 / 5.0);
        let rows = || device.from_fn([M * N], |[at]| element(at));
        Ok(Data {
            inputs: vec![("x", rows()?), ("sorted", rows()?)],
            outputs: vec![("y", device.zeros([M * N])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        sparsemax(stream, matrix(&data.inputs[0].1, [M, N])?, matrix_mut(&mut data.outputs[0].1, [M, N])?)
    };
    let error = |data: &Data<f32>| {
        let mut worst = 0.0f64;
        for row in places(M) {
            let x = data.read("x", row * N, N)?;
            let (mut sum, mut limit) = (0.0, 0.0);
            for (z, j) in x.iter().zip(1..) {
                sum += z;
                if 1.0 + f64::from(j) * z > sum {
                    limit = (sum - 1.0) / f64::from(j);
                }
            }
            let want: Vec<f64> = x.iter().map(|x| (x - limit).max(0.0)).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, row * N, N)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    Case::new(format!("sparsemax f32 {M} {N}"), 1e-4, (8 * M * N) as f64, 0.0, functions)
}

/// A step of the gated delta rule. The original writes the new states to an array of their own; ours are updated in place.
fn of_delta_step<const BATCH: usize>() -> Case {
    const HEADS: usize = 16;
    const VALUE_HEADS: usize = 32;
    const DIM: usize = 128;
    let states = BATCH * VALUE_HEADS * DIM * DIM;
    let data = move |device: ct::Device| {
        let [keys, of_values] = [HEADS, VALUE_HEADS].map(|heads| BATCH * heads * DIM);
        let gates = device.from_fn([BATCH * VALUE_HEADS], |[at]| -0.01 * (at % 97) as f32)?;
        let rates = device.from_fn([BATCH * VALUE_HEADS], |[at]| 0.01 * (at % 89) as f32)?;
        Ok(Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, keys, 0.2)?),
                ("k", random::<bf16>(device, 2, keys, 0.15)?),
                ("v", random::<bf16>(device, 3, of_values, 1.0)?),
            ],
            outputs: vec![("y", device.zeros([of_values])?)],
            numbers: vec![
                ("gates", gates),
                ("rates", rates),
                ("state", random::<f32>(device, 4, states, 1.0)?),
                ("after", device.zeros([states])?),
            ],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let [(_, gates), (_, rates), _, (_, state)] = &mut numbers[..] else { return Ok(()) };
        let heads = [HEADS, HEADS, VALUE_HEADS];
        let [q, k, v] = [0, 1, 2].map(|of| matrix(&inputs[of].1, [BATCH, heads[of], DIM]));
        let [gates, rates] = [gates, rates].map(|of| matrix(of, [BATCH, VALUE_HEADS]));
        let state = matrix_mut(state, [BATCH, VALUE_HEADS, DIM, DIM])?;
        let out = matrix_mut(&mut outputs[0].1, [BATCH, VALUE_HEADS, DIM])?;
        GatedDeltaRule { scale: 1.0 / (DIM as f32).sqrt() }.step(stream, [q?, k?, v?], gates?, rates?, state, out)
    };
    let reset = |stream: &Stream, data: &mut Data<bf16>| {
        poison_all(stream, data)?;
        let [_, _, (_, state), (_, after)] = &mut data.numbers[..] else { return Ok(()) };
        after.copy_from_array(&state.view())
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for at in places(BATCH * VALUE_HEADS) {
            let key = (at / VALUE_HEADS * HEADS + at % VALUE_HEADS / (VALUE_HEADS / HEADS)) * DIM;
            let (q, k) = (data.read("q", key, DIM)?, data.read("k", key, DIM)?);
            let v = data.read("v", at * DIM, DIM)?;
            let number = |name: usize, from, count| values(&data.numbers[name].1, from, count);
            let (decay, rate) = (number(0, at, 1)?[0].exp(), number(1, at, 1)?[0]);
            let mut state = number(2, at * DIM * DIM, DIM * DIM)?;
            state.iter_mut().for_each(|x| *x *= decay);
            let dot = |state: &[f64], by: &[f64], j: usize| (0..DIM).map(|i| state[i * DIM + j] * by[i]).sum::<f64>();
            let new: Vec<f64> = (0..DIM).map(|j| (v[j] - dot(&state, &k, j)) * rate).collect();
            for (i, row) in state.chunks_exact_mut(DIM).enumerate() {
                row.iter_mut().zip(&new).for_each(|(x, new)| *x += k[i] * new);
            }
            let want: Vec<f64> = (0..DIM).map(|j| dot(&state, &q, j) / (DIM as f64).sqrt()).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, at * DIM, DIM)?, &want));
            worst = worst.max(difference(&number(3, at * DIM * DIM, DIM * DIM)?, &state));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let name = format!("gated delta step bf16 {BATCH} {HEADS}+{VALUE_HEADS} {DIM}");
    Case::new(name, 8e-3, (8 * states) as f64, 0.0, functions)
}

/// Pairs of token and expert in the order of experts, in tiles of rows.
fn of_alignment<const TOKENS: usize, const EXPERTS: usize, const TILE: usize>() -> Case {
    const TAKEN: usize = 8;
    let pairs = TOKENS * TAKEN;
    let places = pairs + EXPERTS * (TILE - 1);
    let data = move |device: ct::Device| {
        let expert =
            |[at]: [usize; 1]| ((at / TAKEN * 31 + at % TAKEN * (EXPERTS / TAKEN) + at / 977) % EXPERTS) as i32;
        let zeros = |len: usize| device.zeros::<i32, 1>([len]);
        Ok(Data::<f32> {
            inputs: vec![],
            outputs: vec![],
            numbers: vec![],
            integers: vec![
                ("chosen", device.from_fn([pairs], expert)?),
                ("order", zeros(places)?),
                ("of_tile", zeros(places.div_ceil(TILE))?),
                ("counts", zeros((EXPERTS.max(TOKENS * TAKEN / 128) + 1) * EXPERTS)?),
                ("starts", zeros(EXPERTS + 1)?),
                ("total", zeros(1)?),
                ("most", zeros(1)?),
            ],
            kept: Some(Box::new(Alignment::new(&device.default_stream(), [TOKENS, TAKEN], EXPERTS, TILE)?)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        let Data { integers, kept: Some(kept), .. } = data else { return Ok(()) };
        let Some(alignment) = kept.downcast_mut::<Alignment>() else { return Ok(()) };
        alignment.launch(stream, matrix(&integers[0].1, [TOKENS, TAKEN])?)
    };
    // Free places have the number of pairs.
    let reset = |_: &Stream, data: &mut Data<f32>| {
        let order = &mut data.integers[1].1;
        order.copy_from(&vec![(TOKENS * TAKEN) as i32; order.len()])
    };
    let error = |data: &Data<f32>| {
        let chosen = data.integers[0].1.to_vec()?;
        let mut want = Vec::new();
        for expert in 0..EXPERTS as i32 {
            want.extend((0..).zip(&chosen).filter(|(_, of)| **of == expert).map(|(at, _)| at));
            want.resize(want.len().next_multiple_of(TILE), chosen.len() as i32);
        }
        let order = data.integers[1].1.to_vec()?;
        // The original has not run.
        let is_ours = order.iter().all(|&at| at == chosen.len() as i32);
        let order = match data.kept.as_ref().and_then(|kept| kept.downcast_ref::<Alignment>()) {
            Some(alignment) if is_ours => alignment.pairs().to_vec()?,
            _ => order,
        };
        Ok(if order[..want.len()] == want { 0.0 } else { 1.0 })
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let bytes = (4 * (pairs + places)) as f64;
    Case::new(format!("moe alignment {TOKENS} {TAKEN} {EXPERTS} {TILE}"), 0.0, bytes, 0.0, functions)
}

/// Loss of group-relative policy optimization, forward or backward.
fn of_grpo<const BATCH: usize, const TOKENS: usize, const COLUMNS: usize, const BACKWARD: bool>() -> Case {
    const OF: FusedGrpo = FusedGrpo { temperature: 1.0, beta: 0.04, clip: [0.2, 0.2], bound: None };
    let count = BATCH * TOKENS;
    let data = move |device: ct::Device| {
        let len = BATCH * (TOKENS + 1) * COLUMNS;
        let typical = -(COLUMNS as f32).ln();
        let numbers = |scale: f32, shift: f32, seed: usize| {
            device.from_fn([count], move |[at]| shift + scale * ((at * 37 + seed) % 101) as f32 / 100.0)
        };
        let chosen = device.from_fn([count], |[at]| (at * 7_919 % COLUMNS) as i32)?;
        Ok(Data {
            inputs: vec![("x", random::<bf16>(device, 1, len, 3.0)?)],
            outputs: if BACKWARD { vec![("y", device.zeros([len])?)] } else { vec![] },
            numbers: vec![
                ("old", numbers(1.0, typical - 2.0, 1)?),
                ("reference", numbers(1.0, typical - 2.0, 2)?),
                ("advantages", device.from_fn([BATCH], |[at]| 1.0 - at as f32 * 0.7)?),
                ("dloss", numbers(1.0, -0.4, 3)?),
                ("loss", device.zeros([count])?),
                ("logs", device.zeros([count])?),
                ("kl", device.zeros([count])?),
                ("clipped", device.zeros([count])?),
                ("none", device.zeros([1])?),
            ],
            integers: vec![("chosen", chosen), ("mask", device.full([count], 1)?)],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, integers, .. } = data;
        let [(_, old), (_, reference), (_, advantages), (_, dloss), (_, loss), (_, logs), ..] = &mut numbers[..] else {
            return Ok(());
        };
        let shape = [BATCH, TOKENS];
        let policy = Policy {
            tokens: matrix(&integers[0].1, shape)?,
            advantages: advantages.view(),
            old: Some(matrix(old, shape)?),
            reference: Some(matrix(reference, shape)?),
            mask: Some(matrix(&integers[1].1, shape)?),
        };
        let logits = matrix(&inputs[0].1, [BATCH, TOKENS + 1, COLUMNS])?;
        if BACKWARD {
            let gradient = matrix_mut(&mut outputs[0].1, [BATCH, TOKENS + 1, COLUMNS])?;
            OF.backward(stream, logits, policy, (matrix(logs, shape)?, matrix(dloss, shape)?), gradient)
        } else {
            OF.forward(stream, logits, policy, (matrix_mut(loss, shape)?, matrix_mut(logs, shape)?))
        }
    };
    // Backward, the logarithms of the forward pass are given.
    let reset = |stream: &Stream, data: &mut Data<bf16>| {
        poison_all(stream, data)?;
        let Data { inputs, numbers, integers, .. } = data;
        let [_, _, (_, advantages), _, (_, loss), (_, logs), ..] = &mut numbers[..] else { return Ok(()) };
        let shape = [BATCH, TOKENS];
        let tokens = matrix(&integers[0].1, shape)?;
        let policy = Policy { tokens, advantages: advantages.view(), old: None, reference: None, mask: None };
        let logits = matrix(&inputs[0].1, [BATCH, TOKENS + 1, COLUMNS])?;
        OF.forward(stream, logits, policy, (matrix_mut(loss, shape)?, matrix_mut(logs, shape)?))
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        let number = |name: usize, at| Ok::<f64, ct::Error>(values(&data.numbers[name].1, at, 1)?[0]);
        let chosen = data.integers[0].1.to_vec()?;
        for at in places(BATCH * TOKENS) {
            let row = at / TOKENS * (TOKENS + 1) + at % TOKENS;
            let x = data.read("x", row * COLUMNS, COLUMNS)?;
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log = max + x.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            let token = chosen[at] as usize;
            let (advantage, ratio) = (number(2, at / TOKENS)?, (x[token] - log - number(0, at)?).exp());
            let (free, clipped) = (ratio * advantage, ratio.clamp(0.8, 1.2) * advantage);
            let apart = number(1, at)? - (x[token] - log);
            if BACKWARD {
                let slope = if clipped >= free { -free } else { 0.0 } + 0.04 * (1.0 - apart.exp());
                let scale = slope * number(3, at)?;
                let want: Vec<f64> =
                    (0..COLUMNS).map(|j| (f64::from(u8::from(j == token)) - (x[j] - log).exp()) * scale).collect();
                worst = worst.max(difference(&values(&data.outputs[0].1, row * COLUMNS, COLUMNS)?, &want));
            } else {
                let want = -free.min(clipped) + 0.04 * (apart.exp() - apart - 1.0);
                worst = worst.max((number(4, at)? - want).abs());
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let bytes = (2 * count * COLUMNS * if BACKWARD { 2 } else { 1 }) as f64;
    let name = if BACKWARD { "grpo backward" } else { "grpo" };
    Case::new(format!("{name} bf16 {BATCH} {TOKENS} {COLUMNS}"), 8e-3, bytes, 0.0, functions)
}

/// Keys at most 127 before or behind a query.
struct Neighbors;
impl Shape for Neighbors {
    const OF: [usize; 5] = [4, 16, 16, 8192, 64];
    const CAUSAL: bool = false;
    const WINDOW: Option<usize> = Some(127);
    const CAP: Option<f32> = None;
    const LOGS: bool = true;
}

struct SmallNeighbors;
impl Shape for SmallNeighbors {
    const OF: [usize; 5] = [1, 2, 2, 96, 32];
    const CAUSAL: bool = false;
    const WINDOW: Option<usize> = Some(9);
    const CAP: Option<f32> = None;
    const LOGS: bool = true;
}

/// Decoding with latent vectors. The original has an array of the latent and one of the rotated columns.
fn of_latent<const BATCH: usize, const HEADS: usize, const LENGTH: usize>() -> Case {
    const LATENT: usize = 512;
    const ROTATED: usize = 64;
    const DIM: usize = LATENT + ROTATED;
    let data = move |device: ct::Device| {
        let (queries, vectors) = (
            random::<bf16>(device, 1, BATCH * HEADS * DIM, 2.0)?,
            random::<bf16>(device, 2, BATCH * LENGTH * DIM, 1.0)?,
        );
        let columns = |of: &DeviceArray<bf16, 1>, rows: usize, range: std::ops::Range<usize>| {
            let mut part = device.zeros::<bf16, 1>([rows * range.len()])?;
            part.view_mut()
                .reshape([rows, range.len()])?
                .copy_from_array(&matrix(of, [rows, DIM])?.slice(1, range)?)?;
            Ok::<_, ct::Error>(part)
        };
        let inputs = vec![
            ("q", columns(&queries, BATCH * HEADS, 0..LATENT)?),
            ("qpe", columns(&queries, BATCH * HEADS, LATENT..DIM)?),
            ("kv", columns(&vectors, BATCH * LENGTH, 0..LATENT)?),
            ("kpe", columns(&vectors, BATCH * LENGTH, LATENT..DIM)?),
            ("queries", queries),
            ("vectors", vectors),
        ];
        let lengths = device.full([BATCH], LENGTH as i32)?;
        let latents = Latents {
            vectors: inputs[5].1.reshape([BATCH, LENGTH, DIM])?,
            order: Order::Contiguous,
            lengths: lengths.view(),
        };
        let scratch = Latent::new(1.0, LATENT).scratch(device, [BATCH, HEADS, DIM], &latents)?;
        Ok(Data {
            // Parts of the original: a part has at least 128 keys.
            outputs: vec![
                ("y", device.zeros([BATCH * HEADS * LATENT])?),
                ("parts", device.zeros([BATCH * HEADS * LENGTH.div_ceil(128).min(16) * LATENT])?),
            ],
            inputs,
            numbers: vec![("logs", device.zeros([BATCH * HEADS * LENGTH.div_ceil(128)])?)],
            integers: vec![("lengths", lengths)],
            kept: Some(Box::new(scratch)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, integers, kept, .. } = data;
        let Some(scratch) = kept.as_mut().and_then(|kept| kept.downcast_mut()) else { return Ok(()) };
        let vectors = matrix(&inputs[5].1, [BATCH, LENGTH, DIM])?;
        let latents = Latents { vectors, order: Order::Contiguous, lengths: integers[0].1.view() };
        let (q, y) =
            (matrix(&inputs[4].1, [BATCH, HEADS, DIM])?, matrix_mut(&mut outputs[0].1, [BATCH, HEADS, LATENT])?);
        Latent::new(1.0 / (DIM as f32).sqrt(), LATENT).launch(stream, q, latents, y, scratch)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for row in places(BATCH * HEADS) {
            let vectors = data.read("vectors", row / HEADS * LENGTH * DIM, LENGTH * DIM)?;
            let q = data.read("queries", row * DIM, DIM)?;
            let dot = |v: &[f64]| q.iter().zip(v).map(|(a, b)| a * b).sum::<f64>() / (DIM as f64).sqrt();
            let scores: Vec<f64> = vectors.chunks_exact(DIM).map(dot).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |c: usize| weights.iter().enumerate().map(|(j, w)| w * vectors[j * DIM + c]).sum::<f64>() / sum;
            let want: Vec<f64> = (0..LATENT).map(value).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, row * LATENT, LATENT)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let flops = 2.0 * (BATCH * HEADS * LENGTH * (DIM + LATENT)) as f64;
    Case::new(format!("latent decode bf16 {BATCH} {HEADS} {LENGTH} {LATENT}+{ROTATED}"), 1e-2, 0.0, flops, functions)
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

/// The gated delta rule over whole sequences. The original has its result by chunks, in f32.
fn of_delta_chunks<const BATCH: usize, const TOKENS: usize, const HEADS: usize>() -> Case {
    const DIM: usize = 128;
    let (count, len) = (BATCH * TOKENS * HEADS, BATCH * TOKENS * HEADS * DIM);
    let data = move |device: ct::Device| {
        let part = || device.zeros::<bf16, 1>([len]);
        Ok(Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, len, 0.15)?),
                ("k", random::<bf16>(device, 2, len, 0.15)?),
                ("v", random::<bf16>(device, 3, len, 1.0)?),
            ],
            outputs: vec![
                ("y", part()?),
                ("of_q", part()?),
                ("of_k", part()?),
                ("of_v", part()?),
                ("decayed", part()?),
            ],
            numbers: vec![
                ("gates", device.from_fn([count], |[at]| -0.001 * (at % 97) as f32)?),
                ("rates", device.from_fn([count], |[at]| 0.01 * (at % 89) as f32)?),
                ("last", device.zeros([BATCH * HEADS * DIM * DIM])?),
                ("out", device.zeros([len])?),
                ("sums", device.zeros([count])?),
                ("none", device.zeros([1])?),
            ],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let [(_, gates), (_, rates), (_, last), ..] = &mut numbers[..] else { return Ok(()) };
        let shape = [BATCH, TOKENS, HEADS, DIM];
        let [q, k, v] = [0, 1, 2].map(|of| matrix(&inputs[of].1, shape));
        let (gates, rates) = (matrix(gates, [BATCH, TOKENS, HEADS])?, matrix(rates, [BATCH, TOKENS, HEADS])?);
        let states = States { initial: None, last: Some(matrix_mut(last, [BATCH, HEADS, DIM, DIM])?) };
        let inputs = DeltaInputs { q: q?, k: k?, v: v?, gates, rates };
        let rule = GatedDeltaRule { scale: 1.0 / (DIM as f32).sqrt() };
        rule.chunks(stream, inputs, None, states, matrix_mut(&mut outputs[0].1, shape)?)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        // The original has not written the first result.
        let is_ours = data.outputs[0].1.view().slice(0, 0..1)?.to_vec()?[0].to_f64().is_finite();
        for (batch, head) in [(0, 0), (BATCH - 1, HEADS - 1)] {
            let mut state = vec![0.0; DIM * DIM];
            let (mut result, mut want) = (Vec::new(), Vec::new());
            for t in 0..TOKENS {
                let at = (batch * TOKENS + t) * HEADS + head;
                let [q, k, v] = ["q", "k", "v"].map(|name| data.read(name, at * DIM, DIM));
                let (q, k, v) = (q?, k?, v?);
                let number = |name: usize| Ok::<f64, ct::Error>(values(&data.numbers[name].1, at, 1)?[0]);
                let (decay, rate) = (number(0)?.exp(), number(1)?);
                let mut seen = vec![0.0; DIM];
                for (row, k) in state.chunks_exact_mut(DIM).zip(&k) {
                    row.iter_mut().zip(&mut seen).for_each(|(x, seen)| {
                        *x *= decay;
                        *seen += *x * k;
                    });
                }
                let mut of_query = vec![0.0; DIM];
                for (row, (k, q)) in state.chunks_exact_mut(DIM).zip(k.iter().zip(&q)) {
                    for (j, x) in row.iter_mut().enumerate() {
                        *x += k * (v[j] - seen[j]) * rate;
                        of_query[j] += *x * q / (DIM as f64).sqrt();
                    }
                }
                if t % 61 == 0 || t + 1 == TOKENS {
                    want.extend(of_query);
                    result.extend(match is_ours {
                        true => values(&data.outputs[0].1, at * DIM, DIM)?,
                        false => values(&data.numbers[3].1, ((batch * HEADS + head) * TOKENS + t) * DIM, DIM)?,
                    });
                }
            }
            worst = worst.max(difference(&result, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let name = format!("gated delta chunks bf16 {BATCH} {TOKENS} {HEADS} {DIM}");
    Case::new(name, 3e-2, (8 * len) as f64, 0.0, functions)
}

/// Products of tokens with the weights of their experts. The original stores a row for each pair of token and expert, ours one for
/// each place of the alignment.
fn of_experts<const TOKENS: usize, const EXPERTS: usize, const N: usize, const K: usize>() -> Case {
    const TAKEN: usize = 8;
    const TILE: usize = 128;
    let pairs = TOKENS * TAKEN;
    let data = move |device: ct::Device| {
        let stream = device.default_stream();
        let expert = |[token, slot]: [usize; 2]| ((token + slot * (EXPERTS / TAKEN)) % EXPERTS) as i32;
        let chosen = device.from_fn([TOKENS, TAKEN], expert)?;
        let mut alignment = Alignment::new(&stream, [TOKENS, TAKEN], EXPERTS, TILE)?;
        alignment.launch(&stream, chosen.view())?;
        let (order, of_tile) = (alignment.pairs().to_vec()?, alignment.of_tile().to_vec()?);
        Ok(Data {
            inputs: vec![
                ("x", random::<bf16>(device, 1, TOKENS * K, 1.0)?),
                ("w", random::<bf16>(device, 2, EXPERTS * N * K, 1.0)?),
            ],
            outputs: vec![("y", device.zeros([pairs * N])?), ("places", device.zeros([alignment.num_places() * N])?)],
            numbers: vec![("weights", device.full([pairs], 1.0)?)],
            // Each expert has as many tokens: no place is free before the last pair.
            integers: vec![
                ("order", device.array(&order[..pairs.min(order.len())], [pairs.min(order.len())])?),
                ("of_tile", device.array(&of_tile, [of_tile.len()])?),
            ],
            kept: Some(Box::new(alignment)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, kept: Some(kept), .. } = data else { return Ok(()) };
        let Some(alignment) = kept.downcast_ref::<Alignment>() else { return Ok(()) };
        let (x, w) = (matrix(&inputs[0].1, [TOKENS, K])?, matrix(&inputs[1].1, [EXPERTS, N, K])?);
        let out = matrix_mut(&mut outputs[1].1, [alignment.num_places(), N])?;
        product(stream, (x, Rows::Tokens), w, alignment, out)
    };
    let error = |data: &Data<bf16>| {
        let Some(alignment) = data.kept.as_ref().and_then(|kept| kept.downcast_ref::<Alignment>()) else {
            return Ok(1.0);
        };
        let of_pairs = alignment.places().to_vec()?;
        // The original has not written the first array.
        let is_ours = data.outputs[0].1.view().slice(0, 0..1)?.to_vec()?[0].to_f64().is_nan();
        let mut worst = 0.0f64;
        for pair in places(TOKENS * TAKEN) {
            let (token, slot) = (pair / TAKEN, pair % TAKEN);
            let expert = (token + slot * (EXPERTS / TAKEN)) % EXPERTS;
            let x = data.read("x", token * K, K)?;
            let w = data.read("w", (expert + 1) * N * K - 16 * K, 16 * K)?;
            let want: Vec<f64> = w.chunks_exact(K).map(|w| w.iter().zip(&x).map(|(a, b)| a * b).sum()).collect();
            let (array, row) = if is_ours { (1, of_pairs[pair] as usize) } else { (0, pair) };
            worst = worst.max(difference(&values(&data.outputs[array].1, (row + 1) * N - 16, 16)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let flops = 2.0 * (pairs * N * K) as f64;
    Case::new(format!("experts bf16 {TOKENS} {TAKEN} {EXPERTS} {N} {K}"), 8e-3, 0.0, flops, functions)
}

/// Latent attention with chosen keys. The original has queries and results by heads.
fn of_sparse<const QUERIES: usize, const HEADS: usize, const TAKEN: usize>() -> Case {
    const LATENT: usize = 512;
    const ROTATED: usize = 64;
    const DIM: usize = LATENT + ROTATED;
    /// Key `i` of a query: at or before its position, or behind it where there are too few.
    fn key<const TAKEN: usize>(query: usize, i: usize) -> usize {
        if query + 1 >= TAKEN { i * (query + 1) / TAKEN } else { i }
    }
    let data = move |device: ct::Device| {
        let (queries, vectors) =
            (random::<bf16>(device, 1, QUERIES * HEADS * DIM, 2.0)?, random::<bf16>(device, 2, QUERIES * DIM, 1.0)?);
        let columns = |of: &DeviceArray<bf16, 1>, heads: usize, range: std::ops::Range<usize>| {
            let mut part = device.zeros::<bf16, 1>([heads * QUERIES * range.len()])?;
            let from = matrix(of, [QUERIES, heads, DIM])?.permute([1, 0, 2])?.slice(2, range.clone())?;
            part.view_mut().reshape([heads, QUERIES, range.len()])?.copy_from_array(&from)?;
            Ok::<_, ct::Error>(part)
        };
        let inputs = vec![
            ("by_heads", columns(&queries, HEADS, 0..LATENT)?),
            ("qpe", columns(&queries, HEADS, LATENT..DIM)?),
            ("kv", columns(&vectors, 1, 0..LATENT)?),
            ("kpe", columns(&vectors, 1, LATENT..DIM)?),
            ("queries", queries),
            ("vectors", vectors),
        ];
        let chosen = device.from_fn([QUERIES * TAKEN], |[at]| key::<TAKEN>(at / TAKEN, at % TAKEN) as i32)?;
        let lengths = device.from_fn([QUERIES], |[query]| (query + 1).min(TAKEN) as i32)?;
        let latents = Latents {
            vectors: inputs[5].1.reshape([1, QUERIES, DIM])?,
            order: Order::Chosen(chosen.reshape([QUERIES, TAKEN])?),
            lengths: lengths.view(),
        };
        let scratch = Latent::new(1.0, LATENT).scratch(device, [QUERIES, HEADS, DIM], &latents)?;
        let result = || device.zeros::<bf16, 1>([QUERIES * HEADS * LATENT]);
        Ok(Data {
            outputs: vec![("y", result()?), ("by_queries", result()?)],
            inputs,
            numbers: vec![],
            integers: vec![("chosen", chosen), ("lengths", lengths)],
            kept: Some(Box::new(scratch)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, integers, kept, .. } = data;
        let Some(scratch) = kept.as_mut().and_then(|kept| kept.downcast_mut()) else { return Ok(()) };
        let latents = Latents {
            vectors: matrix(&inputs[5].1, [1, QUERIES, DIM])?,
            order: Order::Chosen(matrix(&integers[0].1, [QUERIES, TAKEN])?),
            lengths: integers[1].1.view(),
        };
        let q = matrix(&inputs[4].1, [QUERIES, HEADS, DIM])?;
        let y = matrix_mut(&mut outputs[1].1, [QUERIES, HEADS, LATENT])?;
        Latent::new(1.0 / (DIM as f32).sqrt(), LATENT).launch(stream, q, latents, y, scratch)
    };
    let error = |data: &Data<bf16>| {
        // The original has not written the first array.
        let is_ours = data.outputs[0].1.view().slice(0, 0..1)?.to_vec()?[0].to_f64().is_nan();
        let vectors = data.read("vectors", 0, QUERIES * DIM)?;
        let mut worst = 0.0f64;
        for at in places(QUERIES * HEADS) {
            let (query, head) = (at / HEADS, at % HEADS);
            let q = data.read("queries", at * DIM, DIM)?;
            let keys: Vec<&[f64]> =
                (0..TAKEN.min(query + 1)).map(|i| &vectors[key::<TAKEN>(query, i) * DIM..][..DIM]).collect();
            let dot = |v: &&[f64]| q.iter().zip(*v).map(|(a, b)| a * b).sum::<f64>() / (DIM as f64).sqrt();
            let scores: Vec<f64> = keys.iter().map(dot).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |c: usize| weights.iter().zip(&keys).map(|(w, key)| w * key[c]).sum::<f64>() / sum;
            let want: Vec<f64> = (0..LATENT).map(value).collect();
            let (array, row) = if is_ours { (1, at) } else { (0, head * QUERIES + query) };
            worst = worst.max(difference(&values(&data.outputs[array].1, row * LATENT, LATENT)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let pairs: usize = (0..QUERIES).map(|query| (query + 1).min(TAKEN)).sum();
    let flops = 2.0 * (HEADS * pairs * (DIM + LATENT)) as f64;
    let name = format!("sparse latent attention bf16 {QUERIES} {HEADS} {TAKEN} {LATENT}+{ROTATED}");
    Case::new(name, 1e-2, 0.0, flops, functions)
}

struct Small<const CAUSAL: bool, const WINDOW: usize>;
impl<const CAUSAL: bool, const WINDOW: usize> Shape for Small<CAUSAL, WINDOW> {
    const OF: [usize; 5] = [2, 4, 2, 96, 32];
    const CAUSAL: bool = CAUSAL;
    const WINDOW: Option<usize> = if WINDOW > 0 { Some(WINDOW) } else { None };
    const CAP: Option<f32> = if WINDOW > 0 { Some(50.0) } else { None };
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![
        of_softmax::<bf16>([16, 100]),
        of_softmax::<f32>([16, 100]),
        of_rms_norm::<bf16>([16, 100]),
        of_layer_norm::<bf16>([16, 100]),
        of_rope::<32>(),
        of_swiglu::<bf16>([16, 100]),
        of_matmul::<f16, 64, 48, 80>(),
        of_attention::<SmallNeighbors>("neighborhood attention".into()),
        of_latent::<2, 16, 40>(),
        of_sparse::<24, 16, 16>(),
        of_groups::<4, 16, 32, 48>(),
        of_experts::<24, 8, 32, 48>(),
        of_sparsemax::<16, 128>(),
        of_delta_step::<1>(),
        of_delta_chunks::<1, 128, 2>(),
        of_alignment::<64, 16, 16>(),
        of_grpo::<2, 3, 70, false>(),
        of_grpo::<2, 3, 70, true>(),
        of_attention::<Small<true, 0>>("attention causal".into()),
        of_attention::<Small<false, 0>>("attention full".into()),
        of_attention::<Small<true, 20>>("attention softcap window 20".into()),
    ]
}

/// All rows.
pub fn cases() -> Vec<Case> {
    vec![
        of_softmax::<bf16>([8192, 8192]),
        of_softmax::<bf16>([32768, 1024]),
        of_softmax::<f32>([4096, 32768]),
        of_rms_norm::<bf16>([8192, 8192]),
        of_rms_norm::<bf16>([32768, 2048]),
        of_layer_norm::<bf16>([8192, 8192]),
        of_layer_norm::<bf16>([32768, 2048]),
        of_rope::<4096>(),
        of_swiglu::<bf16>([8192, 14336]),
        of_swiglu::<bf16>([4096, 8192]),
        of_matmul::<f16, 4096, 4096, 4096>(),
        of_matmul::<bf16, 8192, 8192, 8192>(),
        of_attention::<Attention<true>>("attention causal bf16 4 32 4096 128".into()),
        of_attention::<Attention<false>>("attention full bf16 4 32 4096 128".into()),
        of_attention::<Softcap<0>>("attention softcap bf16 2 16+8 8192 128".into()),
        of_attention::<Softcap<1024>>("attention softcap window 1024 bf16 2 16+8 8192 128".into()),
        of_attention::<Neighbors>("neighborhood attention 255 bf16 4 16 8192 64".into()),
        of_latent::<64, 128, 8192>(),
        of_latent::<16, 16, 16384>(),
        of_sparse::<2048, 128, 1024>(),
        of_groups::<32, 512, 2048, 4096>(),
        of_experts::<4096, 64, 2816, 2048>(),
        of_sparsemax::<4096, 8192>(),
        of_delta_step::<64>(),
        of_delta_chunks::<2, 4096, 32>(),
        of_alignment::<8192, 128, 64>(),
        of_alignment::<512, 256, 16>(),
        of_grpo::<4, 1024, 128_256, false>(),
        of_grpo::<4, 1024, 128_256, true>(),
    ]
}
