//! Time of kernels without and with each check: `cargo run --release --example checks`.

use std::time::{Duration, Instant};

use cutlet as ct;
use cutlet::prelude::*;

fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    y.store(ct::bid(0), x.load(ct::bid(0), [tile]));
}

/// Sums of each element and its neighbors.
fn stencil(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::arange(0..tile) + ct::bid(0) * tile;
    y.store(ct::bid(0), x.gather(at - 1) + x.load(ct::bid(0), [tile]) + x.gather(at + 1));
}

fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, columns: usize) {
    y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [1, columns]).softmax(1));
}

fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros([m, n]), |sum, step| {
        ct::mma(a.load((i, step), [m, k]), b.load((step, j), [k, n]), sum)
    });
    c.store((i, j), sum);
}

/// Rows of softmax(Q Kᵀ) V, with tiles of `m` queries and `n` keys of `d` elements.
fn attention([q, k, v]: [Array<f16, 2>; 3], y: ArrayMut<f32, 2>, [m, n, d]: [usize; 3]) {
    let queries = q.load((ct::bid(0), 0), [m, d]);
    let start = (ct::zeros([m, d]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (values, _, sum) = ct::fold(..k.num_tiles(0, [n, d]), start, |(values, most, sum), j| {
        let scores = ct::mma(queries, k.load((j, 0), [n, d]).transpose(), ct::zeros::<f32, 2>([m, n]));
        let next = most.max(scores.reduce_max(1));
        let (weights, decay) = ((scores - next).exp(), (most - next).exp());
        let values = ct::mma(weights.cast::<f16>(), v.load((j, 0), [n, d]), values * decay);
        (values, next, sum * decay + weights.sum(1))
    });
    y.store((ct::bid(0), 0), values / sum);
}

/// Each block adds to the sums under a lock.
fn locked(lock: ArrayMut<i32, 1>, sums: ArrayMut<f32, 1>, tile: usize) {
    let lock = lock.entry(0);
    ct::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
    sums.store(0, sums.load(0, [tile]) + 1.0);
    lock.atomic_xchg(0);
}

fn main() -> ct::Result<()> {
    let device = ct::Device::first()?;
    let (backend, n, edge, keys) = match device.backend() {
        ct::Backend::Cpu => (ct::Backend::Cpu, 1 << 10, 64, 64),
        // Code by Tile IR has no checks except that of red zones.
        _ => (ct::Backend::Ptx, 1 << 26, 4096, 4096),
    };
    let (tile, small, form) = (1 << 10, if edge > 64 { 128 } else { 32 }, [64, 64, 64]);
    let columns = edge;
    for name in ["", "bounds", "races", "memory", "unwritten"] {
        // The zones and the records belong to arrays that are allocated under the check.
        let with = |make: &dyn Fn() -> ct::Result<()>| match name {
            "memory" | "unwritten" => ct::with_memory_checks(make),
            _ => make(),
        };
        let checks: ct::Checks = name.parse().expect("a check");
        let run = || {
            let (x, mut y) = (device.full([n], 1.0f32)?, device.zeros([n])?);
            let (rows, mut result) = (device.full([edge, edge], 1.0f32)?, device.zeros([edge, edge])?);
            let (a, b) = (device.full([edge, edge], f16::ONE)?, device.full([edge, edge], f16::ONE)?);
            let [q, k, v] = [(); 3].map(|()| device.full([keys, 64], f16::ONE));
            let (q, k, v, mut out) = (q?, k?, v?, device.zeros([keys, 64])?);
            let (mut lock, mut sums) = (device.zeros([1])?, device.zeros([tile])?);
            let launch = |grid| ct::Launch::new(grid).backend(backend).checks(checks);
            let one = launch([n / tile, 1]);
            let times = [
                least(device, || one.launch(copy, (&x, &mut y, Constant(tile))))?,
                least(device, || one.launch(stencil, (&x, &mut y, Constant(tile))))?,
                least(device, || launch([edge, 1]).launch(softmax, (&rows, &mut result, Constant(columns))))?,
                least(device, || {
                    let shape = Constant([small, small, 64]);
                    launch([edge / small; 2]).launch(matmul, (&a, &b, &mut result, shape))
                })?,
                least(device, || launch([keys / 64, 1]).launch(attention, ([&q, &k, &v], &mut out, Constant(form))))?,
                least(device, || launch([100, 1]).launch(locked, (&mut lock, &mut sums, Constant(tile))))?,
            ];
            let times = times.map(|time| format!("{:8.3}", time.as_secs_f64() * 1e3));
            let title = if name.is_empty() { "none" } else { name };
            println!("checks: {title:10} copy, stencil, softmax, matmul, attention, lock in ms: {}", times.join(" "));
            Ok(())
        };
        with(&run)?;
    }
    Ok(())
}

/// Returns the least time of five launches, after one for the compilation.
fn least(device: ct::Device, mut launch: impl FnMut() -> ct::Result<()>) -> ct::Result<Duration> {
    let mut best = Duration::MAX;
    for warm in [true, false, false, false, false, false] {
        device.synchronize()?;
        let start = Instant::now();
        launch()?;
        device.synchronize()?;
        best = if warm { best } else { best.min(start.elapsed()) };
    }
    Ok(best)
}
