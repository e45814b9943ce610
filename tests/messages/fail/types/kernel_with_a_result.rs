//! A kernel returns nothing.

use cutlet as ct;
use cutlet::prelude::*;

fn kernel(a: Array<f32, 1>) -> Tile<f32, 1> {
    a.load(0, [64])
}

fn main() -> ct::Result<()> {
    ct::launch(kernel, 1, (&ct::Device::cpu().zeros([64])?,))
}
