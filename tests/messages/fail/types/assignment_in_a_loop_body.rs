//! A body is traced once: its state is a parameter and a result.

use cutlet as ct;
use cutlet::prelude::*;

fn kernel(a: Array<f32, 1>) -> Tile<f32, 1> {
    let mut sum = ct::zeros::<f32, 1>([128]);
    ct::fold(..a.num_tiles(0, [128]), (), |(), i| {
        sum = sum + a.load(i, [128]);
    });
    sum
}

fn main() {}
