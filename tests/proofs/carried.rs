//! Mistakes of loops: persistent tile blocks, chunks, carried indices, bounds.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;

use crate::planted;

fn vector(n: usize) -> (ct::ArraySpec<f32, 1>, ct::ArraySpecMut<f32, 1>) {
    let x = ct::ArraySpec::new([n]);
    (x, x.mutable())
}

#[test]
fn persistent_step() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let step = if fault { ct::num_blocks(0) - 1 } else { ct::num_blocks(0) + 0 };
            ct::for_each(ct::range(ct::bid(0), x.num_tiles(0, [16])).step(step), |i| y.store(i, x.load(i, [16])));
        };
        ct::prove(kernel, 6, vector(1000), Property::ALL)
    });
}

#[test]
fn chunk_too_long() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let (first, n) = (ct::bid(0) * 5, 5 + i32::from(fault));
            let last = (first + n).min(x.num_tiles(0, [16]));
            ct::for_each(first..last, |i| y.store(i, x.load(i, [16])));
        };
        ct::prove(kernel, 13, vector(1000), Property::ALL)
    });
}

#[test]
fn chunk_too_short() {
    planted(Covers, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            ct::for_each(..5 - i32::from(fault), |k| {
                let i = ct::bid(0) * 5 + k;
                y.store(i, x.load(i, [16]));
            });
        };
        ct::prove(kernel, 13, vector(65 * 16), Property::ALL)
    });
}

#[test]
fn one_iteration_too_many() {
    planted(Bounds, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            let i = ct::bid(0);
            let count = x.num_tiles(1, [4, 32]) + i32::from(fault);
            let sum = ct::fold(..count, ct::zeros::<f32, 2>([4, 1]), |sum, k| sum + x.load((i, k), [4, 32]).sum(1));
            y.store((i, 0), sum);
        };
        let (x, y) = (ct::ArraySpec::<f32, 2>::new([10, 100]), ct::ArraySpec::<f32, 2>::new([10, 1]).mutable());
        ct::prove(kernel, 3, (x, y), Property::ALL)
    });
}

#[test]
fn carried_index() {
    planted(Covers, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let first = ct::bid(0) * 4;
            let _ = ct::fold(..4, first, |i, _| {
                y.store(i, x.load(i, [16]));
                i + if fault { 2 } else { 1 }
            });
        };
        ct::prove(kernel, 8, vector(512), Property::ALL)
    });
}

#[test]
fn lower_and_upper_triangle() {
    planted(Covers, |fault| {
        let kernel = move |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
            let i = ct::bid(0);
            ct::for_each(..i + 1, |j| y.store((i, j), x.load((i, j), [8, 8])));
            let first = i + 1 + i32::from(fault);
            ct::for_each(first..x.num_tiles(1, [8, 8]), |j| y.store((i, j), ct::zeros([8, 8])));
        };
        let x = ct::ArraySpec::<f32, 2>::new([60, 60]);
        ct::prove(kernel, 8, (x, x.mutable()), Property::ALL)
    });
}

#[test]
fn nested_loops() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 3>, y: ArrayMut<f32, 3>| {
            ct::for_each(..4, |i| {
                ct::for_each(..4, |j| {
                    let k = if fault { j } else { ct::bid(0) };
                    y.store((i, j, k), x.load((i, j, k), [4, 4, 4]));
                });
            });
        };
        let x = ct::ArraySpec::<f32, 3>::new([16, 16, 16]);
        ct::prove(kernel, 4, (x, x.mutable()), Property::ALL)
    });
}
