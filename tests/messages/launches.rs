//! Launches and their arguments.

use cutlet as ct;
use cutlet::Device;
use cutlet::prelude::*;

use crate::said::{Answer, Case};
use Answer::{Rustc, Said};

pub const CASES: [Case; 21] = [
    Case { title: "a store into an `Array`", score: 3, answer: Rustc("launches") },
    Case { title: "`&c` for an `ArrayMut`", score: 3, answer: Rustc("launches") },
    Case { title: "an array passed by value", score: 3, answer: Rustc("launches") },
    Case { title: "the same array as input and output", score: 2, answer: Rustc("borrows") },
    Case { title: "an array of another device", score: 3, answer: Said(array_of_another_device) },
    Case { title: "a grid of 0", score: 3, answer: Said(grid_of_zero) },
    Case { title: "a grid that is too large", score: 3, answer: Said(grid_too_large) },
    Case { title: "a grid of 2^24 + 2 blocks", score: 3, answer: Said(large_grid) },
    Case { title: "one argument too many", score: 3, answer: Rustc("launches") },
    Case { title: "arguments in the wrong order: `&mut c, &a`", score: 3, answer: Rustc("launches") },
    Case { title: "arguments in the wrong order: the number and the `Constant`", score: 3, answer: Rustc("launches") },
    Case { title: "an f64 array for an f32 kernel", score: 3, answer: Rustc("launches") },
    Case { title: "a matrix for a vector's parameter", score: 3, answer: Rustc("launches") },
    Case { title: "a tile size without `Constant`: `64`", score: 3, answer: Rustc("launches") },
    Case { title: "a tile size without `Constant`: a usize", score: 3, answer: Rustc("launches") },
    Case { title: "`2.0` for a `Scalar<f32>`", score: 3, answer: Said(float_literal) },
    Case { title: "a float in a `Constant`", score: 3, answer: Rustc("launches") },
    Case { title: "the extent of an array as a tile size", score: 3, answer: Rustc("launches") },
    Case { title: "a value returned from a kernel", score: 3, answer: Rustc("launches") },
    Case { title: "a tile index out of bounds", score: 3, answer: Said(index_out_of_bounds) },
    Case { title: "every block writes tile 0", score: 2, answer: Said(every_block_writes) },
];

fn outcome(result: ct::Result<()>) -> String {
    match result {
        Ok(()) => "nothing".into(),
        Err(error) => error.to_string(),
    }
}

fn array_of_another_device() -> String {
    fn kernel(c: ArrayMut<f32, 1>) {
        c.store(0, c.load(0, [64]) + 1.0);
    }
    let mut c = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    outcome(ct::Launch::new(1).backend(ct::Backend::Ptx).launch(kernel, (&mut c,)))
}

fn add_one(c: ArrayMut<f32, 1>) {
    let i = ct::bid(0);
    c.store(i, c.load(i, [256]) + 1.0);
}

fn grid_of_zero() -> String {
    let n = 100;
    let mut c = Device::cpu().zeros::<f32, 1>([n]).unwrap();
    let said = outcome(ct::launch(add_one, n / 256, (&mut c,)));
    // There is nothing to do for an empty array.
    let mut empty = Device::cpu().zeros::<f32, 1>([0]).unwrap();
    format!("{said}\nof an empty array: {}", outcome(ct::launch(add_one, 0, (&mut empty,))))
}

fn grid_too_large() -> String {
    let mut c = Device::cpu().zeros::<f32, 1>([100]).unwrap();
    let mut said = |grid: [i64; 2]| outcome(ct::launch(add_one, grid, (&mut c,)));
    [said([1, 70_000]), said([1 << 31, 1]), said([-1, 1])].join("\n")
}

fn large_grid() -> String {
    fn kernel(c: ArrayMut<i32, 1>) {
        ct::if_then(ct::bid(0).ge(1 << 24), || c.store(0, ct::full([1], 7)));
    }
    let code = ct::inspect(kernel, (ct::ArraySpec::<i32, 1>::new([1]).mutable(),)).ir().unwrap();
    format!("works; the code stores: {}", code.contains("store_view_tko"))
}

fn float_literal() -> String {
    fn kernel(c: ArrayMut<f32, 1>, by: Scalar<f32>) {
        c.store(0, c.load(0, [64]) * by);
    }
    let mut c = Device::cpu().full([64], 3.0f32).unwrap();
    let said = outcome(ct::launch(kernel, 1, (&mut c, 2.0)));
    assert_eq!(c.to_vec().unwrap(), [6.0; 64]);
    format!("{said}: it works")
}

/// Without checks: defined and harmless. With `CUTLET_CHECK=all`, or so:
fn checked(grid: usize) -> ct::Launch<'static> {
    ct::Launch::new(grid).checks(ct::Checks::all())
}

fn index_out_of_bounds() -> String {
    let mut c = Device::cpu().zeros::<f32, 1>([256]).unwrap();
    outcome(ct::launch(add_one, 2, (&mut c,)));
    outcome(checked(2).launch(add_one, (&mut c,)))
}

fn every_block_writes() -> String {
    fn writes(c: ArrayMut<f32, 1>) {
        c.store(0, ct::full([64], ct::bid(0).cast::<f32>()));
    }
    fn reads(c: ArrayMut<f32, 1>) {
        let x = c.load(ct::bid(0) ^ 1, [64]);
        c.store(ct::bid(0), x);
    }
    fn counts(c: ArrayMut<f32, 1>) {
        c.atomic_store_add(0, ct::ones([64]));
    }
    let mut c = Device::cpu().zeros::<f32, 1>([128]).unwrap();
    assert_eq!(outcome(checked(4).launch(counts, (&mut c,))), "nothing");
    [checked(4).launch(writes, (&mut c,)), checked(2).launch(reads, (&mut c,))].map(outcome).join("\n")
}
