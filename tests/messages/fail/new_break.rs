//! A `break` in the body of a loop, which rustc rejects before type checking.

use cutlet as ct;
use cutlet::prelude::*;

// ## `break` in the body of a loop
fn early_exit(a: Array<f32, 1>) {
    ct::fold(0..4, ct::zeros([64]), |sum, k| {
        if k == 2 {
            break;
        }
        sum + a.load(k, [64])
    });
}

fn main() {}
