//! Promises that code checks on request: kept ones change nothing, a broken one is the error of the
//! next wait.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::kernel::{Kernel, KernelArgs};
use cutlet::prelude::*;

use crate::harness::{Session, Suite};
use crate::ptxas;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.alone("assumptions/views", views);
    suite.alone("assumptions/pointers", pointers);
    suite.alone("assumptions/numbers", numbers);
}

/// The error of a launch that checks promises; `None` where nothing runs. Code is assembled.
fn checked<K, A, P>(session: Session, kernel: K, args: A) -> Result<Option<String>>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    let checks = ct::Checks { bounds: true, ..ct::Checks::none() };
    match session {
        Session::Run(device) => {
            let result = ct::Launch::new(1).checks(checks).launch(kernel, args).and_then(|()| device.synchronize());
            Ok(Some(result.err().map_or_else(String::new, |error| error.to_string())))
        }
        Session::Assemble(target, demand) => {
            let code = ct::inspect(kernel, args).target(target).checks(checks);
            ptxas::assemble(&code.ptx()?, &target.to_string(), demand)?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// A kernel that keeps its promises for 16 and breaks one for 97; the message where the back end
/// has no words of its own.
fn tried<K, P>(session: Session, kernel: K, want: &str) -> Result<()>
where
    K: Kernel<P> + Copy,
    for<'a> (&'a ct::DeviceArray<i32, 1>, &'a mut ct::DeviceArray<i32, 1>, i32): KernelArgs<P>,
{
    let device = session.device();
    let (x, mut y) = (device.from_fn([128], |[i]| i as i32)?, device.zeros([128])?);
    if let Some(said) = checked(session, kernel, (&x, &mut y, 16))? {
        ensure!(said.is_empty(), "promises that are kept: {said}");
    }
    if let Some(said) = checked(session, kernel, (&x, &mut y, 97))? {
        let on_cpu = device.backend() == ct::Backend::Cpu;
        ensure!(!said.is_empty() && (on_cpu || said.contains(&format!("violated assumption: {want}"))), "{said}");
    }
    Ok(())
}

// SAFETY (all): code that checks promises relies on none.

fn views(session: Session) -> Result<()> {
    let loads = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
        y.store(0, x.load_with(i / 8, [32], unsafe { ct::LoadOptions::new().check_bounds(false) }));
    };
    tried(session, loads, "tile index 12 is outside of an extent of 128, in tiles of 32")?;
    let stores = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
        y.store_with(i / 8, x.load(0, [32]), unsafe { ct::StoreOptions::new().check_bounds(false) });
    };
    tried(session, stores, "tile index 12 is outside of an extent of 128, in tiles of 32")
}

fn pointers(session: Session) -> Result<()> {
    let gathers = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
        let options = unsafe { ct::GatherOptions::new().check_bounds(false) };
        y.store(0, x.gather_with(ct::arange(0..32) + i, options));
    };
    tried(session, gathers, "element 128 is outside of an array whose last element is 127 (element [31])")?;
    let scatters = |_: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i32>| {
        let options = unsafe { ct::ScatterOptions::new().check_bounds(false) };
        y.scatter_with(ct::arange(0..32) + i, ct::ones([32]), options);
    };
    tried(session, scatters, "element 128 is outside of an array whose last element is 127 (element [31])")
}

fn numbers(session: Session) -> Result<()> {
    let bounds = |_: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i32>| {
        y.store_scalar(0, unsafe { n.assume_bounds(3..20) } + 1);
    };
    tried(session, bounds, "97 was assumed to be at most 19")?;
    let divisible = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, n: Scalar<i32>| {
        y.store(0, unsafe { (x.load(0, [32]) * n).assume_divisible_by(8) } / 8);
    };
    tried(session, divisible, "97 was assumed to be divisible by 8 (element [1])")
}
