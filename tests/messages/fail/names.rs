//! Names that are not there.

use cutlet as ct;
use cutlet::prelude::*;

// ## a tile of a loop used after it
fn tile_of_a_loop(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
    ct::fold(0..4, (), |(), i| {
        let x = a.load(i, [64]);
        c.store(i, x);
    });
    c.store(4, x);
}

fn main() {}
