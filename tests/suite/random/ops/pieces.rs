//! Tiles put together and taken apart.

use super::row::*;
use super::shape::doubled;
use super::{Forms, Step, Typing};

/// Returns the index of an element along an axis.
fn along(axis: i64, i: usize, j: usize) -> usize {
    if axis == 0 { i } else { j }
}

/// The same place with another number along an axis.
fn moved(axis: i64, i: usize, j: usize, n: usize) -> (usize, usize) {
    if axis == 0 { (n, j) } else { (i, n) }
}

/// Returns the forms of `results` parts of the extent along the axis of the first number.
fn parts(step: &Step, args: &[Form], count: usize, results: usize) -> Forms {
    let mut shape = args[0].shape;
    let axis = step.numbers[0] as usize;
    if !shape[axis].is_multiple_of(count) {
        return None;
    }
    shape[axis] /= count;
    Some(vec![Form::new(args[0].kind, shape); results])
}

/// The extents divided by 2 to the power of the first two numbers.
fn part(step: &Step, args: &[Form]) -> Option<[usize; 2]> {
    let [rows, columns] = args[0].shape;
    let [a, b] = [1 << step.numbers[0], 1 << step.numbers[1]];
    (rows % a == 0 && columns % b == 0).then_some([rows / a, columns / b])
}

fn extracted(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    Some(vec![Form::new(args[0].kind, part(step, args)?)])
}

/// A part of the first operand is replaced.
fn inserted(_: &mut Typing, step: &Step, args: &[Form]) -> Forms {
    part(step, args).map(|_| vec![args[0]])
}

/// The number of a part: the nearest one that exists.
fn nearest(number: Number, count: usize) -> usize {
    number.int().clamp(0, count as i128 - 1) as usize
}

fn halves(e: &Eval<'_, '_>, count: usize, number: usize) -> Values {
    let (a, axis) = (e.arg(0), e.n(0));
    let length = a.shape[axis as usize] / count;
    Values::build(e.form(0), |i, j| {
        let (i, j) = moved(axis, i, j, number * length + along(axis, i, j));
        a.at(i, j)
    })
}

pub const OPS: &[Op] = &[
    op! { "cat" in "pieces", 6; args [Of(whole), Same]; numbers [(0, 1)]; doubled;
    [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; axis: usize;| { ct::cat([x, y], axis) }
    |e| {
        let (a, b, axis) = (e.arg(0), e.arg(1), e.n(0));
        let length = a.shape[axis as usize];
        e.build(|i, j| {
            let n = along(axis, i, j);
            let (i, j) = moved(axis, i, j, n % length);
            if n < length { a.at(i, j) } else { b.at(i, j) }
        })
    } },
    op! { "cat of three" in "pieces", 3; args [Of(whole), Same]; numbers [(0, 1)];
    |typing, step, args| {
        if args[0].shape[step.numbers[0] as usize] % 2 != 0 {
            return None;
        }
        doubled(typing, step, args)
    };
    [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; axis: usize;| {
        let [a, b] = y.split(axis);
        ct::cat([a, x, b], axis)
    }
    |e| {
        let (a, b, axis) = (e.arg(0), e.arg(1), e.n(0));
        let length = a.shape[axis as usize];
        e.build(|i, j| {
            let n = along(axis, i, j);
            let outer = n < length / 2 || n >= length + length / 2;
            let (i, j) = moved(axis, i, j, if n < length / 2 { n } else if outer { n - length } else { n - length / 2 });
            if outer { b.at(i, j) } else { a.at(i, j) }
        })
    } },
    op! { "stack" in "pieces", 4; args [Of(whole), Same]; numbers [(0, 2)];
    |_, step, args| {
        let [rows, columns] = args[0].shape;
        let shape = if step.numbers[0] == 2 { [rows, 2 * columns] } else { [2 * rows, columns] };
        Some(vec![Form::new(args[0].kind, shape)])
    };
    [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>; axis: usize; shape: Shape| { ct::stack([x, y], axis).reshape(shape) }
    |e| {
        let (a, b, axis) = (e.arg(0), e.arg(1), e.n(0));
        let of = |n: usize| if n.is_multiple_of(2) { &a } else { &b };
        let rows = a.shape[0];
        e.build(|i, j| match axis {
            0 => of(i / rows).at(i % rows, j),
            1 => of(i).at(i / 2, j),
            _ => of(j).at(i, j / 2),
        })
    } },
    op! { "unstack" in "pieces", 3; args [Of(whole)]; numbers [];
    |_, _, args| {
        let [rows, columns] = args[0].shape;
        (rows % 2 == 0).then(|| vec![Form::new(args[0].kind, [rows / 2, columns]); 2])
    };
    [T: arrays] |x: Tile<T, 2>;;| {
        let [rows, columns] = x.shape();
        let [a, b] = x.reshape([rows / 2, 2, columns]).unstack(1);
        (a, b)
    }
    |e| {
        let a = e.arg(0);
        [0, 1].map(|n| Values::build(e.form(0), |i, j| a.at(2 * i + n, j))).into()
    } },
    op! { "split in two" in "pieces", 6; args [Of(whole)]; numbers [(0, 1)]; |_, step, args| parts(step, args, 2, 2);
    [T: arrays] |x: Tile<T, 2>; axis: usize;| {
        let [a, b] = x.split(axis);
        (a, b)
    }
    |e| vec![halves(e, 2, 0), halves(e, 2, 1)] },
    op! { "split in four" in "pieces", 3; args [Of(whole)]; numbers [(0, 1)]; |_, step, args| parts(step, args, 4, 2);
    [T: arrays] |x: Tile<T, 2>; axis: usize;| {
        let [_, a, _, b] = x.split(axis);
        (a, b)
    }
    |e| vec![halves(e, 4, 1), halves(e, 4, 3)] },
    op! { "extract" in "pieces", 6; args [Of(whole), Single(i32s)]; numbers [(0, 3), (0, 3), (0, 1)]; extracted;
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; a: usize, b: usize, axis: usize; shape: Shape| {
        let number = y.item();
        let last = (1 << a) - 1;
        if axis == 0 { x.extract((number, (1 << b) - 1), shape) } else { x.extract((last, number), shape) }
    }
    |e| {
        let (a, number, shape) = (e.arg(0), e.item(1), e.form(0).shape);
        let counts = [1 << e.n(0), 1 << e.n(1)];
        let mut at = [counts[0] - 1, counts[1] - 1];
        let axis = e.n(2) as usize;
        at[axis] = nearest(number, counts[axis]);
        e.build(|i, j| a.at(at[0] * shape[0] + i, at[1] * shape[1] + j))
    } },
    op! { "insert" in "pieces", 6; args [Of(whole), Same, Single(i32s)]; numbers [(0, 3), (0, 3), (0, 1)]; inserted;
    [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>, z: Tile<i32, 2>; a: usize, b: usize, axis: usize;| {
        let number = z.item();
        let [rows, columns] = x.shape();
        let part = y.extract([0, 0], [rows >> a, columns >> b]);
        let last = (1 << a) - 1;
        if axis == 0 { x.insert((number, (1 << b) - 1), part) } else { x.insert((last, number), part) }
    }
    |e| {
        let (a, b, number) = (e.arg(0), e.arg(1), e.item(2));
        let counts = [1 << e.n(0), 1 << e.n(1)];
        let mut at = [counts[0] - 1, counts[1] - 1];
        let axis = e.n(2) as usize;
        at[axis] = nearest(number, counts[axis]);
        let (rows, columns) = (b.shape[0] >> e.n(0), b.shape[1] >> e.n(1));
        e.build(|i, j| {
            if i / rows == at[0] && j / columns == at[1] { b.at(i % rows, j % columns) } else { a.at(i, j) }
        })
    } },
    op! { "get" in "pieces", 4; args [Of(whole), Single(i32s), Single(i32s)]; numbers [];
    |_, _, args| Some(vec![Form::new(args[0].kind, [1, 1])]);
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>, z: Tile<i32, 2>;;| { x.get((y.item(), z.item())).to_tile::<2>() }
    |e| {
        let a = e.arg(0);
        e.build(|_, _| a.at(nearest(e.item(1), a.shape[0]), nearest(e.item(2), a.shape[1])))
    } },
    op! { "set" in "pieces", 4; args [Of(whole), Single(whole), Single(i32s), Single(i32s)]; numbers [];
    |_, _, args| (args[0].kind == args[1].kind).then(|| vec![args[0]]);
    [T: arrays] |x: Tile<T, 2>, a: Tile<T, 2>, y: Tile<i32, 2>, z: Tile<i32, 2>;;| {
        x.set((y.item(), z.item()), a.item())
    }
    |e| {
        let (a, element) = (e.arg(0), e.item(1));
        let at = (nearest(e.item(2), a.shape[0]), nearest(e.item(3), a.shape[1]));
        e.build(|i, j| if (i, j) == at { element } else { a.at(i, j) })
    } },
];
