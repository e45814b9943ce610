//! Views: tiles that overlap or leave gaps, tiles at element offsets, sparse axes, parts of arrays;
//! loops over tiles.

use super::load::load;
use super::row::*;

/// A tile whose elements are found by their index.
fn found(e: &Eval<'_, '_>, place: impl Fn(i128, i128) -> (i128, i128)) -> Vec<Values> {
    let k = e.form(0).kind;
    let array = e.input(k);
    e.build(|i, j| {
        let (row, column) = place(i as i128, j as i128);
        array.inside(row, column).unwrap_or(k.zero())
    })
}

/// The block's index.
fn at(e: &Eval<'_, '_>) -> [i128; 2] {
    e.machine.at.map(|n| n as i128)
}

/// Rows and columns of the result.
fn size(e: &Eval<'_, '_>) -> [i128; 2] {
    e.form(0).shape.map(|n| n as i128)
}

/// A part of an array: rows or columns from a start to before an end, which are clamped.
fn slice(array: &Values, axis: usize, start: i128, end: i128) -> Values {
    let extent = array.shape[axis] as i128;
    let (start, end) = (start.clamp(0, extent) as usize, end.clamp(0, extent) as usize);
    let mut shape = array.shape;
    shape[axis] = end.saturating_sub(start);
    Values::build(
        Form::new(array.kind, shape),
        |i, j| {
            if axis == 0 { array.at(start + i, j) } else { array.at(i, start + j) }
        },
    )
}

pub const OPS: &[Op] = &[
    op! { "tiles step" in "views", 8; args [] kinds whole; numbers [(1, 40), (1, 40), (-1, 2), (-1, 2)]; tile;
    [U: arrays] |; s: usize, t: usize, a: i32, b: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.tiled(shape).step([s, t]).load([at[0] + a, at[1] + b])
    }
    |e| {
        let ([row, column], [s, t, a, b]) = (at(e), [0, 1, 2, 3].map(|n| i128::from(e.n(n))));
        found(e, |i, j| ((row + a) * s + i, (column + b) * t + j))
    } },
    op! { "tiles padded" in "views", 4; args [] kinds floats; numbers [(-1, 1), (-1, 1)]; tile;
    [U: floats] |; a: i32, b: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.tiled(shape).padding(Padding::NegInf).load([at[0] + a, at[1] + b])
    }
    |e| {
        let ([row, column], form) = (at(e), e.form(0));
        let moved = [row + i128::from(e.n(0)), column + i128::from(e.n(1))];
        vec![load(e.input(form.kind), moved, form, Number::Float(f64::NEG_INFINITY))]
    } },
    op! { "tiles in order" in "views", 3; args [] kinds whole; numbers [];
    |typing, step, _| Some(vec![Form::new(step.kind, [typing.tile[1], typing.tile[0]])]);
    [U: arrays] |; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.tiled(shape).order([1, 0]).load([at[1], at[0]])
    }
    |e| {
        let ([row, column], [columns, rows]) = (at(e), size(e));
        found(e, |i, j| (row * rows + j, column * columns + i))
    } },
    op! { "load at an element" in "views", 6; args [Single(i32s)] kinds whole; numbers [(-40, 40)]; tile;
    [U: arrays] |y: Tile<i32, 2>; a: i32; input: Array<U, 2>, shape: Shape| {
        input.load((ct::at((y.item() & 63) - 5), ct::at(a)), shape)
    }
    |e| {
        let (row, column) = ((e.item(0).int() & 63) - 5, i128::from(e.n(0)));
        found(e, |i, j| (row + i, column + j))
    } },
    op! { "load beside the tile" in "views", 4; args [] kinds whole; numbers [(-9, 9), (-9, 9)]; tile;
    [U: arrays] |; a: i32, b: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.load((ct::at(at[0] * shape[0] + a), ct::at(at[1] * shape[1] + b)), shape)
    }
    |e| {
        let ([row, column], [rows, columns]) = (at(e), size(e));
        let (a, b) = (i128::from(e.n(0)), i128::from(e.n(1)));
        found(e, |i, j| (row * rows + a + i, column * columns + b + j))
    } },
    op! { "load of listed rows" in "views", 6; args [Of(i32s)] kinds whole; numbers [];
    |typing, step, args| (args[0].count() == typing.tile[0]).then(|| vec![Form::new(step.kind, typing.tile)]);
    [U: arrays] |x: Tile<i32, 2>; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.load((ct::at((x & 127).reshape([shape[0]]) - 3), at[1]), shape)
    }
    |e| {
        let (a, [_, column], [_, columns]) = (e.arg(0), at(e), size(e));
        found(e, |i, j| ((a.data[i as usize].int() & 127) - 3, column * columns + j))
    } },
    op! { "load of listed columns" in "views", 4; args [Of(i32s)] kinds whole; numbers [];
    |typing, step, args| (args[0].count() == typing.tile[1]).then(|| vec![Form::new(step.kind, typing.tile)]);
    [U: arrays] |x: Tile<i32, 2>; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.load((at[0], ct::at((x & 127).reshape([shape[1]]) - 3)), shape)
    }
    |e| {
        let (a, [row, _], [rows, _]) = (e.arg(0), at(e), size(e));
        found(e, |i, j| (row * rows + i, (a.data[j as usize].int() & 127) - 3))
    } },
    op! { "slice" in "parts", 6; args [] kinds whole; numbers [(0, 1), (0, 40), (0, 90)]; tile;
    [U: arrays] |; axis: usize, first: usize, end: usize; input: Array<U, 2>, at: At, shape: Shape| {
        input.slice(axis, first..first.max(end)).load(at, shape)
    }
    |e| {
        let form = e.form(0);
        let part = slice(e.input(form.kind), e.n(0) as usize, e.n(1).into(), e.n(1).max(e.n(2)).into());
        vec![load(&part, at(e), form, form.kind.zero())]
    } },
    op! { "slice at run time" in "parts", 4; args [Single(i32s)] kinds whole; numbers [(0, 1), (0, 40)]; tile;
    [U: arrays] |y: Tile<i32, 2>; axis: usize, n: i32; input: Array<U, 2>, at: At, shape: Shape| {
        let first = y.item() & 31;
        input.slice(axis, first..first + n).load(at, shape)
    }
    |e| {
        let (form, first) = (e.form(0), e.item(0).int() & 31);
        let part = slice(e.input(form.kind), e.n(0) as usize, first, first + i128::from(e.n(1)));
        vec![load(&part, at(e), form, form.kind.zero())]
    } },
    op! { "step" in "parts", 5; args [] kinds whole; numbers [(1, 3), (1, 5)]; tile;
    [U: arrays] |; s: usize, t: usize; input: Array<U, 2>, at: At, shape: Shape| {
        input.step(0, s).step(1, t).load(at, shape)
    }
    |e| {
        let ([row, column], [rows, columns]) = (at(e), size(e));
        let (s, t) = (i128::from(e.n(0)), i128::from(e.n(1)));
        found(e, |i, j| ((row * rows + i) * s, (column * columns + j) * t))
    } },
    op! { "step at run time" in "parts", 3; args [Single(i32s)] kinds whole; numbers []; tile;
    [U: arrays] |y: Tile<i32, 2>; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.step(1, y.item() & 3).load(at, shape)
    }
    |e| {
        let ([row, column], [rows, columns]) = (at(e), size(e));
        let step = (e.item(0).int() & 3).max(1);
        found(e, |i, j| (row * rows + i, (column * columns + j) * step))
    } },
    op! { "index_axis" in "parts", 4; args [Single(i32s)] kinds whole; numbers [];
    |typing, step, _| Some(vec![Form::new(step.kind, [1, typing.tile[1]])]);
    [U: arrays] |y: Tile<i32, 2>; ; input: Array<U, 2>, at: At, shape: Shape| {
        input.index_axis(0, (y.item() & 15) - 1).load(at[1], [shape[1]]).unsqueeze(0)
    }
    |e| {
        let ([_, column], [_, columns]) = (at(e), size(e));
        let row = (e.item(0).int() & 15) - 1;
        found(e, |_, j| (row, column * columns + j))
    } },
    op! { "transposed array" in "parts", 5; args [] kinds whole; numbers [(-1, 1), (0, 1)];
    |typing, step, _| Some(vec![Form::new(step.kind, [typing.tile[1], typing.tile[0]])]);
    [U: arrays] |; a: i32, how: usize; input: Array<U, 2>, at: At, shape: Shape| {
        let turned = if how == 0 { input.transpose() } else { input.permute([1, 0]) };
        turned.load([at[1] + a, at[0]], shape)
    }
    |e| {
        let ([row, column], [columns, rows]) = (at(e), size(e));
        let a = i128::from(e.n(0));
        found(e, |i, j| (row * rows + j, (column + a) * columns + i))
    } },
    op! { "reshaped array" in "parts", 4; args [] kinds whole; numbers [(-1, 9)];
    |typing, step, _| Some(vec![Form::new(step.kind, [1, typing.tile[1]])]);
    [U: arrays] |; a: i32; input: Array<U, 2>, at: At, shape: Shape| {
        input.reshape::<1>(input.extent(0) * input.extent(1)).load(at[1] + a, [shape[1]]).unsqueeze(0)
    }
    |e| {
        let ([_, column], [_, columns]) = (at(e), size(e));
        let [rows, width] = e.machine.program.shape.map(|n| n as i128);
        let first = (column + i128::from(e.n(0))) * columns;
        found(e, |_, j| {
            let n = first + j;
            if n < 0 || n >= rows * width { (-1, -1) } else { (n / width, n % width) }
        })
    } },
    op! { "loop along a view" in "views", 5; args [] kinds ints; numbers [(1, 9)];
    |_, step, _| Some(vec![Form::new(step.kind, [4, 8])]);
    [U: ints] |; s: usize; input: Array<U, 2>, at: At, shape: Shape| {
        let view = input.tiled(shape).step([2, s]);
        ct::fold(view.tile_range(1), ct::zeros::<U, 2>(shape), |sum, j| sum * <U as Element>::from_f64(3.0) + view.load([at[0], j]))
    }
    |e| {
        let (k, row, step) = (e.step.kind, at(e)[0] * 2, e.n(0) as usize);
        let array = e.input(k);
        e.build(|i, j| {
            (0..array.shape[1].div_ceil(step)).fold(Number::Int(0), |sum, n| {
                let next = array.inside(row + i as i128, (n * step + j) as i128).unwrap_or(Number::Int(0));
                k.wrapped(sum.int().wrapping_mul(3).wrapping_add(next.int()))
            })
        })
    } },
    op! { "loop over a view" in "views", 4; args [] kinds ints; numbers [];
    |_, step, _| Some(vec![Form::new(step.kind, [8, 16])]);
    [U: ints] |; ; input: Array<U, 2>, shape: Shape| {
        let view = input.tiled(shape);
        ct::fold(view.indices(), ct::zeros::<U, 2>(shape), |sum, at| sum + view.load(at))
    }
    |e| {
        let k = e.step.kind;
        let array = e.input(k);
        let counts = [array.shape[0].div_ceil(8), array.shape[1].div_ceil(16)];
        e.build(|i, j| {
            let tiles = (0..counts[0]).flat_map(|a| (0..counts[1]).map(move |b| [a, b]));
            let of = |[a, b]: [usize; 2]| array.inside((8 * a + i) as i128, (16 * b + j) as i128);
            k.wrapped(tiles.filter_map(of).map(|x| x.int()).sum())
        })
    } },
];
