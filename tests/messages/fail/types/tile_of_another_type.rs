//! A tile that is stored has the element type and the axes of the array.

use cutlet::prelude::*;

fn kernel(a: ArrayMut<f16, 1>, vector: Tile<f32, 1>, matrix: Tile<f16, 2>) {
    a.store(0, vector);
    a.store(0, matrix);
}

fn main() {}
