//! Rows of attention with latent vectors.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::{DeviceArray, Stream};
use cutlet_kernels::attention::{Latent, Latents, Order};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

/// Decoding with latent vectors. The original has an array of the latent and one of the rotated
/// columns.
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

/// Latent attention with chosen keys. The original has queries and results by heads.
fn of_sparse<const QUERIES: usize, const HEADS: usize, const TAKEN: usize>() -> Case {
    const LATENT: usize = 512;
    const ROTATED: usize = 64;
    const DIM: usize = LATENT + ROTATED;
    /// Key `i` of a query: at or before its position, or after it where there are too few.
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

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![of_latent::<2, 16, 40>(), of_sparse::<24, 16, 16>()]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![of_latent::<64, 128, 8192>(), of_latent::<16, 16, 16384>(), of_sparse::<2048, 128, 1024>()]
}
