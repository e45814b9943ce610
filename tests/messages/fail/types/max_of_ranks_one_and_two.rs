//! A method gives a tile of the form that it is called on: it takes none with more axes.

use cutlet::prelude::*;

fn kernel(a: Tile<f32, 1>, b: Tile<f32, 2>) -> Tile<f32, 1> {
    a.max(b)
}

fn main() {}
