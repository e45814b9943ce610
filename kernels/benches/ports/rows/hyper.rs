//! Rows of hyper-connections: weights of residual streams, and streams after a layer.

use cutlet::element::bf16;
use cutlet::{Device, Stream};
use cutlet_kernels::norms::{HyperConnections, HyperScratch};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

const STREAMS: usize = 4;
const COUNT: usize = STREAMS * (STREAMS + 2);
const CONNECTIONS: HyperConnections = HyperConnections { streams: STREAMS, factors: [0.7, 0.8, 0.9] };

fn of_weights<const TOKENS: usize, const COLUMNS: usize>() -> Case {
    let terms = STREAMS * COLUMNS;
    let data = move |device: Device| {
        let scratch = CONNECTIONS.scratch(device, [TOKENS, terms])?;
        Ok(Data {
            inputs: vec![
                ("x", random::<bf16>(device, 1, TOKENS * terms, 2.0)?),
                ("w", random::<bf16>(device, 2, terms * COUNT, 0.05)?),
            ],
            outputs: vec![],
            numbers: vec![
                ("bias", random::<f32>(device, 3, COUNT, 1.0)?),
                ("y", device.zeros([TOKENS * COUNT])?),
                ("root", device.zeros([TOKENS])?),
                // Parts of the original.
                ("sums", device.zeros([8 * TOKENS * COUNT])?),
                ("squares", device.zeros([8 * TOKENS])?),
            ],
            integers: vec![],
            kept: Some(Box::new(scratch)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, numbers, kept, .. } = data;
        let Some(scratch) = kept.as_mut().and_then(|kept| kept.downcast_mut::<HyperScratch>()) else { return Ok(()) };
        let [(_, bias), (_, y), ..] = &mut numbers[..] else { return Ok(()) };
        let x = matrix(&inputs[0].1, [TOKENS, STREAMS * COLUMNS])?;
        let w = matrix(&inputs[1].1, [STREAMS * COLUMNS, COUNT])?;
        CONNECTIONS.weights(stream, x, w, bias.view(), matrix_mut(y, [TOKENS, COUNT])?, scratch)
    };
    let reset = |_: &Stream, data: &mut Data<bf16>| data.numbers[1].1.copy_from(&vec![f32::NAN; TOKENS * COUNT]);
    let error = |data: &Data<bf16>| {
        let (terms, mut worst) = (STREAMS * COLUMNS, 0.0f64);
        let (w, bias) = (data.read("w", 0, terms * COUNT)?, values(&data.numbers[0].1, 0, COUNT)?);
        for row in places(TOKENS) {
            let x = data.read("x", row * terms, terms)?;
            let root = (x.iter().map(|x| x * x).sum::<f64>() / terms as f64).sqrt();
            let weight = |column: usize| {
                let kind = (column / STREAMS).min(2);
                let product: f64 = x.iter().enumerate().map(|(k, x)| x * w[k * COUNT + column]).sum();
                let linear = product / root * f64::from(CONNECTIONS.factors[kind]) + bias[column];
                let sigmoid = 1.0 / (1.0 + (-linear).exp());
                [sigmoid, 2.0 * sigmoid, linear][kind]
            };
            let want: Vec<f64> = (0..COUNT).map(weight).collect();
            worst = worst.max(difference(&values(&data.numbers[1].1, row * COUNT, COUNT)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let name = format!("hyper-connection weights bf16 {TOKENS} {STREAMS} {COLUMNS}");
    Case::new(name, 2e-3, (2 * TOKENS * terms) as f64, 0.0, functions)
}

/// The original has the weights of each kind in an array of their own.
fn of_streams<const TOKENS: usize, const COLUMNS: usize>() -> Case {
    let len = TOKENS * STREAMS * COLUMNS;
    let data = move |device: Device| {
        let weights = random::<f32>(device, 3, TOKENS * COUNT, 1.0)?;
        let mut parts = vec![("weights", weights)];
        for (name, range) in [("post", STREAMS..2 * STREAMS), ("mixed", 2 * STREAMS..COUNT)] {
            let mut part = device.zeros([TOKENS * range.len()])?;
            let from = matrix(&parts[0].1, [TOKENS, COUNT])?.slice(1, range.clone())?;
            matrix_mut(&mut part, [TOKENS, range.len()])?.copy_from_array(&from)?;
            parts.push((name, part));
        }
        Ok(Data {
            inputs: vec![
                ("x", random::<bf16>(device, 1, len, 2.0)?),
                ("layer", random::<bf16>(device, 2, TOKENS * COLUMNS, 2.0)?),
            ],
            outputs: vec![("y", device.zeros([len])?)],
            numbers: parts,
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, .. } = data;
        let shape = [TOKENS, STREAMS, COLUMNS];
        let (x, layer) = (matrix(&inputs[0].1, shape)?, matrix(&inputs[1].1, [TOKENS, COLUMNS])?);
        let weights = matrix(&numbers[0].1, [TOKENS, COUNT])?;
        CONNECTIONS.apply(stream, x, layer, weights, matrix_mut(&mut outputs[0].1, shape)?)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for row in places(TOKENS * STREAMS) {
            let (token, i) = (row / STREAMS, row % STREAMS);
            let x = data.read("x", token * STREAMS * COLUMNS, STREAMS * COLUMNS)?;
            let (layer, w) =
                (data.read("layer", token * COLUMNS, COLUMNS)?, values(&data.numbers[0].1, token * COUNT, COUNT)?);
            let mixed = |c: usize| (0..STREAMS).map(|j| w[(2 + i) * STREAMS + j] * x[j * COLUMNS + c]).sum::<f64>();
            let want: Vec<f64> = (0..COLUMNS).map(|c| w[STREAMS + i] * layer[c] + mixed(c)).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, row * COLUMNS, COLUMNS)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let name = format!("hyper-connection streams bf16 {TOKENS} {STREAMS} {COLUMNS}");
    Case::new(name, 8e-3, (2 * (2 * len + TOKENS * COLUMNS)) as f64, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_weights::<20, 96>(), of_streams::<6, 96>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_weights::<4096, 4096>(), of_streams::<4096, 4096>()]
}
