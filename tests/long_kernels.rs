//! Long and deep kernels compile in time that grows with their length, and on the stack of any
//! thread.

use std::time::{Duration, Instant};

use cutlet as ct;
use cutlet::prelude::*;

/// Far more than any of these takes, far less than they took when time grew with the square of the
/// length.
const PATIENCE: Duration = Duration::from_secs(60);

fn compiles(tile: usize, body: impl Fn(ArrayMut<f32, 1>, usize) + Send + Sync + 'static) {
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        let start = Instant::now();
        let array = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
        let text =
            ct::inspect(|y: ArrayMut<f32, 1>, tile: usize| body(y, tile), (array, Constant(tile))).target(target).ptx();
        assert!(text.unwrap().contains("st.global"));
        assert!(start.elapsed() < PATIENCE, "{:?} for {target}", start.elapsed());
    }
}

#[test]
fn a_chain_of_operations() {
    let step = |x: Tile<f32, 1>, k| if k % 2 == 0 { x + 1.5 } else { x * x };
    compiles(1024, move |y, tile| y.store([0], (0..4000).fold(y.load([0], [tile]), step)));
    compiles(8192, move |y, tile| y.store([0], (0..4000).fold(y.load([0], [tile]), step)));
}

#[test]
fn a_value_that_outlives_a_chain() {
    compiles(1 << 16, |y, tile| {
        let first = y.load([0], [tile]);
        let x = (0..2000).fold(first, |x, k| x + k as f32);
        y.store([1], x);
        y.store([2], x.sum(0).broadcast_to([tile]) + first);
    });
}

#[test]
fn many_stores() {
    compiles(1024, |y, tile| (0..2000).for_each(|k| y.store([k], ct::full([tile], k as f32))));
}

#[test]
fn many_loads() {
    compiles(1024, |y, tile| y.store([0], (1..2000).fold(y.load([0], [tile]), |x, k| x + y.load([k], [tile]))));
}

#[test]
fn many_loops() {
    let turn = |x, _| ct::fold(..ct::num_blocks(0), x, |x: Tile<f32, 1>, i| x * 0.5 + i.cast::<f32>());
    compiles(1024, move |y, tile| y.store([0], (0..500).fold(y.load([0], [tile]), turn)));
}

#[test]
fn loops_in_loops() {
    fn level(depth: usize, x: Tile<f32, 1>) -> Tile<f32, 1> {
        if depth == 0 {
            return x * 3.0;
        }
        ct::fold(..ct::num_blocks(0), x, |x, i| level(depth - 1, x + i.cast::<f32>()) + x * 3.0)
    }
    compiles(1024, |y, tile| y.store([0], level(24, y.load([0], [tile]))));
}

#[test]
fn a_chain_of_work_on_indices() {
    compiles(1024, |y, tile| {
        let x = (0..4000).fold(ct::arange_from(tile, 0i32, 1), |x, k| if k % 2 == 0 { x + x } else { x ^ 5 });
        y.store([0], x.cast::<f32>());
    });
}
