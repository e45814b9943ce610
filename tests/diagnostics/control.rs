//! Loops, branches and the bodies of reductions.

use std::cell::Cell;

use cutlet as ct;
use cutlet::prelude::*;

use crate::{SumToScalar, problems, problems_with_arrays, tile};

#[test]
fn state_changes_its_shape() {
    let text = problems(|| {
        let _ = ct::fold(0..4, tile(4, 1), |sum, _| sum + tile(4, 8));
    });
    assert_eq!(
        text,
        "\
<ct::fold(0..4, tile(4, 1), |sum, _| sum + tile(4, 8))>: the body of `fold` gives a tile of shape [4, 8] where [4, 1] is expected
  <sum + tile(4, 8))>: it is computed here
  values keep their shape through loops and branches"
    );
}

#[test]
fn state_changes_its_length() {
    let text = problems(|| {
        let _ = ct::fold(0..4, vec![tile(4, 1)], |list, _| [list.clone(), list].concat());
    });
    assert_eq!(
        text,
        "\
<ct::fold(0..4, vec![tile(4, 1)], |list, _| [list.clone(), list].concat())>: `fold`: the state has 1 values, and the body returns 2
  a `Vec` in the state keeps its length"
    );
}

#[test]
fn branches_differ() {
    let text = problems(|| {
        let _ = ct::if_else(ct::bid(0).eq(0), || tile(4, 1), || tile(1, 4));
    });
    assert_eq!(
        text,
        "\
<ct::if_else(ct::bid(0).eq(0), || tile(4, 1), || tile(1, 4))>: a branch of `if_else` gives a tile of shape [1, 4] where [4, 1] is expected
  <ct::full([rows, columns], 1.5)>: it is computed here
  values keep their shape through loops and branches"
    );
}

#[test]
fn step_is_not_positive() {
    let text = problems(|| {
        ct::fold(ct::range(8, 0).step(0), (), |(), _| ());
    });
    assert_eq!(
        text,
        "\
<ct::fold(ct::range(8, 0).step(0), (), |(), _| ())>: `fold`: the step is 0
  the step of a range is at least 1, or at most -1"
    );
}

/// Host numbers that the type of a counter does not hold.
#[test]
fn bounds_do_not_fit_the_counter() {
    let text = problems(|| {
        let (int, plain, wide, long) = (ct::scalar(0i32), ct::scalar(0u32), ct::scalar(0i64), ct::scalar(0u64));
        ct::fold(ct::range(int, (1i64 << 32) + 5), (), |(), _| ());
        ct::fold(ct::range(int, 3_000_000_000u32), (), |(), _| ());
        ct::fold(ct::range(-3i32, plain), (), |(), _| ());
        ct::fold(ct::range(wide, usize::MAX), (), |(), _| ());
        ct::fold(ct::range(long, -1i64), (), |(), _| ());
        ct::fold(0..3_000_000_000usize, (), |(), _| ());
        ct::fold(ct::range(0, int).step(3_000_000_000u32), (), |(), _| ());
        ct::fold(ct::range(plain, 0).step(-5_000_000_000i64), (), |(), _| ());
        ct::fold(ct::range(0, wide).step(usize::MAX).rev(), (), |(), _| ());
    });
    let (i64_, u64_) = (
        "count in i64: a scalar end is converted by `.cast::<i64>()`, a host end becomes `ct::scalar(0i64)`",
        "count in u64: a scalar end is converted by `.cast::<u64>()`, a host end becomes `ct::scalar(0u64)`",
    );
    let want = [
        ("ct::range(int, (1i64 << 32) + 5)", "end 4294967301", "i32", i64_),
        ("ct::range(int, 3_000_000_000u32)", "end 3000000000", "i32", i64_),
        ("ct::range(-3i32, plain)", "start -3", "u32", i64_),
        ("ct::range(wide, usize::MAX)", "end 18446744073709551615", "i64", u64_),
        ("ct::range(long, -1i64)", "end -1", "u64", i64_),
        ("0..3_000_000_000usize", "end 3000000000", "i32", i64_),
        ("ct::range(0, int).step(3_000_000_000u32)", "step 3000000000", "i32", i64_),
        ("ct::range(plain, 0).step(-5_000_000_000i64)", "step -5000000000", "u32", i64_),
        ("ct::range(0, wide).step(usize::MAX).rev()", "step 18446744073709551615", "i64", u64_),
    ];
    let want = want.map(|(range, what, elem, way_out)| {
        format!(
            "<ct::fold({range}, (), |(), _| ())>: `fold`: the {what} does not fit {elem}, the type that the range \
             counts in\n  {way_out}"
        )
    });
    assert_eq!(text, want.join("\n"));
}

#[test]
fn value_leaves_a_loop() {
    let text = problems(|| {
        let leak = Cell::new(None);
        ct::fold(0..4, (), |(), i| leak.set(Some(i * 2)));
        let _ = leak.get().unwrap() + 1;
    });
    assert_eq!(
        text,
        "\
<leak.get().unwrap() + 1>: this value belongs to the body of `fold` and is used outside of it
  <i * 2)))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn counter_leaves_a_loop() {
    let text = problems(|| {
        let leak = Cell::new(None);
        ct::fold(0..4, (), |(), i| leak.set(Some(i)));
        let _ = leak.get().unwrap() + 1;
    });
    assert_eq!(
        text,
        "\
<leak.get().unwrap() + 1>: this value belongs to the body of `fold` and is used outside of it
  <ct::fold(0..4, (), |(), i| leak.set(Some(i)))>: it is an argument of this body
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn value_leaves_a_branch() {
    let text = problems_with_arrays::<f32>(|a, out| {
        let leak = Cell::new(None);
        ct::if_then(ct::bid(0).gt(0), || leak.set(Some(a.load([0, 0], [8, 8]))));
        out.store([0, 0], leak.get().unwrap());
    });
    assert_eq!(
        text,
        "\
<store([0, 0], leak.get().unwrap())>: this value belongs to the body of `if_then` and is used outside of it
  <load([0, 0], [8, 8]))))>: it is computed here
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn accumulator_leaves_a_reduction() {
    let text = problems(|| {
        let leak = Cell::new(None);
        let sum = tile(4, 8).reduce(1, 0.0, |acc, x| {
            leak.set(Some(acc));
            acc + x
        });
        let _ = sum + leak.get().unwrap();
    });
    assert_eq!(
        text,
        "\
<sum + leak.get().unwrap()>: this value belongs to the closure of `reduce` and is used outside of it
  <reduce(1, 0.0, |acc, x| {>: it is an argument of this body
  return it from the closure: values leave a body only through its result"
    );
}

#[test]
fn memory_in_a_reduction() {
    let text = problems_with_arrays::<f32>(|a, _| {
        let _ = tile(4, 8).reduce(1, 0.0, |acc, x| acc + x * a.load_scalar([0, 0]));
    });
    assert_eq!(
        text,
        "\
<load_scalar([0, 0]))>: the closure of `reduce` takes only elementwise operations on scalars, and this operation reads or writes memory
  compute it before, outside of the closure"
    );
}

#[test]
fn tiles_in_a_map() {
    let text = problems(|| {
        let _ = tile(4, 8).map(|x| x + tile(4, 8).reshape([32]).to_scalar_sum());
    });
    assert_eq!(
        text,
        "\
<ct::full([rows, columns], 1.5)>: the closure of `map` takes only elementwise operations on scalars, and this operation works on tiles
  compute it before, outside of the closure"
    );
}

#[test]
fn loop_in_a_map() {
    let text = problems(|| {
        let _ = tile(4, 8).map(|x| ct::fold(0..3, x, |x, _| x * x));
    });
    assert_eq!(
        text,
        "\
<ct::fold(0..3, x, |x, _| x * x))>: the closure of `map` takes only elementwise operations on scalars, and this operation has control flow or a reduction of its own
  compute it before, outside of the closure"
    );
}

#[test]
fn flow_of_another_loop() {
    let text = problems(|| {
        ct::fold_with_control(..4, (), |(), i, flow| {
            ct::fold(..3, (), |(), j| flow.break_if(i.eq(j), ()));
        });
    });
    assert_eq!(
        text,
        "\
<break_if(i.eq(j), ()))>: `break_if` belongs to a loop around the one that contains it
  <ct::fold_with_control(..4, (), |(), i, flow| {>: the loop that it is for
  <ct::fold(..3, (), |(), j| flow.break_if(i.eq(j), ()))>: the loop that contains it
  give the condition out in the state of the inner loop, and ask for it there"
    );
    let text = problems(|| {
        let kept = Cell::new(None);
        ct::fold_with_control(..4, (), |(), _, flow| kept.set(Some(flow)));
        kept.get().unwrap().continue_if(ct::bid(0).eq(0), ());
    });
    assert!(text.contains(">: `continue_if`: the loop has ended\n") && text.contains(">: this loop\n"), "{text}");
}

#[test]
fn loop_without_an_end() {
    let text = problems(|| ct::loop_with_control((), |(), _| ()));
    assert!(
        text.contains("`loop_with_control`: nothing ends the loop\n  call `control.break_if(condition, state)`"),
        "{text}"
    );
}

#[test]
fn bodies_nested_too_deeply() {
    fn deeper(n: Scalar<i32>) {
        ct::if_then(n.gt(0), || deeper(n - 1));
    }
    let text = problems(|| deeper(ct::bid(0)));
    assert!(text.contains("`if_then`: bodies are nested deeper than 200\n  a function that calls itself"), "{text}");
    fn fibonacci(n: Scalar<i32>) -> Scalar<i32> {
        ct::if_else(n.lt(2), || n, || fibonacci(n - 1) + 1)
    }
    let caught = std::panic::catch_unwind(|| {
        problems(|| {
            let _ = fibonacci(ct::bid(0));
        })
    });
    assert!(caught.is_err(), "the kernel is stopped");
}
