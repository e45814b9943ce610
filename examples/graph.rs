//! A CUDA graph: work that is recorded once and replayed by one call of the driver, also with other
//! numbers. `cargo run --example graph`

use cutlet as ct;
use cutlet::prelude::*;

/// A step of a relaxation along a line: every element is moved toward the mean of its neighbours.
fn relax(from: Array<f32, 1>, to: ArrayMut<f32, 1>, rate: Scalar<f32>, tile: usize) {
    let at = ct::bid(0) * tile as i32 + ct::arange(0..tile);
    let (left, right) = (from.gather((at - 1).max(0)), from.gather((at + 1).min(from.extent(0) - 1)));
    let middle = from.gather(at);
    to.store(ct::bid(0), middle + ((left + right) * 0.5 - middle) * rate);
}

/// Runs it; public for the tests.
pub fn main() -> anyhow::Result<()> {
    let (device, n, tile) = (ct::Device::first()?, 10_000, 1024);
    let start = device.from_fn([n], |[i]| if i < n / 2 { 0.0f32 } else { 1.0 })?;
    let other = device.zeros([n])?;

    // The closure runs now, and again after a change of its numbers. The graph holds the arrays.
    let mut graph = ct::Graph::capture((start, other, 1.0), |(a, b, rate)| {
        let blocks = n.div_ceil(tile);
        ct::launch(relax, blocks, (&*a, &mut *b, *rate, ct::Constant(tile)))?;
        ct::launch(relax, blocks, (&*b, &mut *a, *rate, ct::Constant(tile)))
    })?;
    for _ in 0..100 {
        graph.replay()?;
    }
    // Another number: the next replay updates the graph.
    graph.state_mut().2 = 0.5;
    for _ in 0..100 {
        graph.replay()?;
    }

    let line = graph.into_state().0.to_vec()?;
    anyhow::ensure!(line.is_sorted() && line[0] == 0.0 && line[n - 1] == 1.0, "the line is smooth");
    let middle = &line[n / 2 - 3..n / 2 + 3];
    println!("graph: 400 launches by 200 calls on {}, in the middle {middle:.3?}", device.name());
    Ok(())
}
