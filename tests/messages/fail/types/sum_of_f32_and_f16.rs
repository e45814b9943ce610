//! Element types are not converted implicitly.

use cutlet::prelude::*;

fn kernel(a: Tile<f32, 2>, b: Tile<f16, 2>) -> Tile<f32, 2> {
    a.max(b)
}

fn main() {}
