//! Clocks and the number of the multiprocessor: one execution for each read, equal in all threads,
//! on the cpu device, in PTX and on a GPU; refusals.

use crate::backend::Hints;
use crate::backend::ptx::ptxas_test::assemble;
use crate::error::Result;
use crate::launch::inspect::text::inspect;
use crate::launch::options::Launch;
use crate::prelude::*;
use crate::runtime::{ArraySpec, Backend, Device};
use crate::target::Target;
use crate::{bid, clock, fold, global_timer, multiprocessor, scalar};

/// Two reads without an operation between them, an unused read, and reads in a loop.
fn reads(x: ArrayMut<f32, 1>, out: ArrayMut<u64, 2>) {
    let (first, second) = (clock(), clock());
    let _ = global_timer();
    x.store(bid(0), x.load(bid(0), [1024]) + 1.0);
    let sum = fold(0..3, scalar(0u64), |sum, _| sum + global_timer());
    out.store_scalar((bid(0), 0), first);
    out.store_scalar((bid(0), 1), second);
    out.store_scalar((bid(0), 2), sum);
    out.store_scalar((bid(0), 3), multiprocessor().cast::<u64>());
}

/// Control flow by a time, which diverges if threads have different times.
fn branches(x: ArrayMut<f32, 1>, n: ArrayMut<i32, 1>) {
    let n_even = fold(0..64, scalar(0i32), |n, _| {
        let is_even = (clock() % 2).eq(0);
        crate::if_then(is_even, || x.store(bid(0), x.load(bid(0), [1024]) + x.load(bid(0), [1024]).sum(0)));
        n + is_even.cast::<i32>()
    });
    n.store_scalar(bid(0), n_even);
}

fn code(target: Target) -> Result<String> {
    let (x, out) = (ArraySpec::<f32, 1>::new([1 << 20]), ArraySpec::<u64, 2>::new([1024, 4]));
    inspect(reads, (x.mutable(), out.mutable())).target(target).ptx()
}

#[test]
fn each_read_is_executed_on_the_cpu() -> Result<()> {
    let device = Device::cpu();
    let (mut x, mut out) = (device.zeros([4096])?, device.zeros([4, 4])?);
    Launch::new(4).launch(reads, (&mut x, &mut out))?;
    for row in out.to_vec()?.chunks(4) {
        // Tile blocks run at the same time, so a difference may be larger than 1.
        assert!(row[0] > 0 && row[1] > row[0] && row[2] > 3 * row[1] && row[3] == 0, "{row:?}");
    }
    Ok(())
}

#[test]
fn each_read_is_one_instruction() -> Result<()> {
    for target in [Target::SM_80, Target::SM_90A] {
        let text = code(target)?;
        // ptxas unrolls the loop, if it does at all.
        let count = |what: &str| text.matches(what).count();
        assert_eq!([count("%clock64;"), count("%smid;")], [2, 1], "{text}");
        assert!([2, 4].contains(&count("%globaltimer;")), "{text}");
        // One thread reads, and the others load the time after a barrier.
        assert!(count("barrier.cta.sync") >= 4, "{text}");
        assemble(target, &text);
    }
    Ok(())
}

#[test]
fn tile_ir_and_deterministic_launches_refuse_them() -> Result<()> {
    let (x, out) = (ArraySpec::<f32, 1>::new([1 << 20]), ArraySpec::<u64, 2>::new([1024, 4]));
    let target = "sm_100".parse().expect("a target");
    let exported = crate::aot::export(reads, (x.mutable(), out.mutable()), target, crate::aot::Format::TileIr(None));
    let error = exported.expect_err("ops of no version").to_string();
    assert!(error.contains("`clock`") && error.contains("machine_tests.rs"), "{error}");

    let device = Device::cpu();
    let (mut x, mut out) = (device.zeros([4096])?, device.zeros([4, 4])?);
    let launch = Launch::new(4).hints(Hints::new().deterministic(true));
    let error = launch.launch(reads, (&mut x, &mut out)).unwrap_err().to_string();
    assert!(error.contains("`clock` returns the state of the machine"), "{error}");
    Ok(())
}

#[test]
fn times_on_a_gpu() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let launch = Launch::new(1024).backend(Backend::Ptx);
    let (mut x, mut out) = (device.zeros([1 << 20])?, device.zeros([1024, 4])?);
    launch.launch(reads, (&mut x, &mut out))?;
    let rows = out.to_vec()?;
    for row in rows.chunks(4) {
        let cycles = row[1] - row[0];
        assert!(row[0] > 0 && cycles > 0 && cycles < 1 << 24 && row[3] < 1024, "{row:?}");
    }
    let timers: Vec<u64> = rows.chunks(4).map(|row| row[2] / 3).collect();
    let (first, last) = (timers.iter().min().copied(), timers.iter().max().copied());
    assert!(last > first && last < first.map(|first| first + 10_000_000_000), "{first:?} to {last:?} ns");
    let mut numbers: Vec<u64> = rows.chunks(4).map(|row| row[3]).collect();
    numbers.sort_unstable();
    numbers.dedup();
    println!("{} multiprocessors, {} ns", numbers.len(), last.unwrap_or(0) - first.unwrap_or(0));
    assert!(numbers.len() > 1);

    let mut n = device.zeros([1024])?;
    launch.launch(branches, (&mut x, &mut n))?;
    assert!(n.to_vec()?.iter().all(|&n| (0..=64).contains(&n)));
    Ok(())
}
