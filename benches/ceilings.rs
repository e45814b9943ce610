//! Ceilings of memory bandwidth: the rates of plain tile kernels, and those of scans and accesses
//! by index tiles: `cargo bench --bench ceilings`.
//!
//! Arrays of 1 GiB, every byte counted once: only read, only written, copied. Threads access 16
//! bytes at a time (`CUTLET_REMARKS=1` reports it). Without a GPU the same kernels run at a small
//! size on the cpu device, without figures.

use std::time::Duration;

use cutlet as ct;
use cutlet::prelude::*;

/// Timed repetitions, and launches of each.
const ROUNDS: usize = 15;
const LAUNCHES: usize = 10;

/// A block adds up one tile.
fn read(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    y.store_scalar(ct::bid(0), x.load(ct::bid(0), [tile]).sum(..).item());
}

/// Each block sums tiles at a distance of the number of blocks.
fn read_interleaved(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let all = ct::range(ct::bid(0), x.num_tiles(0, [tile])).step(ct::num_blocks(0));
    let sum = ct::fold(all, ct::zeros([tile]), |sum: Tile<f32, 1>, i| sum + x.load(i, [tile]));
    y.store_scalar(ct::bid(0), sum.sum(..).item());
}

fn write(y: ArrayMut<f32, 1>, tile: usize) {
    y.store(ct::bid(0), ct::full::<f32, 1>([tile], 2.0));
}

fn copy(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    y.store(ct::bid(0), x.load(ct::bid(0), [tile]));
}

fn gather(x: Array<f32, 1>, y: ArrayMut<f32, 1>, tile: usize) {
    let at = ct::bid(0) * tile + ct::arange(0..tile);
    y.scatter(at, x.gather(at));
}

fn prefix_sums(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let at = (ct::bid(0), 0);
    y.store(at, x.load(at, [1, tile]).cumsum(1));
}

/// The device and its measurements.
struct Bench {
    device: ct::Device,
    timed: bool,
}

impl Bench {
    /// Launches and prints the rate, if it is to be timed.
    fn row(&self, what: &str, bytes: usize, mut launch: impl FnMut() -> ct::Result<()>) -> ct::Result<()> {
        if !self.timed {
            return launch();
        }
        let stream = self.device.default_stream();
        let mut times = Vec::new();
        for round in 0..=ROUNDS {
            let start = stream.record()?;
            (0..LAUNCHES).try_for_each(|_| launch())?;
            let time: Duration = stream.record()?.since(&start)?;
            // The first repetition compiles and warms up.
            if round > 0 {
                times.push(time.as_secs_f64() / LAUNCHES as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!("{what:<32} median {:7.0} GB/s   best {:7.0} GB/s", rate(times[times.len() / 2]), rate(times[0]));
        Ok(())
    }
}

/// Checks the first and the last few numbers.
fn check(what: &str, array: &ct::DeviceArray<f32, 1>, count: usize, want: f32) -> ct::Result<()> {
    for range in [0..count.min(64), count.saturating_sub(64)..count] {
        let mut part = array.device().zeros([range.len()])?;
        part.copy_from_array(&array.slice(0, range)?)?;
        assert!(part.to_vec()?.iter().all(|&x| x == want), "{what}");
    }
    Ok(())
}

fn main() -> ct::Result<()> {
    let (device, n) = match ct::Device::gpu(0) {
        Ok(device) => (device, 1 << 28),
        Err(error) => {
            println!("skipped on a GPU: {error}; a small size on the cpu device");
            (ct::Device::cpu(), 1 << 16)
        }
    };
    let bench = Bench { device, timed: device.backend() != ct::Backend::Cpu };
    println!("{}: arrays of {} KiB", device.name(), (4 * n) >> 10);
    let x = device.full([n], 1f32)?;
    let mut y = device.zeros([n])?;
    for tile in [1024, 2048, 4096, 8192, 16384] {
        let (blocks, constant) = (n / tile, ct::Constant(tile));
        bench.row(&format!("read, tile {tile}"), 4 * n, || ct::launch(read, blocks, (&x, &mut y, constant)))?;
        check("sums of tiles", &y, blocks, tile as f32)?;
        for each in [4, 8] {
            let blocks = if bench.timed { device.num_multiprocessors() * each } else { 4 };
            let what = format!("read in turn, tile {tile}, {each} x");
            bench.row(&what, 4 * n, || ct::launch(read_interleaved, blocks, (&x, &mut y, constant)))?;
        }
        bench.row(&format!("write, tile {tile}"), 4 * n, || ct::launch(write, blocks, (&mut y, constant)))?;
        check("what was written", &y, n, 2.0)?;
        bench.row(&format!("copy, tile {tile}"), 8 * n, || ct::launch(copy, blocks, (&x, &mut y, constant)))?;
        check("what was copied", &y, n, 1.0)?;
        bench.row(&format!("gather and scatter, tile {tile}"), 8 * n, || {
            ct::launch(gather, blocks, (&x, &mut y, constant))
        })?;
        check("what was gathered", &y, n, 1.0)?;
    }
    for columns in [1024, 4096, 16384] {
        let (rows, constant) = (n / columns, ct::Constant(columns));
        let (from, mut to) = (x.reshape([rows, columns])?, y.view_mut().reshape([rows, columns])?);
        bench.row(&format!("prefix sums of rows of {columns}"), 8 * n, || {
            ct::launch(prefix_sums, rows, (&from, &mut to, constant))
        })?;
    }
    Ok(())
}
