//! Errors of the borrow checker.

use cutlet as ct;
use cutlet::prelude::*;

// ## `acc = acc + ..` in the body of a loop
fn assignment_in_a_body(a: Array<f32, 1>) -> Tile<f32, 1> {
    let mut acc = ct::zeros::<f32, 1>([64]);
    ct::fold(..a.num_tiles(0, [64]), (), |(), i| acc = acc + a.load(i, [64]));
    acc
}

// ## the same array as input and output
fn one_array_twice(device: ct::Device) -> ct::Result<()> {
    fn double(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        c.store(ct::bid(0), a.load(ct::bid(0), [64]) * 2.0);
    }
    let mut a = device.zeros([64])?;
    ct::launch(double, 1, (&a, &mut a))
}

fn main() {}
