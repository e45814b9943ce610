//! First mistakes of users of std, NumPy, Triton, cudarc and candle.

use cutlet as ct;
use cutlet::foreign::dlpack;
use cutlet::prelude::*;
use cutlet::{Device, Hints, Target};

use crate::machine::{in_another_process, is_child};
use crate::said::{Answer, Case};
use crate::shapes::{array, array_mut, problems};
use Answer::{Rustc, Said};

pub const TYPES: [Case; 20] = [
    Case { title: "an element offset as tile index: `a.load(i * tile, ..)`", score: 3, answer: Said(element_offset) },
    Case { title: "`c.store(i, a + b)` of arrays", score: 3, answer: Rustc("new_types") },
    Case { title: "`x[0]` of a tile", score: 3, answer: Rustc("new_types") },
    Case { title: "`c[i] = tile`", score: 3, answer: Rustc("new_types") },
    Case { title: "`x.sum(-1)`", score: 3, answer: Said(negative_axes) },
    Case { title: "`x.ln()`, `x.powf(2.0)`, `x.mul_add(a, b)`", score: 3, answer: Said(names_of_std) },
    Case { title: "`x.astype::<f16>()` and `x.to(..)`", score: 3, answer: Rustc("new_types") },
    Case { title: "`x.gt(0.0) && y.lt(1.0)`", score: 2, answer: Rustc("new_types") },
    Case { title: "`x.reshape([-1])`", score: 3, answer: Said(open_extent) },
    Case { title: "`cat` of [32, 64] and [32, 32] along 0", score: 3, answer: Said(cat_of_two_shapes) },
    Case { title: "`ct::select(c, x, 0)` of f32", score: 3, answer: Rustc("new_types") },
    Case { title: "a sort along 96", score: 3, answer: Said(sort_along_96) },
    Case { title: "`x * std::f64::consts::PI` of f32", score: 3, answer: Rustc("new_types") },
    // The first of three errors is right; the second, rustc's, advises `ct::arange(0)`.
    Case { title: "`ct::arange(0, tile)`", score: 2, answer: Rustc("new_types") },
    Case { title: "`a.load(i, tile)` with a number as shape", score: 3, answer: Said(number_as_shape) },
    Case { title: "`a.load(..)` of an array of the host", score: 3, answer: Rustc("new_types") },
    Case { title: "a mistake in scratch memory, which others follow from", score: 3, answer: Said(scratch) },
    Case { title: "a tile of 2048 is printed", score: 3, answer: Said(large_print) },
    Case { title: "`{x:?}`, `{i:#x}`, `{0} {0}`", score: 3, answer: Said(formats) },
    Case { title: "a ragged grid with all checks", score: 3, answer: Said(ragged_grid) },
];

pub const FLOW: [Case; 9] = [
    Case { title: "`if ct::bid(0).eq(0)`", score: 2, answer: Rustc("new_flow") },
    Case { title: "`ct::if_else(c, x, y)` of values", score: 3, answer: Rustc("new_flow") },
    Case { title: "`ct::for_each(0..4, |k| ..)` without state", score: 3, answer: Said(loop_without_state) },
    Case { title: "the body of a loop ends with `;`", score: 3, answer: Rustc("new_flow") },
    Case { title: "`break` in the body of a loop", score: 2, answer: Rustc("new_break") },
    Case { title: "`(i..n).step_by(2)`", score: 3, answer: Said(step_by) },
    Case { title: "a struct as the state of a loop, without `impl_loop_state!`", score: 3, answer: Rustc("new_flow") },
    Case { title: "a table of the host at the number of a round: `w[k]`", score: 2, answer: Rustc("new_flow") },
    Case { title: "`if i == last` of two scalars", score: 3, answer: Rustc("new_flow") },
];

pub const LAUNCHES: [Case; 9] = [
    Case { title: "one argument without a tuple", score: 3, answer: Rustc("new_launches") },
    Case { title: "a grid of four extents", score: 3, answer: Rustc("new_launches") },
    Case { title: "`&Vec<f32>` as an argument", score: 3, answer: Rustc("new_launches") },
    Case { title: "999 values for shape [1000]", score: 3, answer: Said(too_few_values) },
    Case { title: "parameters `&Array`, `&mut ArrayMut`", score: 3, answer: Rustc("new_launches") },
    Case { title: "a generic kernel without a bound", score: 3, answer: Rustc("new_launches") },
    Case { title: "`Constant(config)` of a struct with an f32", score: 3, answer: Rustc("new_launches") },
    Case { title: "two parts of one array to write: `x.split_at_mut(axis, n)`", score: 3, answer: Said(two_parts) },
    Case { title: "`ct::bid(3)`", score: 3, answer: Said(fourth_axis) },
];

pub const LAYOUTS: [Case; 5] = [
    Case { title: "a layout of [16, 64] on a tile of [32, 64]", score: 3, answer: Said(layout_of_another_shape) },
    Case { title: "a layout of 48 threads", score: 3, answer: Said(layout_of_48_threads) },
    Case { title: "`num_ctas(3)`, `num_stages(0)`, `occupancy(100)`", score: 3, answer: Said(hints) },
    Case { title: "targets `sm90`, `h100`, `sm_75`", score: 3, answer: Said(targets) },
    Case { title: "no configuration of a tuner runs", score: 3, answer: Said(failing_tuner) },
];

pub const FIRST_STEPS: [Case; 12] = [
    Case { title: "a graph's launch uses an array from outside", score: 3, answer: Said(array_outside_of_a_graph) },
    Case { title: "`to_vec` in the closure of a graph", score: 3, answer: Said(download_in_a_graph) },
    Case { title: "a bundle: another name, constant, type, form or number", score: 3, answer: Said(bundle) },
    Case { title: "a tensor of DLPack of f64 for f32, of rank 2 for 1", score: 3, answer: Said(tensors) },
    Case { title: "`use cutlet::*` and `println!`", score: 2, answer: Rustc("new_glob") },
    Case { title: "the prelude is forgotten", score: 1, answer: Rustc("new_prelude") },
    Case { title: "`ct::require!(a == b && b == c)` of scalars", score: 3, answer: Rustc("new_flow") },
    Case { title: "a tensor of candle as an argument", score: 3, answer: Rustc("new_launches") },
    Case { title: "a `CudaSlice` as an argument, without the feature", score: 3, answer: Rustc("new_launches") },
    Case { title: "a slice of the host as an argument", score: 3, answer: Rustc("new_launches") },
    Case { title: "`CUTLET_BACKND=cpu`", score: 3, answer: Said(misspelt_variable) },
    Case { title: "`CUTLET_DUMP` names a folder that cannot be", score: 3, answer: Said(dump_to_nowhere) },
];

fn outcome<X>(result: ct::Result<X>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "nothing".into())
}

fn copy(a: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0) * tile;
    c.store(i, a.load(i, [tile]) + 1.0);
}

/// The message with checks, and that on standard error without.
fn element_offset() -> String {
    let a = Device::cpu().zeros::<f32, 1>([1000]).unwrap();
    let mut c = Device::cpu().zeros([1000]).unwrap();
    let checked = ct::Launch::new(4).checks(ct::Checks::all());
    let said = outcome(checked.launch(copy, (&a, &mut c, ct::Constant(256))));
    format!("{said}\nwithout checks: {}", in_another_process("newcomers::offsets", &[]))
}

#[test]
fn offsets() {
    if is_child() {
        let a = Device::cpu().zeros::<f32, 1>([1000]).unwrap();
        let mut c = Device::cpu().zeros([1000]).unwrap();
        for _ in 0..2 {
            ct::launch(copy, 4, (&a, &mut c, ct::Constant(256))).unwrap();
        }
    }
}

/// Axes that are counted from the end, and an axis that does not exist.
fn negative_axes() -> String {
    fn kernel(a: Array<f32, 2>, c: ArrayMut<f32, 2>) {
        let x = a.load((0, 0), [2, 4]);
        let y = x.softmax(-1).cumsum(-2).sum([-1]) + x.squeeze_all();
        c.store((0, 0), y);
    }
    trait SqueezeAll {
        fn squeeze_all(self) -> Tile<f32, 2>;
    }
    impl SqueezeAll for Tile<f32, 2> {
        fn squeeze_all(self) -> Tile<f32, 2> {
            let sum: Tile<f32, 1> = self.sum(-1).squeeze(-1);
            sum.unsqueeze(-1)
        }
    }
    fn wrong(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [2, 4]).sum(-3);
    }
    let works = problems(kernel, (array(), array_mut()));
    format!("{works} is wrong: it works\nof `x.sum(-3)`: {}", problems(wrong, (array(),)))
}

fn names_of_std() -> String {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let x = x.load(0, 2);
        y.store(0, x.ln().mul_add(2.0, x.powf(2.0)));
    }
    let x = Device::cpu().array(&[1.0, 2.0], [2]).unwrap();
    let mut y = Device::cpu().zeros([2]).unwrap();
    ct::launch(kernel, 1, (&x, &mut y)).unwrap();
    let want = [1.0, 2.0f32.ln() * 2.0 + 4.0];
    assert!(y.to_vec().unwrap().iter().zip(want).all(|(x, y): (&f32, f32)| (x - y).abs() < 1e-5));
    "works".into()
}

fn open_extent() -> String {
    fn kernel(a: Array<f32, 2>) {
        let x = a.load((0, 0), [2, 4]);
        assert_eq!((x.reshape([-1]).shape(), x.flatten().shape(), x.reshape([4, -1]).shape()), ([8], [8], [4, 2]));
    }
    fn wrong(a: Array<f32, 2>) {
        let _ = a.load((0, 0), [2, 4]).reshape([3, -1]);
    }
    let works = problems(kernel, (array(),));
    format!("{works} is wrong: it works\nof [3, -1]: {}", problems(wrong, (array(),)))
}

fn cat_of_two_shapes() -> String {
    fn kernel(a: Array<f32, 2>) {
        let _ = ct::cat([a.load((0, 0), [32, 64]), a.load((0, 0), [32, 32])], 0);
    }
    problems(kernel, (array(),))
}

fn sort_along_96() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = a.load(0, [96]).sort(0);
    }
    problems(kernel, (array(),))
}

fn number_as_shape() -> String {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
        y.store(ct::bid(0), x.load(ct::bid(0), tile) + ct::ones(tile));
    }
    let (x, mut y) = (Device::cpu().full([100], 1.0).unwrap(), Device::cpu().zeros([100]).unwrap());
    ct::launch(kernel, 2, (&x, &mut y, ct::Constant(64))).unwrap();
    assert_eq!(y.to_vec().unwrap(), [2.0; 100]);
    "works".into()
}

/// One mistake, one message.
fn scratch() -> String {
    fn kernel(a: Array<f32, 1>, c: ArrayMut<f32, 1>) {
        let own = ct::scratch::<f32, 1>([0]);
        own.store(0, a.load(0, [64]));
        let x = own.load(0, [64]) + own.load_scalar(3);
        c.store(0, x.reshape([8, 8]).sum(1).squeeze(1));
    }
    problems(kernel, (array(), array_mut()))
}

fn two_parts() -> String {
    fn fill(a: ArrayMut<f32, 1>, b: ArrayMut<f32, 1>) {
        a.store(0, ct::full([64], 1.0));
        b.store(0, ct::full([64], 2.0));
    }
    let mut x = Device::cpu().zeros::<f32, 1>([128]).unwrap();
    let (mut a, mut b) = x.split_at_mut(0, 64).unwrap();
    outcome(ct::Launch::new(1).backend(ct::Backend::Cpu).launch(fill, (&mut a, &mut b)))
}

fn large_print() -> String {
    printed_by("newcomers::prints")
}

/// Returns the output of a kernel of a test of this program: the lines that begin with `printed:`.
fn printed_by(test: &str) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    let output = command.env("CUTLET_MESSAGES_CHILD", "1").output().expect("this program again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| Some(line.split_once("printed: ")?.1)).collect::<Vec<_>>().join("\n")
}

/// Output of a kernel, without checks of the process.
#[test]
fn prints() {
    fn kernel() {
        ct::println!("printed: {} and {:?}", ct::arange(0..2048), ct::arange(0..2048).reshape([4, 512]));
    }
    if is_child() {
        ct::Launch::new(1).backend(ct::Backend::Cpu).launch(kernel, ()).unwrap();
    }
}

fn formats() -> String {
    printed_by("newcomers::printed_forms")
}

#[test]
fn printed_forms() {
    fn kernel(n: Scalar<i32>) {
        let x = ct::arange(0..4).cast::<f32>() / 2.0;
        ct::println!("printed: {x:?} {n:#x} {0} {0}", n + 1);
    }
    if is_child() {
        ct::Launch::new(1).backend(ct::Backend::Cpu).launch(kernel, (255,)).unwrap();
    }
}

/// Three rows of tiles for an array of one, with and without the option.
fn ragged_grid() -> String {
    fn meant(c: ArrayMut<f32, 1>) {
        let options = ct::StoreOptions::new().clipped();
        c.store_with(ct::bid(0), ct::ones([64]), options);
    }
    fn kernel(c: ArrayMut<f32, 1>) {
        c.store(ct::bid(0), ct::ones([64]));
    }
    let mut c = Device::cpu().zeros::<f32, 1>([50]).unwrap();
    let checked = || ct::Launch::new(3).checks(ct::Checks::all());
    let without = outcome(checked().launch(kernel, (&mut c,)));
    format!("{without}\nwith `clipped()`: {}", outcome(checked().launch(meant, (&mut c,))))
}

fn loop_without_state() -> String {
    fn kernel(c: ArrayMut<i32, 1>) {
        ct::for_each(0..4, |k| c.store_scalar(k, k));
    }
    let mut c = Device::cpu().zeros([4]).unwrap();
    ct::launch(kernel, 1, (&mut c,)).unwrap();
    assert_eq!(c.to_vec().unwrap(), [0, 1, 2, 3]);
    "works".into()
}

fn step_by() -> String {
    fn kernel(c: ArrayMut<i32, 1>, n: Scalar<i32>) {
        ct::for_each((ct::bid(0)..n).step_by(2), |k| c.store_scalar(k, k));
        c.store_scalar(7, ct::fold((..n).rev(), ct::scalar(0), |digits, k| 10 * digits + k));
    }
    let mut c = Device::cpu().zeros([8]).unwrap();
    ct::launch(kernel, 1, (&mut c, 5)).unwrap();
    assert_eq!(c.to_vec().unwrap(), [0, 0, 2, 0, 4, 0, 0, 43210]);
    "works".into()
}

fn too_few_values() -> String {
    outcome(Device::cpu().array(&[0.0f32; 999], [1000]))
}

fn fourth_axis() -> String {
    fn kernel(c: ArrayMut<f32, 1>) {
        c.store(ct::bid(3), ct::zeros([64]));
    }
    problems(kernel, (array_mut(),))
}

fn layout_of_another_shape() -> String {
    fn kernel(a: Array<f32, 2>) {
        let layout = ct::layout::local([4, 2]) * ct::layout::spatial([4, 32]);
        let _ = a.load((0, 0), [32, 64]).with_layout(layout);
    }
    problems(kernel, (array(),))
}

fn layout_of_48_threads() -> String {
    fn kernel(a: Array<f32, 1>) {
        let _ = a.load(0, [96]).with_layout(ct::layout::local([2]) * ct::layout::spatial([48]));
    }
    problems(kernel, (array(),))
}

fn hints() -> String {
    fn kernel(c: ArrayMut<f32, 1>) {
        c.store(0, c.load(0, [64]) + 1.0);
    }
    let said = |hints: Hints| outcome(ct::inspect(kernel, (array_mut(),)).target(Target::SM_90A).hints(hints).ptx());
    [said(Hints::new().num_ctas(3)), said(Hints::new().num_stages(0)), said(Hints::new().occupancy(100))].join("\n")
}

fn targets() -> String {
    let said = |text: &str| text.parse::<Target>().map_or_else(|error| error, |target| target.to_string());
    ["sm90", "h100", "sm_75", "SM_90A", "compute_89", "sm_80a", "gfx942"].map(said).join("\n")
}

fn failing_tuner() -> String {
    fn kernel(x: ArrayMut<f32, 1>, tile: usize) {
        x.store(0, x.load(0, [tile]).sort(0));
    }
    let mut x = Device::cpu().zeros::<f32, 1>([96]).unwrap();
    let tuned = ct::Tuner::new()
        .run(Device::cpu(), &mut x, [96, 0, 192], |x, &tile| ct::launch(kernel, 1, (x, ct::Constant(tile))));
    outcome(tuned)
}

fn add_one(c: ArrayMut<f32, 1>) {
    c.store(0, c.load(0, [64]) + 1.0);
}

fn array_outside_of_a_graph() -> String {
    let mut outside = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    let state = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    outcome(ct::Graph::capture(state, |state| {
        ct::launch(add_one, 1, (&mut *state,))?;
        ct::launch(add_one, 1, (&mut outside,))
    }))
}

fn download_in_a_graph() -> String {
    let state = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    outcome(ct::Graph::capture(state, |state| {
        ct::launch(add_one, 1, (&mut *state,))?;
        let _ = state.to_vec()?;
        Ok(())
    }))
}

fn bundle() -> String {
    fn filled(c: ArrayMut<f32, 1>, tile: usize) {
        c.store(0, ct::ones([tile]));
    }
    let mut bundler = ct::aot::Bundler::new([]);
    let bundler = bundler.add(add_one, (array_mut(),)).unwrap();
    let bundle = bundler.add(filled, (array_mut(), ct::Constant(64))).unwrap().finish().unwrap();
    let mut c = Device::cpu().zeros::<f32, 1>([64]).unwrap();
    let mut d = Device::cpu().zeros::<f64, 1>([64]).unwrap();
    [
        outcome(bundle.launch("add", 1, (&mut c,))),
        outcome(bundle.launch("filled", 1, (&mut c, ct::Constant(32)))),
        outcome(bundle.launch("add_one", 1, (&mut d,))),
        outcome(bundle.launch("add_one", 1, (&c,))),
        outcome(bundle.launch("add_one", 1, (&mut c, 2.0))),
    ]
    .join("\n")
}

fn tensors() -> String {
    let stream = Device::cpu().default_stream();
    let tensor = || dlpack::export(Device::cpu().zeros::<f64, 2>([4, 4]).unwrap(), &stream).unwrap();
    let [first, second] = [tensor(), tensor()];
    // SAFETY: both were just made, and are freed by the import of the right type.
    unsafe {
        let said =
            [outcome(dlpack::import::<f32, 2>(first, &stream)), outcome(dlpack::import::<f64, 1>(second, &stream))];
        for tensor in [first, second] {
            dlpack::import::<f64, 2>(tensor, &stream).unwrap();
        }
        said.join("\n")
    }
}

fn misspelt_variable() -> String {
    in_another_process(
        "newcomers::first",
        &[("CUTLET_BACKND", "cpu"), ("CUTLET_TAGRET", "sm_80"), ("CUTLET_BACKEND", "cpu")],
    )
}

#[test]
fn first() {
    if is_child() {
        let mut c = Device::first().unwrap().zeros([64]).unwrap();
        ct::launch(add_one, 1, (&mut c,)).unwrap();
    }
}

fn dump_to_nowhere() -> String {
    let file = std::env::current_exe().expect("this program");
    let inside = file.join("nowhere");
    let said = in_another_process("newcomers::dump", &[("CUTLET_DUMP", inside.to_str().expect("a name"))]);
    let said = said.replace(inside.to_str().expect("a name"), "FILE/nowhere");
    // The name has a hash of the kernel.
    let (name, rest) = said.split_once('-').expect("the name of a file");
    format!("{name}-{}", rest.split_once('.').map_or(rest.into(), |(_, rest)| format!("HASH.{rest}")))
}

#[test]
fn dump() {
    if is_child() {
        let mut c = Device::cpu().zeros([64]).unwrap();
        eprintln!("{}", outcome(ct::launch(add_one, 1, (&mut c,))));
    }
}
