//! What a user controls by hand: layouts of tiles, roles and stages of a loop. What becomes of it in code.

use cutlet as ct;
use cutlet::layout::{Modes, column_local, local, spatial};
use cutlet::prelude::*;

fn array() -> ct::ArraySpec<f32, 2> {
    ct::ArraySpec::new([1 << 10, 1 << 10])
}

/// PTX of a kernel that brings a tile from one array to another one.
fn ptx(layout: &Modes) -> String {
    let kernel = |x: Array<f32, 2>, y: ArrayMut<f32, 2>| {
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [32, 16]).with_layout(layout));
    };
    ct::code_ptx(kernel, (array(), array().mutable()), ct::Target::SM_80).unwrap()
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

#[test]
fn accesses_are_as_wide_as_the_layout_says() {
    // 128 threads, and four elements for each of them.
    let wide = ptx(&(spatial([32, 4]) * local([1, 4])));
    println!("{wide}");
    let apart = ptx(&(spatial([32, 4]) * column_local([1, 4])));
    assert_eq!(apart, wide);
    let narrow = ptx(&(local([1, 4]) * spatial([32, 4])));
    println!("{narrow}");
}
