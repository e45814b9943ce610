//! Float functions do not take integers.

use cutlet::prelude::*;

fn kernel(a: Tile<i32, 1>) -> Tile<i32, 1> {
    a.sqrt()
}

fn main() {}
