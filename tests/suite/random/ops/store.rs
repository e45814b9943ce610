//! Stores and scatters: to the block's own tile alone, so that blocks do not race.

use super::super::program::stretches;
use super::row::*;
use super::{Forms, Step, Typing};

/// Writes elements of the block's tile, by their place in it.
pub fn write(e: &mut Eval<'_, '_>, kind: Kind, elements: impl IntoIterator<Item = ([usize; 2], Number)>) {
    write_at(e, kind as usize, elements);
}

/// The same of the output array at a place among all.
pub fn write_at(e: &mut Eval<'_, '_>, array: usize, elements: impl IntoIterator<Item = ([usize; 2], Number)>) {
    let origin = e.origin();
    let array = e.machine.outputs[array].as_mut().expect("arrays that are used");
    for ([i, j], x) in elements {
        let (row, column) = (origin[0] + i, origin[1] + j);
        if row < array.shape[0] && column < array.shape[1] {
            let columns = array.shape[1];
            array.data[row * columns + column] = x;
        }
    }
}

/// Every place of a tile.
pub fn places([rows, columns]: [usize; 2]) -> impl Iterator<Item = [usize; 2]> {
    (0..rows).flat_map(move |i| (0..columns).map(move |j| [i, j]))
}

/// Elements of the first operand, broadcast to extents, at the places that a function returns.
fn placed(e: &mut Eval<'_, '_>, shape: [usize; 2], place: impl Fn([usize; 2]) -> Option<[usize; 2]>) -> Vec<Values> {
    let a = e.arg(0);
    let elements: Vec<_> = places(shape).filter_map(|at| Some((place(at)?, a.stretched(at[0], at[1])))).collect();
    write(e, a.kind, elements);
    vec![]
}

fn tile_of(e: &Eval<'_, '_>) -> [usize; 2] {
    e.machine.program.tile
}

/// The first operand stretches to the program's tile, the second one, a mask, too.
fn stored(typing: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    let tile = typing.tile;
    args.iter().all(|form| stretches(form.shape, tile)).then(Vec::new)
}

/// The first operand stretches to half of the tile's columns.
fn half(typing: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    let [rows, columns] = typing.tile;
    (columns % 2 == 0 && stretches(args[0].shape, [rows, columns / 2])).then(Vec::new)
}

pub const OPS: &[Op] = &[
    op! { "store" in "stores", 6; args [Of(whole)]; numbers []; stored;
    [T: arrays] |x: Tile<T, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        output.store(at, x.broadcast_to(shape))
    }
    |e| placed(e, tile_of(e), Some) },
    op! { "store with hints" in "stores", 2; args [Of(whole)]; numbers []; stored;
    [T: arrays] |x: Tile<T, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let options = ct::StoreOptions::new().latency(2).allow_tma(false);
        output.store_with(at, x.broadcast_to(shape), options)
    }
    |e| placed(e, tile_of(e), Some) },
    op! { "store in order" in "stores", 3; args [Of(whole)]; numbers [];
    |typing, _, args| stretches(args[0].shape, [typing.tile[1], typing.tile[0]]).then(Vec::new);
    [T: arrays] |x: Tile<T, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let turned = x.broadcast_to([shape[1], shape[0]]);
        output.store_with([at[1], at[0]], turned, ct::StoreOptions::new().order([1, 0]))
    }
    |e| {
        let [rows, columns] = tile_of(e);
        placed(e, [columns, rows], |[i, j]| Some([j, i]))
    } },
    op! { "store a half" in "stores", 5; args [Of(whole)]; numbers [(0, 1)]; half;
    [T: arrays] |x: Tile<T, 2>; n: i32; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        output.store([at[0], at[1] * 2 + n], x.broadcast_to([shape[0], shape[1] / 2]))
    }
    |e| {
        let ([rows, columns], n) = (tile_of(e), e.n(0) as usize);
        placed(e, [rows, columns / 2], |[i, j]| Some([i, j + n * columns / 2]))
    } },
    op! { "store at an element" in "stores", 5; args [Of(whole), Single(i32s)]; numbers []; half;
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let first = at[1] * shape[1] + (y.item() & (shape[1] as i32 / 2 - 1));
        output.store((at[0], ct::at(first)), x.broadcast_to([shape[0], shape[1] / 2]))
    }
    |e| {
        let [rows, columns] = tile_of(e);
        let first = (e.item(1).int() & (columns as i128 / 2 - 1)) as usize;
        placed(e, [rows, columns / 2], |[i, j]| Some([i, first + j]))
    } },
    op! { "store to listed rows" in "stores", 4; args [Of(whole), Single(i32s)]; numbers [];
    |typing, _, args| stretches(args[0].shape, typing.tile).then(Vec::new);
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let rows = (ct::arange(0..shape[0]) + (y.item() & 63)) % shape[0];
        output.store((ct::at(at[0] * shape[0] + rows), at[1]), x.broadcast_to(shape))
    }
    |e| {
        let (tile, by) = (tile_of(e), (e.item(1).int() & 63) as usize);
        placed(e, tile, |[i, j]| Some([(i + by) % tile[0], j]))
    } },
    op! { "scatter" in "scatters", 6; args [Of(whole)]; numbers [(0, 63), (0, 63)]; stored;
    [T: arrays] |x: Tile<T, 2>; a: usize, b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let rows = at[0] * shape[0] + (ct::indices([shape[0], 1], 0) ^ (a % (1 << shape[0].trailing_zeros())) as i32);
        let columns = at[1] * shape[1] + (ct::indices([1, shape[1]], 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
        output.scatter((rows, columns), x.broadcast_to(shape))
    }
    |e| {
        let ([rows, columns], [a, b]) = (tile_of(e), [e.n(0) as usize, e.n(1) as usize]);
        placed(e, [rows, columns], |[i, j]| Some([i ^ (a % (1 << rows.trailing_zeros())), j ^ (b % (1 << columns.trailing_zeros()))]))
    } },
    op! { "scatter masked" in "scatters", 5; args [Of(whole), Of(boolean)]; numbers [(0, 63)]; stored;
    [T: arrays] |x: Tile<T, 2>, c: Tile<bool, 2>; b: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let rows = at[0] * shape[0] + ct::indices(shape, 0);
        let columns = at[1] * shape[1] + (ct::indices(shape, 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
        let options = ct::ScatterOptions::new().mask(c.broadcast_to(shape));
        output.scatter_with((rows, columns), x.broadcast_to(shape), options)
    }
    |e| {
        let (tile, b, mask) = (tile_of(e), e.n(0) as usize, e.arg(1));
        placed(e, tile, |[i, j]| mask.stretched(i, j).is_true().then_some([i, j ^ (b % (1 << tile[1].trailing_zeros()))]))
    } },
    op! { "scatter turned" in "scatters", 4; args [Of(whole), Single(i32s)]; numbers [];
    |typing, _, args| stretches(args[0].shape, typing.tile).then(Vec::new);
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let columns = (ct::indices([1, shape[1]], 1) + (y.item() & 63)) % shape[1];
        let rows = at[0] * shape[0] + ct::indices([shape[0], 1], 0);
        output.scatter((rows, at[1] * shape[1] + columns), x.broadcast_to(shape))
    }
    |e| {
        let (tile, by) = (tile_of(e), (e.item(1).int() & 63) as usize);
        placed(e, tile, |[i, j]| Some([i, (j + by) % tile[1]]))
    } },
    op! { "entry store" in "scatters", 4; args [Single(whole), Single(i32s)]; numbers []; nothing;
    [T: arrays] |x: Tile<T, 2>, y: Tile<i32, 2>; ; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        let column = at[1] * shape[1] + (y.item() & (shape[1] as i32 - 1));
        output.entry((at[0] * shape[0], column)).store(x.item())
    }
    |e| {
        let column = (e.item(1).int() & (tile_of(e)[1] as i128 - 1)) as usize;
        placed(e, [1, 1], |_| Some([0, column]))
    } },
    op! { "store_scalar" in "stores", 3; args [Single(whole)]; numbers [(0, 63)]; nothing;
    [T: arrays] |x: Tile<T, 2>; n: usize; output: ArrayMut<T, 2>, at: At, shape: Shape| {
        output.store_scalar([at[0] * shape[0], at[1] * shape[1] + n % shape[1]], x.item())
    }
    |e| {
        let column = e.n(0) as usize % tile_of(e)[1];
        placed(e, [1, 1], |_| Some([0, column]))
    } },
    op! { "load again" in "stores", 8; args [] kinds whole; numbers []; tile;
    [U: arrays] |; ; output: ArrayMut<U, 2>, at: At, shape: Shape| { output.load(at, shape) }
    |e| {
        let (form, at) = (e.form(0), e.machine.at.map(|n| n as i128));
        vec![super::load::load(e.output(form.kind), at, form, form.kind.zero())]
    } },
    op! { "gather again" in "scatters", 5; args [] kinds whole; numbers [(0, 63), (0, 63)]; tile;
    [U: arrays] |; a: usize, b: usize; output: ArrayMut<U, 2>, at: At, shape: Shape| {
        let rows = at[0] * shape[0] + (ct::indices([shape[0], 1], 0) ^ (a % (1 << shape[0].trailing_zeros())) as i32);
        let columns = at[1] * shape[1] + (ct::indices([1, shape[1]], 1) ^ (b % (1 << shape[1].trailing_zeros())) as i32);
        output.gather((rows, columns))
    }
    |e| {
        let (form, at) = (e.form(0), e.machine.at.map(|n| n as i128));
        let own = super::load::load(e.output(form.kind), at, form, form.kind.zero());
        let [a, b] = [0, 1].map(|d| e.n(d) as usize % (1 << form.shape[d].trailing_zeros()));
        e.build(|i, j| own.at(i ^ a, j ^ b))
    } },
];
