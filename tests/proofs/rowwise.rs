//! Promises of independent rows: kernels that keep them, and the operation that breaks them.

use cutlet as ct;
use cutlet::prelude::*;

/// Returns the message of the broken promise of a kernel from `x` to `y`, with weights `w`.
fn broken(kernel: impl Fn(Array<f32, 2>, Array<f32, 2>, ArrayMut<f32, 2>)) -> Option<String> {
    let x = ct::ArraySpec::<f32, 2>::new([100, 64]);
    let kernel = move |x: Array<f32, 2>, w: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        ct::require_rowwise(0).constant(w);
        kernel(x, w, y);
    };
    ct::inspect(kernel, (x, x, x.mutable())).ir().err().map(|error| error.to_string())
}

#[track_caller]
fn keeps(kernel: impl Fn(Array<f32, 2>, Array<f32, 2>, ArrayMut<f32, 2>)) {
    assert_eq!(broken(kernel), None);
}

#[track_caller]
fn breaks(how: &str, kernel: impl Fn(Array<f32, 2>, Array<f32, 2>, ArrayMut<f32, 2>)) {
    let text = broken(kernel).expect("the promise is broken");
    assert!(text.contains(how) && text.contains("rowwise.rs"), "{text}");
}

#[test]
fn rows_of_a_tile() {
    keeps(|x, _, y| {
        let x = x.load((ct::bid(0), 0), [4, 64]);
        let e = (x - x.reduce_max(1)).exp();
        y.store((ct::bid(0), 0), e / e.sum(1));
    });
    breaks("combines the rows of a tile", |x, _, y| {
        let x = x.load((ct::bid(0), 0), [4, 64]);
        y.store((ct::bid(0), 0), x - x.reduce_max(0));
    });
}

#[test]
fn another_row() {
    breaks("another row", |x, _, y| y.store((ct::bid(0), 0), x.load((ct::bid(0) + 1, 0), [4, 64])));
    breaks("different rows", |x, _, y| {
        let [a, b] = [0, 1].map(|d| x.load((ct::bid(0) + d, 0), [4, 64]));
        y.store((ct::bid(0), 0), a + b);
    });
    breaks("", |x, _, y| {
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 4]).transpose());
    });
}

#[test]
fn products() {
    let product = |x: Array<f32, 2>, w: Array<f32, 2>, (i, j): (Scalar<i32>, Scalar<i32>)| {
        ct::fold(..x.num_tiles(1, [16, 16]), ct::zeros::<f32, 2>([16, 16]), |sum, k| {
            ct::mma(x.load((i, k), [16, 16]), w.load((k, j), [16, 16]), sum)
        })
    };
    keeps(|x, w, y| y.store((ct::bid(0), ct::bid(1)), product(x, w, (ct::bid(0), ct::bid(1)))));
    // The order of tiles depends on the grid and on the number of rows, that of a sum does not.
    keeps(|x, w, y| {
        let (m, n) = (x.num_tiles(0, [16, 16]), y.num_tiles(1, [16, 16]));
        ct::for_each(ct::range(ct::bid(0), m * n).step(ct::num_blocks(0)), |id| {
            let width = n * 4;
            let first = id / width * 4;
            let rows = (m - first).min(4);
            let at = (first + id % width % rows, id % width / rows);
            y.store(at, product(x, w, at));
        });
    });
    // The rows of the right factor are the terms of the sum.
    breaks("combines the rows of a tile", |x, _, y| {
        y.store((ct::bid(0), ct::bid(1)), product(x, x, (ct::bid(0), ct::bid(1))));
    });
}

#[test]
fn split_by_the_grid() {
    breaks("depends on the grid", |x, _, y| {
        let chunk = x.num_tiles(1, [4, 8]).ceil_div(ct::num_blocks(1));
        let first = ct::bid(1) * chunk;
        let sum =
            ct::fold(first..first + chunk, ct::zeros::<f32, 2>([4, 8]), |sum, k| sum + x.load((ct::bid(0), k), [4, 8]));
        y.store((ct::bid(0), ct::bid(1)), sum);
    });
    breaks("order of their execution", |x, _, y| {
        let sum = x.load((ct::bid(0), ct::bid(1)), [1, 8]).sum(..).item();
        y.entry((ct::bid(0), 0)).atomic_add(sum);
    });
}

#[test]
fn sums_over_the_number_of_rows() {
    breaks("", |x, _, y| {
        let sum =
            ct::fold(..x.num_tiles(0, [4, 64]), ct::zeros::<f32, 2>([4, 64]), |sum, i| sum + x.load((i, 0), [4, 64]));
        y.store((ct::bid(0), 0), sum);
    });
    breaks("number of rows", |x, _, y| {
        let x0 = x.load((ct::bid(0), 0), [4, 64]);
        y.store((ct::bid(0), 0), x0 / x.extent(0).cast::<f32>());
    });
    keeps(|x, _, y| {
        let x0 = x.load((ct::bid(0), 0), [4, 64]);
        y.store((ct::bid(0), 0), x0 / x.extent(1).cast::<f32>());
    });
}

#[test]
fn conditions_and_scratch() {
    keeps(|x, _, y| {
        let row = x.load((ct::bid(0), 0), [1, 64]);
        ct::if_then(row.sum(..).item().gt(0.0), || y.store((ct::bid(0), 0), row));
    });
    breaks("", |x, _, y| {
        let row = x.load((0, 0), [1, 64]);
        ct::if_then(row.sum(..).item().gt(0.0), || y.store((ct::bid(0), 0), ct::ones([1, 64])));
    });
    breaks("scratch", |x, _, y| {
        let own = ct::scratch::<f32, 2>([4, 64]);
        own.store((0, 0), x.load((ct::bid(0), 0), [4, 64]));
        y.store((ct::bid(0), 0), own.load((0, 0), [4, 64]));
    });
}

/// Sorting networks flatten rows and columns of a tile.
#[test]
fn selections_in_rows() {
    keeps(|x, _, y| y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 64]).sort(1)));
    keeps(|x, _, y| {
        let (largest, places) = x.load((ct::bid(0), 0), [4, 64]).top_k(1, 8);
        y.store((ct::bid(0), 0), largest + places.cast::<f32>());
    });
    breaks("different rows", |x, _, y| y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 64]).sort(0)));
}

#[test]
fn rows_by_pointers() {
    let rows = || ct::arange(0..4).unsqueeze(1) + ct::bid(0) * 4;
    let columns = || ct::arange(0..64).unsqueeze(0);
    keeps(|x, _, y| y.entry((ct::bid(0), 3)).store(x.load((ct::bid(0), 0), [1, 64]).sum(..).item()));
    keeps(|x, _, y| y.scatter((rows(), columns()), x.load((ct::bid(0), 0), [4, 64])));
    keeps(|x, _, y| y.store((ct::bid(0), 0), x.gather((rows(), columns()))));
    breaks("another row", |x, _, y| y.entry((ct::bid(0), 3)).store(x.entry((ct::bid(0) + 1, 3)).load()));
    breaks("another row", |x, _, y| y.store((ct::bid(0), 0), x.gather((rows() + 1, columns()))));
    // One result for each row.
    let x = ct::ArraySpec::<f32, 2>::new([100, 64]);
    let sums = |distance: i32| {
        move |x: Array<f32, 2>, y: ArrayMut<f32, 1>| {
            ct::require_rowwise(0);
            y.entry(ct::bid(0) + distance).store(x.load((ct::bid(0), 0), [1, 64]).sum(..).item());
        }
    };
    let of = |distance| ct::inspect(sums(distance), (x, ct::ArraySpec::<f32, 1>::new([100]).mutable())).ir().err();
    assert!(of(0).is_none());
    assert!(of(1).is_some_and(|error| error.to_string().contains("another row")));
}

#[test]
fn numbers_of_the_grid() {
    let grid = "depends on the grid or on the number of rows";
    let tiles = |y: ArrayMut<f32, 2>| ct::range(ct::bid(0), y.num_tiles(0, [4, 64])).step(ct::num_blocks(0));
    keeps(|x, _, y| ct::for_each(tiles(y), |i| y.store((i, 0), x.load((i, 0), [4, 64]) + i.cast::<f32>())));
    // A position by a loop over extents is no dependence on the grid.
    keeps(|x, _, y| {
        let (tiles, at) = (x.num_tiles(1, [4, 16]), |k: Scalar<i32>| (ct::bid(0), k));
        let sum = ct::fold(..tiles, ct::zeros::<f32, 2>([4, 16]), |sum, k| {
            let x = x.load(at(k), [4, 16]);
            y.store(at(k), x);
            sum + x
        });
        y.store((ct::bid(0), 0), sum);
    });
    // The tile block that has the tile.
    breaks(grid, |x, _, y| {
        ct::for_each(tiles(y), |i| y.store((i, 0), x.load((i, 0), [4, 64]) + ct::bid(0).cast::<f32>()));
    });
    // The number of tiles that it had before.
    breaks("", |x, _, y| {
        ct::fold(tiles(y), ct::scalar(0), |before, i| {
            y.store((i, 0), x.load((i, 0), [4, 64]) + before.cast::<f32>());
            before + 1
        });
    });
    // A position of one store is no position of another one.
    breaks(grid, |x, _, y| {
        let x = x.load((ct::bid(0), 0), [4, 4]);
        y.store((ct::bid(0), ct::num_blocks(0)), x);
        y.store((ct::bid(0), 0), x * ct::num_blocks(0).cast::<f32>());
    });
    breaks(grid, |x, _, y| {
        let x = x.load((ct::bid(0), 0), [4, 64]);
        ct::if_then(ct::num_blocks(0).gt(1), || y.store((ct::bid(0), 0), x));
    });
    keeps(|x, _, y| {
        let first = x.load((ct::bid(0), 0), [4, 64]);
        ct::if_then(ct::bid(0).lt(y.num_tiles(0, [4, 64])), || y.store((ct::bid(0), 0), first));
    });
    // A list of sums of numbers has no term.
    breaks(grid, |x, _, y| {
        let blocks = (ct::arange(0..4) * ct::num_blocks(0)).sum(..).item();
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 64]) * blocks.cast::<f32>());
    });
}

#[test]
fn exits_by_another_row() {
    let first = |x: Array<f32, 2>| x.load((0, 0), [1, 64]).sum(..).item();
    breaks("", |x, _, y| {
        ct::return_if(first(x).gt(0.0));
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [4, 64]));
    });
    breaks("", |x, _, y| {
        let (limit, tile) = (first(x), x.load((ct::bid(0), 0), [1, 64]));
        let start = (ct::scalar(0.0f32), tile);
        let half = ct::while_loop(start, |(k, _)| k.lt(limit), |(k, tile)| (k + 1.0, tile * 0.5)).1;
        y.store((ct::bid(0), 0), half);
    });
    keeps(|x, _, y| {
        let tile = x.load((ct::bid(0), 0), [1, 64]);
        let (limit, start) = (tile.sum(..).item(), (ct::scalar(0.0f32), tile));
        let half = ct::while_loop(start, |(k, _)| k.lt(limit), |(k, tile)| (k + 1.0, tile * 0.5)).1;
        y.store((ct::bid(0), 0), half);
    });
}

#[test]
fn rows_of_an_earlier_iteration() {
    breaks("another iteration", |x, _, y| {
        let start = (ct::scalar(0), ct::zeros::<f32, 2>([1, 64]));
        ct::fold(..4, start, |(row, before), _| {
            y.store((row, 0), before);
            (row + 1, x.load((row, 0), [1, 64]))
        });
    });
    breaks("scratch", |x, _, y| {
        let own = ct::scratch::<f32, 2>([1, 64]);
        own.store((0, 0), ct::zeros([1, 64]));
        ct::for_each(..4, |i| {
            y.store((i, 0), own.load((0, 0), [1, 64]));
            own.store((0, 0), x.load((i, 0), [1, 64]));
        });
    });
}
