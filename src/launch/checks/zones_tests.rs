//! Tests of red zones and poison: changed zones with the stores that may have done it, at launches
//! and at replays of graphs.

use super::super::options::Launch;
use super::Recorded;
use super::tests::{checked, devices};
use crate::backend::cpu::Checks;
use crate::error::Result;
use crate::kernel::{Arguments, Kernel, KernelArgs, trace_kernel};
use crate::pass::unchecked_stores;
use crate::prelude::*;
use crate::runtime::{Backend, Device, Graph};
use crate::{Ptr, RawPtr, ScatterOptions, StoreOptions, arange, bid, ones, scratch};

/// Stores without a bounds check.
fn beyond(options: StoreOptions) -> StoreOptions {
    // SAFETY: the tests launch whole tiles.
    unsafe { options.check_bounds(false) }
}

/// The interpreter permits no access outside, so the host makes the mistakes of a kernel.
#[test]
fn a_changed_zone_names_the_stores_that_may_have_done_it() -> Result<()> {
    let safe = |x: Array<u8, 1>, y: ArrayMut<f32, 1>| {
        let x = x.load(0, [32]);
        y.store(0, x.cast());
        y.scatter(arange(0..32), x.cast());
    };
    let line = line!() + 2;
    let unsafe_ = |x: ArrayMut<u8, 1>, y: ArrayMut<f32, 1>| {
        x.store_with(0, ones([4]), beyond(StoreOptions::new()));
        y.store_with(0, ones([8]), beyond(StoreOptions::new()));
        y.store(0, ones([32]));
    };
    for device in devices() {
        let (mut x, mut y) = crate::with_memory_checks(|| Ok((device.full([100], 1u8)?, device.unspecified([25])?)))?;
        for (offset, text) in [
            (-4, "array argument 1, an allocation of 100 bytes: the first one at offset -4, 4 bytes before its first"),
            (100, "array argument 1, an allocation of 100 bytes: the first one at offset 100, 0 bytes behind its last"),
        ] {
            crate::launch(safe, 1, (&x, &mut y))?;
            assert_eq!(y.to_vec()?, [1.0; 25]);
            // SAFETY: a part of a zone.
            unsafe { y.memory.damage(offset, &[0; 4]) }?;
            let at = line!() + 1;
            let said = crate::launch(safe, 1, (&x, &mut y)).expect_err("a changed zone").to_string();
            assert!(said.starts_with(&format!("{}:{at}:", file!())) && said.contains(text), "{said}");
            assert!(
                said.contains(" wrote 4 bytes outside of ") && said.contains(": earlier work than kernel `"),
                "{said}"
            );
            crate::launch(unsafe_, 1, (&mut x, &mut y))?;
            // SAFETY: as above.
            unsafe { y.memory.damage(offset, &[0; 4]) }?;
            let said = crate::launch(unsafe_, 1, (&mut x, &mut y)).expect_err("a changed zone").to_string();
            assert!(said.contains(text) && said.contains("` wrote 4 bytes outside of "), "{said}");
            let own = said.find(&format!("{}:{}:", file!(), line + 1)).expect("the store of `y`");
            let other = said.find(&format!("{}:{line}:", file!())).expect("the store of `x`");
            assert!(own < other && said[own..other].contains(": to this array"), "{said}");
            assert!(said[other..].contains(": to array argument 0"), "{said}");
            assert!(!said.contains(&format!("{}:{}:", file!(), line + 2)), "{said}");
        }
        crate::launch(safe, 1, (&x, &mut y))?;
    }
    Ok(())
}

/// Returns the parameters of the unchecked stores of a kernel, in program order.
fn params_of<K, A, P>(kernel: K, args: A) -> Vec<Option<usize>>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    let module = trace_kernel("kernel", &kernel, &Arguments::new(args)).expect("a trace");
    unchecked_stores(&module).into_iter().map(|store| store.param).collect()
}

#[test]
fn stores_and_atomics_without_a_check_are_found() -> Result<()> {
    let device = Device::cpu();
    let (mut x, mut y) = (device.zeros::<i32, 2>([8, 8])?, device.zeros::<i32, 1>([64])?);
    let checked = |x: ArrayMut<i32, 2>, y: ArrayMut<i32, 1>| {
        let at = arange(0..8);
        x.store((bid(0), 0), ones([2, 8]));
        x.scatter((at, 3), at);
        x.atomic_add((at, at), at);
        y.scatter_with(at, at, ScatterOptions::new().mask(at.gt(3)));
        y.atomic_store_add(0, ones([8]));
        let own = scratch::<i32, 1>([8]);
        own.store(0, at);
    };
    assert_eq!(params_of(checked, (&mut x, &mut y)), []);
    let unchecked = |x: ArrayMut<i32, 2>, y: ArrayMut<i32, 1>| {
        let at = arange(0..8);
        x.store_with((bid(0), 0), ones([2, 8]), beyond(StoreOptions::new()));
        // SAFETY: nothing is launched.
        let options = unsafe { ScatterOptions::new().check_bounds(false) };
        y.scatter_with(at, at, options.mask(at.gt(3)));
    };
    assert_eq!(params_of(unchecked, (&mut x, &mut y)), [Some(0), Some(5)]);
    let assumed = |x: ArrayMut<i32, 2>, n: Scalar<i32>| {
        // SAFETY: nothing is launched.
        let n = unsafe { n.assume_bounds(0..4) };
        x.store((n, 0), ones([2, 8]));
    };
    assert_eq!(params_of(assumed, (&mut x, 3)), [Some(0)]);
    let by_address = |p: Ptr<i32>, y: ArrayMut<i32, 1>| {
        // SAFETY: nothing is launched.
        unsafe { p.offset(3).store(7) };
        y.store(0, ones([8]));
    };
    // The pointer is a number of the launch, and no array of it.
    assert_eq!(params_of(by_address, (RawPtr::<i32>::new(4096), &mut y)), [None]);
    Ok(())
}

#[test]
fn a_replay_of_a_graph_compares_the_zones_of_its_arrays() -> Result<()> {
    for device in devices() {
        let state =
            crate::with_memory_checks(|| Ok::<_, crate::Error>((device.zeros::<i32, 1>([8])?, device.zeros([9])?)))?;
        let fill = |x: ArrayMut<i32, 1>| x.store(0, ones([16]));
        let mut graph = Graph::capture(state, |(x, y)| {
            crate::launch(fill, 1, (&mut *x,))?;
            crate::launch(fill, 1, (&mut *y,))
        })?;
        graph.replay()?;
        // SAFETY: a part of a zone.
        unsafe { graph.state().1.memory.damage(36, &[0; 8]) }?;
        let line = line!() + 1;
        let said = graph.replay().expect_err("a changed zone").to_string();
        let text =
            "wrote 8 bytes outside of array 1 of its state, an allocation of 36 bytes: the first one at offset 36";
        assert!(said.starts_with(&format!("{}:{line}:", file!())) && said.contains(text), "{said}");
        graph.replay()?;
        assert_eq!(graph.state().1.to_vec()?, [1; 9]);
    }
    Ok(())
}

#[test]
fn checks_that_wait_are_refused_in_a_graph() {
    let needed = Recorded { races: true, writes: true };
    let launch = Launch::new(1).checks(Checks::all());
    let said = launch.record_in_graph(needed).expect_err("no end of a launch").to_string();
    assert!(said.contains("no check of `races` and `unwritten` for a launch in a recorded graph"), "{said}");
    // Those of the environment are left out, with a warning.
    assert!(matches!(Launch::new(1).record_in_graph(needed), Ok(Recorded::NONE)));
}

#[test]
fn a_gpu_refuses_checks_that_wait_in_a_graph() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let fill = |x: ArrayMut<i32, 1>| x.store(0, ones([16]));
    let races = Checks { races: true, ..Checks::none() };
    let launch = Launch::new(1).checks(races).backend(Backend::Ptx);
    let captured = Graph::capture(device.zeros([8])?, |x| launch.launch(fill, (x,)));
    let said = captured.expect_err("no end of a launch").to_string();
    assert!(said.contains("no check of `races` for a launch in a recorded graph"), "{said}");
    Ok(())
}

#[test]
fn exchanges_within_clusters_are_reported_as_not_compared() -> Result<()> {
    let recording = |exchanges: bool| -> Result<_> {
        let kernel = move |x: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>| {
            let cluster = crate::cluster(2);
            let tile = x.load(bid(0), [16]);
            x.store(bid(0), if exchanges { cluster.peer(tile, cluster.rank() + 1) } else { tile });
            flag.atomic_store_add(0, ones([1]));
        };
        let (mut x, mut flag) = (Device::cpu().zeros([64])?, Device::cpu().zeros([1])?);
        let mut module = trace_kernel("kernel", &kernel, &Arguments::new((&mut x, &mut flag)))?;
        crate::pass::assume_to_assert(&mut module);
        crate::pass::record_accesses(&mut module);
        Ok(module.recording.is_some_and(|recording| recording.is_unlogged))
    };
    assert!(recording(true)? && !recording(false)?);
    let (mut x, mut flag) = (Device::cpu().zeros([64])?, Device::cpu().zeros([1])?);
    let kernel = |x: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>| {
        let cluster = crate::cluster(2);
        x.store(bid(0), cluster.peer(x.load(bid(0), [16]), cluster.rank() + 1));
        flag.atomic_store_add(0, ones([1]));
    };
    checked(Device::cpu(), Checks { races: true, ..Checks::none() }, kernel, 4, (&mut x, &mut flag))
}

#[test]
fn fresh_memory_is_poisoned() -> Result<()> {
    for device in devices() {
        crate::with_memory_checks(|| {
            assert!(device.unspecified::<f32, 1>([100])?.to_vec()?.iter().all(|x| x.is_nan()));
            assert!(device.unspecified::<f64, 2>([3, 5])?.to_vec()?.iter().all(|x| x.is_nan()));
            assert!(device.unspecified::<f16, 1>([33])?.to_vec()?.iter().all(|x| x.is_nan()));
            assert_eq!(device.unspecified::<i32, 1>([3])?.to_vec()?, [0x7FFF_7FFF; 3]);
            assert_eq!(device.unspecified::<u8, 1>([3])?.to_vec()?, [0xFF, 0x7F, 0xFF]);
            assert_eq!(device.unspecified::<bool, 1>([0])?.to_vec()?, [false; 0]);
            assert_eq!(device.zeros::<i32, 1>([3])?.to_vec()?, [0; 3]);
            Ok::<(), crate::Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn stores_of_a_gpu_kernel_outside_of_an_array_are_found() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let mut y = crate::with_memory_checks(|| device.zeros::<i32, 1>([100]))?;
    let beyond = |y: ArrayMut<i32, 1>| {
        // SAFETY: the zone after the array belongs to the allocation.
        y.store_with(3, ones([32]), unsafe { StoreOptions::new().check_bounds(false) });
    };
    let text = crate::launch(beyond, 1, (&mut y,)).expect_err("a changed zone").to_string();
    assert!(text.contains("wrote 112 bytes outside of array argument 0, an allocation of 400 bytes"), "{text}");
    crate::launch(|y: ArrayMut<i32, 1>| y.store(0, ones([128])), 1, (&mut y,))
}
