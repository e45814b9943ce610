//! Planted races, and kernels without races, with the instrumented code of the ptx back end in the
//! interpreter. On a machine with a GPU, the same kernels run there.

use super::super::checks::Recorded;
use super::super::options::{CompileRequest, Launch};
use super::super::run::run;
use super::super::specialize::specialize;
use crate::backend::Hints;
use crate::backend::cpu::Checks;
use crate::error::Result;
use crate::kernel::{Arguments, Bound, Kernel, KernelArgs};
use crate::prelude::*;
use crate::runtime::{Backend, Device};
use crate::{AtomicOptions, LoadOptions, Scope, StoreOptions, arange, bid, for_each, full, if_else, if_then, ones};

/// Launches code of the ptx back end with the check of races on a device.
pub(super) fn recorded<K, A, P>(device: Device, kernel: K, grid: impl crate::IntoGrid, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    checked(device, Checks { races: true, ..Checks::none() }, kernel, grid, args)
}

/// Launches code of the ptx back end with checks on a device, and waits for its end.
pub(super) fn checked<K, A, P>(
    device: Device,
    checks: Checks,
    kernel: K,
    grid: impl crate::IntoGrid,
    args: A,
) -> Result<()>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    if device.as_gpu().is_some() {
        Launch::new(grid).checks(checks).backend(Backend::Ptx).launch(kernel, args)?;
        return device.synchronize();
    }
    let args = Arguments::new(args);
    let (hints, backend) = (Hints::default(), Backend::Ptx);
    let request = CompileRequest {
        hints,
        backend,
        programmatic_launch: false,
        checks: true,
        recorded: Recorded::by(checks),
        exact: false,
    };
    let slot = specialize(&Bound::new(&kernel, &args).call(), device, request, None)?;
    let grid = grid.into_grid().checked(backend)?.expect("a grid of tile blocks");
    run(&slot, None, grid, false, Checks::none(), args.given())
}

/// Returns the cpu device, and the first GPU if there is one.
pub(super) fn devices() -> Vec<Device> {
    std::iter::once(Device::cpu()).chain(Device::gpu(0)).collect()
}

/// Checks that a launch has a race at an element, with the lines of both accesses.
#[track_caller]
fn assert_race(result: Result<()>, what: &str, lines: [u32; 2]) {
    let text = result.expect_err("a race").to_string();
    let [this, other] = lines.map(|line| format!("{}:{line}:", file!()));
    assert!(text.contains(what) && text.starts_with(&this) && text.contains(&format!("at {other}")), "{text}");
}

#[test]
fn two_tile_blocks_that_store_one_element() -> Result<()> {
    for device in devices() {
        let mut y = device.zeros([100])?;
        let line = line!() + 1;
        let store = |y: ArrayMut<i32, 1>| y.store(bid(0) / 2, full::<i32, 1>([16], bid(0)));
        let text = "a race: this writes element 0 of an array of 100, which tile block (1, 0, 0) writes at ";
        let result = recorded(device, store, 4, (&mut y,));
        assert_race(result, text, [line; 2]);
        // Without a race, the results are those of the plain kernel.
        let store = |y: ArrayMut<i32, 1>| y.store(bid(0), full::<i32, 1>([16], bid(0)));
        recorded(device, store, 7, (&mut y,))?;
        assert!(y.to_vec()?.iter().enumerate().all(|(i, &value)| value == i as i32 / 16));
    }
    Ok(())
}

#[test]
fn a_tile_that_another_block_reads() -> Result<()> {
    for device in devices() {
        // Each block reads the element before its tile, which another block may have shifted.
        let mut x = device.from_fn([64], |[i]| i as i32)?;
        let line = line!() + 2;
        let shift = |x: ArrayMut<i32, 1>| {
            let before = x.gather(arange(0..16) + bid(0) * 16 - 1);
            x.store(bid(0), before);
        };
        let text = "a race: this reads element 15 of an array of 64, which tile block (0, 0, 0) writes at ";
        assert_race(recorded(device, shift, 4, (&mut x,)), text, [line, line + 1]);
    }
    Ok(())
}

#[test]
fn views_of_two_dimensions_with_edges_and_strides() -> Result<()> {
    for device in devices() {
        let mut x = device.zeros::<f32, 2>([37, 50])?;
        let tiles = |x: ArrayMut<f32, 2>| x.store((bid(0), bid(1)), x.load((bid(0), bid(1)), [8, 16]) + 1.0);
        recorded(device, tiles, [5, 4], (&mut x,))?;
        assert_eq!(x.to_vec()?, vec![1.0; 37 * 50]);
        // Tiles of 8 rows with a step of 7 rows.
        let line = line!() + 1;
        let overlap = |x: ArrayMut<f32, 2>| x.tiled([8, 64]).step([7, 64]).store((bid(0), 0), ones([8, 64]));
        let text = "a race: this writes element 350 of an array of 1850, which tile block (1, 0, 0) writes at ";
        assert_race(recorded(device, overlap, 5, (&mut x,)), text, [line; 2]);
    }
    Ok(())
}

#[test]
fn atomics_race_with_other_accesses_alone() -> Result<()> {
    for device in devices() {
        let (x, mut bins) = (device.from_fn([256], |[i]| i as i32 % 7)?, device.zeros([7])?);
        let count = |x: Array<i32, 1>, bins: ArrayMut<i32, 1>| {
            bins.atomic_add_with(x.load(bid(0), [64]), 1, AtomicOptions::new().relaxed(Scope::Device));
        };
        recorded(device, count, 4, (&x, &mut bins))?;
        assert_eq!(bins.to_vec()?.iter().sum::<i32>(), 256);
        let line = line!() + 3;
        let wrong = |x: Array<i32, 1>, bins: ArrayMut<i32, 1>| {
            let at = x.load(bid(0), [64]);
            bins.atomic_add_with(at, 1, AtomicOptions::new().relaxed(Scope::Device));
            if_then(bid(0).eq(1), || bins.store(0, full::<i32, 1>([8], 0)));
        };
        let text = "a race: this writes element 0 of an array of 7, which tile block (3, 0, 0) writes at ";
        assert_race(recorded(device, wrong, 4, (&x, &mut bins)), text, [line + 1, line]);
    }
    Ok(())
}

/// The second tile block waits for the number of the first one.
fn passed(x: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>, acquires: bool, releases: bool) {
    if_else(
        bid(0).eq(0),
        || {
            x.store(0, full::<i32, 1>([8], 7));
            let store = StoreOptions::new();
            let store = if releases { store.release(Scope::Device) } else { store.relaxed(Scope::Device) };
            flag.store_with(0, ones([1]), store);
        },
        || {
            let load = LoadOptions::new();
            let load = if acquires { load.acquire(Scope::Device) } else { load.relaxed(Scope::Device) };
            crate::while_loop((), |()| flag.load_with(0, [1], load.clone()).sum(0).eq(0), |()| ());
            x.store(1, x.load(0, [8]));
        },
    );
}

#[test]
fn flags_order_accesses_by_release_and_acquire() -> Result<()> {
    for device in devices() {
        let kernel = |acquires: bool, releases: bool| {
            let (mut x, mut flag) = (device.zeros([16])?, device.zeros([1])?);
            let constants = (crate::Constant(acquires), crate::Constant(releases));
            recorded(device, passed, 2, (&mut x, &mut flag, constants.0, constants.1))
        };
        kernel(true, true)?;
        for (acquires, releases) in [(false, true), (true, false), (false, false)] {
            let text = kernel(acquires, releases).expect_err("a flag without an order").to_string();
            let race = "a race: this reads element 0 of an array of 16, which tile block (0, 0, 0) writes at ";
            assert!(text.contains(race), "{text}");
        }
    }
    Ok(())
}

#[test]
fn loops_and_offsets_of_arrays() -> Result<()> {
    for device in devices() {
        let mut x = device.zeros::<i64, 1>([1000])?;
        let line = line!() + 3;
        let ring = |x: ArrayMut<i64, 1>| {
            for_each(0..3, |step| {
                x.store((bid(0) + step) % 9, full::<i64, 1>([100], step.cast::<i64>()));
            });
        };
        let text = "a race: this writes element 100 of an array of 1000, which tile block (1, 0, 0) writes at ";
        assert_race(recorded(device, ring, 4, (&mut x,)), text, [line; 2]);
        // Elements of a part have their numbers in the allocation.
        let (mut first, mut second) = x.split_at_mut(0, 500)?;
        let line = line!() + 2;
        let store = |first: ArrayMut<i64, 1>, second: ArrayMut<i64, 1>| {
            second.store(0, ones([50]));
            first.store(bid(0), ones([50]));
        };
        let text = "a race: this writes element 500 of an array of 1000, which tile block (9, 0, 0) writes at ";
        assert_race(recorded(device, store, 10, (&mut first, &mut second)), text, [line; 2]);
    }
    Ok(())
}
