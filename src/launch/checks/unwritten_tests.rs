//! Planted reads of unwritten elements, with the cpu back end, and with the instrumented code of
//! the ptx back end. The latter runs in the interpreter and on a GPU.

use super::tests::{checked, devices};
use crate::backend::cpu::Checks;
use crate::error::Result;
use crate::kernel::{Kernel, KernelArgs};
use crate::launch::options::Launch;
use crate::prelude::*;
use crate::runtime::{Device, DeviceArray};
use crate::{arange, bid, ones};

const UNWRITTEN: Checks = Checks { unwritten: true, ..NONE };
const NONE: Checks = Checks {
    races: false,
    bounds: false,
    memory: false,
    unwritten: false,
    division: false,
    shifts: false,
    casts: false,
    overflow: false,
};

/// Makes an array without elements written.
fn fresh<T: crate::element::ByteSized, const R: usize>(device: Device, shape: [usize; R]) -> DeviceArray<T, R> {
    crate::with_memory_checks(|| device.unspecified(shape)).expect("memory")
}

/// Launches with the check: code of the ptx back end, and on the cpu device also its own.
fn unwritten<K, A, P>(device: Device, kernel: K, grid: usize, args: A) -> Result<()>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    checked(device, UNWRITTEN, kernel, grid, args)
}

/// Checks that an error names a line and a tile block.
#[track_caller]
fn assert_report(result: Result<()>, what: &str, line: u32, block: u32) {
    let text = result.expect_err("a read of an unwritten element").to_string();
    let place = format!("{}:{line}:", file!());
    assert!(text.starts_with(&place) && text.contains(what), "{text}\nexpected {place} {what}");
    assert!(text.contains(&format!("in tile block ({block}, 0, 0)")), "{text}");
}

#[test]
fn elements_that_no_kernel_wrote() -> Result<()> {
    for device in devices() {
        let (mut x, mut y) = (fresh::<f32, 1>(device, [100]), device.zeros([100])?);
        // The last 4 elements are not written.
        let fill = |x: ArrayMut<f32, 1>| x.scatter(arange(0..32) + bid(0) * 32, ones([32]));
        let line = line!() + 1;
        let copy = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(bid(0), x.load(bid(0), [32]));
        let text = "unwritten memory: element 0 of array argument 0 was never written, and is read here";
        assert_report(unwritten(device, copy, 1, (&x, &mut y)), text, line, 0);
        unwritten(device, fill, 3, (&mut x,))?;
        unwritten(device, copy, 3, (&x, &mut y))?;
        assert_eq!(y.to_vec()?[..96], [1.0; 96]);
        let text = "element 96 of array argument 0 was never written";
        assert_report(unwritten(device, copy, 4, (&x, &mut y)), text, line, 3);
        // The record lives as long as the array.
        unwritten(device, fill, 4, (&mut x,))?;
        unwritten(device, copy, 4, (&x, &mut y))?;
    }
    Ok(())
}

#[test]
fn copies_of_the_host_and_other_kernels_write() -> Result<()> {
    for device in devices() {
        let sum = |x: Array<i32, 2>, y: ArrayMut<i32, 1>| y.store(bid(0), x.load((bid(0), 0), [1, 8]).reshape([8]));
        let mut y = device.zeros([32])?;
        let fault = |x: &DeviceArray<i32, 2>, y: &mut DeviceArray<i32, 1>| unwritten(device, sum, 4, (x, y)).is_err();
        let mut x = fresh::<i32, 2>(device, [4, 8]);
        x.slice_mut(0, 0..3)?.copy_from(&[1; 24])?;
        assert!(fault(&x, &mut y), "row 3 is not written");
        x.slice_mut(0, 3..4)?.copy_from(&[1; 8])?;
        assert!(!fault(&x, &mut y));
        // A copy of an array copies its record.
        let mut z = fresh::<i32, 2>(device, [4, 8]);
        let other = fresh::<i32, 2>(device, [4, 8]);
        z.copy_from_array(&other.view())?;
        assert!(fault(&z, &mut y));
        z.copy_from_array(&x.view())?;
        assert!(!fault(&z, &mut y));
        for made in crate::with_memory_checks(|| [device.zeros([4, 8]), device.full([4, 8], 1)]) {
            assert!(!fault(&made?, &mut y));
        }
        // A kernel without the check may have written all elements; so may code that has the
        // address.
        let mut x = fresh::<i32, 2>(device, [4, 8]);
        Launch::new(1).checks(NONE).launch(|x: ArrayMut<i32, 2>| x.store((0, 0), ones([1, 8])), (&mut x,))?;
        assert!(!fault(&x, &mut y));
        let x = fresh::<i32, 2>(device, [4, 8]);
        assert!(fault(&x, &mut y));
        assert_ne!(x.address(), 0);
        assert!(!fault(&x, &mut y));
    }
    Ok(())
}

#[test]
fn atomics_read_and_parts_have_their_own_elements() -> Result<()> {
    for device in devices() {
        let mut bins = fresh::<i32, 1>(device, [64]);
        let line = line!() + 1;
        let count = |bins: ArrayMut<i32, 1>| _ = bins.atomic_add(arange(0..8) + bid(0) * 8, 1);
        let text = "element 0 of array argument 0 was never written";
        assert_report(unwritten(device, count, 1, (&mut bins,)), text, line, 0);
        let mut bins = fresh::<i32, 1>(device, [64]);
        bins.slice_mut(0, 0..40)?.copy_from(&[0; 40])?;
        unwritten(device, count, 5, (&mut bins,))?;
        // The elements of a part are counted from its first one.
        let (mut low, mut high) = bins.split_at_mut(0, 24)?;
        unwritten(device, count, 3, (&mut low,))?;
        let text = "element 16 of array argument 0 was never written";
        assert_report(unwritten(device, count, 3, (&mut high,)), text, line, 2);
    }
    Ok(())
}

#[test]
fn scratch_memory_of_a_tile_block() -> Result<()> {
    for device in devices() {
        let (x, mut y) = (device.full([4], 1)?, device.zeros([16])?);
        let line = line!() + 7;
        let kernel = |x: Array<i32, 1>, y: ArrayMut<i32, 1>, whole: bool| {
            let own = crate::scratch::<i32, 1>([8]);
            own.store(0, x.load(0, [4]));
            if whole {
                own.scatter(arange(0..4) + 4, x.load(0, [4]));
            }
            y.store(bid(0), own.load(0, [8]));
        };
        unwritten(device, kernel, 2, (&x, &mut y, crate::Constant(true)))?;
        assert_eq!(y.to_vec()?, [1; 16]);
        let result = unwritten(device, kernel, 1, (&x, &mut y, crate::Constant(false)));
        assert_report(result, "element 4 of scratch memory was never written", line, 0);
    }
    Ok(())
}

#[test]
fn the_cpu_back_end_reports_the_use() -> Result<()> {
    let device = Device::cpu();
    let (mut x, mut y) = (fresh::<f32, 1>(device, [64]), device.zeros([64])?);
    x.slice_mut(0, 0..32)?.copy_from(&[1.0; 32])?;
    let launch = Launch::new(4).checks(UNWRITTEN);
    let line = line!() + 1;
    let copy = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(bid(0), x.load(bid(0), [16]));
    let text = launch.launch(copy, (&x, &mut y)).expect_err("32 elements are unwritten").to_string();
    assert!(text.starts_with(&format!("{}:{line}:", file!())), "{text}");
    assert!(
        text.contains("element 32 of an array of 64 was never written at [0] of the tile, and a store at"),
        "{text}"
    );
    assert!(text.ends_with("in tile block (2, 0, 0)"), "{text}");
    // Elements that are chosen away are not used.
    let chosen = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
        let at = arange(0..64);
        y.store(0, at.lt(32).select(x.load(0, [64]), 0.0));
    };
    Launch::new(1).checks(UNWRITTEN).launch(chosen, (&x, &mut y))?;
    let fill = |x: ArrayMut<f32, 1>| x.store(bid(0), ones([16]));
    launch.launch(fill, (&mut x,))?;
    launch.launch(copy, (&x, &mut y))?;
    let count = |x: ArrayMut<i32, 1>| _ = x.entry(3).atomic_add(1);
    let text = Launch::new(1).checks(UNWRITTEN).launch(count, (&mut fresh(device, [8]),)).unwrap_err().to_string();
    assert!(text.contains("element 3 of an array of 8 was never written, and is updated here"), "{text}");
    Ok(())
}
