//! Attention: the batch is the sequences.

use cutlet as ct;
use cutlet::element::{bf16, f8e4m3fn, f16};
use cutlet_kernels::attention::{Chosen, Decode, Gradients, Latent, Latents, Order, Pages, Prefill, PrefillF8, Sparse};
use cutlet_kernels::batch_invariant;

use super::{BATCH, always, bits, part, same_bits};
use crate::support::{device, random};

/// Tokens of a sequence.
fn length(sequence: usize) -> usize {
    let most = if device().target().is_some() { 3000 } else { 600 };
    1 + sequence * 977 % most
}

#[test]
fn prefill() -> ct::Result<()> {
    let tokens = if device().target().is_some() { 200 } else { 20 };
    always(|range| {
        let [q, k, v] = [1, 2, 3].map(|seed| part::<f16, 4>(seed, [1, 2, tokens, 64], &range));
        let mut y = device().zeros::<f16, 4>(q.shape())?;
        let stream = device().default_stream();
        Prefill::new(0.2).causal(true).launch(&stream, [q.view(), k.view(), v.view()], y.view_mut(), None)?;
        bits(&y)
    })
}

/// The bits of packed sequences of 7 to 70 tokens, one after another.
#[test]
fn packed_sequences() -> ct::Result<()> {
    let of = |sequence: usize| 7 + sequence;
    let launch = |range: std::ops::Range<usize>| {
        let starts: Vec<i32> =
            range.clone().map(of).scan(0, |end, n| Some(std::mem::replace(end, *end + n as i32))).collect();
        let count: usize = range.clone().map(of).sum();
        let starts: Vec<i32> = starts.into_iter().chain([count as i32]).collect();
        let skipped: usize = (0..range.start).map(of).sum();
        let all: usize = (0..BATCH).map(of).sum();
        let [q, k, v] = [1, 2, 3].map(|seed| {
            let (_, values) = random::<f16, 3>(seed, [all, 2, 32], 2.0).expect("numbers");
            let values: Vec<f16> = values[skipped * 64..][..count * 64].iter().map(|&x| f16::from_f64(x)).collect();
            device().array(&values, [count, 2, 32]).expect("an array")
        });
        let starts = device().array(&starts, [range.len() + 1])?;
        let mut y = device().zeros::<f16, 3>([count, 2, 32])?;
        let longest = range.clone().map(of).max().unwrap_or(0);
        let (stream, qkv) = (device().default_stream(), [q.view(), k.view(), v.view()]);
        Prefill::new(0.2).launch_packed(&stream, qkv, [starts.view(), starts.view()], longest, y.view_mut(), None)?;
        Ok((bits(&y)?, starts.to_vec()?))
    };
    batch_invariant(|| {
        let (all, starts) = launch(0..BATCH)?;
        for sequence in [0, 17, BATCH - 1] {
            let (one, _) = launch(sequence..sequence + 1)?;
            assert!(one == all[starts[sequence] as usize * 64..][..one.len()], "sequence {sequence}");
        }
        Ok::<(), ct::Error>(())
    })
}

#[test]
fn f8_and_chosen_blocks() -> ct::Result<()> {
    always(|range| {
        let [q, k, v] = [1, 2, 3].map(|seed| part::<f8e4m3fn, 4>(seed, [1, 2, 64, 32], &range));
        let one = device().full([range.len(), 2], 0.5f32)?;
        let mut y = device().zeros::<bf16, 4>(q.shape())?;
        let (stream, qkv) = (device().default_stream(), [q.view(), k.view(), v.view()]);
        let attention = PrefillF8 { scale: 0.2, causal: true };
        attention.launch(&stream, qkv, [one.view(), one.view(), one.view()], y.view_mut(), None)?;
        bits(&y)
    })?;
    always(|range| {
        let [q, k, v] = [1, 2, 3].map(|seed| part::<f16, 4>(seed, [1, 2, 64, 32], &range));
        let n = range.len();
        let list = device().from_fn([n, 1, 2, 2], |[_, _, tile, i]| (tile + 2 * i) as i32)?;
        let counts = device().full([n, 1, 2], 2)?;
        let chosen = Chosen { block: [32, 16], list: list.view(), counts: counts.view() };
        let mut y = device().zeros::<f16, 4>(q.shape())?;
        let (stream, qkv) = (device().default_stream(), [q.view(), k.view(), v.view()]);
        Sparse { scale: 0.2, causal: false }.launch(&stream, qkv, chosen, y.view_mut(), None)?;
        bits(&y)
    })
}

/// The cache of a batch has the pages of its longest sequence: a sequence alone has a shorter
/// table, and fewer parts.
#[test]
fn decode() -> ct::Result<()> {
    batch_invariant(|| {
        same_bits(|range| {
            let longest = range.clone().map(length).max().unwrap_or(1).div_ceil(64);
            let pages = (0..BATCH).map(|sequence| length(sequence).div_ceil(64)).max().unwrap_or(1);
            let q = part::<f16, 3>(1, [1, 4, 32], &range);
            let [k, v] = [2, 3].map(|seed| part::<f16, 5>(seed, [1, pages, 64, 1, 32], &range));
            let [k, v] = [k.view(), v.view()].map(|x| x.reshape([range.len() * pages, 64, 1, 32]));
            let table = device().from_fn([range.len(), longest], |[s, i]| (s * pages + i) as i32)?;
            let lengths =
                device().array(&range.clone().map(|s| length(s) as i32).collect::<Vec<_>>(), [range.len()])?;
            let pages = Pages { keys: k?, values: v?, table: table.view(), lengths: lengths.view() };
            let (decode, mut y) = (Decode::new(0.2), device().zeros::<f16, 3>(q.shape())?);
            let mut scratch = decode.scratch(device(), q.shape(), &pages)?;
            decode.launch(&device().default_stream(), q.view(), pages, y.view_mut(), &mut scratch)?;
            bits(&y)
        })
    })
}

#[test]
fn latent_vectors() -> ct::Result<()> {
    batch_invariant(|| {
        same_bits(|range| {
            let longest = range.clone().map(length).max().unwrap_or(1);
            let all = (0..BATCH).map(length).max().unwrap_or(1);
            let q = part::<f16, 3>(1, [1, 4, 80], &range);
            let vectors = part::<f16, 3>(2, [1, all, 80], &range);
            let vectors = vectors.slice(1, ..longest)?;
            let lengths =
                device().array(&range.clone().map(|s| length(s) as i32).collect::<Vec<_>>(), [range.len()])?;
            let latents = Latents { vectors, order: Order::Contiguous, lengths: lengths.view() };
            let (latent, mut y) = (Latent::new(0.1, 64), device().zeros::<f16, 3>([range.len(), 4, 64])?);
            let mut scratch = latent.scratch(device(), q.shape(), &latents)?;
            latent.launch(&device().default_stream(), q.view(), latents, y.view_mut(), &mut scratch)?;
            bits(&y)
        })
    })
}

/// The parts of a scratch that was allocated outside of `batch_invariant` depend on the batch.
#[test]
fn scratch_of_another_mode() -> ct::Result<()> {
    let (q, k) = (device().zeros::<f16, 3>([1, 2, 64])?, device().zeros::<f16, 4>([1, 64, 1, 64])?);
    let (table, lengths) = (device().zeros([1, 1])?, device().full([1], 5)?);
    let pages = Pages { keys: k.view(), values: k.view(), table: table.view(), lengths: lengths.view() };
    let (decode, mut y) = (Decode::new(0.2), device().zeros::<f16, 3>([1, 2, 64])?);
    let mut scratch = decode.scratch(device(), q.shape(), &pages)?;
    let launch = || decode.launch(&device().default_stream(), q.view(), pages, y.view_mut(), &mut scratch);
    let error = batch_invariant(launch).unwrap_err().to_string();
    assert!(
        error.contains("the parts of this scratch depend on the batch") && error.contains("attention.rs"),
        "{error}"
    );
    Ok(())
}

/// The gradients of queries, keys and values of a sequence, by the kernel with one order of
/// additions.
#[test]
fn gradients() -> ct::Result<()> {
    always(|range| {
        let [q, k, v, y, dy] = [1, 2, 3, 4, 5].map(|seed| part::<f16, 4>(seed, [1, 2, 40, 32], &range));
        let logs = device().full([range.len(), 2, 40], 4.0f32)?;
        let [mut dq, mut dk, mut dv] = [(); 3].map(|()| device().zeros::<f16, 4>(q.shape()).expect("an array"));
        let gradients = Gradients::new(0.2).causal(true).deterministic(true);
        let (stream, inputs) = (device().default_stream(), [q.view(), k.view(), v.view(), y.view(), dy.view()]);
        gradients.launch(&stream, inputs, logs.view(), [dq.view_mut(), dk.view_mut(), dv.view_mut()])?;
        let all = [bits(&dq)?, bits(&dk)?, bits(&dv)?];
        let each = 2 * 40 * 32;
        Ok((0..range.len()).flat_map(|i| all.iter().flat_map(move |of| of[i * each..][..each].to_vec())).collect())
    })
}
