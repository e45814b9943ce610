//! Chunks of the delta rules, prepared on their own.
//!
//! With the sums G of gates within a chunk of 64 steps, the products of steps i ≥ j are Σ k_ic k_jc
//! e^(G_ic - G_jc). With a gate of each key channel, no exponent may be positive, so that nothing
//! overflows. A pair of steps belongs to the level of the highest bit in which their numbers
//! differ. A level has blocks of 2ⁿ steps: the row is in the second half of a block, the column in
//! the first one. The exponents of both are relative to the last step of the first half. So each
//! level is a product of matrices. The levels of blocks of up to 16 steps are products of the
//! blocks of 16 steps along the diagonal, of which a mask keeps the pairs of the level. The two
//! other levels are products of whole blocks below the diagonal, without masks.

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
    (-(sums - middle).abs()).exp2()
}

/// Returns the pairs of a level of blocks of 16 steps, of this shape: those below the diagonal. The
/// rows have the steps of a block once or several times.
pub fn is_level(shape: [usize; 3], half: usize) -> Tile<bool, 3> {
    let [row, column] = [1, 2].map(|axis| ct::indices(shape, axis));
    let row = if shape[1] > BLOCK { row % BLOCK as i32 } else { row };
    ((row ^ column) / half as i32).eq(1) & row.gt(column)
}

/// Steps of the blocks of the lower levels: the rows of an `mma` instruction.
pub const BLOCK: usize = 16;

/// The products of pairs of steps i > j: of queries with keys, and below them of keys with keys,
/// for the pairs within blocks of 16 steps, those of such blocks within 32 steps, and the remaining
/// ones.
type Blocks = (Tile<f32, 3>, Tile<f32, 3>, Tile<f32, 2>);

fn no_products() -> Blocks {
    let count = STEPS / BLOCK;
    let below = ct::zeros::<f32, 3>([count / 2, 2 * BLOCK, BLOCK]);
    (ct::zeros::<f32, 3>([count, 2 * BLOCK, BLOCK]), below, ct::zeros::<f32, 2>([4 * BLOCK, 2 * BLOCK]))
}

/// Adds the products of a part of the channels.
fn products<T: Number>(q: Tile<T, 2>, k: Tile<T, 2>, gates: Tile<f32, 2>, (diagonal, below, far): Blocks) -> Blocks {
    let [_, width] = k.shape();
    let count = STEPS / BLOCK;
    let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
    let gates = gates * std::f32::consts::LOG2_E;
    let decayed = |half: usize| {
        let decay = level_decay(gates, half);
        [(exact_q * decay).cast::<T>(), (exact_k * decay).cast::<T>()]
    };
    // Second halves of queries and keys, and first halves of keys.
    let halves = |blocks: usize, half: usize| {
        let [q, k] = decayed(half).map(|x| x.reshape([blocks, 2 * half, width]));
        let part = |x: Tile<T, 3>, part: usize| x.extract((0, part, 0), [blocks, half, width]);
        (ct::cat([part(q, 1), part(k, 1)], 1), part(k, 0).permute([0, 2, 1]))
    };
    let diagonal = levels().take_while(|half| *half < BLOCK).fold(diagonal, |sums, half| {
        let [q, k] = decayed(half).map(|x| x.reshape([count, BLOCK, width]));
        let shape = [count, 2 * BLOCK, BLOCK];
        let product = ct::mma(ct::cat([q, k], 1), k.permute([0, 2, 1]), ct::zeros::<f32, 3>(shape));
        sums + is_level(shape, half).select(product, 0.0)
    });
    let (rows, columns) = halves(count / 2, BLOCK);
    let below = ct::mma(rows, columns, below);
    let (rows, columns) = halves(1, 2 * BLOCK);
    let far = ct::mma(rows.squeeze(0), columns.squeeze(0), far);
    (diagonal, below, far)
}

/// Returns the matrices of the products of queries (0) or keys (1).
fn matrix((diagonal, below, far): Blocks, which: usize) -> Tile<f32, 2> {
    let count = STEPS / BLOCK;
    let diagonal = diagonal.extract((0, which, 0), [count, BLOCK, BLOCK]).reshape([count / 2, 2, BLOCK, BLOCK]);
    let [first, second] = [0, 1]
        .map(|part| diagonal.extract((0, part, 0, 0), [count / 2, 1, BLOCK, BLOCK]).reshape([count / 2, BLOCK, BLOCK]));
    let below = below.extract((0, which, 0), [count / 2, BLOCK, BLOCK]);
    let upper = ct::cat([first, ct::zeros([count / 2, BLOCK, BLOCK])], 2);
    let pairs = ct::cat([upper, ct::cat([below, second], 2)], 1);
    let [first, second] = [0, 1].map(|part| pairs.extract((part, 0, 0), [1, 2 * BLOCK, 2 * BLOCK]).squeeze(0));
    let far = far.extract((which, 0), [2 * BLOCK, 2 * BLOCK]);
    ct::cat([ct::cat([first, ct::zeros([2 * BLOCK, 2 * BLOCK])], 1), ct::cat([far, second], 1)], 0)
}

/// Returns the sums over all parts of the keys of the products that a head with one gate has: of
/// queries with keys, and of keys with keys.
fn of_one_gate<T: Number>(
    q: Tile<T, 2>,
    k: Tile<T, 2>,
    gates: Tile<f32, 2>,
    sums: [Tile<f32, 2>; 2],
) -> [Tile<f32, 2>; 2] {
    let product = |left: Tile<T, 2>| ct::mma(left, k.transpose(), ct::zeros::<f32, 2>([STEPS, STEPS]));
    [product(q).fma(decays(gates, false), sums[0]), product(k).fma(decays(gates, true), sums[1])]
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
    let gate_width = form.gates()[1];
    let of_part = |part: Scalar<i32>| {
        let [q, k] = [q, k].map(|x| sequence.load(x, [at, head / group as i32, part], width));
        (q, k, sequence.load(gates, [at, head, form.gate_of(part)], gate_width).cumsum(0))
    };
    let step = |part: Scalar<i32>| {
        let (q, k, gates) = of_part(part);
        let last = gates.extract((STEPS - 1, 0), [1, gate_width]);
        let (shape, place) = ([1, 1, STEPS, width], (slot, head, 0, part));
        let (exact_q, exact_k) = (q.cast::<f32>(), k.cast::<f32>());
        queries.store(place, (exact_q * gates.exp()).cast::<T>().reshape(shape));
        ends.store(place, (exact_k * (last - gates).exp()).cast::<T>().reshape(shape));
        decays.store((slot, head, form.gate_of(part)), last.exp().reshape([1, 1, gate_width]));
        (q, k, gates, (exact_q * exact_k).sum(1))
    };
    // Loops, so that the registers are those of one part.
    let (of_queries, of_keys) = if form.by_channel {
        let start = (no_products(), ct::zeros::<f32, 2>([STEPS, 1]));
        let (all, own) = ct::fold(..form.key_parts(), start, |(sums, own), part| {
            let (q, k, gates, of_part) = step(part);
            (products(q, k, gates, sums), own + of_part)
        });
        let is_own = ct::indices([STEPS, STEPS], 0).eq(ct::indices([STEPS, STEPS], 1));
        (is_own.select(own.broadcast_to([STEPS, STEPS]), matrix(all, 0)), matrix(all, 1))
    } else {
        let start = [ct::zeros::<f32, 2>([STEPS, STEPS]); 2];
        let [of_queries, of_keys] = ct::fold(..form.key_parts(), start, |sums, part| {
            let (q, k, gates, _) = step(part);
            of_one_gate(q, k, gates, sums)
        });
        (of_queries, of_keys)
    };
    let [rows, columns] = [0, 1].map(|axis| ct::indices([STEPS, STEPS], axis));
    scores.store((slot, head, 0, 0), of_queries.cast::<T>().reshape([1, 1, STEPS, STEPS]));

    let triangle = of_keys.fma(rates, rows.eq(columns).cast::<f32>());
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
        // The kernels write all elements that they read.
        let new = |channels: usize| stream.device().unspecified::<T, 4>([slots, heads, STEPS, channels]);
        Ok(Chunks {
            w: new(keys)?,
            u: new(values)?,
            queries: new(keys)?,
            ends: new(keys)?,
            scores: new(STEPS)?,
            inverses: if inverses { Some(new(STEPS)?) } else { None },
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
