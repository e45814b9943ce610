//! A sum of vectors under criterion: `cargo bench`, on a GPU where there is one.

use criterion::{Criterion, Throughput};
use cutlet as ct;
use cutlet::prelude::*;
use cutlet_criterion::{DeviceTime, device_time};

fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
    let i = ct::bid(0);
    c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
}

fn main() -> ct::Result<()> {
    let device = ct::Device::first()?;
    let stream = device.default_stream();
    let mut criterion = Criterion::default().with_measurement(DeviceTime::new(&stream)).configure_from_args();
    let n = if device == ct::Device::cpu() { 1 << 12 } else { 1 << 26 };
    let (a, b, mut c) = (device.full([n], 1.0f32)?, device.full([n], 2.0)?, device.zeros([n])?);
    let mut group = criterion.benchmark_group("vadd");
    group.throughput(Throughput::Bytes(12 * n as u64));
    for tile in [512, 1024, 4096] {
        let mut work = || ct::launch(vadd, n.div_ceil(tile), (&a, &b, &mut c, Constant(tile)));
        group.bench_function(format!("tile {tile}"), |b| b.iter(|| work().unwrap()));
        group.bench_function(format!("tile {tile}, queued at once"), |b| {
            b.iter_custom(|count| device_time(&stream, count, &mut work).unwrap())
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
