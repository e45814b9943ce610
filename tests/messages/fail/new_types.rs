//! Types and shapes, as users of std, NumPy and Triton write them first.

use cutlet as ct;
use cutlet::prelude::*;

// ## `c.store(i, a + b)` of arrays
fn sum_of_arrays(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    c.store(ct::bid(0), a + b);
}

// ## `x[0]` of a tile
fn element_of_a_tile(x: Tile<f32, 1>) -> Scalar<f32> {
    x[0]
}

// ## `c[i] = tile`
fn assignment_to_an_element(a: Array<f32, 1>, mut c: ArrayMut<f32, 1>) {
    c[ct::bid(0)] = a.load(ct::bid(0), [64]);
}

// ## `x.astype::<f16>()` and `x.to(..)`
fn conversion(x: Tile<f32, 1>) {
    let _ = x.astype::<f16>();
    let _: Tile<f16, 1> = x.to();
}

// ## `x.gt(0.0) && y.lt(1.0)`
fn and_of_masks(x: Tile<f32, 1>, y: Tile<f32, 1>) {
    let _ = x.gt(0.0) && y.lt(1.0);
}

// ## `ct::select(c, x, 0)` of f32
fn select_of_an_integer(c: Tile<bool, 1>, x: Tile<f32, 1>) {
    let _ = ct::select(c, x, 0);
}

// ## `x * std::f64::consts::PI` of f32
fn host_value_of_f64(x: Tile<f32, 1>) {
    let _ = x * std::f64::consts::PI;
}

// ## `ct::arange(0, tile)`
fn triton_range(tile: usize) {
    let _ = ct::bid(0) * tile + ct::arange(0, tile);
}

// ## `a.load(..)` of an array of the host
fn load_on_the_host(a: &ct::DeviceArray<f32, 1>) {
    let _ = a.load(0, [64]);
}

fn main() {}
