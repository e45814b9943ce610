//! Extents are no layout: they do not state the axes of threads.

use cutlet::prelude::*;

fn held(x: Tile<f32, 2>) -> Tile<f32, 2> {
    x.with_layout([8, 16])
}

fn main() {}
