//! Tiles of other types and ranks than wanted.

use cutlet as ct;
use cutlet::prelude::*;

// ## `mma` of f16 with bf16
fn mma_of_two_types(a: Tile<f16, 2>, b: Tile<bf16, 2>) -> Tile<f32, 2> {
    ct::mma(a, b, ct::zeros([64, 64]))
}

// ## an f16 tile plus an f32 tile
fn sum_of_two_types(a: Tile<f16, 1>, b: Tile<f32, 1>) {
    let _ = a + b;
}

// ## the rank of an index: `a.load([0], ..)` of a matrix
fn index_of_another_rank(a: Array<f32, 2>) {
    let _ = a.load([0], [64, 64]);
}

// ## an f32 tile stored into an f16 array
fn store_of_another_type(tile: Tile<f32, 1>, c: ArrayMut<f16, 1>) {
    c.store(0, tile);
}

// ## a matrix stored into a vector
fn store_of_another_rank(tile: Tile<f32, 2>, c: ArrayMut<f32, 1>) {
    c.store(0, tile);
}

// ## an i32 tile times 1.5
fn float_with_integers(x: Tile<i32, 1>) {
    let _ = x * 1.5;
}

// ## an f32 tile times 2
fn integer_with_floats(x: Tile<f32, 1>) {
    let _ = x * 2;
}

// ## `x.max(1)` for the largest element of each row
fn max_along_an_axis(x: Tile<f32, 2>) {
    let _ = x.max(1);
}

// ## a method that does not exist
fn unknown_method(x: Tile<f32, 1>) {
    let _ = x.silu_and_mul();
}

fn main() {}
