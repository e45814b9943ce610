//! Indices of tiles and elements are integers, one component for each axis.

use cutlet as ct;
use cutlet::prelude::*;

fn kernel(a: Array<f32, 2>, x: Scalar<f32>, ids: Tile<i32, 2>) {
    let _ = a.load((x, 0), [8, 8]);
    let _ = a.load((0, 0, 0), [8, 8]);
    let _ = a.load((ct::at(ids), 0), [8, 8]);
}

fn main() {}
