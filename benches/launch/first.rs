//! Host time of the first launch of a kernel, until its result is there, with nothing cached:
//! neither the driver's nor our files of machine code, and each in a process of its own. The device
//! is open and the arrays exist before the clock starts.
//!
//! A second process per kernel takes the parts: code generation (trace, passes, PTX), compiling,
//! and the launch. The time of compiling minus that of a repeated code generation is that of the
//! driver's assembler and loading.

use std::io;
use std::process::Command;
use std::time::Instant;

use cutlet as ct;
use cutlet::element::f16;
use cutlet::kernel::{Kernel, KernelArgs};

use super::{print, vadd};

const PROCESSES: usize = 5;
const ASKED: &str = "CUTLET_BENCH_FIRST";
const KERNELS: [&str; 2] = ["vadd f32, tile 1024", "matmul f16, tile 128x128x64"];
const PARTS: [&str; 4] = ["all of it", "code generation", "assembler and loading", "launch"];

/// Returns true in the processes that [`in_new_processes`] starts.
pub fn is_child() -> bool {
    std::env::var_os(ASKED).is_some()
}

fn matmul(a: ct::Array<f16, 2>, b: ct::Array<f16, 2>, c: ct::ArrayMut<f16, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc.cast::<f16>());
}

/// Measures the parts that the environment selects, and prints their nanoseconds as words.
pub fn of_this_process(device: ct::Device) -> ct::Result<()> {
    let asked = std::env::var(ASKED).unwrap_or_default();
    let whole = asked.ends_with("whole");
    if asked.starts_with(KERNELS[0]) {
        let (a, b) = (device.full([4096], 1.0f32)?, device.full([4096], 2.0f32)?);
        let mut c = [device.zeros([4096])?, device.zeros([4096])?, device.zeros([4096])?, device.zeros([4096])?];
        let args = c.each_mut().map(|c| (a.view(), b.view(), c.view_mut(), ct::Constant(1024)));
        measure(device, whole, vadd, 4, args)
    } else {
        let n = 512;
        let (a, b) = (device.full([n, n], f16::ONE)?, device.full([n, n], f16::ONE)?);
        let mut c = [device.zeros([n, n])?, device.zeros([n, n])?, device.zeros([n, n])?, device.zeros([n, n])?];
        let args = c.each_mut().map(|c| (a.view(), b.view(), c.view_mut(), ct::Constant([128, 128, 64])));
        measure(device, whole, matmul, [4, 4], args)
    }
}

/// `args`: the same arguments for each step, with arrays of their own for the results.
fn measure<K, A, P>(
    device: ct::Device,
    whole: bool,
    kernel: K,
    grid: impl Into<ct::Grid>,
    [first, second, third, fourth]: [A; 4],
) -> ct::Result<()>
where
    K: Kernel<P> + Copy,
    A: KernelArgs<P>,
{
    device.synchronize()?;
    let launch = |grid: ct::Grid, args: A| {
        ct::launch(kernel, grid, args)?;
        device.synchronize()
    };
    let grid = grid.into();
    if whole {
        println!("{}", nanoseconds(|| launch(grid, first))?);
        return Ok(());
    }
    let target = device.target().expect("a GPU has a target");
    let generated = nanoseconds(|| ct::inspect(kernel, first).target(target).ptx())?;
    let compiled = nanoseconds(|| ct::compile(kernel, second))?;
    let again = nanoseconds(|| ct::inspect(kernel, third).target(target).ptx())?;
    let launched = nanoseconds(|| launch(grid, fourth))?;
    println!("{generated} {} {launched}", compiled.saturating_sub(again));
    Ok(())
}

fn nanoseconds<T>(step: impl FnOnce() -> ct::Result<T>) -> ct::Result<u128> {
    let start = Instant::now();
    step()?;
    Ok(start.elapsed().as_nanos())
}

/// Prints the times of each kernel and its parts.
pub fn in_new_processes() -> ct::Result<()> {
    for kernel in KERNELS {
        let mut times = [const { Vec::new() }; PARTS.len()];
        for _ in 0..PROCESSES {
            let words = [child(kernel, "whole"), child(kernel, "parts")].concat();
            times.iter_mut().zip(words).for_each(|(times, word)| times.push(word));
        }
        for (part, times) in PARTS.iter().zip(&times) {
            match times[..] {
                [] => println!("first launch of {kernel}, {part}: not measured"),
                _ => print(&format!("first launch of {kernel}, {part}"), times),
            }
        }
    }
    Ok(())
}

/// The numbers that a new process prints; none when it fails.
fn child(kernel: &str, what: &str) -> Vec<f64> {
    let run = || -> io::Result<Vec<f64>> {
        let output = Command::new(std::env::current_exe()?)
            .env(ASKED, format!("{kernel} {what}"))
            .env("CUTLET_CACHE", "off")
            .env("CUDA_CACHE_DISABLE", "1")
            .output()?;
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
    };
    run().unwrap_or_default()
}
