//! Rows of the alignment of tokens by experts and of their products.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::moe::{Alignment, Rows, product};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

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

/// Products of tokens with the weights of their experts. The original stores a row for each pair of
/// token and expert, ours one for each place of the alignment.
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

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_alignment::<64, 16, 16>(), of_experts::<24, 8, 32, 48>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_alignment::<8192, 128, 64>(), of_alignment::<512, 256, 16>(), of_experts::<4096, 64, 2816, 2048>()]
}
