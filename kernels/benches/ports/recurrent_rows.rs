//! The row of Mamba-2, forward.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{Device, DeviceArray, Stream};
use cutlet_kernels::recurrent::{Mamba2, Mamba2Inputs, States};

use crate::case::{Case, Data, Functions, difference, poison_all, random, values};
use crate::rows::{matrix, matrix_mut};

const DIM: usize = 64;
const STATES: usize = 128;

/// Whole sequences. Only the original stores the states before each chunk.
fn of_mamba<const BATCH: usize, const TOKENS: usize, const HEADS: usize>() -> Case {
    let (count, len) = (BATCH * TOKENS * HEADS, BATCH * TOKENS * HEADS * DIM);
    let states = BATCH * HEADS * DIM * STATES;
    let data = move |device: Device| {
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
            x: matrix(&inputs[0].1, [BATCH, TOKENS, HEADS, DIM])?,
            dt: matrix(&inputs[3].1, [BATCH, TOKENS, HEADS])?,
            dt_bias: None,
            a: a.view(),
            b: matrix(&inputs[1].1, of_states)?,
            c: matrix(&inputs[2].1, of_states)?,
            d: Some(d.view()),
        };
        let states = States { initial: None, last: Some(matrix_mut(last, [BATCH, HEADS, STATES, DIM])?) };
        let y = matrix_mut(&mut outputs[0].1, [BATCH, TOKENS, HEADS, DIM])?;
        Mamba2::default().chunks(stream, inputs, None, states, y)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for (batch, head) in [(0, 0), (BATCH - 1, HEADS - 1)] {
            let number = |name: usize| Ok::<f64, ct::Error>(values(&data.numbers[name].1, head, 1)?[0]);
            let (a, d) = (number(0)?, number(1)?);
            let all = |name: &str, each: usize| data.read(name, batch * TOKENS * each, TOKENS * each);
            let (b, c, dt) = (all("b", STATES)?, all("c", STATES)?, all("dt", HEADS)?);
            let of_head = |array: &DeviceArray<bf16, 1>| {
                let rows =
                    matrix(array, [BATCH * TOKENS, HEADS * DIM])?.slice(0, batch * TOKENS..(batch + 1) * TOKENS)?;
                let part = rows.slice(1, head * DIM..(head + 1) * DIM)?.to_vec()?;
                Ok::<_, ct::Error>(part.iter().map(|x| x.to_f64()).collect::<Vec<f64>>())
            };
            let (x, y) = (of_head(data.input("x"))?, of_head(&data.outputs[0].1)?);
            let mut state = vec![0.0; STATES * DIM];
            let (mut result, mut want) = (Vec::new(), Vec::new());
            for t in 0..TOKENS {
                let (step, x) = (dt[t * HEADS + head], &x[t * DIM..(t + 1) * DIM]);
                let decay = (step * a).exp();
                let mut of_token: Vec<f64> = x.iter().map(|x| x * d).collect();
                for (n, row) in state.chunks_exact_mut(DIM).enumerate() {
                    let (b, c) = (b[t * STATES + n] * step, c[t * STATES + n]);
                    for ((state, out), x) in row.iter_mut().zip(&mut of_token).zip(x) {
                        *state = *state * decay + b * x;
                        *out += *state * c;
                    }
                }
                if t % 61 == 0 || t + 1 == TOKENS {
                    want.extend(of_token);
                    result.extend(&y[t * DIM..(t + 1) * DIM]);
                }
            }
            worst = worst.max(difference(&result, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let bytes = 2 * (2 * len + count + 2 * BATCH * TOKENS * STATES);
    Case::new(format!("mamba2 bf16 {BATCH} {TOKENS} {HEADS} {DIM} {STATES}"), 2e-2, bytes as f64, 0.0, functions)
}

/// The row at a size for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_mamba::<1, 128, 2>()]
}

/// The row.
pub fn cases() -> Vec<Case> {
    vec![of_mamba::<2, 4096, 64>()]
}
