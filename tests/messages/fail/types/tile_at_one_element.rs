//! A scalar names one element, which takes one value.

use cutlet::prelude::*;

fn kernel(sums: ArrayMut<f32, 1>, i: Scalar<i32>, part: Tile<f32, 1>) {
    sums.atomic_add(i, part);
    sums.scatter(0, part);
}

fn main() {}
