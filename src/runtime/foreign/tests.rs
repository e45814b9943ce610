//! Tests of foreign memory on the cpu device.

use std::sync::Arc;

use super::{element_span, layout};
use crate::element::{f4e2m1fn, f16};
use crate::error::Result;
use crate::runtime::array::strided::Strided;
use crate::runtime::{Device, DeviceArray};

/// Memory of another library: a vector that reports its drop.
struct Theirs {
    data: Vec<i32>,
    _alive: Arc<()>,
}

fn array<const R: usize>(shape: [usize; R], strides: [usize; R]) -> (Result<DeviceArray<i32, R>>, Arc<()>) {
    let alive = Arc::new(());
    let mut theirs = Theirs { data: (0..64).collect(), _alive: alive.clone() };
    let address = theirs.data.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: a valid request is inside of the 64 numbers, which the array owns. Others are
    // rejected.
    (unsafe { Device::cpu().default_stream().foreign_array(address, shape, strides, theirs) }, alive)
}

#[test]
fn kernels_use_foreign_memory_and_its_owner_is_dropped_last() -> Result<()> {
    let (foreign, alive) = array([3, 4], [16, 2]);
    let mut foreign = foreign?;
    let mut own = Device::cpu().array(&[1; 12], [3, 4])?;
    crate::launch(
        |x: crate::ArrayMut<i32, 2>, y: crate::ArrayMut<i32, 2>| {
            let sum = x.load([0, 0], [4, 4]) + y.load([0, 0], [4, 4]);
            x.store([0, 0], sum);
            y.store([0, 0], sum);
        },
        1,
        (&mut foreign, &mut own),
    )?;
    let want: Vec<i32> = (0..3).flat_map(|i| (0..4).map(move |j| 16 * i + 2 * j + 1)).collect();
    assert_eq!((foreign.to_vec()?, own.to_vec()?), (want.clone(), want));
    foreign.view_mut().slice(0, 1..2)?.copy_from(&[-1; 4])?;
    assert_eq!(foreign.slice(0, 1..2)?.to_vec()?, [-1; 4]);
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(foreign);
    assert_eq!(Arc::strong_count(&alive), 1);
    Ok(())
}

#[test]
fn empty_arrays_have_owners_too() -> Result<()> {
    let (foreign, alive) = array([0, 4], [4, 1]);
    assert!(foreign?.to_vec()?.is_empty());
    assert_eq!(Arc::strong_count(&alive), 1);
    // Strides along axes of one element are ignored.
    assert_eq!(array([1, 3], [0, 1]).0?.to_vec()?, [0, 1, 2]);
    Ok(())
}

#[test]
fn strides_that_lead_two_elements_to_one_place_are_refused() {
    for (shape, strides) in [([4, 4], [0, 1]), ([4, 4], [1, 1]), ([4, 4], [3, 1]), ([2, 9], [4, 2])] {
        let (refused, alive) = array(shape, strides);
        let text = refused.expect_err("elements in one place").to_string();
        assert!(text.contains("in one place") && text.contains("tests.rs"), "{text}");
        assert_eq!(Arc::strong_count(&alive), 1, "the owner goes");
    }
    assert!(layout::<u8, 2>([1 << 40, 1 << 40], [1 << 40, 1]).is_err());
    assert!(layout::<f64, 2>([2, 1 << 60], [1 << 60, 1]).is_err());
    assert!(layout::<u8, 3>([2, 2, 2], [usize::MAX, 1, 2]).is_err());
    assert!(layout::<f4e2m1fn, 2>([4, 4], [5, 1]).is_err(), "rows in the middle of a byte");
    assert_eq!(layout::<f4e2m1fn, 2>([4, 4], [6, 1]).expect("rows of three bytes").1, 11);
    assert_eq!(layout::<f16, 2>([3, 4], [1, 3]).expect("columns").1, 24);
}

#[test]
fn rooms_hold_every_element_once() {
    let of = |shape, strides| element_span(&Strided { offset: 0, shape, strides });
    // All small arrays, with their places counted one by one.
    for code in 0..5usize.pow(4) {
        let digit = |d: u32| code / 5usize.pow(d) % 5;
        let (shape, strides) = ([digit(0), digit(1)], [digit(2), digit(3)]);
        let layout = Strided { offset: 0, shape, strides };
        let mut places = Vec::new();
        (0..shape[0]).for_each(|i| (0..shape[1]).for_each(|j| places.push(i * strides[0] + j * strides[1])));
        let last = places.iter().max().map_or(0, |last| last + 1);
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        match element_span(&layout) {
            Some(room) => assert!(room == last && places.len() == count, "{layout:?}"),
            // Some arrays whose elements interleave without an overlap are also rejected.
            None => assert!(places.len() < count || (strides[0] > 1 && strides[1] > 1), "{layout:?}"),
        }
    }
    assert_eq!((of([2, 3], [3, 1]), of([2, 3], [1, 2]), of([0, 3], [0, 0])), (Some(6), Some(6), Some(0)));
}

#[test]
fn addresses_are_those_of_elements() {
    let stream = Device::cpu().default_stream();
    for address in [0, 6] {
        // SAFETY: rejected before any read.
        let refused = unsafe { stream.foreign_array::<i32, 1>(address, [1], [1], ()) };
        assert!(refused.expect_err("no place for an i32").to_string().contains("multiple of 4"));
    }
    // SAFETY: rejected: the device has no such stream.
    assert!(unsafe { Device::cpu().foreign_stream(std::ptr::null_mut(), ()) }.is_err());
}
