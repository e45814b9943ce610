//! The kernels of matrix products: one tile of the result after another, parts of sums that tile
//! blocks share (split-K), and equal shares of all terms (Stream-K; Osama et al., 2023).

use cutlet as ct;
use cutlet::element::Element;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, GatherOptions, Scope};

use super::configuration::{Configuration, Share};
use super::factor::Factor;
use super::groups;
use super::operands::{Left, Right, Target};
use super::precision::Precision;
use super::tile_order::order;
use super::weight_prefetch::{Weights, prefetch};
use crate::norms::rows::mode;
use crate::products::epilogue::{Place, Stage};

/// The constants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    pub configuration: Configuration,
    pub precision: Precision,
    /// The left operand is a batch of matrices.
    pub is_batched: bool,
    /// The number of groups.
    pub groups: usize,
    /// Columns of sums that an epilogue receives at a time.
    pub strip: usize,
    /// The next kernel of the stream may start during this one.
    pub overlapped: bool,
    /// Bytes of each column of weights that a tile block prefetches; 0: none.
    pub prefetched: usize,
}

/// Sums of parts, and flags or tickets, which are zero between two launches.
pub type Shared<S> = Option<(ArrayMut<S, 3>, ArrayMut<i32, 1>)>;

/// Returns the sums of a range of tiles along the terms. `left` and `right` load the operands of
/// [m, k] and [k, n].
pub fn sums<T: Factor>(
    [begin, end]: [Scalar<i32>; 2],
    left: impl Fn(Scalar<i32>) -> Tile<T, 2>,
    right: impl Fn(Scalar<i32>) -> Tile<T, 2>,
    Form { configuration: Configuration { tile: [tm, tn, _], turned, .. }, precision, .. }: Form,
) -> Tile<T::Sum, 2> {
    let shape = if turned { [tn, tm] } else { [tm, tn] };
    let sums = ct::fold(begin..end, ct::zeros::<T::Sum, 2>(shape), |sums, k| match turned {
        false => T::multiply(left(k), right(k), sums, precision),
        true => T::multiply(right(k).transpose(), left(k).transpose(), sums, precision),
    });
    if turned { sums.transpose() } else { sums }
}

/// Stores the values of an epilogue in the type of the result. The epilogue receives strips of
/// columns: in addition to the values of one strip, the sums of the later ones are live.
fn finish<T: Factor, O: Element>(
    sums: Tile<T::Sum, 2>,
    (epilogue, result): (&impl Stage<T::Value>, impl Target<O>),
    at: Place,
    form: Form,
) {
    let ([m, n], strip) = (sums.shape(), form.strip);
    if epilogue.is_plain() {
        return result.store(at, sums.cast::<O>());
    }
    let parts = if n.is_multiple_of(strip) { n / strip } else { 1 };
    if parts == 1 {
        return result.store(at, mode::<O, _>(|| epilogue.apply(sums.cast::<T::Value>(), at)).cast::<O>());
    }
    let of_rows = mode::<O, _>(|| epilogue.of_rows(at, m));
    for part in 0..parts {
        let at = Place { column: at.column * parts as i32 + part as i32, ..at };
        let sums = sums.extract((0, part), [m, strip]).cast::<T::Value>();
        result.store(at, mode::<O, _>(|| epilogue.apply_strip(sums, at, &mut of_rows.iter())).cast::<O>());
    }
}

/// The product of matrices: of one, of a batch, or of groups of rows with a right operand for each
/// group. `offsets` has the first row of each group, and the number of all rows.
pub fn product<T: Factor, O: Element, L: Left<T>, R: Right<T>, C: Target<O>, E: Stage<T::Value>>(
    left: L,
    right: R,
    result: C,
    epilogue: E,
    (offsets, shared, prefetched): (Option<Array<i32, 1>>, Shared<T::Sum>, Option<Weights>),
    form: Form,
) {
    if form.overlapped {
        ct::grid_dependency_control_launch_dependents();
    }
    let Configuration { tile: [tm, tn, tk], share, .. } = form.configuration;
    let (rows, [terms, columns]) = (left.rows(), right.extents());
    let row_tiles = match offsets {
        Some(_) => groups::num_row_tiles(rows, form.groups, tm),
        None => rows.ceil_div(tm as i32),
    };
    let tiles = [row_tiles, columns.ceil_div(tn as i32)];
    let (steps, each) = (terms.ceil_div(tk as i32), tiles[0] * tiles[1]);
    let count = if form.is_batched { each * left.batches() } else { each };
    let place = |index: Scalar<i32>| {
        let (batch, index) = if form.is_batched { (index / each, index % each) } else { (ct::scalar(0), index) };
        let [row, column] = order(index, tiles, [tm, tn, tk]);
        Place { row, column, batch, group: None, extents: [rows, columns] }
    };
    let zeros = prefetched.map(|weights| {
        let parts = if let Share::Split(parts) = form.configuration.share { parts as i32 } else { 1 };
        let first = ct::bid(0) % parts * steps.ceil_div(parts) * (tk * size_of::<T>()) as i32;
        let of_column = [first, terms * size_of::<T>() as i32];
        let zeros = prefetch(weights, (place(ct::bid(0) / parts).column, tn), columns, of_column, form.prefetched);
        ct::grid_dependency_control_wait();
        zeros.cast::<T::Sum>()
    });
    let add = |at: Place, begin, end| {
        let sums = sums::<T>([begin, end], |k| left.load(at, k, [tm, tk]), |k| right.load(at, k, [tk, tn]), form);
        zeros.map_or(sums, |zeros| sums - zeros)
    };
    let store = |at: Place, sums| finish::<T, O>(sums, (&epilogue, result), at, form);
    let whole = |index| {
        let (at, steps) = match offsets {
            Some(offsets) => {
                let (at, has_rows) = groups::place((offsets, form.groups), index, (tiles, columns), [tm, tn, tk]);
                (at, ct::select(has_rows, steps, 0))
            }
            None => (place(index), steps),
        };
        let sums = match share {
            Share::Parts(parts) => in_parts(parts, steps, |first, last| add(at, first, last)),
            _ => add(at, ct::scalar(0), steps),
        };
        store(at, sums);
    };
    let all = |end| ct::for_each(ct::range(ct::bid(0), end).step(ct::num_blocks(0)), whole);
    match (share, shared) {
        (Share::Split(parts), Some(shared)) => split(parts, steps, shared, (place, add, store)),
        (Share::Terms, Some(shared)) => {
            // Whole tiles as long as each tile block has one: such blocks load the same operands at
            // the same time.
            let begin = count / ct::num_blocks(0) * ct::num_blocks(0);
            all(begin);
            stream_k(begin, [count, steps], shared, (place, add, store));
        }
        (Share::Persistent, _) => all(count),
        (Share::Tiles | Share::Parts(_) | Share::Split(_) | Share::Terms, _) => whole(ct::bid(0)),
    }
}

/// The sums of [`split`] in one tile block.
fn in_parts<S: cutlet::element::Number>(
    parts: usize,
    steps: Scalar<i32>,
    add: impl Fn(Scalar<i32>, Scalar<i32>) -> Tile<S, 2>,
) -> Tile<S, 2> {
    let each = steps.ceil_div(parts as i32);
    let part = |part: Scalar<i32>| add(part * each, ((part + 1) * each).min(steps));
    let first = part(ct::scalar(0));
    ct::fold(1..parts as i32, first + ct::zeros(first.shape()), |all, at| all + part(at))
}

/// Equal parts of the terms of each tile. The last tile block of a tile adds the parts in their
/// order.
fn split<S: cutlet::element::Number>(
    parts: usize,
    steps: Scalar<i32>,
    (sums, tickets): (ArrayMut<S, 3>, ArrayMut<i32, 1>),
    (place, add, store): (
        impl Fn(Scalar<i32>) -> Place,
        impl Fn(Place, Scalar<i32>, Scalar<i32>) -> Tile<S, 2>,
        impl Fn(Place, Tile<S, 2>),
    ),
) {
    let parts = parts as i32;
    let (index, part) = (ct::bid(0) / parts, ct::bid(0) % parts);
    let at = place(index);
    let each = steps.ceil_div(parts);
    let mine = add(at, part * each, ((part + 1) * each).min(steps));
    let [tm, tn] = mine.shape();
    sums.store((ct::bid(0), 0, 0), mine.reshape([1, tm, tn]));
    let ticket = tickets.entry(index).atomic_add(1);
    ct::if_then(ticket.eq(parts - 1), || {
        // Several loads are in flight.
        let unrolled = (8192 / (tm * tn)).clamp(1, 8);
        let range = ct::range(index * parts, (index + 1) * parts).unroll(unrolled as u32);
        let all = ct::fold(range, ct::zeros::<S, 2>([tm, tn]), |all, part| {
            all + sums.load((part, 0, 0), [1, tm, tn]).reshape([tm, tn])
        });
        store(at, all);
        tickets.entry(index).atomic_xchg(0);
    });
}

/// Equal shares of the terms of the tiles from `begin` on. The first tile block of a tile adds the
/// sums of the later ones in their order.
fn stream_k<S: cutlet::element::Number>(
    begin: Scalar<i32>,
    [tiles, steps]: [Scalar<i32>; 2],
    (parts, flags): (ArrayMut<S, 3>, ArrayMut<i32, 1>),
    (place, add, store): (
        impl Fn(Scalar<i32>) -> Place,
        impl Fn(Place, Scalar<i32>, Scalar<i32>) -> Tile<S, 2>,
        impl Fn(Place, Tile<S, 2>),
    ),
) {
    // Tile blocks wait for tile blocks of lower numbers.
    let (blocks, share) = (ct::num_blocks(0), ct::num_blocks(0) - 1 - ct::bid(0));
    let (before, all) = (begin * steps, tiles * steps);
    let each = (all - before).ceil_div(blocks);
    let start = |share: Scalar<i32>| (before + share * each).min(all);
    let end = start(share + 1);
    ct::while_loop(
        start(share),
        |term| term.lt(end),
        |term| {
            let (index, first) = (term / steps, term % steps);
            let last = steps.min(first + end - term);
            let at = place(index);
            let sums = add(at, first, last);
            let [tm, tn] = sums.shape();
            ct::if_else(
                first.gt(0),
                || {
                    parts.store((share, 0, 0), sums.reshape([1, tm, tn]));
                    flags.entry(share).atomic_xchg_with(1, AtomicOptions::new().release(Scope::Device));
                },
                || {
                    let behind = (index * steps + steps - 1 - before) / each;
                    let sums = ct::fold(share + 1..behind + 1, sums, |sums, other| {
                        let flag = flags.entry(other);
                        let acquire = GatherOptions::new().acquire(Scope::Device);
                        ct::while_loop((), |()| flag.load_with(acquire).ne(1), |()| ());
                        flag.atomic_xchg_with(0, AtomicOptions::new().relaxed(Scope::Device));
                        sums + parts.load((other, 0, 0), [1, tm, tn]).reshape([tm, tn])
                    });
                    store(at, sums);
                },
            );
            term + last - first
        },
    );
}
