//! Both operands of a product have one element type.

use cutlet as ct;
use cutlet::prelude::*;

fn kernel(a: Tile<f16, 2>, b: Tile<f32, 2>, acc: Tile<f32, 2>) -> Tile<f32, 2> {
    ct::mma(a, b, acc)
}

fn main() {}
