//! The kernels of random products.

use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use super::form::{Epilogue, Form, Loops, Order, Walk, Way};

/// Limit at which [`Walk::Enough`] ends.
pub const ENOUGH: f64 = 40.0;

/// A tile of one operand: rows and columns at a tile index.
fn operand<S, A>(
    array: Array<S, 2>,
    way: Way,
    at: (Scalar<i32>, Scalar<i32>),
    [rows, columns]: [usize; 2],
) -> Tile<A, 2>
where
    S: CastTo<A>,
    A: Flip,
{
    match way {
        Way::Straight => array.load(at, [rows, columns]).cast::<A>(),
        Way::Turned => array.permute([1, 0]).load((at.1, at.0), [columns, rows]).cast::<A>().transpose(),
        Way::Negated => A::flip(array.load(at, [rows, columns]).cast::<A>()),
    }
}

/// Element types that can change their sign, in their own arithmetic or in a wider one; u8 stays as
/// it is.
pub trait Flip: Element {
    fn flip(tile: Tile<Self, 2>) -> Tile<Self, 2>;
}
macro_rules! flip {
    ($($ty:ident $wide:ident;)+) => {$(
        impl Flip for $ty {
            fn flip(tile: Tile<$ty, 2>) -> Tile<$ty, 2> {
                (-tile.cast::<$wide>()).cast::<$ty>()
            }
        }
    )+};
}
flip! { f16 f16; bf16 bf16; tf32 f32; f32 f32; f64 f64; f8e4m3fn f32; f8e5m2 f32; i8 i8; }
impl Flip for u8 {
    fn flip(tile: Tile<u8, 2>) -> Tile<u8, 2> {
        tile ^ 0
    }
}

fn number<C: Element>(value: f64) -> C {
    C::from_f64(value)
}

/// The loop along k with its hints.
fn along(count: Scalar<i32>, loops: Loops) -> ct::StepRange {
    let range = loops.stages.into_iter().fold(ct::range(0, count), |range, stages| range.num_stages(stages));
    loops.streamed.into_iter().fold(range, |range, streamed| range.warp_specialize(streamed))
}

/// The loop over tiles of a persistent launch.
fn tiles(count: Scalar<i32>, loops: Loops) -> ct::StepRange {
    let range = ct::range(ct::bid(0), count).step(ct::num_blocks(0));
    loops.teams.into_iter().fold(range, |range, teams| range.pingpong(teams == 2))
}

/// The sum for the tile of the result at (i, j).
fn sum<S, Q, A, B, C>(
    (a, b): (Array<S, 2>, Array<Q, 2>),
    Form { ways, walk, tile: [tm, tn, tk], loops, .. }: Form,
    (i, j): (Scalar<i32>, Scalar<i32>),
    steps: Array<i32, 1>,
    limit: Scalar<i32>,
) -> Tile<C, 2>
where
    S: CastTo<A>,
    Q: CastTo<B>,
    A: MmaInput<B, C> + Flip,
    B: Flip,
    C: Number,
{
    let count = || along(a.num_tiles(1, [tm, tk]), loops);
    let start = ct::zeros::<C, 2>([tm, tn]);
    let left = |k| operand::<S, A>(a, ways[0], (i, k), [tm, tk]);
    let right = |k, j| operand::<Q, B>(b, ways[1], (k, j), [tk, tn]);
    let step = |acc, k: Scalar<i32>| ct::mma(left(k), right(k, j), acc);
    match walk {
        Walk::Steps => ct::fold(count(), start, step),
        Walk::Loaded => ct::fold(count(), start, |acc, k| step(acc, steps.load_scalar(k))),
        Walk::Limited => ct::fold_while(count(), start, |acc, k| ((k + 1).lt(limit), step(acc, k))),
        Walk::Enough => ct::fold_while(count(), start, |acc, k| {
            let acc = step(acc, k);
            (acc.reduce_max(..).item().lt(number::<C>(ENOUGH)), acc)
        }),
        Walk::Branched => {
            let other = || ct::fold(count(), ct::full([tm, tn], number::<C>(1.0)), step) - number::<C>(1.0);
            ct::if_else(i.lt(1), || ct::fold(count(), start, step), other)
        }
        Walk::Twofold => {
            let (first, second) = ct::fold(count(), (start, start), |(first, second), k| {
                let left = left(k);
                (ct::mma(left, right(k, j), first), ct::mma(left, right(k, j + 1), second))
            });
            first - second
        }
    }
}

/// Computes the epilogue of a sum.
fn finish<A, C, O>(acc: Tile<C, 2>, bias: Tile<C, 1>, form: Form) -> Tile<O, 2>
where
    C: Number + CastTo<A> + CastTo<O>,
    A: CastTo<C>,
    O: Element,
{
    let bias = bias.unsqueeze(0);
    let bounded = |x: Tile<C, 2>| x.min(number::<C>(8.0)).max(number::<C>(-8.0));
    let four = number::<C>(4.0);
    let result = match form.epilogue {
        Epilogue::Nothing => acc,
        Epilogue::Bias => acc + bias,
        Epilogue::PositiveBias => (acc + bias).max(number::<C>(0.0)),
        Epilogue::RowMaximum => acc + bias * acc.reduce_max(1).min(four),
        Epilogue::ColumnMaximum => acc + bias * acc.reduce_max(0).min(four),
        Epilogue::Narrowed => bounded(acc).cast::<A>().cast::<C>() + bias,
    };
    let result = if form.narrow { bounded(result) } else { result };
    result.cast::<O>()
}

/// The rows of an array between the numbers of a pair.
fn rows<S: Element>(array: Array<S, 2>, ends: Option<Array<i32, 2>>, pair: i32) -> Array<S, 2> {
    ends.map_or(array, |ends| array.slice(0, ends.load_scalar((pair, 0))..ends.load_scalar((pair, 1))))
}

/// The rows of the result between the numbers of the last pair. Blocks beyond them return.
fn result<O: Element>(c: ArrayMut<O, 2>, ends: Option<Array<i32, 2>>, form: Form) -> ArrayMut<O, 2> {
    let Some(ends) = ends else { return c };
    let c = c.slice(0, ends.load_scalar((2, 0))..ends.load_scalar((2, 1)));
    let row = if form.order == Order::Columns && !form.chained { ct::bid(1) } else { ct::bid(0) };
    if form.order != Order::Persistent {
        ct::return_if((row * form.tile[0]).ge(c.extent(0)));
    }
    c
}

/// The product of two matrices, or (`chained`) of three: `(a b) b`, where `a b` is cut to between
/// -2 and 2.
pub fn product<S, Q, A, B, C, O>(
    a: Array<S, 2>,
    b: Array<Q, 2>,
    bias: Array<C, 1>,
    steps: Array<i32, 1>,
    c: ArrayMut<O, 2>,
    (limit, ends): (Scalar<i32>, Option<Array<i32, 2>>),
    form: Form,
) where
    S: CastTo<A>,
    Q: CastTo<B>,
    A: MmaInput<B, C> + Flip + CastTo<C>,
    B: Flip,
    C: Number + CastTo<A> + CastTo<O>,
    O: Element,
{
    let [tm, tn, _] = form.tile;
    let (a, b, c) = (rows(a, ends, 0), rows(b, ends, 1), result(c, ends, form));
    let one = |i: Scalar<i32>, j: Scalar<i32>| {
        let acc = sum::<S, Q, A, B, C>((a, b), form, (i, j), steps, limit);
        c.store((i, j), finish::<A, C, O>(acc, bias.load(j, [tn]), form));
    };
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [tm, tn]));
    match form.order {
        Order::Rows => one(ct::bid(0), ct::bid(1)),
        Order::Columns => one(ct::bid(1), ct::bid(0)),
        Order::Persistent => {
            ct::fold(tiles(rows * columns, form.loops), (), |(), tile| one(tile / columns, tile % columns));
        }
    }
}

/// `a` (m, d) with the rows of `b` (n, d) makes weights, cut to between -2 and 2, for the same rows
/// of `b`.
pub fn chained<S, Q, A, B, C, O>(
    a: Array<S, 2>,
    b: Array<Q, 2>,
    c: ArrayMut<O, 2>,
    (whole, ends): (Scalar<i32>, Option<Array<i32, 2>>),
    form: Form,
) where
    S: CastTo<A>,
    Q: CastTo<B>,
    A: MmaInput<B, C> + Flip + CastTo<C>,
    B: Flip,
    C: Number + CastTo<A> + CastTo<O>,
    O: Element,
{
    let [tm, tn, d] = form.tile;
    let (a, b, c) = (rows(a, ends, 0), rows(b, ends, 1), result(c, ends, form));
    let zero = ct::scalar(0);
    let one = |i: Scalar<i32>| {
        let left = operand::<S, A>(a, form.ways[0], (i, zero), [tm, d]);
        let acc = ct::fold(along(b.num_tiles(0, [tn, d]), form.loops), ct::zeros::<C, 2>([tm, d]), |acc, j| {
            let right = || operand::<Q, B>(b, form.ways[1], (j, zero), [tn, d]);
            let scores = ct::mma(left, right().transpose(), ct::zeros::<C, 2>([tm, tn]));
            let cut = |low: f64| scores.min(number::<C>(2.0)).max(number::<C>(low));
            let weights = match form.walk {
                Walk::Branched => ct::if_else(j.lt(whole), || cut(-2.0), || cut(-1.0)),
                _ => cut(-2.0),
            };
            let acc = if form.epilogue == Epilogue::RowMaximum { acc + weights.reduce_max(1) } else { acc };
            ct::mma(weights.cast::<A>(), right(), acc)
        });
        let bounded = acc.min(number::<C>(8.0)).max(number::<C>(-8.0));
        c.store((i, zero), if form.narrow { bounded } else { acc }.cast::<O>());
    };
    match form.order {
        Order::Persistent => {
            ct::fold(tiles(c.num_tiles(0, [tm, d]), form.loops), (), |(), tile| one(tile));
        }
        _ => one(ct::bid(0)),
    }
}
