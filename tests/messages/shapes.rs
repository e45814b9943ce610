//! Shapes and types of tiles.

use cutlet as ct;
use cutlet::kernel::{Arguments, Kernel, KernelArgs, trace_kernel};
use cutlet::prelude::*;
use cutlet::{ArraySpec, ArraySpecMut};

use crate::said::{Answer, Case};
use Answer::{Rustc, Said};

pub const CASES: [Case; 17] = [
    Case { title: "`[64] + [32]`", score: 3, answer: Said(sum_of_two_shapes) },
    Case { title: "`mma` of [64, 32] and [64, 64]", score: 3, answer: Said(mma_of_two_shapes) },
    Case { title: "`mma` of f16 with bf16", score: 3, answer: Rustc("shapes") },
    Case { title: "an f16 tile plus an f32 tile", score: 3, answer: Rustc("shapes") },
    Case { title: "a tile of 100", score: 3, answer: Said(tile_of_100) },
    Case { title: "a tile of 8192 x 8192", score: 3, answer: Said(tile_of_8192_squared) },
    Case { title: "the rank of an index: `a.load([0], ..)` of a matrix", score: 3, answer: Rustc("shapes") },
    Case { title: "an f32 tile stored into an f16 array", score: 3, answer: Rustc("shapes") },
    Case { title: "a matrix stored into a vector", score: 3, answer: Rustc("shapes") },
    Case { title: "`.sum(2)` of a matrix", score: 3, answer: Said(sum_along_axis_2) },
    Case { title: "`reshape` of [32, 64] to [1024]", score: 3, answer: Said(reshape) },
    Case { title: "`permute([0, 0])`", score: 3, answer: Said(permute) },
    Case { title: "a mistake in a helper function", score: 3, answer: Said(mistake_in_a_helper) },
    Case { title: "an i32 tile times 1.5", score: 3, answer: Rustc("shapes") },
    Case { title: "an f32 tile times 2", score: 3, answer: Rustc("shapes") },
    Case { title: "`x.max(1)` for the largest element of each row", score: 3, answer: Rustc("shapes") },
    Case { title: "a method that does not exist", score: 2, answer: Rustc("shapes") },
];

/// An array of which little is known, without memory.
pub fn array<T: Element, const R: usize>() -> ArraySpec<T, R> {
    ArraySpec::new([640; R])
}

/// Such an array to write.
pub fn array_mut<T: Element, const R: usize>() -> ArraySpecMut<T, R> {
    array().mutable()
}

/// Returns the problems that the trace of a kernel reports.
#[track_caller]
pub fn problems<K: Kernel<P>, A: KernelArgs<P>, P>(kernel: K, args: A) -> String {
    match trace_kernel("kernel", &kernel, &Arguments::new(args)) {
        Ok(_) => "nothing".into(),
        Err(error) => error.to_string(),
    }
}

fn sum_of_two_shapes() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = a.load(0, [64]) + a.load(0, [32]);
    }
    problems(kernel, (array(),))
}

fn mma_of_two_shapes() -> String {
    fn kernel(a: Array<f16, 2>) {
        let _ = ct::mma(a.load((0, 0), [64, 32]), a.load((0, 0), [64, 64]), ct::zeros::<f32, 2>([64, 64]));
    }
    problems(kernel, (array(),))
}

fn tile_of_100() -> String {
    fn works(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        c.store((0, 0), a.load((0, 0), [100, 8]).sum(1));
    }
    fn kernel(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        // Consequential problems are not reported.
        let x = a.load((0, 0), [0, 8]);
        c.store((0, 0), x.sum(1) + x.transpose() + x.sum(2) + x.squeeze(1).unsqueeze(1));
        let [_, _] = x.split(0);
    }
    let works = problems(works, (array(), array_mut()));
    format!("{works} is wrong: it works\nof a tile of 0: {}", problems(kernel, (array(), array_mut())))
}

fn tile_of_8192_squared() -> String {
    fn kernel(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [8192, 8192]);
    }
    problems(kernel, (array(),))
}

fn sum_along_axis_2() -> String {
    fn kernel(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [32, 64]).sum(2);
    }
    problems(kernel, (array(),))
}

fn reshape() -> String {
    fn kernel(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [32, 64]).reshape([1024]);
    }
    problems(kernel, (array(),))
}

fn permute() -> String {
    fn kernel(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [32, 64]).permute([0, 0]);
    }
    problems(kernel, (array(),))
}

fn mistake_in_a_helper() -> String {
    fn shifted(x: Tile<f32, 1>, by: Tile<f32, 1>) -> Tile<f32, 1> {
        x + by
    }
    fn kernel(a: Array<f32, 1>) {
        let _ = shifted(a.load(0, [64]), a.load(0, [32]));
    }
    problems(kernel, (array(),))
}
