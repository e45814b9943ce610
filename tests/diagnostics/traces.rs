//! Values of other traces, and the problems that a trace reports.

use std::cell::Cell;

use cutlet as ct;
use cutlet::prelude::*;

use crate::traced::{self, input};
use crate::{problems, problems_with_arrays, tile, with_source};

/// A function that several kernels may call.
fn added(rows: usize) -> Tile<f32, 2> {
    tile(rows, 8) + tile(3, 8)
}

fn twice(body: impl Fn() -> Tile<f32, 2>) {
    let _ = (body(), body());
}

/// Returns the calls that lead to a problem, innermost first, and the number of calls with a known
/// place.
fn calls(text: &str) -> (Vec<String>, usize) {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" is called ")).collect();
    let known = lines.iter().filter(|line| line.trim_start().starts_with('<')).count();
    let called = |line: &&str| {
        let line = line.trim_start();
        let line = line.strip_prefix('<').and_then(|rest| rest.split_once(">: ")).map_or(line, |(_, rest)| rest);
        line.split(" is called ").next().unwrap_or_default().to_string()
    };
    (lines.iter().map(called).collect(), known)
}

#[test]
fn problems_in_functions_name_their_callers() {
    let kernel = || ct::fold(0..3, (), |(), _| twice(|| added(4)));
    let text = with_source(&traced::problems(kernel, ()));
    let expected = "<tile(rows, 8) + tile(3, 8)>: `+` of tiles f32 [4, 8] and f32 [3, 8]\n  extents must be equal";
    assert!(text.starts_with(expected), "{text}");
    let (called, known) = calls(&text);
    let closure = "a closure of `problems_in_functions_name_their_callers`";
    assert_eq!(called, ["`added`", closure, "`twice`"], "{text}");
    // Places are in the tables of lines, which builds may leave out.
    assert!(known == 0 || known == 3, "{text}");
    assert!(known == 0 || text.contains("<added(4)))>: `added` is called here"), "{text}");
    assert!(text.ends_with("<traced::problems(kernel, ()))>: kernel `kernel` is traced for this call"), "{text}");
}

#[test]
fn all_problems_together_and_no_consequences() {
    let text = problems_with_arrays::<f32>(|a, out| {
        let wrong = a.load([0, 0], [8, 8]) + tile(8, 16);
        let more = (wrong * 2.0).exp().sum(0).reshape([1, 4, 2]).squeeze(0);
        out.store([0, 0], ct::fold(0..2, more, |m, _| m + m));
        let _ = ct::num_blocks(7);
        for _ in 0..3 {
            let _ = tile(4, 8) - tile(8, 4);
        }
    });
    assert_eq!(
        text,
        "\
<a.load([0, 0], [8, 8]) + tile(8, 16)>: `+` of tiles f32 [8, 8] and f32 [8, 16]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`
<ct::num_blocks(7)>: `num_blocks(7)`: a grid has the axes 0, 1 and 2
  axes that a launch does not name have one block
<tile(4, 8) - tile(8, 4)>: `-` of tiles f32 [4, 8] and f32 [8, 4]
  extents must be equal or 1: use `reshape`, `permute` or `broadcast_to`"
    );
}

#[test]
fn a_value_of_another_trace() {
    thread_local! {
        static KEPT: Cell<Option<Tile<f32, 2>>> = const { Cell::new(None) };
    }
    traced::trace(|| KEPT.set(Some(tile(4, 8))), ());
    let text = problems(|| {
        let _ = tile(4, 8) + KEPT.get().unwrap();
    });
    assert_eq!(
        text,
        "\
<tile(4, 8) + KEPT.get().unwrap()>: this value belongs to another kernel trace
  tiles and scalars exist only while their kernel is traced: do not keep them in statics or cells"
    );
}

#[test]
fn an_array_of_another_trace() {
    thread_local! {
        static KEPT: Cell<Option<Array<f32, 2>>> = const { Cell::new(None) };
    }
    traced::trace(|a: Array<f32, 2>| KEPT.set(Some(a)), (input::<f32, 2>(),));
    let text = problems(|| {
        let _ = KEPT.get().unwrap().load([0, 0], [8, 8]);
    });
    assert_eq!(
        text,
        "\
<load([0, 0], [8, 8])>: this array belongs to another kernel trace
  arrays exist only while their kernel is traced: do not keep them in statics or cells"
    );
}

#[test]
fn a_kernel_inside_of_a_kernel() {
    let inner = Cell::new(String::new());
    traced::trace(|| inner.set(problems(|| ())), ());
    assert_eq!(
        inner.into_inner(),
        "\
<problems(|| ())), ())>: kernel `kernel` is launched inside of another kernel
  a kernel is a function of tiles: call it as a function, or launch it after the other one"
    );
}

#[test]
#[should_panic = "tile operations work only inside a kernel: pass the function that contains this line to \
                  `cutlet::launch`"]
fn outside_of_a_kernel() {
    let _ = ct::bid(0);
}

#[test]
fn a_panic_in_a_kernel_leaves_no_trace() {
    let caught = std::panic::catch_unwind(|| {
        traced::trace(
            || {
                if tile(2, 2).shape() == [2, 2] {
                    panic!("of the user")
                }
            },
            (),
        );
    });
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"of the user"));
    assert!(!ct::tile::is_tracing());
    traced::trace(|| assert_eq!(tile(2, 2).len(), 4), ());
}
