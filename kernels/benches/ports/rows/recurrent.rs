//! Rows of the gated delta rule and of Mamba-2, forward.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{DeviceArray, Stream};
use cutlet_kernels::recurrent::{DeltaInputs, GatedDeltaRule, Mamba2, Mamba2Inputs, States};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// A step of the gated delta rule. The original writes the new states to an array of their own;
/// ours are updated in place.
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

/// Extents of a state of the Mamba-2 rows: of a head, of the states.
const HEAD_DIM: usize = 64;
const STATES: usize = 128;

/// Returns the largest error of the first and the last head, against f64.
fn mamba_error<const BATCH: usize, const TOKENS: usize, const HEADS: usize>(data: &Data<bf16>) -> ct::Result<f64> {
    let mut worst = 0.0f64;
    for (batch, head) in [(0, 0), (BATCH - 1, HEADS - 1)] {
        let number = |name: usize| Ok::<f64, ct::Error>(values(&data.numbers[name].1, head, 1)?[0]);
        let (a, d) = (number(0)?, number(1)?);
        let all = |name: &str, each: usize| data.read(name, batch * TOKENS * each, TOKENS * each);
        let (b, c, dt) = (all("b", STATES)?, all("c", STATES)?, all("dt", HEADS)?);
        let of_head = |array: &DeviceArray<bf16, 1>| {
            let rows =
                matrix(array, [BATCH * TOKENS, HEADS * HEAD_DIM])?.slice(0, batch * TOKENS..(batch + 1) * TOKENS)?;
            let part = rows.slice(1, head * HEAD_DIM..(head + 1) * HEAD_DIM)?.to_vec()?;
            Ok::<_, ct::Error>(part.iter().map(|x| x.to_f64()).collect::<Vec<f64>>())
        };
        let (x, y) = (of_head(data.input("x"))?, of_head(&data.outputs[0].1)?);
        let mut state = vec![0.0; STATES * HEAD_DIM];
        let (mut result, mut want) = (Vec::new(), Vec::new());
        for t in 0..TOKENS {
            let (step, x) = (dt[t * HEADS + head], &x[t * HEAD_DIM..(t + 1) * HEAD_DIM]);
            let decay = (step * a).exp();
            let mut of_token: Vec<f64> = x.iter().map(|x| x * d).collect();
            for (n, row) in state.chunks_exact_mut(HEAD_DIM).enumerate() {
                let (b, c) = (b[t * STATES + n] * step, c[t * STATES + n]);
                for ((state, out), x) in row.iter_mut().zip(&mut of_token).zip(x) {
                    *state = *state * decay + b * x;
                    *out += *state * c;
                }
            }
            if t % 61 == 0 || t + 1 == TOKENS {
                want.extend(of_token);
                result.extend(&y[t * HEAD_DIM..(t + 1) * HEAD_DIM]);
            }
        }
        worst = worst.max(difference(&result, &want));
    }
    Ok(worst)
}

/// Mamba-2 over whole sequences. Only the original stores the states before each chunk.
fn of_mamba<const BATCH: usize, const TOKENS: usize, const HEADS: usize>() -> Case {
    let (count, len) = (BATCH * TOKENS * HEADS, BATCH * TOKENS * HEADS * HEAD_DIM);
    let states = BATCH * HEADS * HEAD_DIM * STATES;
    let data = move |device: ct::Device| {
        let array = |len: usize| device.zeros::<bf16, 1>([len]);
        let numbers = |len: usize| device.zeros::<f32, 1>([len]);
        let step = |[at]: [usize; 1]| bf16::from_f64(0.01 + 0.001 * (at * 37 % 89) as f64);
        Ok(Data {
            inputs: vec![
                ("x", random::<bf16>(device, 1, len, 1.0)?),
                ("b", random::<bf16>(device, 2, BATCH * TOKENS * STATES, 0.5)?),
                ("c", random::<bf16>(device, 3, BATCH * TOKENS * STATES, 0.5)?),
                ("dt", device.from_fn([count], step)?),
            ],
            outputs: vec![
                ("y", array(len)?),
                ("of_head", array(count)?),
                ("inner", array(states * TOKENS.div_ceil(64))?),
            ],
            numbers: vec![
                ("a", device.from_fn([HEADS], |[head]| -0.1 - 0.9 * head as f32 / HEADS as f32)?),
                ("d", device.from_fn([HEADS], |[head]| 0.5 + 0.01 * head as f32)?),
                ("last", numbers(states)?),
                ("start", numbers(states)?),
                ("final", numbers(states)?),
                ("by_token", numbers(count)?),
                ("by_head", numbers(count)?),
            ],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let [(_, a), (_, d), (_, last), ..] = &mut numbers[..] else { return Ok(()) };
        let of_states = [BATCH, TOKENS, 1, STATES];
        let inputs = Mamba2Inputs {
            x: matrix(&inputs[0].1, [BATCH, TOKENS, HEADS, HEAD_DIM])?,
            dt: matrix(&inputs[3].1, [BATCH, TOKENS, HEADS])?,
            dt_bias: None,
            a: a.view(),
            b: matrix(&inputs[1].1, of_states)?,
            c: matrix(&inputs[2].1, of_states)?,
            d: Some(d.view()),
        };
        let states = States { initial: None, last: Some(matrix_mut(last, [BATCH, HEADS, STATES, HEAD_DIM])?) };
        let y = matrix_mut(&mut outputs[0].1, [BATCH, TOKENS, HEADS, HEAD_DIM])?;
        Mamba2::default().chunks(stream, inputs, None, states, y)
    };
    let functions =
        Functions { data: Box::new(data), ours, error: mamba_error::<BATCH, TOKENS, HEADS>, reset: poison_all };
    let bytes = 2 * (2 * len + count + 2 * BATCH * TOKENS * STATES);
    Case::new(format!("mamba2 bf16 {BATCH} {TOKENS} {HEADS} {HEAD_DIM} {STATES}"), 2e-2, bytes as f64, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_delta_step::<1>(), of_delta_chunks::<1, 128, 2>(), of_mamba::<1, 128, 2>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_delta_step::<64>(), of_delta_chunks::<2, 4096, 32>(), of_mamba::<2, 4096, 64>()]
}
