//! Mistakes of grids: too few or too many tile blocks, tile blocks with one tile, tiles without a
//! tile block.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;

use crate::planted;

fn vector(n: usize) -> (ct::ArraySpec<f32, 1>, ct::ArraySpecMut<f32, 1>) {
    let x = ct::ArraySpec::new([n]);
    (x, x.mutable())
}

fn matrix(m: usize, n: usize) -> (ct::ArraySpec<f32, 2>, ct::ArraySpecMut<f32, 2>) {
    let x = ct::ArraySpec::new([m, n]);
    (x, x.mutable())
}

fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    y.store(ct::bid(0), x.load(ct::bid(0), [16]));
}

#[test]
fn short_grid() {
    planted(Covers, |fault| ct::prove(copy, 100 / 16 + usize::from(!fault), vector(100), Property::ALL));
}

#[test]
fn long_grid() {
    planted(Bounds, |fault| ct::prove(copy, 7 + usize::from(fault), vector(100), Property::ALL));
}

#[test]
fn one_tile_for_all() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            y.store(if fault { ct::scalar(0) } else { i }, x.load(i, [16]));
        };
        ct::prove(kernel, 7, vector(100), Property::ALL)
    });
}

#[test]
fn one_column_for_all() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            let (i, j) = (ct::bid(0), ct::bid(1));
            let x = x.load((i, j), [8, 16]);
            if fault { y.store((i, 0), x) } else { y.store((i, j), x) }
        };
        ct::prove(kernel, [4, 3], matrix(30, 48), Property::ALL)
    });
}

#[test]
fn exchanged_axes() {
    planted(Bounds, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            let (i, j) = if fault { (ct::bid(1), ct::bid(0)) } else { (ct::bid(0), ct::bid(1)) };
            y.store((i, j), x.load((i, j), [8, 16]));
        };
        ct::prove(kernel, [4, 3], matrix(30, 48), Property::ALL)
    });
}

#[test]
fn missing_batch() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 3>, y: ArrayMut<f32, 3>| {
            let (i, j, b) = (ct::bid(0), ct::bid(1), ct::bid(2));
            let x = x.load((b, i, j), [1, 8, 8]);
            if fault { y.store((0, i, j), x) } else { y.store((b, i, j), x) }
        };
        let x = ct::ArraySpec::<f32, 3>::new([5, 20, 20]);
        ct::prove(kernel, [3, 3, 5], (x, x.mutable()), Property::ALL)
    });
}

#[test]
fn split_sum_without_atomics() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            let (i, k) = (ct::bid(0), ct::bid(1));
            let sum = x.load((i, k), [8, 16]).sum(1);
            if fault { y.store((i, 0), sum) } else { y.store((i, k), sum) }
        };
        let (x, y) = (ct::ArraySpec::<f32, 2>::new([32, 64]), ct::ArraySpec::<f32, 2>::new([32, 4]).mutable());
        ct::prove(kernel, [4, 4], (x, y), Property::ALL)
    });
}

#[test]
fn dropped_last_tile() {
    planted(Covers, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            let last = if fault { ct::num_blocks(0) - 1 } else { ct::num_blocks(0) + 0 };
            ct::if_then(i.lt(last), || y.store(i, x.load(i, [16])));
        };
        ct::prove(kernel, 7, vector(100), Property::ALL)
    });
}

#[test]
fn early_return() {
    planted(Covers, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            ct::return_if((i * 16).ge(if fault { x.extent(0) - 16 } else { x.extent(0) }));
            y.store(i, x.load(i, [16]));
        };
        ct::prove(kernel, 9, vector(100), Property::ALL)
    });
}

/// The order of tiles for the cache, of a grid of one axis.
fn grouped(x: Array<f32, 2>, y: ArrayMut<f32, 2>, group: usize) {
    let (m, n) = (x.num_tiles(0, [8, 8]), x.num_tiles(1, [8, 8]));
    let (id, width) = (ct::bid(0), n * group);
    let first = id / width * group;
    let rows = (m - first).min(group as i32);
    let (i, j) = (first + id % width % rows, id % width / rows);
    y.store((i, j), x.load((i, j), [8, 8]));
}

#[test]
fn wrong_group_width() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            if !fault {
                return grouped(x, y, 4);
            }
            let n = x.num_tiles(1, [8, 8]);
            let (i, j) = (ct::bid(0) / (n + 1), (ct::bid(0) % (n + 1)).min(n - 1));
            y.store((i, j), x.load((i, j), [8, 8]));
        };
        ct::prove(kernel, 13 * 9, matrix(100, 70), Property::ALL)
    });
}

#[test]
fn a_large_grid_is_decided() {
    let proof = ct::prove(
        grouped,
        128 * 64,
        {
            let (x, y) = matrix(1024, 512);
            (x, y, Constant(8))
        },
        Property::ALL,
    );
    proof.unwrap().require().unwrap();
    let x = ct::ArraySpec::<f32, 1>::new([1 << 34]);
    ct::prove(copy, 1 << 30, (x, x.mutable()), [Bounds, UniqueWrites, NoRace]).unwrap().require().unwrap();
}
