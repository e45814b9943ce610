//! Mistakes of index arithmetic: quotients, remainders, minima, masks, pointers.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;

use crate::planted;

type Vectors = (ct::ArraySpec<f32, 1>, ct::ArraySpecMut<f32, 1>);

fn vector(n: usize) -> Vectors {
    let x = ct::ArraySpec::new([n]);
    (x, x.mutable())
}

/// Proves a kernel that stores tile `index` of 16 elements in 12 tile blocks.
fn stored(n: usize, index: impl Fn(Scalar<i32>) -> Scalar<i32>) -> ct::Result<ct::Proof> {
    let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        let at = index(ct::bid(0));
        y.store(at, x.load(at, [16]));
    };
    ct::prove(kernel, 12, vector(n), Property::ALL)
}

#[test]
fn halved_index() {
    planted(UniqueWrites, |fault| stored(190, |i| if fault { i / 2 } else { i }));
}

#[test]
fn doubled_index() {
    planted(Bounds, |fault| stored(190, |i| if fault { i * 2 } else { i }));
}

#[test]
fn wrong_quotient() {
    planted(UniqueWrites, |fault| stored(190, |i| i / 3 * if fault { 2 } else { 3 } + i % 3));
}

#[test]
fn wrong_divisor() {
    planted(Covers, |fault| stored(190, |i| i % 4 * 3 + i / if fault { 6 } else { 4 }));
}

#[test]
fn remainder_by_the_last_block() {
    planted(UniqueWrites, |fault| stored(190, |i| (i + 5) % if fault { 11 } else { 12 }));
}

#[test]
fn clamped_to_the_last_but_one() {
    planted(UniqueWrites, |fault| stored(190, |i| i.min(if fault { 10 } else { 11 })));
}

#[test]
fn clamped_to_the_second() {
    planted(Covers, |fault| stored(190, |i| i.max(i32::from(fault))));
}

#[test]
fn negative_index() {
    planted(Bounds, |fault| stored(190, |i| i - i32::from(fault)));
}

#[test]
fn reversed_index() {
    planted(Bounds, |fault| stored(190, |i| ct::num_blocks(0) - i - i32::from(!fault)));
}

#[test]
fn wrapped_product() {
    // 2^28 times 16 wraps to 0.
    planted(UniqueWrites, |fault| stored(190, |i| if fault { (i * (1 << 28)).wrapping_mul(16) } else { i }));
}

#[test]
fn exchanged_bits() {
    planted(UniqueWrites, |fault| {
        let kernel = move |y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            let at = (i >> 2) | ((i & if fault { 1 } else { 3 }) << 2);
            y.store(at, ct::ones([16]));
        };
        ct::prove(kernel, 16, (ct::ArraySpec::<f32, 1>::new([256]).mutable(),), Property::ALL)
    });
}

#[test]
fn overlapping_tiles() {
    planted(UniqueWrites, |fault| {
        let kernel = move |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            let first = ct::bid(0) * if fault { 15 } else { 16 };
            y.store(ct::at(first), x.load(ct::at(first), [16]));
        };
        ct::prove(kernel, 12, vector(if fault { 180 } else { 190 }), Property::ALL)
    });
}

/// Stores ones through a pointer, at `step` elements per tile block, below `limit`.
fn through_pointer(step: i32, limit: Option<i32>) -> ct::Result<ct::Proof> {
    let kernel = move |y: ArrayMut<f32, 1>| {
        let at = ct::arange(0..16) + ct::bid(0) * step;
        let options = ct::ScatterOptions::new();
        let options = match limit {
            Some(limit) => options.mask(at.lt(limit)),
            None => options,
        };
        // SAFETY: the kernel is not executed.
        unsafe { y.pointer().offset(at).store_with(ct::ones([16]), options) };
    };
    ct::prove(kernel, 7, (ct::ArraySpec::<f32, 1>::new([100]).mutable(),), Property::ALL)
}

#[test]
fn pointer_without_mask() {
    planted(Bounds, |fault| through_pointer(16, (!fault).then_some(100)));
}

#[test]
fn mask_off_by_one() {
    planted(Bounds, |fault| through_pointer(16, Some(if fault { 101 } else { 100 })));
}

#[test]
fn mask_too_short() {
    planted(Covers, |fault| through_pointer(16, Some(if fault { 99 } else { 100 })));
}

#[test]
fn pointer_with_overlap() {
    planted(UniqueWrites, |fault| through_pointer(if fault { 15 } else { 16 }, Some(100)));
}

#[test]
fn scatter_with_the_wrong_stride() {
    planted(UniqueWrites, |fault| {
        let kernel = move |y: ArrayMut<f32, 1>, n: Scalar<i32>| {
            let j = ct::arange(0..16);
            let at = ct::bid(0) * if fault { n - 1 } else { n + 0 } + j;
            y.scatter_with(at, ct::ones([16]), ct::ScatterOptions::new().mask(j.lt(n)));
        };
        ct::prove(kernel, 9, (ct::ArraySpec::<f32, 1>::new([9 * 13]).mutable(), 13), Property::ALL)
    });
}

#[test]
fn transposed_scatter() {
    planted(Covers, |fault| {
        let kernel = move |y: ArrayMut<f32, 2>| {
            let (i, j) = (ct::arange(0..8) + ct::bid(0) * 8, ct::arange(0..16) + ct::bid(1) * 16);
            let (i, j) = (i.reshape([8, 1]), j.reshape([1, 16]));
            if fault { y.scatter((j, i), ct::ones([8, 16])) } else { y.scatter((i, j), ct::ones([8, 16])) }
        };
        ct::prove(kernel, [3, 2], (ct::ArraySpec::<f32, 2>::new([20, 30]).mutable(),), Property::ALL)
    });
}
