//! Waits with a time limit: the code, and on a GPU the reports of dropped arrivals, of a flag that
//! is never set, and of a lock that is never released.

use crate::backend::Hints;
use crate::backend::ptx::ptxas_test::assemble;
use crate::backend::ptx::{Dropped, with_dropped};
use crate::error::{Awaited, Error, Hang, Result, WaitRole};
use crate::launch::inspect::text::inspect;
use crate::launch::options::Launch;
use crate::prelude::*;
use crate::runtime::{ArraySpec, Backend, Device};
use crate::target::Target;
use crate::{bid, fold, full, mma, ones, zeros};

/// Milliseconds of the limit.
const MILLISECONDS: u32 = 100;
const LIMIT: Hints = Hints::new().wait_limit(MILLISECONDS);

/// Extent of the square matrices.
const EXTENT: usize = 1536;

fn product_of<const ROWS: usize>(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
    let (i, j) = (bid(0), bid(1));
    let sum = fold(crate::range(0, a.num_tiles(1, [ROWS, 64])), zeros::<f32, 2>([ROWS, 128]), |sum, k| {
        mma(a.load((i, k), [ROWS, 64]), b.load((k, j), [64, 128]), sum)
    });
    c.store((i, j), sum.cast());
}

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
    product_of::<128>(a, b, c);
}

/// Two consumer groups compute tiles alternately (ping-pong).
fn product_in_pingpong(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [128, 128]));
    crate::for_each(crate::range(bid(0), rows * columns).step(crate::num_blocks(0)), |index| {
        let (i, j) = (index / columns, index % columns);
        let sum = fold(crate::range(0, a.num_tiles(1, [128, 64])), zeros::<f32, 2>([128, 128]), |sum, k| {
            mma(a.load((i, k), [128, 64]), b.load((k, j), [64, 128]), sum)
        });
        c.store((i, j), sum.cast());
    });
}

/// Three consumer groups have 64 rows each.
fn product_in_partitions(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
    product_of::<192>(a, b, c);
}

/// Exponentials between two dependent products: consumer groups execute them in order.
fn attention(q: Array<f16, 2>, k: Array<f16, 2>, out: ArrayMut<f16, 2>) {
    let queries = q.load((bid(0), 0), [128, 64]);
    let init = (full::<f32, 1>([128], f32::NEG_INFINITY), zeros::<f32, 1>([128]), zeros::<f32, 2>([128, 64]));
    let (_, sum, all) = fold(crate::range(0, k.num_tiles(1, [64, 128])), init, |(most, sum, all), j| {
        let (keys, values) = (k.load((0, j), [64, 128]), q.load((j, 1), [128, 64]));
        let scores = mma(queries, keys, zeros::<f32, 2>([128, 128]));
        let next = most.max(scores.reduce_max(1).reshape([128]));
        let weights = (scores - next.reshape([128, 1])).exp2();
        let factor = (most - next).exp2();
        let sum = sum * factor + weights.sum(1).reshape([128]);
        (next, sum, mma(weights.cast::<f16>(), values, all * factor.reshape([128, 1])))
    });
    out.store((bid(0), 0), (all / sum.reshape([128, 1])).cast());
}

/// Maxima of columns: the warps exchange theirs through shared memory.
fn columns(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let tile = x.load((0, bid(0)), [64, 64]);
    y.store((0, bid(0)), tile - tile.reduce_max(0));
}

/// Waits for a flag that no tile block sets.
fn wait(flag: ArrayMut<i32, 1>) {
    let flag = flag.entry(0);
    crate::while_loop((), |()| flag.atomic_add(0).eq(0), |()| ());
}

/// Acquires a lock twice.
fn lock(lock: ArrayMut<i32, 1>, x: ArrayMut<i32, 1>) {
    let lock = lock.entry(0);
    crate::for_each(0..2, |_| {
        crate::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
        x.store(0, ones([4]));
    });
}

/// Returns the PTX of a kernel of two inputs and one output for a Hopper GPU.
fn code_of(kernel: impl Fn(Array<f16, 2>, Array<f16, 2>, ArrayMut<f16, 2>), hints: Hints) -> Result<String> {
    let x = ArraySpec::<f16, 2>::new([EXTENT, EXTENT]);
    inspect(kernel, (x, x, x.mutable())).target(Target::SM_90A).hints(hints).ptx()
}

fn code(hints: Hints) -> Result<String> {
    code_of(product, hints)
}

#[test]
fn each_wait_of_a_product_has_the_limit() -> Result<()> {
    let (plain, limited) = (code(Hints::new())?, code(LIMIT)?);
    let waits = |text: &str, what: &str| text.matches(what).count();
    let tried = waits(&plain, "mbarrier.try_wait.parity");
    let synced = waits(&plain, "barrier.cta.sync") - 1;
    assert!(tried >= 2 && !plain.contains("%globaltimer"), "{tried} waits");
    // Each wait reads the time at its start and after each test.
    assert_eq!(waits(&limited, "%globaltimer"), 2 * (tried + synced), "{limited}");
    assert!(!limited.contains("mbarrier.try_wait.parity"), "{limited}");
    // The barrier after the initialization of the mbarriers.
    assert_eq!(waits(&limited, "barrier.cta.sync"), 1, "{limited}");
    assemble(Target::SM_90A, &limited);
    Ok(())
}

#[test]
fn named_barriers_have_the_limit() -> Result<()> {
    let x = ArraySpec::<f32, 2>::new([64, 1024]);
    for target in [Target::SM_80, Target::SM_90A] {
        let of = |hints| inspect(columns, (x, x.mutable())).target(target).hints(hints).ptx();
        let (plain, limited) = (of(Hints::new())?, of(LIMIT)?);
        assert!(plain.contains("barrier.cta.sync") && !plain.contains("mbarrier"), "{plain}");
        let waits = plain.matches("barrier.cta.sync").count();
        assert_eq!(limited.matches("barrier.cta.sync").count(), 1, "{limited}");
        assert_eq!(limited.matches("mbarrier.test_wait.shared::cta.b64").count(), waits, "{limited}");
        assemble(target, &limited);
    }
    let plain = code_of(attention, Hints::new().num_warps(8))?;
    assert!(plain.contains("barrier.cta.arrive"), "the order of exponentials: {plain}");
    let x = ArraySpec::<f16, 2>::new([EXTENT, EXTENT]);
    let in_pingpong = inspect(product_in_pingpong, (x, x, x.mutable())).hints(LIMIT.num_warps(4));
    let schedule = in_pingpong.schedule()?;
    assert!(schedule.contains("order_wait pipeline") && schedule.contains("order_arrive side_effects"), "{schedule}");
    let all = [code_of(attention, LIMIT.num_warps(8))?, code_of(product_in_partitions, LIMIT)?, in_pingpong.ptx()?];
    for limited in all {
        assert!(!limited.contains("barrier.cta.arrive"), "{limited}");
        assert_eq!(limited.matches("barrier.cta.sync").count(), 1, "{limited}");
        assemble(Target::SM_90A, &limited);
    }
    Ok(())
}

#[test]
fn a_product_with_a_record_of_its_accesses_is_assembled() -> Result<()> {
    let x = ArraySpec::<f16, 2>::new([1024, 1024]);
    let races = crate::Checks { races: true, ..crate::Checks::none() };
    let text = inspect(product, (x, x, x.mutable())).target(Target::SM_90A).checks(races).ptx()?;
    assert!(text.contains("wgmma") && text.contains("red.relaxed.gpu.global.max.s64"), "{text}");
    assemble(Target::SM_90A, &text);
    Ok(())
}

#[test]
fn loops_that_wait_for_tile_blocks_have_the_limit() -> Result<()> {
    let x = ArraySpec::<i32, 1>::new([1024]);
    let plain = inspect(wait, (x.mutable(),)).ptx()?;
    let text = inspect(wait, (x.mutable(),)).hints(LIMIT).ptx()?;
    let waits = 1 + plain.matches("barrier.cta.sync").count();
    assert_eq!(text.matches("%globaltimer").count(), 2 * waits, "{text}");
    assemble(Target::SM_90A, &text);
    let count = |x: ArrayMut<i32, 1>| {
        let n = crate::while_loop(crate::scalar(0), |n| n.lt(x.load_scalar(0)), |n| n + 1);
        x.store_scalar(1, n);
    };
    let (plain, text) = (inspect(count, (x.mutable(),)), inspect(count, (x.mutable(),)).hints(LIMIT));
    let waits = plain.ptx()?.matches("barrier.cta.sync").count();
    assert_eq!(text.ptx()?.matches("%globaltimer").count(), 2 * waits);
    Ok(())
}

/// Returns the waits of a launch that hangs.
#[track_caller]
fn hang(device: Device, launched: Result<()>) -> Hang {
    let ended = launched.and_then(|()| device.synchronize());
    let Err(Error::Hung(hang)) = ended else { panic!("a wait that does not end: {ended:?}") };
    let text = Error::Hung(hang.clone()).to_string();
    let limit = format!("did not end in {MILLISECONDS} ms");
    assert!(text.contains("a wait that does not end: ") && text.contains(&limit), "{text}");
    assert!(text.contains("in tile block (") && hang.limit.as_millis() == u128::from(MILLISECONDS), "{text}");
    hang
}

/// Returns a GPU for which the kernels of this file have roles.
fn hopper() -> Option<Device> {
    Device::gpu(0).ok().filter(|device| device.target() == Some(Target::SM_90A))
}

#[test]
fn flags_and_locks_are_named_on_a_gpu() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let launch = Launch::new(2).backend(Backend::Ptx).hints(LIMIT);
    let (mut flag, mut x) = (device.zeros([1])?, device.zeros([4])?);
    let waiting = hang(device, launch.launch(wait, (&mut flag,)));
    assert_eq!((&*waiting.kernel, waiting.waits[0].awaited), ("wait", Awaited::Memory));
    let place = waiting.waits[0].location.as_ref().expect("a place");
    assert!(place.file.ends_with("hang_tests.rs"), "{place}");
    // The other tile block waits, too.
    assert_eq!(waiting.waits.len(), 2, "{waiting}");
    let locked = hang(device, launch.launch(lock, (&mut flag, &mut x)));
    assert!(locked.to_string().contains("a loop around this access"), "{locked}");
    // The context is usable.
    assert_eq!(x.to_vec()?, [1; 4]);
    Ok(())
}

/// Launches a kernel without each of its arrivals. Returns the number of arrivals, and the hangs.
fn without_each_arrival(
    device: Device,
    kernel: impl Fn(Array<f16, 2>, Array<f16, 2>, ArrayMut<f16, 2>) + Copy + 'static,
    (grid, hints): ([i32; 2], Hints),
) -> Result<(u32, Vec<Hang>)> {
    let inputs = [0.5, 0.25].map(|x| device.full([EXTENT, EXTENT], f16::from_f32(x)));
    let [a, b] = inputs;
    let (a, b, mut c) = (a?, b?, device.zeros::<f16, 2>([EXTENT, EXTENT])?);
    let launch = Launch::new(grid).backend(Backend::Ptx);
    let (launched, counts) = with_dropped(None, || launch.hints(hints).launch(kernel, (&a, &b, &mut c)));
    launched.and_then(|()| device.synchronize())?;
    let want = c.to_vec()?;
    assert!(want[0].to_f32() != 0.0);
    let mut hangs = Vec::new();
    for arrival in 0..counts[0] {
        // A code limit of its own, so that the kernel is compiled again.
        let hints = hints.code_limit(200_000 + arrival);
        let run = || launch.hints(hints).launch(kernel, (&a, &b, &mut c));
        match with_dropped(Some(Dropped::Arrival(arrival)), run).0.and_then(|()| device.synchronize()) {
            // No later wait needs the arrival.
            Ok(()) => assert!(c.to_vec()? == want, "arrival {arrival}"),
            hung => {
                let hang = hang(device, hung);
                println!("arrival {arrival} of {}: {hang}", counts[0]);
                hangs.push(hang);
            }
        }
    }
    // The context is usable.
    launch.hints(hints).launch(kernel, (&a, &b, &mut c))?;
    assert!(c.to_vec()? == want);
    Ok((counts[0], hangs))
}

/// Returns the number of hangs in which a wait has this property.
fn with(hangs: &[Hang], is_it: impl Fn(&crate::StuckWait) -> bool) -> usize {
    hangs.iter().filter(|hang| hang.waits.iter().any(&is_it)).count()
}

#[test]
fn each_dropped_arrival_is_named_on_a_gpu() -> Result<()> {
    let arrivals = with_dropped(None, || code(LIMIT)).1[0];
    assert!(arrivals >= 2, "{arrivals} arrivals");
    let Some(device) = hopper() else { return Ok(()) };
    let tiles = (EXTENT / 128) as i32;
    let (arrivals, hangs) = without_each_arrival(device, product, ([tiles, tiles], LIMIT))?;
    println!("{} of {arrivals} dropped arrivals are named, the others change nothing", hangs.len());
    // The producer and the consumers are both stuck, at barriers of both kinds.
    assert!(with(&hangs, |wait| wait.role == WaitRole::Producer) >= 1, "{hangs:?}");
    assert!(with(&hangs, |wait| wait.role == WaitRole::Consumer) >= 2, "{hangs:?}");
    assert!(hangs.iter().any(|hang| hang.waits.len() > 1), "both sides of a deadlock: {hangs:?}");
    Ok(())
}

#[test]
fn each_dropped_arrival_of_an_order_is_named_on_a_gpu() -> Result<()> {
    let Some(device) = hopper() else { return Ok(()) };
    let of_attention = without_each_arrival(device, attention, ([EXTENT as i32 / 128, 1], LIMIT.num_warps(8)))?;
    let tiles = EXTENT as i32 / 128;
    let of_partitions = without_each_arrival(device, product_in_partitions, ([tiles * 2 / 3, tiles], LIMIT))?;
    let of_pingpong = without_each_arrival(device, product_in_pingpong, ([16, 1], LIMIT.num_warps(4)))?;
    let all = [("attention", &of_attention), ("partitions", &of_partitions), ("ping-pong", &of_pingpong)];
    for (name, (arrivals, hangs)) in all {
        println!("{name}: {} of {arrivals} dropped arrivals are named, the others change nothing", hangs.len());
        assert!(hangs.len() >= 2 && hangs.len() as u32 + 3 >= *arrivals, "{name}: {hangs:?}");
    }
    let is_named = |wait: &crate::StuckWait| matches!(wait.awaited, Awaited::NamedBarrier { .. });
    assert!(with(&of_attention.1, is_named) >= 2, "{:?}", of_attention.1);
    let is_order_wait = |wait: &crate::StuckWait| wait.step.contains("order wait of a ping-pong group");
    assert!(with(&of_pingpong.1, is_order_wait) >= 1, "{:?}", of_pingpong.1);
    Ok(())
}

#[test]
fn each_dropped_arrival_of_a_cluster_is_named_on_a_gpu() -> Result<()> {
    let Some(device) = hopper() else { return Ok(()) };
    let tiles = EXTENT as i32 / 128;
    let (arrivals, hangs) = without_each_arrival(device, product, ([tiles, tiles], LIMIT.num_ctas(2)))?;
    println!("{} of {arrivals} dropped arrivals are named, the others change nothing", hangs.len());
    assert!(hangs.len() >= 2, "{hangs:?}");
    Ok(())
}

#[test]
fn each_missing_warp_at_a_barrier_is_named_on_a_gpu() -> Result<()> {
    let x = ArraySpec::<f32, 2>::new([64, 1024]);
    let syncs = with_dropped(None, || inspect(columns, (x, x.mutable())).hints(LIMIT).ptx()).1[1];
    assert!(syncs >= 1, "{syncs} barriers");
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let launch = Launch::new(16).backend(Backend::Ptx);
    let x = device.from_fn([64, 1024], |[i, j]| ((i * 7 + j) % 31) as f32)?;
    let mut y = device.zeros::<f32, 2>([64, 1024])?;
    launch.hints(LIMIT).launch(columns, (&x, &mut y))?;
    let want = y.to_vec()?;
    for sync in 0..syncs {
        let hints = LIMIT.code_limit(200_000 + sync);
        let run = || launch.hints(hints).launch(columns, (&x, &mut y));
        let hang = hang(device, with_dropped(Some(Dropped::Sync(sync)), run).0);
        println!("barrier {sync} of {syncs}: {hang}");
        assert!(hang.waits.iter().all(|wait| wait.awaited == Awaited::NamedBarrier { number: 0 }), "{hang}");
        let place = hang.waits[0].location.as_ref().expect("a place");
        assert!(place.file.ends_with("hang_tests.rs"), "{hang}");
    }
    launch.hints(LIMIT).launch(columns, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, want);
    Ok(())
}
