//! Ranks are not converted implicitly.

use cutlet::prelude::*;

fn kernel(a: Tile<f32, 1>, b: Tile<f32, 2>) -> Tile<f32, 1> {
    a + b
}

fn main() {}
