//! Rows of attention of packed sequences, and with functions of scores.

use cutlet::element::bf16;
use cutlet::prelude::*;
use cutlet::{Device, Stream};
use cutlet_kernels::attention::{Place, Prefill};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

const DIM: usize = 128;

/// Returns the softmax of scores, with the score of an optional sink, times rows of values.
pub fn attended(scores: &[f64], sink: Option<f64>, values: &[f64], dim: usize) -> Vec<f64> {
    let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
    let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - most).exp());
    (0..dim).map(|c| weights.iter().enumerate().map(|(j, w)| w * values[j * dim + c]).sum::<f64>() / sum).collect()
}

/// Returns the product of a row with a row of a matrix.
pub fn dot(q: &[f64], k: &[f64], row: usize) -> f64 {
    q.iter().zip(&k[row * q.len()..]).map(|(a, b)| a * b).sum()
}

/// Attention of sequences of different lengths. The original has them after padding, ours has them
/// packed.
fn of_packed<const BATCH: usize, const LENGTH: usize>() -> Case {
    const HEADS: [usize; 3] = [16, 8, 8];
    fn lengths<const BATCH: usize, const LENGTH: usize>() -> Vec<usize> {
        (0..BATCH).map(|i| LENGTH - i * 37 % 11 * LENGTH / 16).collect()
    }
    fn starts<const BATCH: usize, const LENGTH: usize>() -> Vec<usize> {
        let lengths = lengths::<BATCH, LENGTH>();
        (0..=BATCH).map(|i| lengths[..i].iter().sum()).collect()
    }
    let data = move |device: Device| {
        let (lengths, starts) = (lengths::<BATCH, LENGTH>(), starts::<BATCH, LENGTH>());
        let (tokens, mut inputs, mut packed) = (starts[BATCH], vec![], vec![]);
        for ((name, of_packed), (heads, seed)) in
            [("q", "packed q"), ("k", "packed k"), ("v", "packed v")].into_iter().zip(HEADS.into_iter().zip(1..))
        {
            let padded = random::<bf16>(device, seed, BATCH * heads * LENGTH * DIM, 2.0)?;
            let mut all = device.zeros([tokens * heads * DIM])?;
            for (i, &length) in lengths.iter().enumerate() {
                let of = matrix(&padded, [BATCH, heads, LENGTH, DIM])?.slice(0, i..i + 1)?.slice(2, 0..length)?;
                let to = matrix_mut(&mut all, [1, tokens, heads, DIM])?;
                to.slice(1, starts[i]..starts[i + 1])?.copy_from_array(&of.permute([0, 2, 1, 3])?)?;
            }
            inputs.push((name, padded));
            packed.push((of_packed, all));
        }
        inputs.extend(packed);
        let array = |of: Vec<usize>| device.array(&of.iter().map(|&x| x as i32).collect::<Vec<_>>(), [of.len()]);
        Ok(Data {
            inputs,
            outputs: vec![
                ("y", device.zeros([BATCH * HEADS[0] * LENGTH * DIM])?),
                ("packed y", device.zeros([tokens * HEADS[0] * DIM])?),
            ],
            numbers: vec![],
            integers: vec![("lengths", array(lengths)?), ("starts", array(starts)?)],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, integers, .. } = data;
        let tokens = outputs[1].1.len() / (HEADS[0] * DIM);
        let of = |i: usize| matrix(&inputs[3 + i].1, [tokens, HEADS[i], DIM]);
        let starts = integers[1].1.view();
        let y = matrix_mut(&mut outputs[1].1, [tokens, HEADS[0], DIM])?;
        let prefill = Prefill::new(1.0 / (DIM as f32).sqrt()).causal(true);
        prefill.launch_packed(stream, [of(0)?, of(1)?, of(2)?], [starts; 2], LENGTH, y, None)
    };
    let error = |data: &Data<bf16>| {
        let (lengths, starts) = (lengths::<BATCH, LENGTH>(), starts::<BATCH, LENGTH>());
        // The original has not written the first array.
        let is_ours = data.outputs[0].1.view().slice(0, 0..1)?.to_vec()?[0].to_f64().is_nan();
        let mut worst = 0.0f64;
        for at in places(BATCH * HEADS[0] * LENGTH) {
            let (sequence, head) = (at / LENGTH / HEADS[0], at / LENGTH % HEADS[0]);
            let query = at % lengths[sequence];
            let row = (sequence * HEADS[0] + head) * LENGTH + query;
            let of_keys = (sequence * HEADS[1] + head / (HEADS[0] / HEADS[1])) * LENGTH * DIM;
            let q = data.read("q", row * DIM, DIM)?;
            let [k, v] = ["k", "v"].map(|name| data.read(name, of_keys, (query + 1) * DIM));
            let (k, v) = (k?, v?);
            let scores: Vec<f64> = (0..=query).map(|j| dot(&q, &k, j) / (DIM as f64).sqrt()).collect();
            let (array, row) = if is_ours { (1, (starts[sequence] + query) * HEADS[0] + head) } else { (0, row) };
            let result = values(&data.outputs[array].1, row * DIM, DIM)?;
            worst = worst.max(difference(&result, &attended(&scores, None, &v, DIM)));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let pairs: usize = lengths::<BATCH, LENGTH>().iter().map(|length| length * length / 2).sum();
    let name = format!("packed attention causal bf16 {BATCH} {}+{} {LENGTH} {DIM}", HEADS[0], HEADS[1]);
    Case::new(name, 1e-2, 0.0, 4.0 * (HEADS[0] * DIM * pairs) as f64, functions)
}

/// Attention with a function of scores: slopes of heads times distances, or a bias of keys in a
/// window.
fn of_scores<const BATCH: usize, const HEADS: usize, const LENGTH: usize, const WINDOW: usize>() -> Case {
    let len = BATCH * HEADS * LENGTH * DIM;
    let data = move |device: Device| {
        let bias = match WINDOW {
            0 => device.from_fn([HEADS], |[head]| 2.0f32.powf(-8.0 * (head + 1) as f32 / HEADS as f32))?,
            _ => random::<f32>(device, 4, BATCH * HEADS * LENGTH, 2.0)?,
        };
        Ok(Data {
            inputs: vec![
                ("q", random::<bf16>(device, 1, len, 2.0)?),
                ("k", random::<bf16>(device, 2, len, 2.0)?),
                ("v", random::<bf16>(device, 3, len, 2.0)?),
            ],
            outputs: vec![("y", device.zeros([len])?)],
            numbers: vec![("bias", bias)],
            integers: vec![("none", device.zeros([1])?)],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let shape = [BATCH, HEADS, LENGTH, DIM];
        let of = |i: usize| matrix(&inputs[i].1, shape);
        let (qkv, y) = ([of(0)?, of(1)?, of(2)?], matrix_mut(&mut outputs[0].1, shape)?);
        let prefill = Prefill::new(1.0 / (DIM as f32).sqrt());
        if WINDOW == 0 {
            let by_distance = |scores: Tile<f32, 2>, at: Place, slopes: Array<f32, 1>| {
                let slope = slopes.load_scalar(at.head);
                scores + (at.key.cast::<f32>() - at.query.cast::<f32>()) * slope
            };
            return prefill.causal(true).scores(&numbers[0].1, by_distance).launch(stream, qkv, y, None);
        }
        let of_keys = |scores: Tile<f32, 2>, at: Place, bias: Array<f32, 3>| {
            let [_, n] = at.key.shape();
            scores + bias.load((at.batch, at.head, at.block), [1, 1, n]).reshape([1, n])
        };
        let bias = matrix(&numbers[0].1, [BATCH, HEADS, LENGTH])?;
        prefill.window(WINDOW + 1).scores(bias, of_keys).launch(stream, qkv, y, None)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for row in places(BATCH * HEADS * LENGTH) {
            let (head, query) = (row / LENGTH, row % LENGTH);
            let (first, end) = match WINDOW {
                0 => (0, query + 1),
                _ => (query.saturating_sub(WINDOW), (query + WINDOW + 1).min(LENGTH)),
            };
            let q = data.read("q", row * DIM, DIM)?;
            let [k, v] = ["k", "v"].map(|name| data.read(name, (head * LENGTH + first) * DIM, (end - first) * DIM));
            let (k, v) = (k?, v?);
            let bias = match WINDOW {
                0 => {
                    let slope = values(&data.numbers[0].1, head % HEADS, 1)?[0];
                    (first..end).map(|key| (key as f64 - query as f64) * slope).collect()
                }
                _ => values(&data.numbers[0].1, head * LENGTH + first, end - first)?,
            };
            let score = |(j, bias): (usize, &f64)| dot(&q, &k, j) / (DIM as f64).sqrt() + bias;
            let scores: Vec<f64> = bias.iter().enumerate().map(score).collect();
            let result = values(&data.outputs[0].1, row * DIM, DIM)?;
            worst = worst.max(difference(&result, &attended(&scores, None, &v, DIM)));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let (name, seen) = match WINDOW {
        0 => ("slopes causal".to_owned(), LENGTH * LENGTH / 2),
        _ => (format!("bias window {WINDOW}"), 2 * WINDOW * LENGTH),
    };
    let flops = 4.0 * (BATCH * HEADS * DIM * seen) as f64;
    Case::new(format!("attention {name} bf16 {BATCH} {HEADS} {LENGTH} {DIM}"), 1e-2, 0.0, flops, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_packed::<2, 48>(), of_scores::<2, 2, 80, 0>(), of_scores::<1, 2, 80, 24>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_packed::<8, 4096>(), of_scores::<4, 32, 4096, 0>(), of_scores::<4, 32, 4096, 512>()]
}
