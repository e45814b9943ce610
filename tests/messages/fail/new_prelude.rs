//! A program without the prelude.

use cutlet as ct;

// ## the prelude is forgotten
fn fill(c: ArrayMut<f32, 1>) {
    c.store(ct::bid(0), ct::zeros([64]));
}

fn scale(a: Array<f16, 1>, c: ArrayMut<f16, 1>) {
    c.store(ct::bid(0), a.load(ct::bid(0), [64]) * 2.0);
}

fn main() {}
