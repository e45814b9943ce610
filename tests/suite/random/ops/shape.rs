//! Shapes: elements that change their places.

use super::row::*;
use super::{Forms, Step, Typing};

fn transposed(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    let [rows, columns] = args[0].shape;
    Some(vec![Form::new(args[0].kind, [columns, rows])])
}

/// Returns the form of a reshape: the first number is log2 of the rows, limited by the number of
/// elements.
fn reshaped(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let count = args[0].count();
    let rows = (1 << step.numbers[0]).min(count);
    let shape = [rows, count / rows];
    let fits = count.is_multiple_of(rows) && (shape == args[0].shape || pieces(args[0].shape, shape) <= MAX_PIECES);
    fits.then(|| vec![Form::new(args[0].kind, shape)])
}

/// Pieces that back ends take a tile into at most, where its elements change their places.
const MAX_PIECES: usize = 512;

/// Pieces of one row of both shapes, if one of these has an extent that is no power of two.
fn pieces(from: [usize; 2], to: [usize; 2]) -> usize {
    let is_whole = |extent: &usize| extent.is_power_of_two();
    if from.iter().chain(&to).all(is_whole) {
        return 1;
    }
    let row = |shape: [usize; 2]| shape.iter().rev().find(|&&extent| extent > 1).map_or(1, |n| n & n.wrapping_neg());
    from[0] * from[1] / row(from).min(row(to))
}

/// [r, c] in this many parts of columns, one below the other.
fn shuffled(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let [rows, columns] = args[0].shape;
    let parts = 1 << step.numbers[0];
    (columns % parts == 0).then(|| vec![Form::new(args[0].kind, [rows * parts, columns / parts])])
}

/// Extents of 1 become those of the program's tiles.
fn stretched(typing: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    let shape = [0, 1].map(|d| if args[0].shape[d] == 1 { typing.tile[d] } else { args[0].shape[d] });
    Some(vec![Form::new(args[0].kind, shape)])
}

fn repeated(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let [rows, columns] = args[0].shape;
    Some(vec![Form::new(args[0].kind, [rows << step.numbers[0], columns << step.numbers[1]])])
}

/// Doubles the extent along the axis of the first number.
pub fn doubled(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    let mut shape = args[0].shape;
    shape[step.numbers[0] as usize] *= 2;
    Some(vec![Form::new(args[0].kind, shape)])
}

pub const OPS: &[Op] = &[
    op! { "transpose" in "shapes", 8; args [Of(any)]; numbers []; transposed; [T: all] |x: Tile<T, 2>;;| { x.transpose() }
    |e| {
        let a = e.arg(0);
        e.build(|i, j| a.at(j, i))
    } },
    op! { "permute" in "shapes", 2; args [Of(any)]; numbers []; transposed;
    [T: all] |x: Tile<T, 2>;;| { x.permute([1, 0]).swap_axes(0, 1).swap_axes(1, 0) }
    |e| {
        let a = e.arg(0);
        e.build(|i, j| a.at(j, i))
    } },
    op! { "reshape" in "shapes", 8; args [Of(any)]; numbers [(0, 12)]; reshaped;
    [T: all] |x: Tile<T, 2>; rows: usize; shape: Shape| {
        let _ = rows;
        x.reshape(shape)
    }
    |e| {
        let (a, columns) = (e.arg(0), e.form(0).shape[1]);
        e.build(|i, j| a.data[i * columns + j])
    } },
    op! { "squeeze" in "shapes", 2; args [Of(whole)]; numbers []; |_, _, args| {
        Some(vec![Form::new(args[0].kind, [1, args[0].count()])])
    };
    [T: arrays] |x: Tile<T, 2>;;| { x.reshape([1, x.len()]).squeeze(0).unsqueeze(1).squeeze(1).unsqueeze(0) }
    |e| {
        let a = e.arg(0);
        e.build(|_, j| a.data[j])
    } },
    op! { "shuffle" in "shapes", 6; args [Of(whole)]; numbers [(0, 6)]; shuffled;
    [T: arrays] |x: Tile<T, 2>; parts: usize; shape: Shape| {
        let [rows, columns] = x.shape();
        x.reshape([rows, 1 << parts, columns >> parts]).permute([1, 0, 2]).reshape(shape)
    }
    |e| {
        let a = e.arg(0);
        let (rows, part) = (a.shape[0], a.shape[1] >> e.n(0));
        e.build(|i, j| a.at(i % rows, i / rows * part + j))
    } },
    op! { "broadcast_to" in "shapes", 8; args [Of(any)]; numbers []; stretched;
    [T: all] |x: Tile<T, 2>; ; shape: Shape| { x.broadcast_to(shape) }
    |e| {
        let a = e.arg(0);
        e.build(|i, j| a.stretched(i, j))
    } },
    op! { "flip" in "shapes", 6; args [Of(whole)]; numbers [(0, 1)]; same; [T: arrays] |x: Tile<T, 2>; axis: usize;| { x.flip(axis) }
    |e| {
        let (a, axis) = (e.arg(0), e.n(0));
        let [rows, columns] = a.shape;
        e.build(|i, j| if axis == 0 { a.at(rows - 1 - i, j) } else { a.at(i, columns - 1 - j) })
    } },
    op! { "flip all" in "shapes", 2; args [Of(whole)]; numbers []; same; [T: arrays] |x: Tile<T, 2>;;| { x.flip(..) }
    |e| {
        let a = e.arg(0);
        let [rows, columns] = a.shape;
        e.build(|i, j| a.at(rows - 1 - i, columns - 1 - j))
    } },
    op! { "repeat" in "shapes", 4; args [Of(whole)]; numbers [(0, 2), (0, 2)]; repeated;
    [T: arrays] |x: Tile<T, 2>; a: usize, b: usize;| { x.repeat([1 << a, 1 << b]) }
    |e| {
        let a = e.arg(0);
        e.build(|i, j| a.at(i % a.shape[0], j % a.shape[1]))
    } },
    op! { "repeat_interleave" in "shapes", 4; args [Of(whole)]; numbers [(0, 1)]; doubled;
    [T: arrays] |x: Tile<T, 2>; axis: usize;| { x.repeat_interleave(axis, 2) }
    |e| {
        let (a, axis) = (e.arg(0), e.n(0));
        e.build(|i, j| if axis == 0 { a.at(i / 2, j) } else { a.at(i, j / 2) })
    } },
    op! { "interleave" in "shapes", 4; args [Of(whole), Same]; numbers [(0, 1)]; doubled;
    [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; axis: usize;| { x.interleave(y, axis) }
    |e| {
        let (a, b, axis) = (e.arg(0), e.arg(1), e.n(0));
        let of = |n: usize| if n.is_multiple_of(2) { &a } else { &b };
        e.build(|i, j| if axis == 0 { of(i).at(i / 2, j) } else { of(j).at(i, j / 2) })
    } },
    op! { "gather in a tile" in "shapes", 4; args [Of(whole), Stretches(i32s)]; numbers [(0, 1)]; same;
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; axis: usize; shape: Shape| { x.gather(axis, (y & 31).broadcast_to(shape) - 3) }
    |e| {
        let (a, at) = (e.arg(0), e.arg(1));
        picked_within(e, &a, |i, j| (at.stretched(i, j).int() & 31) - 3)
    } },
    op! { "gather by itself" in "shapes", 2; args [Of(ints)]; numbers [(0, 1)]; same;
    [T: ints] |x: Tile<T, 2>; axis: usize;| { x.gather(axis, x) }
    |e| {
        let a = e.arg(0);
        picked_within(e, &a, |i, j| a.at(i, j).int())
    } },
    op! { "histogram" in "shapes", 3; args [Of(ints)]; numbers [];
    |_, _, _| Some(vec![Form::new(Kind::I32, [1, 16])]);
    [T: ints] |x: Tile<T, 2>;;| { (x & <T as Element>::from_f64(31.0)).histogram(16).unsqueeze(0) }
    |e| {
        let a = e.arg(0);
        let count = |bin: usize| a.data.iter().filter(|x| x.int() & 31 == bin as i128).count();
        e.build(|_, bin| Number::Int(count(bin) as i128))
    } },
];

/// The elements of a tile at positions along the axis of the step, or the nearest ones.
fn picked_within(e: &Eval<'_, '_>, a: &Values, position: impl Fn(usize, usize) -> i128) -> Vec<Values> {
    let axis = e.n(0) as usize;
    let inside = |i: usize, j: usize| position(i, j).clamp(0, a.shape[axis] as i128 - 1) as usize;
    e.build(|i, j| if axis == 0 { a.at(inside(i, j), j) } else { a.at(i, inside(i, j)) })
}
