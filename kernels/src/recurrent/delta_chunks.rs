//! Chunks of the delta rules, prepared on their own.
//!
//! With the sums G of gates within a chunk of 64 steps, the products of steps i ≥ j are Σ k_ic k_jc
//! e^(G_ic - G_jc). With a gate of each key channel, no exponent may be positive, so that nothing
//! overflows. A pair of steps belongs to the level of the highest bit in which their numbers differ.
//! A level has blocks of 2ⁿ steps: the row is in the second half of a block, the column in the first
//! one. The exponents of both are relative to the last step of the first half. So each level is a
//! product of matrices.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};

use super::tokens::{STEPS, Sequence, Tokens, decays};
use crate::Number;

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Channels of a key and of a part of a value, in tiles.
    pub keys: usize,
    pub values: usize,
    /// Parts of the values.
    pub parts: usize,
    /// Channels of a part of a key.
    pub width: usize,
    /// There is a gate of each key channel, and not one of the head.
    pub by_channel: bool,
    /// Heads of values of a head of keys.
    pub group: usize,
    /// The most chunks of a sequence.
    pub chunks: usize,
}

impl Form {
    /// Columns of a tile of gates: all of them, and those of a part of a key.
    pub fn gates(self) -> [usize; 2] {
        if self.by_channel { [self.keys, self.width] } else { [1, 1] }
    }

    /// Returns the number of parts of a key.
    pub fn key_parts(self) -> Scalar<i32> {
        ct::scalar((self.keys / self.width) as i32)
    }

    /// Returns the tile of gates of a part of a key.
    pub fn gate_of(self, part: Scalar<i32>) -> Scalar<i32> {
        if self.by_channel { part } else { ct::scalar(0) }
    }
}

/// Channels of a part of a key: the registers of a tile.
pub fn key_width(keys: usize) -> usize {
    keys.min(64)
}

/// The levels of pairs of steps of a chunk.
pub fn levels() -> impl Iterator<Item = usize> {
    (0..STEPS.trailing_zeros()).map(|level| 1 << level)
}

/// Returns the decays of a level from or to the middle of its blocks, by the sums of gates.
pub fn level_decay(sums: Tile<f32, 2>, half: usize) -> Tile<f32, 2> {
    let width = sums.shape()[1];
    let pairs = [STEPS / half / 2, 2, half, width];
    let middle = sums.reshape(pairs).extract((0, 0, half - 1, 0), [pairs[0], 1, 1, width]);
    let middle = middle.broadcast_to(pairs).reshape([STEPS, width]);
    (sums - middle).min(middle - sums).exp()
}

/// Returns the pairs of a level, without those above the diagonal.
pub fn is_level(half: usize) -> Tile<bool, 2> {
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    ((row ^ column) / half as i32).eq(1) & row.gt(column)
}

/// Adds the products of queries with keys of steps i ≥ j, and of keys with keys of steps i > j, with
/// their decays.
fn products<T: Number>(
    q: Tile<T, 2>,
    k: Tile<T, 2>,
    gates: Tile<f32, 2>,
    sums: [Tile<f32, 2>; 2],
) -> [Tile<f32, 2>; 2] {
    let square = ct::zeros::<f32, 2>([STEPS, STEPS]);
    let product = |left: Tile<T, 2>, k: Tile<T, 2>| ct::mma(left, k.transpose(), square);
    if gates.shape()[1] == 1 {
        return [sums[0] + product(q, k) * decays(gates, false), sums[1] + product(k, k) * decays(gates, true)];
    }
    let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
    let [row, column] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let own = row.eq(column).select(product(q, k), 0.0);
    let sums = [sums[0] + own, sums[1]];
    levels().fold(sums, |[of_q, of_k], half| {
        let decay = level_decay(gates, half);
        let (q, k) = ((exact_q * decay).cast::<T>(), (exact_k * decay).cast::<T>());
        let is_level = is_level(half);
        [(product(q, k), of_q), (product(k, k), of_k)].map(|(product, sum)| sum + is_level.select(product, 0.0))
    })
}

/// Queries, keys, values, gates and rates.
pub type Inputs<T> = (Tokens<T>, Tokens<T>, Tokens<T>, Tokens<f32>, Tokens<f32>);

/// Arrays (slot, head, step, channel): negative keys W, values U, decayed queries and keys, scores,
/// and the inverse T for gradients; decays (slot, head, gate).
pub type Scratch<T> = ([ArrayMut<T, 4>; 5], Option<ArrayMut<T, 4>>, ArrayMut<f32, 3>);

/// All that the recurrence needs of a chunk.
pub fn prepare<T: Number>(inputs: Inputs<T>, offsets: Option<Array<i32, 1>>, scratch: Scratch<T>, form: Form) {
    ct::with_mode(ct::FloatMode::fast(), || prepare_chunk(inputs, offsets, scratch, form));
}

fn prepare_chunk<T: Number>(
    (q, k, v, gates, rates): Inputs<T>,
    offsets: Option<Array<i32, 1>>,
    ([w, u, queries, ends, scores], inverses, decays): Scratch<T>,
    form: Form,
) {
    let Form { values, parts, width, group, chunks, .. } = form;
    let [at, head, sequence] = [0, 1, 2].map(ct::bid);
    let sequence = Sequence::new(sequence, offsets);
    if offsets.is_some() {
        ct::return_if(at.ge(sequence.chunks(k, chunks)));
    }
    let (zero, slot) = (ct::scalar(0), sequence.slot(at, chunks));
    let rates = sequence.load(rates, [at, head, zero], 1);
    let square = ct::zeros::<f32, 2>([STEPS, STEPS]);
    let gate_width = form.gates()[1];
    let of_part = |part: Scalar<i32>| {
        let [q, k] = [q, k].map(|x| sequence.load(x, [at, head / group as i32, part], width));
        (q, k, sequence.load(gates, [at, head, form.gate_of(part)], gate_width).cumsum(0))
    };
    // Loops, so that the registers are those of one part.
    let [of_queries, of_keys] = ct::fold(..form.key_parts(), [square, square], |sums, part| {
        let (q, k, gates) = of_part(part);
        let last = gates.extract((STEPS - 1, 0), [1, gate_width]);
        let (shape, place) = ([1, 1, STEPS, width], (slot, head, 0, part));
        queries.store(place, (q.cast::<f32>() * gates.exp()).cast::<T>().reshape(shape));
        ends.store(place, (k.cast::<f32>() * (last - gates).exp()).cast::<T>().reshape(shape));
        decays.store((slot, head, form.gate_of(part)), last.exp().reshape([1, 1, gate_width]));
        products(q, k, gates, sums)
    });
    scores.store((slot, head, 0, 0), of_queries.cast::<T>().reshape([1, 1, STEPS, STEPS]));

    let [rows, columns] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    let triangle = of_keys * rates + rows.eq(columns).cast::<f32>();
    let inverse = triangle.inverse_unit_lower().cast::<T>();
    if let Some(inverses) = inverses {
        inverses.store((slot, head, 0, 0), inverse.reshape([1, 1, STEPS, STEPS]));
    }
    ct::for_each(..form.key_parts(), |part| {
        let (_, k, gates) = of_part(part);
        // Negative keys: the recurrence adds their products to the values.
        let scaled = (k.cast::<f32>() * (-rates * gates.exp())).cast::<T>();
        let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, width])).cast::<T>();
        w.store((slot, head, 0, part), result.reshape([1, 1, STEPS, width]));
    });
    for part in 0..parts as i32 {
        let v = sequence.load(v, [at, head, ct::scalar(part)], values);
        let scaled = (v.cast::<f32>() * rates).cast::<T>();
        let result = ct::mma(inverse, scaled, ct::zeros::<f32, 2>([STEPS, values])).cast::<T>();
        u.store((slot, head, 0, part), result.reshape([1, 1, STEPS, values]));
    }
}

/// The scratch arrays of a call.
pub struct Chunks<T: Element> {
    pub w: DeviceArray<T, 4>,
    pub u: DeviceArray<T, 4>,
    pub queries: DeviceArray<T, 4>,
    pub ends: DeviceArray<T, 4>,
    pub scores: DeviceArray<T, 4>,
    pub inverses: Option<DeviceArray<T, 4>>,
    pub decays: DeviceArray<f32, 3>,
}

impl<T: Number> Chunks<T> {
    /// Allocates arrays of (slots, heads) with these numbers of key, value and gate channels.
    #[track_caller]
    pub fn new(
        stream: &Stream,
        [slots, heads]: [usize; 2],
        [keys, values, gates]: [usize; 3],
        inverses: bool,
    ) -> ct::Result<Chunks<T>> {
        // `prepare` writes all elements of the slots that later kernels read.
        let scratch = |channels: usize| stream.device().unspecified::<T, 4>([slots, heads, STEPS, channels]);
        Ok(Chunks {
            w: scratch(keys)?,
            u: scratch(values)?,
            queries: scratch(keys)?,
            ends: scratch(keys)?,
            scores: scratch(STEPS)?,
            inverses: if inverses { Some(scratch(STEPS)?) } else { None },
            decays: stream.device().unspecified([slots, heads, gates])?,
        })
    }

    /// Returns the arguments of [`prepare`].
    #[allow(clippy::type_complexity, reason = "the arguments of a kernel")]
    pub fn arguments(
        &mut self,
    ) -> ([&mut DeviceArray<T, 4>; 5], Option<&mut DeviceArray<T, 4>>, &mut DeviceArray<f32, 3>) {
        let Chunks { w, u, queries, ends, scores, inverses, decays } = self;
        ([w, u, queries, ends, scores], inverses.as_mut(), decays)
    }
}
