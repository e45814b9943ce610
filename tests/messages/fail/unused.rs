//! Warnings of rustc.
#![deny(unused_must_use)]

use cutlet::prelude::*;

// ## a result that is not used: `x.exp();`
fn unused(x: Tile<f32, 1>, n: Scalar<i32>) {
    x.exp();
    x + 1.0;
    n.gt(3);
}

fn main() {}
