//! Promises of independent rows: what keeps them, and the operation that breaks them.

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
