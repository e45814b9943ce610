//! Waits with a time limit: the code, and on a GPU the reports of dropped arrivals, of a flag that
//! is never set, and of a lock that is never released.

use crate::backend::HUNG;
use crate::backend::Hints;
use crate::backend::ptx::dropped_arrivals;
use crate::backend::ptx::ptxas_test::assemble;
use crate::error::Result;
use crate::launch::inspect::text::inspect;
use crate::launch::options::Launch;
use crate::prelude::*;
use crate::runtime::{ArraySpec, Backend, Device};
use crate::target::Target;
use crate::{bid, fold, mma, ones, zeros};

const LIMIT: Hints = Hints::new().wait_limit(200);

fn product(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>) {
    let (i, j) = (bid(0), bid(1));
    let sum = fold(crate::range(0, a.num_tiles(1, [128, 64])), zeros::<f32, 2>([128, 128]), |sum, k| {
        mma(a.load((i, k), [128, 64]), b.load((k, j), [64, 128]), sum)
    });
    c.store((i, j), sum.cast());
}

/// Waits for a flag that no tile block sets.
fn wait(flag: ArrayMut<i32, 1>) {
    let flag = flag.entry(0);
    crate::while_loop((), |()| flag.atomic_add(0).eq(0), |()| ());
}

/// Takes a lock twice.
fn lock(lock: ArrayMut<i32, 1>, x: ArrayMut<i32, 1>) {
    let lock = lock.entry(0);
    crate::for_each(0..2, |_| {
        crate::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
        x.store(0, ones([4]));
    });
}

/// Returns the PTX of the product for a Hopper GPU.
fn code(hints: Hints) -> Result<String> {
    let x = ArraySpec::<f16, 2>::new([1024, 1024]);
    inspect(product, (x, x, x.mutable())).target(Target::SM_90A).hints(hints).ptx()
}

#[test]
fn each_wait_of_a_product_has_the_limit() -> Result<()> {
    let (plain, limited) = (code(Hints::new())?, code(LIMIT)?);
    let waits = |text: &str, what: &str| text.matches(what).count();
    let tried = waits(&plain, "mbarrier.try_wait.parity");
    assert!(tried >= 2 && !plain.contains("%globaltimer"), "{tried} waits");
    // Each wait reads the time at its start and after each test.
    assert_eq!(waits(&limited, "%globaltimer"), 2 * tried, "{limited}");
    assert!(!limited.contains("mbarrier.try_wait.parity"), "{limited}");
    assemble(Target::SM_90A, &limited);
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
    let text = inspect(wait, (x.mutable(),)).hints(LIMIT).ptx()?;
    assert_eq!(text.matches("%globaltimer").count(), 2, "{text}");
    assemble(Target::SM_90A, &text);
    let count = |x: ArrayMut<i32, 1>| {
        let n = crate::while_loop(crate::scalar(0), |n| n.lt(x.load_scalar(0)), |n| n + 1);
        x.store_scalar(1, n);
    };
    assert!(!inspect(count, (x.mutable(),)).hints(LIMIT).ptx()?.contains("%globaltimer"));
    Ok(())
}

/// Returns the report of a launch that hangs.
#[track_caller]
fn report(device: Device, launched: Result<()>) -> String {
    let text = launched.and_then(|()| device.synchronize()).expect_err("a wait that does not end").to_string();
    assert!(text.contains(HUNG) && text.contains("did not end in 200 ms") && text.contains("in tile block"), "{text}");
    text
}

#[test]
fn flags_and_locks_are_named_on_a_gpu() -> Result<()> {
    let Ok(device) = Device::gpu(0) else { return Ok(()) };
    let launch = Launch::new(2).backend(Backend::Ptx).hints(LIMIT);
    let (mut flag, mut x) = (device.zeros([1])?, device.zeros([4])?);
    let text = report(device, launch.launch(wait, (&mut flag,)));
    assert!(text.contains("hang_tests.rs") && text.contains("a loop around this access"), "{text}");
    let text = report(device, launch.launch(lock, (&mut flag, &mut x)));
    assert!(text.contains("a loop around this access"), "{text}");
    // The context is usable.
    assert_eq!(x.to_vec()?, [1; 4]);
    Ok(())
}

#[test]
fn each_dropped_arrival_is_named_on_a_gpu() -> Result<()> {
    let arrivals = dropped_arrivals(None, || code(LIMIT)).1;
    assert!(arrivals >= 2, "{arrivals} arrivals");
    let Some(device) = Device::gpu(0).ok().filter(|device| device.target() == Some(Target::SM_90A)) else {
        return Ok(());
    };
    let (a, b) = (device.full([1024, 1024], f16::from_f32(1.0))?, device.full([1024, 1024], f16::from_f32(0.5))?);
    let mut c = device.zeros([1024, 1024])?;
    let launch = Launch::new([8, 8]).backend(Backend::Ptx);
    launch.hints(LIMIT).launch(product, (&a, &b, &mut c))?;
    assert!(c.to_vec()?.iter().all(|x| x.to_f32() == 512.0));
    let mut named = 0;
    for arrival in 0..arrivals {
        // A code limit of its own, so that the kernel is compiled again.
        let hints = LIMIT.code_limit(100_000 + arrival);
        let launched = dropped_arrivals(Some(arrival), || launch.hints(hints).launch(product, (&a, &b, &mut c))).0;
        let ended = launched.and_then(|()| device.synchronize());
        match ended {
            // No later wait needs the arrival.
            Ok(()) => assert!(c.to_vec()?.iter().all(|x| x.to_f32() == 512.0), "arrival {arrival}"),
            hung => {
                let text = report(device, hung);
                println!("arrival {arrival}: {text}");
                assert!(text.contains("mbarrier at byte"), "{text}");
                named += 1;
            }
        }
    }
    println!("{named} of {arrivals} dropped arrivals are named, the others change nothing");
    assert!(named >= 2, "{named} of {arrivals}");
    launch.hints(LIMIT).launch(product, (&a, &b, &mut c))?;
    device.synchronize()
}
