//! The row of the gradients of the gated activations of experts.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{Device, Stream};
use cutlet_kernels::moe::{ActivationGradients, ActivationInputs, Alignment, activation_gradients};
use cutlet_kernels::norms::Gate;

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

const TAKEN: usize = 8;
const TILE: usize = 128;

/// Each expert has as many tokens, so that rows of the original are places of the alignment.
/// Gradients of the weights of pairs are added: those of the original in the order of the places,
/// ours in that of the pairs.
fn of_gradients<const TOKENS: usize, const EXPERTS: usize, const BETWEEN: usize, const HIDDEN: usize>() -> Case {
    let pairs = TOKENS * TAKEN;
    let data = move |device: Device| {
        let stream = device.default_stream();
        let expert = |[token, slot]: [usize; 2]| ((token + slot * (EXPERTS / TAKEN)) % EXPERTS) as i32;
        let chosen = device.from_fn([TOKENS, TAKEN], expert)?;
        let mut alignment = Alignment::new(&stream, [TOKENS, TAKEN], EXPERTS, TILE)?;
        alignment.launch(&stream, chosen.view())?;
        let (order, count) = (alignment.pairs().to_vec()?, alignment.num_places());
        let order = &order[..pairs];
        let tokens: Vec<i32> = order.iter().map(|pair| pair / TAKEN as i32).collect();
        let of_expert = |expert: usize| (expert * pairs / EXPERTS) as i32;
        Ok(Data {
            inputs: vec![
                ("dy", random::<bf16>(device, 1, TOKENS * HIDDEN, 1.0)?),
                ("w", random::<bf16>(device, 2, EXPERTS * BETWEEN * HIDDEN, 0.1)?),
                ("z", random::<bf16>(device, 3, count * 2 * BETWEEN, 3.0)?),
            ],
            outputs: vec![("dz", device.zeros([count * 2 * BETWEEN])?), ("h", device.zeros([count * BETWEEN])?)],
            numbers: vec![("scores", random::<f32>(device, 4, pairs, 1.0)?), ("ds", device.zeros([pairs])?)],
            integers: vec![
                ("order", device.array(order, [pairs])?),
                ("tokens", device.array(&tokens, [pairs])?),
                ("starts", device.from_fn([EXPERTS + 1], |[expert]| of_expert(expert))?),
            ],
            kept: Some(Box::new(alignment)),
        })
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, numbers, kept: Some(kept), .. } = data else { return Ok(()) };
        let Some(alignment) = kept.downcast_ref::<Alignment>() else { return Ok(()) };
        let [(_, dz), (_, h)] = &mut outputs[..] else { return Ok(()) };
        let [(_, scores), (_, ds)] = &mut numbers[..] else { return Ok(()) };
        let count = alignment.num_places();
        let inputs = ActivationInputs {
            dy: matrix(&inputs[0].1, [TOKENS, HIDDEN])?,
            second: matrix(&inputs[1].1, [EXPERTS, BETWEEN, HIDDEN])?,
            operands: matrix(&inputs[2].1, [count, 2 * BETWEEN])?,
            weights: matrix(scores, [TOKENS, TAKEN])?,
        };
        let results = ActivationGradients {
            operands: matrix_mut(dz, [count, 2 * BETWEEN])?,
            weighted: matrix_mut(h, [count, BETWEEN])?,
            weights: matrix_mut(ds, [TOKENS, TAKEN])?,
        };
        activation_gradients(stream, inputs, alignment, Gate::Silu, results)
    };
    let reset = |stream: &Stream, data: &mut Data<bf16>| {
        poison_all(stream, data)?;
        let ds = &mut data.numbers[1].1;
        ds.copy_from(&vec![0.0; ds.len()])
    };
    let error = |data: &Data<bf16>| {
        let (order, mut worst) = (data.integers[0].1.to_vec()?, 0.0f64);
        for place in places(TOKENS * TAKEN) {
            let (pair, expert) = (order[place] as usize, place / (TOKENS * TAKEN / EXPERTS));
            let dy = data.read("dy", pair / TAKEN * HIDDEN, HIDDEN)?;
            let w = data.read("w", expert * BETWEEN * HIDDEN, BETWEEN * HIDDEN)?;
            let z = data.read("z", place * 2 * BETWEEN, 2 * BETWEEN)?;
            let score = values(&data.numbers[0].1, pair, 1)?[0];
            let mut want = [vec![], vec![], vec![]];
            let mut of_pair = 0.0;
            for i in 0..BETWEEN {
                let gradient: f64 = w[i * HIDDEN..].iter().zip(&dy).map(|(w, dy)| w * dy).sum();
                let (a, b) = (z[i], z[BETWEEN + i]);
                let sigmoid = 1.0 / (1.0 + (-a).exp());
                let (value, slope) = (a * sigmoid, sigmoid * (1.0 + a * (1.0 - sigmoid)));
                want[0].push(gradient * slope * b * score);
                want[1].push(gradient * value * score);
                want[2].push(value * b * score);
                of_pair += gradient * value * b;
            }
            let of_operands = values(&data.outputs[0].1, place * 2 * BETWEEN, 2 * BETWEEN)?;
            let (da, db) = of_operands.split_at(BETWEEN);
            let h = values(&data.outputs[1].1, place * BETWEEN, BETWEEN)?;
            for (result, want) in [da, db, &h[..]].into_iter().zip(&want) {
                worst = worst.max(difference(result, want));
            }
            let (theirs, ours) = (values(&data.numbers[1].1, place, 1)?[0], values(&data.numbers[1].1, pair, 1)?[0]);
            let off = (theirs - of_pair).abs().min((ours - of_pair).abs());
            worst = worst.max(off / (1.0 + of_pair.abs()));
        }
        Ok::<_, ct::Error>(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let flops = 2.0 * (pairs * BETWEEN * HIDDEN) as f64;
    let name = format!("expert activation gradients bf16 {TOKENS} {TAKEN} {EXPERTS} {BETWEEN} {HIDDEN}");
    Case::new(name, 1e-2, 0.0, flops, functions)
}

/// The row at a size for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_gradients::<128, 8, 48, 64>()]
}

/// The row.
pub fn cases() -> Vec<Case> {
    vec![of_gradients::<4096, 64, 1408, 2048>()]
}
