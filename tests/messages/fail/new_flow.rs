//! Control flow, as users of Rust write it first.

use cutlet as ct;
use cutlet::prelude::*;

// ## `if ct::bid(0).eq(0)`
fn branch(c: ArrayMut<f32, 1>) {
    if ct::bid(0).eq(0) {
        c.store(0, ct::zeros([64]));
    }
}

// ## `ct::if_else(c, x, y)` of values
fn values_as_branches(c: Scalar<bool>, x: Tile<f32, 1>, y: Tile<f32, 1>) {
    let _ = ct::if_else(c, x, y);
}

// ## the body of a loop ends with `;`
fn no_state(a: Array<f32, 1>) {
    let _ = ct::fold(0..4, ct::zeros([64]), |sum, k| {
        sum + a.load(k, [64]);
    });
}

// ## a struct as the state of a loop, without `impl_loop_state!`
struct Sums {
    sum: Tile<f32, 1>,
}
fn struct_as_state(x: Tile<f32, 1>) {
    let _ = ct::fold(0..4, Sums { sum: x }, |sums, _| sums);
}

// ## a table of the host at the number of a round: `w[k]`
fn table_of_the_host(w: [f32; 4], x: Tile<f32, 1>) {
    let _ = ct::fold(0..4, x, |x, k| x * w[k]);
}

// ## `if i == last` of two scalars
fn equal_scalars(i: Scalar<i32>, last: Scalar<i32>) {
    if i == last {
        ct::return_if(true);
    }
}

// ## `ct::require!(a == b && b == c)` of scalars
fn requirement(a: Scalar<i32>, b: Scalar<i32>, c: Scalar<i32>) {
    ct::require!(a == b && b == c);
}

fn main() {}
