//! Rows of the loss of group-relative policy optimization.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::losses::{FusedGrpo, Policy};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Returns the largest error of sampled tokens, against f64.
fn grpo_error<const BATCH: usize, const TOKENS: usize, const COLUMNS: usize, const BACKWARD: bool>(
    data: &Data<bf16>,
) -> ct::Result<f64> {
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
    let functions =
        Functions { data: Box::new(data), ours, error: grpo_error::<BATCH, TOKENS, COLUMNS, BACKWARD>, reset };
    let bytes = (2 * count * COLUMNS * if BACKWARD { 2 } else { 1 }) as f64;
    let name = if BACKWARD { "grpo backward" } else { "grpo" };
    Case::new(format!("{name} bf16 {BATCH} {TOKENS} {COLUMNS}"), 8e-3, bytes, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_grpo::<2, 3, 70, false>(), of_grpo::<2, 3, 70, true>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_grpo::<4, 1024, 128_256, false>(), of_grpo::<4, 1024, 128_256, true>()]
}
