//! Tiles from nothing.

use super::row::*;
use super::{Forms, Step, Typing};
use crate::format::Real;

/// One element, a tile, a row or a column of one: by the first number.
fn sized(typing: &mut Typing, step: &Step, _: &[Form]) -> Forms {
    let [rows, columns] = typing.tile;
    let shape = [[1, 1], [rows, columns], [1, columns], [rows, 1]][step.numbers[0] as usize];
    Some(vec![Form::new(step.kind, shape)])
}

/// Returns a number as an element of a type.
fn element(kind: Kind, number: i64) -> Number {
    match kind {
        Kind::Bool => Number::Int((number != 0).into()),
        _ if kind.is_float() => Number::Float(number as f64),
        _ => Number::Int(i128::from(number).max(kind.range().0)),
    }
}

fn extreme(kind: Kind, which: i64) -> Number {
    let top = 1i128 << (kind.bits() - 1);
    kind.wrapped([top, top + 1, -1, top - 1, top - 2][which as usize])
}

pub const OPS: &[Op] = &[
    // Replacement of other steps during the reduction of a program.
    op! { "constant" in "made", 0; args [] kinds any; numbers [(1, 4096), (1, 4096)];
    |_, step, _| Some(vec![Form::new(step.kind, [0, 1].map(|d| step.numbers[d] as usize))]);
    [U: all] |; rows: usize, columns: usize;| { ct::zeros::<f32, 2>([rows, columns]).cast::<U>() }
    |e| {
        let zero = super::convert::cast(e.step.kind, Number::Float(0.0));
        e.build(|_, _| zero)
    } },
    op! { "full" in "made", 8; args [] kinds comparable; numbers [(0, 3), (-3, 9)]; sized;
    [U: comparable] |; size: usize, n: i32; shape: Shape| {
        let _ = size;
        ct::full::<U, 2>(shape, <U as Element>::from_f64(n as f64))
    }
    |e| {
        let k = e.step.kind;
        e.build(|_, _| element(k, e.n(1)))
    } },
    op! { "full extreme" in "made", 12; args [] kinds ints; numbers [(0, 3), (0, 4)]; sized;
    [U: ints] |; size: usize, which: usize; shape: Shape| {
        let _ = size;
        let top = 1u64 << (<U as Element>::DTYPE.bits() - 1);
        ct::full::<U, 2>(shape, <U as Element>::from_bits([top, top + 1, u64::MAX, top - 1, top - 2][which]))
    }
    |e| {
        let k = e.step.kind;
        e.build(|_, _| extreme(k, e.n(1)))
    } },
    op! { "zeros" in "made", 2; args [] kinds comparable; numbers [(0, 3)]; sized;
    [U: comparable] |; size: usize; shape: Shape| {
        let _ = size;
        ct::zeros::<U, 2>(shape)
    }
    |e| {
        let k = e.step.kind;
        e.build(|_, _| element(k, 0))
    } },
    op! { "ones" in "made", 2; args [] kinds comparable; numbers [(0, 3)]; sized;
    [U: comparable] |; size: usize; shape: Shape| {
        let _ = size;
        ct::ones::<U, 2>(shape)
    }
    |e| {
        let k = e.step.kind;
        e.build(|_, _| element(k, 1))
    } },
    op! { "arange" in "made", 6; args [] kinds numbers; numbers [(2, 2), (0, 9), (1, 3)]; sized;
    [U: numbers] |; row: usize, start: i32, step: i32; shape: Shape| {
        let _ = row;
        let from = |n: i32| <U as Element>::from_f64(n as f64);
        ct::arange_from(shape[1], from(start), from(step)).unsqueeze(0)
    }
    |e| {
        let k = e.step.kind;
        e.build(|_, j| match element(k, e.n(1) + e.n(2) * j as i64) {
            Number::Int(x) => k.wrapped(x),
            Number::Float(x) => k.rounded(Real::exact(x)),
        })
    } },
    op! { "indices" in "made", 4; args [] kinds i32s; numbers [(1, 1), (0, 1)]; sized;
    [] |; size: usize, axis: usize; shape: Shape| {
        let _ = size;
        ct::indices(shape, axis)
    }
    |e| e.build(|i, j| Number::Int([i, j][e.n(1) as usize] as i128)) },
    op! { "from_fn" in "made", 3; args [] kinds i32s; numbers [(0, 3), (-9, 9)]; sized;
    [] |; size: usize, n: i32; shape: Shape| {
        let _ = size;
        ct::from_fn(shape, |[i, j]| i.ge(2).select(n * i + j, j.min(i) - n))
    }
    |e| e.build(|i, j| {
        let (i, j) = (i as i128, j as i128);
        Number::Int(if i >= 2 { i128::from(e.n(1)) * i + j } else { j.min(i) - i128::from(e.n(1)) })
    }) },
    op! { "from_slice" in "made", 3; args [] kinds comparable; numbers [(0, 3), (1, 9)]; sized;
    [U: comparable] |; size: usize, n: usize; shape: Shape| {
        let _ = size;
        let table: Vec<U> =
            (0..shape[0] * shape[1]).map(|i| <U as Element>::from_f64((i * n % 11) as f64)).collect();
        ct::from_slice(shape, &table)
    }
    |e| {
        let (k, columns) = (e.step.kind, e.form(0).shape[1]);
        e.build(|i, j| element(k, (i * columns + j) as i64 * e.n(1) % 11))
    } },
    op! { "astile" in "made", 2; args [] kinds numbers; numbers [(0, 9)];
    |_, step, _| Some(vec![Form::new(step.kind, [2, 2])]);
    [U: numbers] |; n: i32;| {
        let from = |k: i32| <U as Element>::from_f64(k as f64);
        ct::astile([[from(n), from(1)], [from(n + 2), from(0)]])
    }
    |e| {
        let k = e.step.kind;
        e.build(|i, j| element(k, [[e.n(0), 1], [e.n(0) + 2, 0]][i][j]))
    } },
    op! { "bid" in "made", 6; args []; numbers [(0, 1)]; one; [] |; axis: usize;| { ct::bid(axis).to_tile::<2>() }
    |e| e.build(|_, _| Number::Int(e.machine.at[e.n(0) as usize] as i128)) },
    op! { "num_blocks" in "made", 2; args []; numbers [(0, 1)]; one;
    [] |; axis: usize;| { ct::num_blocks(axis).to_tile::<2>() }
    |e| e.build(|_, _| Number::Int(e.machine.program.grid()[e.n(0) as usize] as i128)) },
    op! { "extent" in "made", 2; args [] kinds whole; numbers [(0, 1)]; one;
    [U: arrays] |; axis: usize; input: Array<U, 2>| { input.extent(axis).to_tile::<2>() }
    |e| e.build(|_, _| Number::Int(e.machine.program.shape[e.n(0) as usize] as i128)) },
    op! { "extent64 stride" in "made", 2; args [] kinds whole; numbers [];
    |_, _, _| Some(vec![Form::new(Kind::I64, [1, 1])]);
    [U: arrays] |; ; input: Array<U, 2>| { (input.extent64(0) * 1000 + input.stride(0)).to_tile::<2>() }
    |e| {
        let [rows, columns] = e.machine.program.shape;
        e.build(|_, _| Number::Int(rows as i128 * 1000 + columns as i128))
    } },
    op! { "num_tiles" in "made", 2; args [] kinds whole; numbers [(0, 1)]; one;
    [U: arrays] |; axis: usize; input: Array<U, 2>| { input.num_tiles(axis, [4, 8]).to_tile::<2>() }
    |e| {
        let axis = e.n(0) as usize;
        e.build(|_, _| Number::Int(e.machine.program.shape[axis].div_ceil([4, 8][axis]) as i128))
    } },
];
