//! Loads of tiles and elements, gathers.

use super::row::*;
use super::{Forms, Step, Typing};

/// The tile at a tile index; `outside` is the value of elements outside of the array.
pub fn load(array: &Values, at: [i128; 2], form: Form, outside: Number) -> Values {
    let [rows, columns] = form.shape;
    let origin = [at[0] * rows as i128, at[1] * columns as i128];
    Values::build(form, |i, j| array.inside(origin[0] + i as i128, origin[1] + j as i128).unwrap_or(outside))
}

/// The block's index, moved.
fn at(e: &Eval<'_, '_>, by: [i64; 2]) -> [i128; 2] {
    [0, 1].map(|d| e.machine.at[d] as i128 + i128::from(by[d]))
}

fn loaded(e: &Eval<'_, '_>, at: [i128; 2], outside: Option<Number>) -> Vec<Values> {
    let form = e.form(0);
    vec![load(e.input(form.kind), at, form, outside.unwrap_or(form.kind.zero()))]
}

fn padding(n: i64) -> Number {
    Number::Float([0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY][n as usize])
}

/// Returns the elements of a gather: of the array, or replacements.
fn picked(
    e: &Eval<'_, '_>,
    place: impl Fn(usize, usize) -> (i128, i128),
    otherwise: impl Fn(usize, usize) -> Number,
) -> Vec<Values> {
    let array = e.input(e.form(0).kind);
    e.build(|i, j| {
        let (row, column) = place(i, j);
        array.inside(row, column).unwrap_or_else(|| otherwise(i, j))
    })
}

/// The kind of the step, the extents of the operands.
fn gathered(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let shape = [0, 1].map(|d| args[..2].iter().map(|form| form.shape[d]).max().expect("operands"));
    let mask = args.get(2).is_none_or(|form| super::super::program::stretches(form.shape, shape));
    mask.then(|| vec![Form::new(step.kind, shape)])
}

pub const OPS: &[Op] = &[
    op! { "load" in "loads", 10; args [] kinds whole; numbers [(-1, 1), (-2, 1)]; tile;
    [U: arrays] |; a: i32, b: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.load([at[0] + a, at[1] + b], shape)
    }
    |e| loaded(e, at(e, [e.n(0), e.n(1)]), None) },
    op! { "load of a row" in "loads", 10; args [Single(i32s)] kinds whole; numbers []; tile;
    [U: arrays] |y: Tile<i32, 2>; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.load([(y.item() & 3) - 1, at[1]], shape)
    }
    |e| loaded(e, [(e.item(0).int() & 3) - 1, e.machine.at[1] as i128], None) },
    op! { "load_scalar" in "loads", 8; args [] kinds whole; numbers [];
    |_, step, _| Some(vec![Form::new(step.kind, [1, 1])]);
    [U: arrays] |; ; input: Array<U, 2>, at: At| { input.load_scalar(at).to_tile::<2>() }
    |e| loaded(e, at(e, [0, 0]), None) },
    op! { "load padded" in "loads", 5; args [] kinds floats; numbers [(-1, 1), (-2, 1), (0, 4)]; tile;
    [U: floats] |; a: i32, b: i32, pad: usize; input: Array<U, 2>, at: At, shape: Shape| {
        let padding = [Padding::Zero, Padding::NegZero, Padding::NaN, Padding::PosInf, Padding::NegInf][pad];
        input.load_with([at[0] + a, at[1] + b], shape, ct::LoadOptions::new().padding(padding))
    }
    |e| loaded(e, at(e, [e.n(0), e.n(1)]), Some(padding(e.n(2)))) },
    op! { "load with hints" in "loads", 2; args [] kinds whole; numbers [(-1, 1), (0, 1)]; tile;
    [U: arrays] |; a: i32, tma: usize; input: Array<U, 2>, at: At, shape: Shape| {
        let options = ct::LoadOptions::new().latency(3).allow_tma(tma == 1);
        input.load_with([at[0] + a, at[1]], shape, options)
    }
    |e| loaded(e, at(e, [e.n(0), 0]), None) },
    op! { "load in order" in "loads", 3; args [] kinds whole; numbers [(-1, 1)];
    |typing, step, _| Some(vec![Form::new(step.kind, [typing.tile[1], typing.tile[0]])]);
    [U: arrays] |; a: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.load_with([at[1] + a, at[0]], shape, ct::LoadOptions::new().order([1, 0]))
    }
    |e| {
        let (by, form) = (at(e, [0, e.n(0)]), e.form(0));
        let [columns, rows] = form.shape;
        let whole = load(e.input(form.kind), by, Form::new(form.kind, [rows, columns]), form.kind.zero());
        e.build(|i, j| whole.at(j, i))
    } },
    op! { "gather" in "gathers", 10; args [Of(ints), Joins] kinds whole; numbers []; gathered;
    [T: ints, U: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; ; input: Array<U, 2>| {
        let low = <T as Element>::from_f64(63.0);
        input.gather((x & low, y & low))
    }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        picked(e, |i, j| (a.stretched(i, j).int() & 63, b.stretched(i, j).int() & 63), |_, _| e.step.kind.zero())
    } },
    op! { "gather any" in "gathers", 3; args [Of(ints), Joins] kinds whole; numbers []; gathered;
    [T: ints, U: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; ; input: Array<U, 2>| { input.gather((x, y)) }
    |e| {
        let (a, b) = (e.arg(0), e.arg(1));
        picked(e, |i, j| (a.stretched(i, j).int(), b.stretched(i, j).int()), |_, _| e.step.kind.zero())
    } },
    op! { "gather_with" in "gathers", 6; args [Of(i32s), Joins, Of(boolean)] kinds comparable; numbers [(0, 9)]; gathered;
    [U: comparable] |x: Tile<i32, 2>, y: Tile<i32, 2>, c: Tile<bool, 2>; pad: i32; input: Array<U, 2>| {
        let options = ct::GatherOptions::new().mask(c).padding(<U as Element>::from_f64(pad as f64));
        input.gather_with(((x & 63) - 5, (y & 63) - 5), options)
    }
    |e| {
        let (a, b, c) = (e.arg(0), e.arg(1), e.arg(2));
        let (k, array) = (e.step.kind, e.input(e.step.kind));
        let pad = match k {
            Kind::Bool => Number::Int((e.n(0) != 0).into()),
            _ if k.is_float() => Number::Float(e.n(0) as f64),
            _ => Number::Int(e.n(0).into()),
        };
        e.build(|i, j| {
            let at = [&a, &b].map(|x| (x.stretched(i, j).int() & 63) - 5);
            if c.stretched(i, j).is_true() { array.inside(at[0], at[1]).unwrap_or(pad) } else { pad }
        })
    } },
    op! { "gather rows" in "gathers", 4; args [Of(i32s)] kinds whole; numbers [(-3, 9)];
    |_, step, args| (args[0].shape[1] == 1).then(|| vec![Form::new(step.kind, [args[0].shape[0], 16])]);
    [U: arrays] |x: Tile<i32, 2>; from: i32; input: Array<U, 2>| { input.gather((x & 63, from..from + 16)) }
    |e| {
        let a = e.arg(0);
        picked(e, |i, j| (a.at(i, 0).int() & 63, i128::from(e.n(0)) + j as i128), |_, _| e.step.kind.zero())
    } },
    op! { "gather a span" in "gathers", 4; args [Single(i32s), Single(i32s)] kinds whole; numbers [];
    |_, step, _| Some(vec![Form::new(step.kind, [1, 8])]);
    [U: arrays] |x: Tile<i32, 2>, y: Tile<i32, 2>; ; input: Array<U, 2>| {
        input.gather::<2>((x.item() & 15, ct::span((y.item() & 63) - 8, 8)))
    }
    |e| {
        let (row, column) = (e.item(0).int() & 15, (e.item(1).int() & 63) - 8);
        picked(e, |_, j| (row, column + j as i128), |_, _| e.step.kind.zero())
    } },
    op! { "entry load" in "gathers", 4; args [Single(i32s), Single(i32s)] kinds whole; numbers [];
    |_, step, _| Some(vec![Form::new(step.kind, [1, 1])]);
    [U: arrays] |x: Tile<i32, 2>, y: Tile<i32, 2>; ; input: Array<U, 2>| {
        input.entry((x.item() & 31, (y.item() & 31) - 1)).load().to_tile::<2>()
    }
    |e| {
        let (row, column) = (e.item(0).int() & 31, (e.item(1).int() & 31) - 1);
        picked(e, |_, _| (row, column), |_, _| e.step.kind.zero())
    } },
];
