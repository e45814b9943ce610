//! Rows of attention of contiguous sequences.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::attention::Prefill;

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Shape of an attention: batch, heads, heads of keys, length, dim; keys before a query that it
/// sees at most.
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

/// Keys at most 127 before or after a query.
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
        of_attention::<SmallNeighbors>("neighborhood attention".into()),
        of_attention::<Small<true, 0>>("attention causal".into()),
        of_attention::<Small<false, 0>>("attention full".into()),
        of_attention::<Small<true, 20>>("attention softcap window 20".into()),
    ]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![
        of_attention::<Attention<true>>("attention causal bf16 4 32 4096 128".into()),
        of_attention::<Attention<false>>("attention full bf16 4 32 4096 128".into()),
        of_attention::<Softcap<0>>("attention softcap bf16 2 16+8 8192 128".into()),
        of_attention::<Softcap<1024>>("attention softcap window 1024 bf16 2 16+8 8192 128".into()),
        of_attention::<Neighbors>("neighborhood attention 255 bf16 4 16 8192 64".into()),
    ]
}
