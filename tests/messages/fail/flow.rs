//! Run-time values where the trace needs constants.

use cutlet as ct;
use cutlet::prelude::*;

// ## the state of a loop changes its type
fn state_of_another_type(x: Tile<f16, 2>) {
    let _ = ct::fold(0..4, x, |x, _| x.cast::<f32>());
}

// ## `if n > 3` with a run-time n
fn run_time_condition(n: Scalar<i32>, x: Tile<f32, 1>) {
    if n > 3 {
        let _ = x.exp();
    }
    if x == 0.0 {
        let _ = x.exp();
    }
}

// ## `for k in 0..a.num_tiles(..)`
fn run_time_loop(a: Array<f32, 2>) {
    for k in 0..a.num_tiles(1, [1, 64]) {
        let _ = a.load((0, k), [1, 64]);
    }
}

// ## a float as an index
fn float_index(a: Array<f32, 2>, x: Scalar<f32>) {
    let _ = a.load((x, 0), [8, 8]);
}

// ## `[i, 0]`: a scalar and a number mixed
fn mixed_index(a: Array<f32, 2>) {
    let _ = a.load([ct::bid(0), 0], [1, 64]);
    // As rustc advises:
    let _ = a.load([ct::bid(0); 0], [1, 64]);
}

fn main() {}
