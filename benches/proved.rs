//! Effect of `Launch::proved`: `cargo bench --bench proved`. `-- --ptx DIR` writes the PTX of both
//! forms.
//!
//! For each kernel: the instructions and comparisons of the PTX for sm_90a with and without
//! needless bounds checks. Also the time of the proof, the host time of a launch, and on a GPU the
//! time of the kernel.

use std::time::Instant;

use cutlet as ct;
use cutlet::kernel::KernelArgs;
use cutlet::prelude::*;

/// Extents of the arrays on a GPU.
const LARGE: usize = 4096;

fn vadd(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let at = (ct::bid(0), ct::bid(1));
    y.store(at, x.load(at, [8, 256]) + y.load(at, [8, 256]));
}

/// Five points of an array with a border of one element.
fn stencil(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let moved = |down: i32, right: i32| x.load((ct::at(i * 8 + down), ct::at(j * 256 + right)), [8, 256]);
    y.store((i, j), moved(0, 1) + moved(2, 1) + moved(1, 0) + moved(1, 2) - moved(1, 1) * 4.0);
}

/// Nine taps along the rows of an array with a border of eight elements.
fn convolution(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let taps = (0..9).map(|tap| x.load((ct::at(i * 8), ct::at(j * 256 + tap)), [8, 256]) * (0.1 * (tap + 1) as f32));
    y.store((i, j), taps.reduce(|sum, tap| sum + tap).expect("nine taps"));
}

/// Rows in another order.
fn gather(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let rows = ((ct::arange(0..8) + i * 8) * 97 % 4096).reshape([8, 1]);
    let columns = (ct::arange(0..256) + j * 256).reshape([1, 256]);
    y.store((i, j), x.gather((rows, columns)));
}

/// Returns the instructions and the comparisons of PTX.
fn counts(ptx: &str) -> (usize, usize) {
    let is_code = |line: &&str| line.ends_with(';') && !line.trim_start().starts_with('.');
    let lines = || ptx.lines().filter(is_code);
    (lines().count(), lines().filter(|line| line.contains("setp")).count())
}

fn show<K, P>(name: &str, kernel: K, border: [usize; 2]) -> ct::Result<()>
where
    K: ct::kernel::Kernel<P> + Copy,
    for<'a> (&'a ct::DeviceArray<f32, 2>, &'a mut ct::DeviceArray<f32, 2>): KernelArgs<P>,
    (ct::ArraySpec<f32, 2>, ct::ArraySpecMut<f32, 2>): KernelArgs<P>,
{
    let grid = [LARGE / 8, LARGE / 256];
    let shape = [LARGE + border[0], LARGE + border[1]];
    let specs = (ct::ArraySpec::new(shape), ct::ArraySpec::new([LARGE; 2]).mutable());
    let checked = ct::inspect(kernel, specs).ptx()?;
    let traced = ct::inspect(kernel, specs);
    let start = Instant::now();
    let traced = traced.proved(grid)?;
    let proof = start.elapsed();
    let proved = traced.ptx()?;
    let ((all, compared), (fewer, left)) = (counts(&checked), counts(&proved));
    println!("{name}: {all} instructions, {compared} comparisons; proved {fewer}, {left}; proof {proof:.1?}");
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--ptx") {
        for (form, text) in [("checked", &checked), ("proved", &proved)] {
            std::fs::write(format!("{}/{name}.{form}.ptx", arguments[at + 1]), text).expect("a file");
        }
    }
    let device = ct::Device::first()?;
    let is_gpu = device != ct::Device::cpu();
    let (extent, repeats) = if is_gpu { (LARGE, 300) } else { (256, 20) };
    let grid = [extent / 8, extent / 256];
    let x = device.from_fn([extent + border[0], extent + border[1]], |[i, j]| ((i * 7 + j * 3) % 11) as f32)?;
    let mut results = Vec::new();
    for round in 0..2 {
        for proves in [false, true] {
            let launch = if proves { ct::Launch::new(grid).proved() } else { ct::Launch::new(grid) };
            let mut y = device.full([extent; 2], 1.0f32)?;
            let first = Instant::now();
            launch.launch(kernel, (&x, &mut y))?;
            device.synchronize()?;
            let first = first.elapsed();
            results.push(y.to_vec()?);
            let start = Instant::now();
            for _ in 0..repeats {
                launch.launch(kernel, (&x, &mut y))?;
            }
            let queued = start.elapsed() / repeats;
            device.synchronize()?;
            let whole = start.elapsed() / repeats;
            let form = if proves { "proved" } else { "checked" };
            println!("  {form:<8} round {round}: first {first:.1?}, queued in {queued:.2?}, executed in {whole:.2?}");
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{name}: other results");
    Ok(())
}

/// Host time of launches of one small tile block.
fn latency() -> ct::Result<()> {
    let device = ct::Device::first()?;
    let (x, mut y) = (device.zeros([8, 256])?, device.zeros([8, 256])?);
    for proves in [false, true, false, true] {
        let launch = if proves { ct::Launch::new([1, 1]).proved() } else { ct::Launch::new([1, 1]) };
        let mut least = f64::INFINITY;
        for _ in 0..20 {
            let start = Instant::now();
            for _ in 0..500 {
                launch.launch(vadd, (&x, &mut y))?;
            }
            least = least.min(start.elapsed().as_secs_f64() / 500.0);
            device.synchronize()?;
        }
        println!("launch, {}: {:.0} ns", if proves { "proved" } else { "checked" }, least * 1e9);
    }
    Ok(())
}

fn main() -> ct::Result<()> {
    show("vadd", vadd, [0, 0])?;
    show("stencil", stencil, [2, 2])?;
    show("convolution", convolution, [0, 8])?;
    show("gather", gather, [0, 0])?;
    latency()
}
