//! Attention: the batch is the sequences.

use std::ops::Range;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{bf16, f8e4m3fn, f16};
use cutlet_kernels::attention::{Chosen, Decode, Gradients, Latent, Latents, Order, Pages, Prefill, PrefillF8, Sparse};
use cutlet_kernels::batch_invariant;

use super::code::same_code;
use super::{BATCH, ROWS, always, bits, part, same_bits};
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

/// Tokens of a packed sequence.
fn packed_length(sequence: usize) -> usize {
    7 + sequence
}

/// First token of a packed sequence of all.
fn packed_start(sequence: usize) -> usize {
    (0..sequence).map(packed_length).sum()
}

/// Packed sequences, one after another.
struct Packed {
    tokens: Range<usize>,
    starts: DeviceArray<i32, 1>,
    longest: usize,
}

impl Packed {
    fn new(range: &Range<usize>) -> ct::Result<Packed> {
        let tokens = packed_start(range.start)..packed_start(range.end);
        let start = |sequence: usize| (packed_start(sequence) - tokens.start) as i32;
        let starts: Vec<i32> = (range.start..=range.end).map(start).collect();
        let longest = range.clone().map(packed_length).max().unwrap_or(0);
        Ok(Packed { tokens, starts: device().array(&starts, [starts.len()])?, longest })
    }

    /// Returns random numbers of the tokens, of shape (tokens, heads, 32).
    fn numbers(&self, seed: u64, heads: usize) -> DeviceArray<f16, 3> {
        let (_, values) = random::<f16, 3>(seed, [packed_start(BATCH), heads, 32], 2.0).expect("numbers");
        let (each, count) = (heads * 32, self.tokens.len());
        let values = values[self.tokens.start * each..][..count * each].iter().map(|&x| f16::from_f64(x));
        device().array(&values.collect::<Vec<_>>(), [count, heads, 32]).expect("an array")
    }
}

/// Compares packed sequences alone and in a batch, and the code. `launch` returns the results of
/// all tokens, one array after another.
#[track_caller]
fn same_packed<const N: usize>(launch: impl Fn(Packed) -> ct::Result<[Vec<u64>; N]>) -> ct::Result<()> {
    let all = launch(Packed::new(&(0..BATCH))?)?;
    for sequence in ROWS {
        let one = launch(Packed::new(&(sequence..sequence + 1))?)?;
        for (array, (one, all)) in one.iter().zip(&all).enumerate() {
            let each = all.len() / packed_start(BATCH);
            let of_batch = &all[packed_start(sequence) * each..][..packed_length(sequence) * each];
            assert!(one[..] == *of_batch, "sequence {sequence}, array {array}");
        }
    }
    same_code(|range| Ok(launch(Packed::new(&range)?)?.concat()))
}

#[test]
fn packed_sequences() -> ct::Result<()> {
    batch_invariant(|| {
        same_packed(|packed| {
            let [q, k, v] = [1, 2, 3].map(|seed| packed.numbers(seed, 2));
            let (starts, mut y) = ([packed.starts.view(); 2], device().zeros::<f16, 3>(q.shape())?);
            let (stream, qkv) = (device().default_stream(), [q.view(), k.view(), v.view()]);
            Prefill::new(0.2).launch_packed(&stream, qkv, starts, packed.longest, y.view_mut(), None)?;
            Ok([bits(&y)?])
        })
    })
}

/// Two heads of queries share a head of keys.
#[test]
fn gradients_of_packed_sequences() -> ct::Result<()> {
    batch_invariant(|| {
        same_packed(|packed| {
            let [q, y, dy] = [1, 4, 5].map(|seed| packed.numbers(seed, 2));
            let [k, v] = [2, 3].map(|seed| packed.numbers(seed, 1));
            let logs = device().full([2, packed.tokens.len()], 4.0f32)?;
            let mut dq = device().zeros::<f16, 3>(q.shape())?;
            let [mut dk, mut dv] = [device().zeros::<f16, 3>(k.shape())?, device().zeros::<f16, 3>(k.shape())?];
            let inputs = [q.view(), k.view(), v.view(), y.view(), dy.view()];
            let (starts, longest) = ([packed.starts.view(); 2], [packed.longest; 2]);
            let results = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
            let gradients = Gradients::new(0.2).causal(true).deterministic(true);
            gradients.launch_packed(&device().default_stream(), inputs, logs.view(), starts, longest, results)?;
            Ok([bits(&dq)?, bits(&dk)?, bits(&dv)?])
        })
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
