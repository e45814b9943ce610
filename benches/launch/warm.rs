//! Host time of a warm launch, next to a bare `cuLaunchKernel` of the same kernel with the same
//! parameters.
//!
//! Both kinds of launch alternate in short batches, with a synchronisation between them outside of
//! the measured time. The queue of the stream then never fills, and the host never waits in a
//! launch. Without a GPU: on the cpu device, where the interpreter's start is part of it.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use cutlet as ct;
use cutlet::runtime::driver::Driver;

use super::{print, vadd};

const BATCH: usize = 200;
const BATCHES: usize = 200;
/// Kernels of a graph.
const IN_GRAPH: usize = 100;

/// Nanoseconds of one call, for a batch.
fn batch(mut call: impl FnMut() -> ct::Result<()>) -> ct::Result<f64> {
    let start = Instant::now();
    for _ in 0..BATCH {
        call()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / BATCH as f64)
}

/// Prints the times on a GPU.
pub fn on_a_gpu(device: ct::Device) -> ct::Result<()> {
    println!("{}: vadd, 3 arrays of rank 1 and a constant, {BATCHES} batches of {BATCH} launches", device.name());
    let (a, b) = (device.full([1024], 1.0f32)?, device.full([1024], 2.0f32)?);
    let mut c = device.zeros([1024])?;
    let tile = ct::Constant(1024);
    let stream = device.default_stream();

    let compiled = ct::compile(vadd, (&a, &b, &mut c, tile))?;
    let mut raw = compiled.raw((&a, &b, &mut c, tile))?.expect("a kernel of a GPU");
    let mut params: Vec<*mut c_void> = raw.params();
    let driver = Driver::get()?;
    let mut bare = || {
        // SAFETY: the parameters are those of the kernel, for arrays that outlive the measurement.
        unsafe {
            driver.launch_kernel(
                raw.function.cast(),
                1,
                1,
                1,
                raw.threads,
                1,
                1,
                raw.shared_bytes,
                stream.raw().cast(),
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    };

    let (mut bare_times, mut launch_times, mut compiled_times) = (Vec::new(), Vec::new(), Vec::new());
    let mut difference = Vec::new();
    for round in 0..BATCHES + 10 {
        stream.synchronize()?;
        let bare_time = batch(&mut bare)?;
        stream.synchronize()?;
        let launch_time = batch(|| ct::launch(vadd, 1, (&a, &b, &mut c, tile)))?;
        stream.synchronize()?;
        let compiled_time = batch(|| compiled.launch(1, (&a, &b, &mut c, tile)))?;
        // The first repetitions warm up.
        if round >= 10 {
            bare_times.push(bare_time);
            launch_times.push(launch_time);
            compiled_times.push(compiled_time);
            difference.push(launch_time - bare_time);
        }
    }
    let graph_times = in_graphs(device)?;
    print("bare cuLaunchKernel", &bare_times);
    print("ct::launch", &launch_times);
    print("CompiledKernel::launch", &compiled_times);
    print("ct::launch minus bare, batch by batch", &difference);
    print(&format!("Graph::replay of {IN_GRAPH} kernels, per kernel"), &graph_times);
    let want = c.to_vec()?;
    assert!(want.iter().all(|&x| x == 3.0), "the kernel ran");
    Ok(())
}

/// Host time of a replay, for each of the kernels in the graph: a few replays a batch, after each
/// of which the queue is empty.
fn in_graphs(device: ct::Device) -> ct::Result<Vec<f64>> {
    let state = (device.full([1024], 1.0f32)?, device.full([1024], 2.0f32)?, device.zeros([1024])?);
    let mut graph = ct::Graph::capture(state, |(a, b, c)| {
        (0..IN_GRAPH).try_for_each(|_| ct::launch(vadd, 1, (&*a, &*b, &mut *c, ct::Constant(1024))))
    })?;
    let mut times = Vec::new();
    for round in 0..BATCHES + 10 {
        device.synchronize()?;
        let start = Instant::now();
        (0..4).try_for_each(|_| graph.replay())?;
        if round >= 10 {
            times.push(start.elapsed().as_nanos() as f64 / (4 * IN_GRAPH) as f64);
        }
    }
    assert!(graph.into_state().2.to_vec()?.iter().all(|&x| x == 3.0), "the kernels ran");
    Ok(times)
}

/// Prints the times of a kernel of one block on the cpu device: key, look-up and parameters, and
/// the interpreter's start.
pub fn on_the_cpu() -> ct::Result<()> {
    fn nothing(_a: ct::Array<f32, 1>, _b: ct::Array<f32, 1>, _c: ct::ArrayMut<f32, 1>, _tile: usize) {}
    let device = ct::Device::cpu();
    let (a, b) = (device.full([1024], 1.0f32)?, device.full([1024], 2.0f32)?);
    let mut c = device.zeros([1024])?;
    let tile = ct::Constant(1024);
    let mut times = Vec::new();
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        times.push(batch(|| ct::launch(nothing, 1, (&a, &b, &mut c, tile)))?);
    }
    print("cpu device: ct::launch of an empty kernel", &times);
    Ok(())
}
