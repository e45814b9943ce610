//! Control flow and tracing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cutlet as ct;
use cutlet::prelude::*;

use crate::said::{Answer, Case};
use crate::shapes::{array, array_mut, problems};
use Answer::{Rustc, Said};

pub const CASES: [Case; 18] = [
    Case { title: "a tile of a loop used after it", score: 2, answer: Said(tile_of_a_loop) },
    Case { title: "the state of a loop changes its shape", score: 3, answer: Said(state_changes_its_shape) },
    Case { title: "the state of a loop changes its type", score: 2, answer: Rustc("flow") },
    Case { title: "`acc = acc + ..` in the body of a loop", score: 2, answer: Rustc("borrows") },
    Case { title: "`acc += tile` in a loop that is unrolled", score: 3, answer: Said(assignment_while_tracing) },
    Case { title: "branches of different shapes", score: 3, answer: Said(branches_differ) },
    Case { title: "`if n > 3` with a run-time n", score: 3, answer: Rustc("flow") },
    Case { title: "a tile as a condition", score: 3, answer: Said(tile_as_a_condition) },
    Case { title: "`for k in 0..a.num_tiles(..)`", score: 2, answer: Said(rust_loop) },
    Case { title: "a float as an index", score: 3, answer: Rustc("flow") },
    Case { title: "`[i, 0]`: a scalar and a number mixed", score: 2, answer: Rustc("flow") },
    Case { title: "recursion on a run-time number", score: 3, answer: Said(recursion) },
    Case { title: "an endless loop", score: 3, answer: Said(endless_loop) },
    Case { title: "a division by a literal 0", score: 3, answer: Said(division_by_zero) },
    Case { title: "a panic in the kernel's function", score: 3, answer: Said(panic_in_a_kernel) },
    Case { title: "a tile operation outside of a kernel", score: 3, answer: Said(outside_of_a_kernel) },
    Case { title: "a result that is not used: `x.exp();`", score: 3, answer: Rustc("unused") },
    Case { title: "`println!(\"{tile:?}\")`", score: 3, answer: Said(debug_of_a_tile) },
];

fn tile_of_a_loop() -> String {
    fn kernel(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        let last = Cell::new(None);
        ct::fold(0..4, (), |(), i| last.set(Some(a.load(i, [64]))));
        c.store(0, last.get().unwrap());
    }
    format!(
        "{}\nthrough a `Cell`: {}",
        crate::rustc::said("names", "a tile of a loop used after it"),
        problems(kernel, (array(), array_mut()))
    )
}

fn state_changes_its_shape() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = ct::fold(0..4, ct::zeros([32]), |_, k| a.load(k, [64]));
    }
    problems(kernel, (array(),))
}

fn assignment_while_tracing() -> String {
    fn kernel(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        let mut acc = ct::zeros([64]);
        for k in 0..4 {
            acc += a.load(k, [64]);
        }
        c.store(0, acc);
    }
    problems(kernel, (array(), array_mut()))
}

fn branches_differ() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = ct::if_else(ct::bid(0).gt(3), || a.load(0, [64]), || a.load(0, [32]));
    }
    problems(kernel, (array(),))
}

fn tile_as_a_condition() -> String {
    fn kernel(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        let x = a.load(0, [64]);
        ct::if_then(x.gt(0.0), || c.store(0, x));
    }
    problems(kernel, (array(), array_mut()))
}

fn recursion() -> String {
    fn factorial(n: Scalar<i32>) -> Scalar<i32> {
        ct::if_else(n.gt(1), || n * factorial(n - 1), || ct::scalar(1))
    }
    fn kernel(c: ArrayMut<i32, 1>, n: Scalar<i32>) {
        c.store_scalar(0, factorial(n));
    }
    problems(kernel, (array_mut(), 5))
}

/// Returns the error of rustc for the range, and that of the trace for `ct::range`.
fn rust_loop() -> String {
    fn kernel(a: Array<f32, 2>, n: Scalar<i32>) {
        for i in ct::range(0, n) {
            let _ = a.load((i, 0), [1, 64]);
        }
    }
    format!("{}\n{}", crate::rustc::said("flow", "`for k in 0..a.num_tiles(..)`"), problems(kernel, (array(), 5)))
}

fn endless_loop() -> String {
    fn forgotten_step(c: ArrayMut<i32, 1>, n: Scalar<i32>) {
        c.store_scalar(0, ct::while_loop(ct::scalar(0), |i| i.lt(n), |i| i));
    }
    fn wrong_way(c: ArrayMut<i32, 1>, n: Scalar<i32>) {
        c.store_scalar(0, ct::while_loop(ct::scalar(0), |i| i.ne(n), |i| i + 2));
    }
    fn in_a_circle(c: ArrayMut<i32, 1>, n: Scalar<i32>) {
        c.store_scalar(0, ct::while_loop(ct::scalar(0), |i| i.ne(n), |i| (i + 2) % 100));
    }
    let mut c = ct::Device::cpu().zeros::<i32, 1>([1]).unwrap();
    let few = ct::Launch::new(1).hints(ct::Hints::new().loop_limit(1000));
    let circle = ct::launch(in_a_circle, 1, (&mut c, 5));
    [ct::launch(forgotten_step, 1, (&mut c, 5)), circle, few.launch(wrong_way, (&mut c, 5))]
        .map(|result| result.map_or_else(|error| error.to_string(), |()| "nothing".into()))
        .join("\n")
}

fn division_by_zero() -> String {
    fn kernel(c: ArrayMut<i32, 1>) {
        c.store(0, c.load(0, [64]) / 0);
    }
    let mut c = ct::Device::cpu().zeros::<i32, 1>([64]).unwrap();
    match ct::launch(kernel, 1, (&mut c,)) {
        Ok(()) => "nothing".into(),
        Err(error) => error.to_string(),
    }
}

/// The text of the panic of a function, and its place.
fn panic_of(f: impl Fn()) -> String {
    thread_local!(static PLACE: Cell<Option<String>> = const { Cell::new(None) });
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| PLACE.set(info.location().map(ToString::to_string))));
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("a panic");
    std::panic::set_hook(before);
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).expect("a text");
    format!("panicked at {}: {text}", PLACE.take().expect("a place"))
}

fn panic_in_a_kernel() -> String {
    fn kernel(c: ArrayMut<f32, 1>, tile: usize) {
        assert!(tile > 64, "tile is {tile}: it must be larger than 64");
        c.store(0, c.load(0, [tile]) + 1.0);
    }
    let mut c = ct::Device::cpu().zeros::<f32, 1>([128]).unwrap();
    let text = panic_of(|| {
        let mut c = ct::Device::cpu().zeros::<f32, 1>([128]).unwrap();
        let _ = ct::launch(kernel, 1, (&mut c, ct::Constant(64)));
    });
    ct::launch(kernel, 1, (&mut c, ct::Constant(128))).unwrap();
    assert_eq!(c.to_vec().unwrap(), [1.0; 128]);
    text
}

fn outside_of_a_kernel() -> String {
    panic_of(|| {
        let _ = ct::zeros::<f32, 1>([64]);
    })
}

fn debug_of_a_tile() -> String {
    fn kernel(a: Array<f32, 1>, said: &'static std::sync::Mutex<String>) {
        let tile = a.load(0, [64]);
        *said.lock().unwrap() = format!("{tile:?}\n{:?}\n{tile}", tile.sum(0).item());
    }
    static SAID: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    let problems = problems(|a: Array<f32, 1>| kernel(a, &SAID), (array(),));
    format!("{}\nwith {problems} wrong", SAID.lock().unwrap())
}
