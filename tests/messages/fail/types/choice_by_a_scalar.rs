//! The operands of a selection by a scalar condition have one element type.

use cutlet::prelude::*;

fn kernel(c: Scalar<bool>, a: Tile<f32, 2>, b: Tile<f16, 2>, s: Scalar<f32>) {
    let _ = c.select(a, b);
    let _ = c.select(s, 1);
}

fn main() {}
