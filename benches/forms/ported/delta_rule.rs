//! Forms of the gated delta rule in chunks: the triangular inverses of all chunks, and the
//! recurrence over the chunks.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, some};

/// Method of the inverse of a triangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Inverse {
    Operation,
    /// By powers: `(1 - a)(1 + a^2)(1 + a^4)…` is `(1 + a)^-1`.
    Powers,
}

/// Extents of a chunk: steps, and elements of a key and of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Chunk {
    steps: usize,
    keys: usize,
    values: usize,
}

/// Returns the decay from each column's step to each row's step, zeros above the diagonal.
fn decays(gates: Tile<f32, 1>, steps: usize, strict: bool) -> Tile<f32, 2> {
    let [rows, columns] = [0, 1].map(|axis| ct::indices([steps, steps], axis));
    let decay = (gates.unsqueeze(1) - gates.unsqueeze(0)).exp();
    let seen = if strict { rows.gt(columns) } else { rows.ge(columns) };
    seen.select(decay, 0.0)
}

/// Returns the inverse of `1 + a`, with `a` strictly lower.
fn inverse(a: Tile<f32, 2>, steps: usize, method: Inverse) -> Tile<f32, 2> {
    let [rows, columns] = [0, 1].map(|axis| ct::indices([steps, steps], axis));
    let one = rows.eq(columns).cast::<f32>();
    match method {
        Inverse::Operation => (one + a).inverse_unit_lower(),
        Inverse::Powers => {
            let (mut result, mut power) = (one - a, a);
            for _ in 1..steps.ilog2() {
                let halves = power.cast::<bf16>();
                power = ct::matmul(halves, halves);
                result = ct::mma(result.cast::<bf16>(), power.cast::<bf16>(), result);
            }
            result
        }
    }
}

/// Arrays `[batch, steps, heads, elements]` and `[batch, heads, steps]`.
type Prepared = (Array<bf16, 4>, Array<bf16, 4>, Array<f32, 3>, Array<f32, 3>);

/// The corrected keys `w` and values `u` of a chunk.
fn prepare(
    (k, v, gates, rates): Prepared,
    (w, u): (ArrayMut<bf16, 4>, ArrayMut<bf16, 4>),
    chunk: Chunk,
    method: Inverse,
) {
    let Chunk { steps, keys, values } = chunk;
    let [at, head, batch] = [0, 1, 2].map(ct::bid);
    let place = (batch, at, head, 0);
    let k = k.load(place, [1, steps, 1, keys]).reshape([steps, keys]);
    let v = v.load(place, [1, steps, 1, values]).reshape([steps, values]);
    let gates = gates.load((batch, head, at), [1, 1, steps]).reshape([steps]);
    let rates = rates.load((batch, head, at), [1, 1, steps]).reshape([steps, 1]);
    let a = ct::matmul(k, k.transpose()) * decays(gates, steps, true) * rates;
    let inverse = inverse(a, steps, method).cast::<bf16>();
    let scaled = (k.cast::<f32>() * (rates * gates.unsqueeze(1).exp())).cast::<bf16>();
    w.store(place, ct::matmul(inverse, scaled).cast::<bf16>().reshape([1, steps, 1, keys]));
    let scaled = (v.cast::<f32>() * rates).cast::<bf16>();
    u.store(place, ct::matmul(inverse, scaled).cast::<bf16>().reshape([1, steps, 1, values]));
}

/// Arrays `[batch, steps, heads, elements]`: queries, keys, corrected keys and corrected values.
type Inputs = (Array<bf16, 4>, Array<bf16, 4>, Array<bf16, 4>, Array<bf16, 4>);

/// The recurrence over the chunks of some elements of the values.
fn chunks((q, k, w, u): Inputs, gates: Array<f32, 3>, out: ArrayMut<bf16, 4>, chunk: Chunk) {
    let Chunk { steps, keys, values } = chunk;
    let [part, head, batch] = [0, 1, 2].map(ct::bid);
    let start = ct::zeros::<f32, 2>([keys, values]);
    ct::fold(..q.num_tiles(1, [1, steps, 1, keys]), start, |state, at| {
        let load = |array: Array<bf16, 4>| array.load((batch, at, head, 0), [1, steps, 1, keys]).reshape([steps, keys]);
        let (q, k, w) = (load(q), load(k), load(w));
        let u = u.load((batch, at, head, part), [1, steps, 1, values]).reshape([steps, values]);
        let gates = gates.load((batch, head, at), [1, 1, steps]).reshape([steps]);
        let whole = gates.extract(steps - 1, [1]).reshape([1, 1]);
        let gate = gates.unsqueeze(1);
        let before = state.cast::<bf16>();
        let new = u.cast::<f32>() - ct::matmul(w, before);
        let scores = ct::matmul(q, k.transpose()) * decays(gates, steps, false);
        let result = ct::mma(scores.cast::<bf16>(), new.cast::<bf16>(), ct::matmul(q, before) * gate.exp());
        out.store((batch, at, head, part), result.cast::<bf16>().reshape([1, steps, 1, values]));
        let decayed = (new * (whole - gate).exp()).cast::<bf16>();
        ct::mma(k.transpose(), decayed, state * whole.exp())
    });
}

struct Arrays {
    q: DeviceArray<bf16, 4>,
    k: DeviceArray<bf16, 4>,
    v: DeviceArray<bf16, 4>,
    gates: DeviceArray<f32, 3>,
    rates: DeviceArray<f32, 3>,
    w: DeviceArray<bf16, 4>,
    u: DeviceArray<bf16, 4>,
    out: DeviceArray<bf16, 4>,
}

/// Returns the arrays; the decay of a step is at most 0.1.
fn arrays(source: crate::family::Source, [batch, length, heads]: [usize; 3], chunk: Chunk) -> ct::Result<Arrays> {
    let deviation = (chunk.keys as f32).sqrt().recip();
    let shape = |elements: usize| [batch, length, heads, elements];
    let along = [batch, heads, length];
    let gate = move |at: usize| -0.05 * (at % length % chunk.steps + 1) as f64;
    Ok(Arrays {
        q: source.normal(shape(chunk.keys), 1, deviation)?,
        k: source.normal(shape(chunk.keys), 2, deviation)?,
        v: source.normal(shape(chunk.values), 3, 1.0)?,
        gates: source.numbers(along, gate)?,
        rates: source.numbers(along, |at| 0.3 + 0.1 * (at % 5) as f64)?,
        w: source.normal(shape(chunk.keys), 4, deviation)?,
        u: source.normal(shape(chunk.values), 5, 1.0)?,
        out: source.zeros(shape(chunk.values))?,
    })
}

fn prepare_family(extents: [usize; 3], chunk: Chunk) -> Family<Arrays> {
    let [batch, length, heads] = extents;
    let Chunk { steps, keys, values } = chunk;
    let case = |(name, method, warps): (&'static str, Inverse, Option<u32>)| {
        Case::new(name, 0, move |call, Arrays { k, v, gates, rates, w, u, .. }: &mut Arrays| {
            let grid = [length.div_ceil(steps), heads, batch];
            let hints = warps.map_or(ct::Hints::new(), |warps| ct::Hints::new().num_warps(warps));
            let inputs = (&*k, &*v, &*gates, &*rates);
            call.run_with(hints, grid, prepare, (inputs, (w, u), Constant(chunk), Constant(method)))
        })
    };
    let places = (batch * length * heads) as f64;
    Family {
        name: format!("delta rule, prepare bf16 {batch}x{length}x{heads}x{keys}x{values}"),
        flops: 0.0,
        bytes: places * (4 * (keys + values) + 8) as f64,
        tolerance: 0.05,
        arrays: Box::new(move |source| arrays(source, extents, chunk)),
        result: |arrays| Ok([some(&arrays.w)?, some(&arrays.u)?].concat()),
        cases: [
            ("inverse by the operation", Inverse::Operation, None),
            ("inverse by powers", Inverse::Powers, None),
            ("inverse by powers, 8 warps", Inverse::Powers, Some(8)),
        ]
        .map(case)
        .into(),
    }
}

fn chunks_family(extents: [usize; 3], chunk: Chunk) -> Family<Arrays> {
    let [batch, length, heads] = extents;
    let Chunk { keys, values, .. } = chunk;
    let case = |(name, parts, warps): (&'static str, usize, Option<u32>)| {
        Case::new(name, 0, move |call, Arrays { q, k, w, u, gates, out, .. }: &mut Arrays| {
            let chunk = Chunk { values: values / parts, ..chunk };
            let hints = warps.map_or(ct::Hints::new(), |warps| ct::Hints::new().num_warps(warps));
            let inputs = (&*q, &*k, &*w, &*u);
            call.run_with(hints, [parts, heads, batch], chunks, (inputs, &*gates, out, Constant(chunk)))
        })
    };
    let places = (batch * length * heads) as f64;
    Family {
        name: format!("delta rule, chunks bf16 {batch}x{length}x{heads}x{keys}x{values}"),
        flops: 0.0,
        bytes: places * (2 * (3 * keys + 2 * values) + 4) as f64,
        tolerance: 0.1,
        arrays: Box::new(move |source| arrays(source, extents, chunk)),
        result: |arrays| some(&arrays.out),
        cases: [
            ("all values", 1, None),
            ("halves of the values", 2, None),
            ("halves of the values, 4 warps", 2, Some(4)),
            ("quarters of the values", 4, None),
        ]
        .map(case)
        .into(),
    }
}

/// The families of the gated delta rule.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let (extents, chunk) = match size {
        Size::Full => ([4, 4096, 32], Chunk { steps: 64, keys: 128, values: 128 }),
        Size::Small => ([1, 48, 2], Chunk { steps: 16, keys: 32, values: 64 }),
    };
    vec![Box::new(prepare_family(extents, chunk)), Box::new(chunks_family(extents, chunk))]
}
