//! Log-linear attention (Guo et al., *Log-Linear Attention*, 2025).
//!
//! The result of a head at token t is Σ λ(t, level) e^(G_t - G_s) (q_t · k_s) v_s over s ≤ t, with
//! the sums G of the gates. The level of t and s is the number of bits of t xor s: 0 for s = t, 1
//! for the token before an odd t, up to the logarithm of the length. So the tokens before t are the
//! nodes of a Fenwick tree (Fenwick, 1994), with a factor for each node.
//!
//! Chunks have 64 tokens, which are the levels 0 to 6. The node of a chunk has the state (keys x
//! values) of the chunks whose numbers have more of the lowest bits set to zero:
//!
//! 1. A tile block computes the nodes within eight chunks, by a binary counter in registers.
//! 2. The nodes of multiples of eight chunks are added, along the sequence.
//! 3. The result of a chunk is (Q Kᵀ ∘ decays ∘ λ) V, and the products of Q with the nodes before
//!    it: one for each bit of its number.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::tokens::{Extents, Packing, STEPS, Sequence, Tokens, TokensMut, decays, tokens, tokens_mut};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Chunks of a tile block that computes nodes.
const GROUP: usize = 8;
/// Levels within a chunk.
const LEVELS: usize = STEPS.ilog2() as usize + 1;
/// Rows of keys of a tile that adds nodes.
const ROWS: usize = 16;

/// Inputs of log-linear attention. Several heads of values may share a head of keys.
#[derive(Clone, Copy, Debug)]
pub struct LogLinearInputs<'a, T: Element> {
    /// Queries (batch, tokens, key heads, key channels).
    pub q: DeviceView<'a, T, 4>,
    /// Keys, as queries.
    pub k: DeviceView<'a, T, 4>,
    /// Values (batch, tokens, heads, value channels).
    pub v: DeviceView<'a, T, 4>,
    /// Logarithms of the decays (batch, tokens, heads), not positive.
    pub gates: DeviceView<'a, f32, 3>,
    /// Factors λ (batch, tokens, heads, levels).
    pub factors: DeviceView<'a, T, 4>,
}

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Channels of a key and of a part of a value, in tiles.
    keys: usize,
    values: usize,
    /// Parts of the values.
    parts: usize,
    /// Heads of values of a head of keys.
    group: usize,
    /// The most chunks of a sequence.
    chunks: usize,
}

/// Returns the decay over the chunks `from` to `to` of a sequence.
fn decay(
    totals: Array<f32, 2>,
    (head, sequence): (Scalar<i32>, Sequence),
    [from, to]: [Scalar<i32>; 2],
    chunks: usize,
) -> Tile<f32, 2> {
    let numbers = ct::arange(0..chunks.next_power_of_two());
    let options = ct::GatherOptions::new().mask(numbers.ge(from) & numbers.lt(to));
    let gates = totals.gather_with((head, numbers + sequence.slot(ct::scalar(0), chunks)), options);
    gates.sum(0).exp().reshape([1, 1])
}

/// The nodes of the chunks of a group, and the sums of the gates of its chunks (head, slot).
fn nodes<T: Number>(
    (k, v, gates): (Tokens<T>, Tokens<T>, Tokens<f32>),
    offsets: Option<Array<i32, 1>>,
    (nodes, totals): (ArrayMut<T, 4>, ArrayMut<f32, 2>),
    form: Form,
) {
    let Form { keys, values, parts, group, chunks } = form;
    let [place, head, sequence] = [0, 1, 2].map(ct::bid);
    let (first, part) = (place / parts as i32 * GROUP as i32, place % parts as i32);
    let sequence = Sequence::new(sequence, offsets);
    let count = sequence.chunks(k, chunks);
    ct::return_if(first.ge(count));
    let mut complete: Vec<Tile<f32, 2>> = Vec::new();
    for number in 0..GROUP {
        let at = first + number as i32;
        let k = sequence.load(k, [at, head / group as i32, ct::scalar(0)], keys);
        let v = sequence.load(v, [at, head, part], values).cast::<f32>();
        let sums = sequence.load(gates, [at, head, ct::scalar(0)], 1).cumsum(0);
        let last = sums.extract((STEPS - 1, 0), [1, 1]);
        let decayed = (v * (last - sums).exp()).cast::<T>();
        let mut node = ct::mma(k.transpose(), decayed, ct::zeros::<f32, 2>([keys, values]));
        complete.iter_mut().for_each(|node| *node *= last.exp());
        for _ in 0..number.trailing_ones() {
            node += complete.pop().expect("a node of each bit");
        }
        complete.push(node);
        ct::if_then(at.lt(count), || {
            let slot = sequence.slot(at, chunks);
            nodes.store((slot, head, 0, part), node.cast::<T>().reshape([1, 1, keys, values]));
            ct::if_then(part.eq(0), || totals.store_scalar((head, slot), last.item()));
        });
    }
}

/// Adds the nodes of groups of chunks to those of several groups.
fn ancestors<T: Number>(
    nodes: ArrayMut<T, 4>,
    totals: Array<f32, 2>,
    like: Tokens<T>,
    offsets: Option<Array<i32, 1>>,
    form: Form,
) {
    let Form { keys, values, parts, chunks, .. } = form;
    let (rows, [place, head, sequence]) = (ROWS.min(keys), [0, 1, 2].map(ct::bid));
    let (row, part) = (place / parts as i32, place % parts as i32);
    let sequence = Sequence::new(sequence, offsets);
    let groups = sequence.chunks(like, chunks) / GROUP as i32;
    let at = |group: Scalar<i32>| (sequence.slot((group + 1) * GROUP as i32 - 1, chunks), head, row, part);
    let load = |group| nodes.load(at(group), [1, 1, rows, values]).cast::<f32>();
    ct::for_each(..groups, |group: Scalar<i32>| {
        let end = (group + 1) * GROUP as i32;
        let bits = (group + 1).trailing_zeros();
        let sum = ct::fold(..bits, load(group), |sum: Tile<f32, 4>, bit: Scalar<i32>| {
            let child = group - (ct::scalar(1) << bit);
            let decay = decay(totals, (head, sequence), [(child + 1) * GROUP as i32, end], chunks);
            sum + load(child) * decay.reshape([1, 1, 1, 1])
        });
        ct::if_then(bits.gt(0), || nodes.store(at(group), sum.cast::<T>()));
    });
}

/// The results of a chunk.
fn results<T: Number>(
    (q, k, v): (Tokens<T>, Tokens<T>, Tokens<T>),
    (gates, factors): (Tokens<f32>, Tokens<T>),
    offsets: Option<Array<i32, 1>>,
    (nodes, totals): (Array<T, 4>, Array<f32, 2>),
    out: TokensMut<T>,
    form: Form,
) {
    let Form { keys, values, parts, group, chunks } = form;
    let [place, head, sequence] = [0, 1, 2].map(ct::bid);
    let (at, part) = (place / parts as i32, place % parts as i32);
    let sequence = Sequence::new(sequence, offsets);
    ct::return_if(at.ge(sequence.chunks(q, chunks)));
    let of_keys = [at, head / group as i32, ct::scalar(0)];
    let (q, k) = (sequence.load(q, of_keys, keys), sequence.load(k, of_keys, keys));
    let v = sequence.load(v, [at, head, part], values);
    let sums = sequence.load(gates, [at, head, ct::scalar(0)], 1).cumsum(0);
    let factor = |level: Scalar<i32>| sequence.load(factors, [at, head, level], 1).cast::<f32>();

    let zeros = ct::zeros::<f32, 2>([STEPS, values]);
    let start = (at, zeros);
    let (_, carried) = ct::fold(..at.count_ones(), start, |(rest, sum): (Scalar<i32>, Tile<f32, 2>), _| {
        let decay = decay(totals, (head, sequence), [rest, at], chunks);
        let scaled = q.cast::<f32>() * (factor(rest.trailing_zeros() + LEVELS as i32) * decay);
        let node = nodes.load((sequence.slot(rest - 1, chunks), head, 0, part), [1, 1, keys, values]);
        (rest & (rest - 1), ct::mma(scaled.cast::<T>(), node.reshape([keys, values]), sum))
    });
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let apart = row ^ column;
    let start = factor(ct::scalar(0)).broadcast_to([STEPS, STEPS]);
    let of_levels = (1..LEVELS as i32)
        .fold(start, |factors, level| apart.ge(1 << (level - 1)).select(factor(ct::scalar(level)), factors));
    let products = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([STEPS, STEPS]));
    let scores = (products * decays(sums, false) * of_levels).cast::<T>();
    let result = ct::mma(scores, v, carried * sums.exp());
    sequence.store(out, [at, head, part], result.cast::<T>());
}

/// Queues log-linear attention of whole sequences: results (batch, tokens, heads, value channels).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::recurrent::{LogLinearInputs, log_linear_attention};
///
/// let device = ct::Device::cpu();
/// let (k, v) = (device.full([1, 3, 1, 1], 1.0f32)?, device.array(&[1.0f32, 10.0, 100.0], [1, 3, 1, 1])?);
/// let (gates, mut out) = (device.zeros([1, 3, 1])?, device.zeros([1, 3, 1, 1])?);
/// // Factors of the token itself, of the token before, and of the two tokens before.
/// let factors = device.from_fn([1, 3, 1, 3], |[.., level]| (level + 1) as f32)?;
/// let (k, v, gates, factors) = (k.view(), v.view(), gates.view(), factors.view());
/// let inputs = LogLinearInputs { q: k, k, v, gates, factors };
/// log_linear_attention(&device.default_stream(), inputs, None, out.view_mut())?;
/// assert_eq!(out.to_vec()?, [1.0, 12.0, 133.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit, if there are fewer levels than bits of the last
/// token's number and one, or more than 256 key channels; those of the launches.
#[track_caller]
pub fn log_linear_attention<T: Number>(
    stream: &Stream,
    inputs: LogLinearInputs<T>,
    packing: Option<Packing>,
    out: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    let name = "log_linear_attention";
    let LogLinearInputs { q, k, v, gates, factors } = inputs;
    let ([batch, count, key_heads, keys], [_, _, heads, values]) = (q.shape(), v.shape());
    require(k.shape() == q.shape() && keys <= 256, || {
        format!("{name}: queries {:?} and keys {:?} differ, or have more than 256 channels", q.shape(), k.shape())
    })?;
    let is_fitting = v.shape()[..2] == [batch, count] && key_heads > 0 && heads.is_multiple_of(key_heads);
    require(is_fitting && out.shape() == v.shape(), || {
        format!("{name}: values {:?} and results {:?} do not fit the keys {:?}", v.shape(), out.shape(), k.shape())
    })?;
    let (of_gates, of_factors) = (gates.shape(), factors.shape());
    require(of_gates == [batch, count, heads] && of_factors[..3] == of_gates, || {
        format!("{name}: gates {of_gates:?} and factors {of_factors:?} do not fit the values {:?}", v.shape())
    })?;
    let Extents { sequences, chunks, slots } = Extents::new(name, [batch, count], packing)?;
    let longest = packing.map_or(count, |packing| packing.longest).max(1);
    let levels = (longest - 1).checked_ilog2().map_or(1, |bits| bits as usize + 2);
    require(of_factors[3] >= levels, || {
        format!("{name}: {longest} tokens have {levels} levels, and the factors {of_factors:?} fewer")
    })?;
    if heads * values * sequences * chunks == 0 {
        return Ok(());
    }
    let width = values.next_power_of_two().clamp(16, 64);
    let parts = values.div_ceil(width);
    let form = Form { keys: keys.next_power_of_two().max(16), values: width, parts, group: heads / key_heads, chunks };
    let mut states = stream.device().zeros::<T, 4>([slots, heads, keys, values])?;
    let mut totals = stream.device().zeros::<f32, 2>([heads, slots])?;
    let offsets = packing.map(|packing| packing.offsets);
    let gates = tokens(gates.reshape([batch, count, heads, 1])?, packing)?;
    let (q, k, v) = (tokens(q, packing)?, tokens(k, packing)?, tokens(v, packing)?);
    let launch = |blocks: usize| ct::Launch::new([blocks * parts, heads, sequences]).stream(stream);
    let scratch = (&mut states, &mut totals);
    // Four nodes of f32 are live: eight warps have the registers for those of 128 x 64.
    let hints = Hints::new().num_warps((form.keys * form.values / 1024).clamp(4, 8) as u32);
    launch(chunks.div_ceil(GROUP))
        .hints(hints)
        .run(nodes::<T>, ((k, v, gates), offsets, scratch, ct::Constant(form)))?;
    if chunks > 2 * GROUP {
        let blocks = keys.div_ceil(ROWS.min(form.keys));
        launch(blocks).run(ancestors::<T>, (&mut states, &totals, v, offsets, ct::Constant(form)))?;
    }
    let arguments = ((q, k, v), (gates, tokens(factors, packing)?), offsets, (&states, &totals));
    let (inputs, numbers, offsets, scratch) = arguments;
    let out = tokens_mut(out, packing)?;
    launch(chunks).run(results::<T>, (inputs, numbers, offsets, scratch, out, ct::Constant(form)))
}
