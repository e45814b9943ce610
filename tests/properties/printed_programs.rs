//! The tests that findings print are the text in `printed.rs`, compile, and fail as stated.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::test::{Finding, InOut, Input, Kernel, Output, Values};

#[allow(clippy::all)]
#[rustfmt::skip]
#[path = "printed.rs"]
mod printed;

/// A mask that excludes the diagonal.
fn below_diagonal(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let visible = ct::indices([16, 16], 1).lt(ct::indices([16, 16], 0));
    y.store((0, 0), visible.select(x.load((0, 0), [16, 16]), 0.0).sum(1));
}

/// A sum without atomics.
fn lost(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    y.store(0, y.load(0, [1]) + x.load(ct::bid(0), [16]).sum(0));
}

/// Addresses without a stride.
fn row_major(x: ct::Ptr<f16>, y: ArrayMut<f16, 2>) {
    let at = ct::bid(0) * y.extent(1) + ct::arange(0..64);
    let options = ct::GatherOptions::new().mask(ct::arange(0..64).lt(y.extent(1)));
    // SAFETY: none; the test expects a wrong result.
    y.store((ct::bid(0), 0), unsafe { x.offset(at).load_with(options) }.unsqueeze(0));
}

fn findings() -> [Box<Finding>; 3] {
    let diagonal = Kernel::new(below_diagonal).shapes(|draw| {
        let n = draw.range("n", 1..=16);
        (1, (Input::new([n, n]).values(Values::numbers()), Output::new([n, 1])))
    });
    let diagonal = diagonal.reference(|(x, y)| y.fill(|[i, _]| (0..=i).map(|j| x[[i, j]]).sum()));
    let lost = Kernel::new(lost).shapes(|draw| {
        let n = draw.extent("n", 16);
        (n.div_ceil(16), (Input::new([n]), InOut::new([1])))
    });
    let rows = Kernel::new(row_major).shapes(|draw| {
        let shape = [draw.extent("m", 4), draw.extent("n", 16)];
        (shape[0], (ct::ByPointer(Input::new(shape)), Output::new(shape)))
    });
    let rows = rows.reference(|(x, y)| y.fill(|i| x[i]));
    [diagonal.without_corpus().check(), lost.without_corpus().check(), rows.without_corpus().check()]
        .map(|outcome| outcome.expect_err("a mistake"))
}

#[test]
fn printed_tests_are_programs() {
    let mut text =
        "//! Programs that failed properties print. `CUTLET_BLESS=1 cargo test --test properties` writes the\n//! file.\n\nuse cutlet as ct;\n\nuse super::*;\n"
            .to_owned();
    for finding in findings() {
        text += &format!("\n{}\n", finding.program().replace("#[test]\nfn", "pub fn"));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties/printed.rs");
    if std::env::var_os("CUTLET_BLESS").is_some() {
        std::fs::write(file, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(file).unwrap());
}

#[test]
fn printed_tests_fail() {
    let programs =
        [printed::below_diagonal_1005ac4a0473ff8f, printed::lost_96624dc50e13d91c, printed::row_major_ba163511ba96f1fc];
    let [diagonal, lost, rows] = programs.map(std::panic::catch_unwind);
    assert!(diagonal.is_err() && rows.is_err());
    let error = lost.expect("no panic").expect_err("a race").to_string();
    assert!(error.contains("a race: this reads element 0 of an array of 1"), "{error}");
}
