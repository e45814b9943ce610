//! Reductions, along rows, columns, or both: the first number of a step.

use super::arithmetic::{max, max_nan, min, min_nan};
use super::convert::cast;
use super::row::*;
use super::{Forms, Step, Typing};

/// The elements that are folded into the one at an index, in order.
fn line(a: &Values, axes: i64, i: usize, j: usize) -> Vec<Number> {
    match axes {
        0 => (0..a.shape[0]).map(|i| a.at(i, j)).collect(),
        1 => (0..a.shape[1]).map(|j| a.at(i, j)).collect(),
        _ => a.data.clone(),
    }
}

/// Folds the elements of the first operand.
fn fold(e: &Eval<'_, '_>, combine: impl Fn(Kind, Number, Number) -> Number) -> Vec<Values> {
    let (a, axes) = (e.arg(0), e.n(0));
    e.build(|i, j| line(&a, axes, i, j).into_iter().reduce(|x, y| combine(a.kind, x, y)).expect("an element"))
}

fn fold_ints(e: &Eval<'_, '_>, combine: impl Fn(i128, i128) -> i128) -> Vec<Values> {
    fold(e, |k, x, y| k.wrapped(combine(x.int(), y.int())))
}

/// The number of the first element that is the best one.
fn first_best(e: &Eval<'_, '_>, better: impl Fn(Number, Number) -> bool, counts: impl Fn(Number) -> bool) -> Values {
    let (a, axes) = (e.arg(0), e.n(0));
    Values::build(e.form(0), |i, j| {
        let mut best: Option<(usize, Number)> = None;
        for (n, x) in line(&a, axes, i, j).into_iter().enumerate().filter(|(_, x)| counts(*x)) {
            if best.is_none_or(|(_, y)| better(x, y)) {
                best = Some((n, x));
            }
        }
        Number::Int(best.map_or(0, |(n, _)| n as i128))
    })
}

fn above(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => a > b,
        (a, b) => a.int() > b.int(),
    }
}

fn is_nan(a: Number) -> bool {
    matches!(a, Number::Float(x) if x.is_nan())
}

/// i32, folded.
fn places(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(Kind::I32, folded(args[0].shape, step.numbers[0]))])
}

fn places_and_values(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let shape = folded(args[0].shape, step.numbers[0]);
    Some(vec![Form::new(Kind::I32, shape), Form::new(args[0].kind, shape)])
}

/// The kind that the step chooses, folded.
fn folded_to_kind(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(step.kind, folded(args[0].shape, step.numbers[0]))])
}

macro_rules! reduction {
    ($name:literal $weight:literal $class:ident $method:ident $infer:expr, $eval:expr) => {
        op! { $name in "reductions", $weight; args [Of($class)]; numbers [(0, 2)]; $infer;
        [T: $class] |x: Tile<T, 2>; axes: usize;| { if axes == 2 { x.$method(..) } else { x.$method(axes) } } $eval }
    };
}
/// Reductions that ignore NaN, of tiles without one.
macro_rules! of_numbers {
    ($name:literal $method:ident $eval:expr) => {
        op! { $name in "reductions", 4; args [Of(floats)]; numbers [(0, 2)]; reduced;
        [T: floats] |x: Tile<T, 2>; axes: usize;| {
            let x = ct::select(x.isnan(), ct::ones::<T, 2>(x.shape()), x);
            if axes == 2 { x.$method(..) } else { x.$method(axes) }
        }
        |e| {
            let known = |x: Number| if is_nan(x) { Number::Float(1.0) } else { x };
            fold(e, |_, x, y| $eval(known(x), known(y))).into_iter().map(|mut v| {
                v.data.iter_mut().for_each(|x| *x = known(*x));
                v
            }).collect()
        } }
    };
}

pub const OPS: &[Op] = &[
    reduction!("sum" 10 ints sum reduced, |e| fold_ints(e, |x, y| x + y)),
    reduction!("prod" 4 ints prod reduced, |e| fold_ints(e, i128::wrapping_mul)),
    reduction!("reduce_max" 6 ints reduce_max reduced, |e| fold(e, |_, x, y| max(x, y))),
    reduction!("reduce_min" 6 ints reduce_min reduced, |e| fold(e, |_, x, y| min(x, y))),
    reduction!("reduce_xor" 4 ints reduce_xor reduced, |e| fold_ints(e, |x, y| x ^ y)),
    reduction!("reduce_and" 4 ints reduce_and reduced, |e| fold_ints(e, |x, y| x & y)),
    reduction!("reduce_or" 4 ints reduce_or reduced, |e| fold_ints(e, |x, y| x | y)),
    reduction!("reduce_max_nan" 6 floats reduce_max_nan reduced, |e| fold(e, |_, x, y| max_nan(x, y))),
    reduction!("reduce_min_nan" 6 floats reduce_min_nan reduced, |e| fold(e, |_, x, y| min_nan(x, y))),
    of_numbers!("reduce_max of numbers" reduce_max max),
    of_numbers!("reduce_min of numbers" reduce_min min),
    op! { "any" in "reductions", 4; args [Of(boolean)]; numbers [(0, 2)]; reduced;
    [] |x: Tile<bool, 2>; axes: usize;| { if axes == 2 { x.any(..) } else { x.any(axes) } }
    |e| fold_ints(e, |x, y| x | y) },
    op! { "all" in "reductions", 4; args [Of(boolean)]; numbers [(0, 2)]; reduced;
    [] |x: Tile<bool, 2>; axes: usize;| { if axes == 2 { x.all(..) } else { x.all(axes) } }
    |e| fold_ints(e, |x, y| x & y) },
    op! { "count" in "reductions", 5; args [Of(boolean)]; numbers [(0, 2)]; places;
    [] |x: Tile<bool, 2>; axes: usize;| { if axes == 2 { x.count(..) } else { x.count(axes) } }
    |e| {
        let (a, axes) = (e.arg(0), e.n(0));
        e.build(|i, j| Number::Int(line(&a, axes, i, j).iter().map(|x| x.int()).sum()))
    } },
    op! { "sum_as" in "reductions", 5; args [Of(bits)] kinds ints; numbers [(0, 2)]; folded_to_kind;
    [T: bits, U: ints] |x: Tile<T, 2>; axes: usize;| { if axes == 2 { x.sum_as::<U>(..) } else { x.sum_as::<U>(axes) } }
    |e| {
        let (a, axes, k) = (e.arg(0), e.n(0), e.step.kind);
        e.build(|i, j| k.wrapped(line(&a, axes, i, j).iter().map(|&x| cast(k, x).int()).sum()))
    } },
    op! { "prod_as" in "reductions", 2; args [Of(bytes)] kinds |k| k == Kind::I64; numbers [(0, 2)]; folded_to_kind;
    [T: byte, U: i64] |x: Tile<T, 2>; axes: usize;| { if axes == 2 { x.prod_as::<U>(..) } else { x.prod_as::<U>(axes) } }
    |e| {
        let (a, axes, k) = (e.arg(0), e.n(0), e.step.kind);
        e.build(|i, j| {
            let all = line(&a, axes, i, j);
            k.wrapped(all.iter().fold(1i64, |x, y| x.wrapping_mul(y.int() as i64)).into())
        })
    } },
    // Sums of small whole numbers are exact in all orders.
    op! { "sum of whole numbers" in "reductions", 5; args [Of(bytes)] kinds |k| matches!(k, Kind::F32 | Kind::F64);
    numbers [(0, 2)]; folded_to_kind;
    [T: byte, U: wide_float] |x: Tile<T, 2>; axes: usize;| {
        if axes == 2 { x.sum_as::<U>(..) } else { x.cast::<U>().sum(axes) }
    }
    |e| {
        let (a, axes) = (e.arg(0), e.n(0));
        e.build(|i, j| Number::Float(line(&a, axes, i, j).iter().map(|x| x.int()).sum::<i128>() as f64))
    } },
    reduction!("argmax" 5 numbers argmax places, |e| vec![first_best(e, above, |x| !is_nan(x))]),
    reduction!("argmin" 5 numbers argmin places, |e| vec![first_best(e, |x, y| above(y, x), |x| !is_nan(x))]),
    reduction!("argmax_nan" 4 floats argmax_nan places, |e| {
        vec![first_best(e, |x, y| !is_nan(y) && (is_nan(x) || above(x, y)), |_| true)]
    }),
    reduction!("argmin_nan" 4 floats argmin_nan places, |e| {
        vec![first_best(e, |x, y| !is_nan(y) && (is_nan(x) || above(y, x)), |_| true)]
    }),
    reduction!("argmax_with_value" 4 ints argmax_with_value places_and_values, |e| {
        let places = first_best(e, above, |_| true);
        let (a, axes, form) = (e.arg(0), e.n(0), e.form(1));
        vec![places, Values::build(form, |i, j| line(&a, axes, i, j).into_iter().reduce(max).expect("an element"))]
    }),
    reduction!("argmin_with_value" 4 ints argmin_with_value places_and_values, |e| {
        let places = first_best(e, |x, y| above(y, x), |_| true);
        let (a, axes, form) = (e.arg(0), e.n(0), e.form(1));
        vec![places, Values::build(form, |i, j| line(&a, axes, i, j).into_iter().reduce(min).expect("an element"))]
    }),
];

/// The composition of two linear maps x ↦ a x + b, the first one first: it does not commute.
pub fn composed(k: Kind, (a, b): (i128, i128), (c, d): (i128, i128)) -> (i128, i128) {
    (k.wrapped(a.wrapping_mul(c)).int(), k.wrapped(c.wrapping_mul(b).wrapping_add(d)).int())
}

fn both_reduced(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(args[0].kind, folded(args[0].shape, step.numbers[0])); 2])
}

pub const CLOSURES: &[Op] = &[
    op! { "reduce by closure" in "closures", 6; args [Of(ints)]; numbers [(0, 2)]; reduced;
    [T: ints] |x: Tile<T, 2>; axes: usize;| {
        let last = |a: Scalar<T>, b: Scalar<T>| b.ne(<T as Element>::from_f64(0.0)).select(b, a);
        let zero = <T as Element>::from_f64(0.0);
        if axes == 2 { x.reduce(.., zero, last) } else { x.reduce(axes, zero, last) }
    }
    |e| fold_ints(e, |a, b| if b != 0 { b } else { a }) },
    op! { "reduce one of many" in "closures", 4; args [Of(ints)]; numbers [(0, 2)]; reduced;
    [T: ints] |x: Tile<T, 2>; axes: usize;| {
        let zero = <T as Element>::from_f64(0.0);
        if axes == 2 { ct::reduce(x, .., zero, |a, b| a + b + a * b) } else { ct::reduce(x, axes, zero, |a, b| a + b + a * b) }
    }
    |e| fold_ints(e, |a, b| a.wrapping_add(b).wrapping_add(a.wrapping_mul(b))) },
    op! { "reduce two tiles" in "closures", 6; args [Of(ints), Same]; numbers [(0, 2)]; both_reduced;
    [T: ints] |x: Tile<T, 2>, y: Tile<T, 2>; axes: usize;| {
        let identity = (<T as Element>::from_f64(1.0), <T as Element>::from_f64(0.0));
        if axes == 2 {
            ct::reduce((x, y), .., identity, |(a, b), (c, d)| (a * c, c * b + d))
        } else {
            ct::reduce((x, y), axes, identity, |(a, b), (c, d)| (a * c, c * b + d))
        }
    }
    |e| {
        let (a, b, axes) = (e.arg(0), e.arg(1), e.n(0));
        let maps = |i: usize, j: usize| {
            let pairs = line(&a, axes, i, j).into_iter().zip(line(&b, axes, i, j));
            pairs.map(|(a, b)| (a.int(), b.int())).reduce(|x, y| composed(a.kind, x, y)).expect("an element")
        };
        let form = e.form(0);
        vec![
            Values::build(form, |i, j| Number::Int(maps(i, j).0)),
            Values::build(form, |i, j| Number::Int(maps(i, j).1)),
        ]
    } },
];
