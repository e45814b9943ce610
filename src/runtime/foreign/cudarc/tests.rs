//! Tests of shapes without a GPU, and of the order of work between cudarc and this crate, with slow
//! kernels.

use ::cudarc::driver::CudaContext;

use super::*;
use crate::element::f4e2m1fn;
use crate::runtime::tests::{LONG, N, add, add_to, gpu, load};
use crate::runtime::{Device, GpuKernel};

/// The environment of tests with a GPU: a slow kernel, and streams of both libraries.
struct Both {
    device: Device,
    kernel: GpuKernel,
    ours: Stream,
    theirs: Arc<CudaStream>,
}

fn both() -> Option<Both> {
    let device = gpu()?;
    let theirs = CudaContext::new(0).and_then(|context| context.new_stream()).expect("a stream of cudarc");
    Some(Both { device, kernel: load(device).expect("a kernel"), ours: device.stream().expect("a stream"), theirs })
}

impl Both {
    fn zeros(&self) -> CudaSlice<u32> {
        self.theirs.alloc_zeros(N).expect("a slice")
    }

    /// Queues slow work. Afterwards the stream has no holder.
    fn busy(&self, theirs: &Arc<CudaStream>) {
        let ours = stream(theirs).expect("the primary context");
        let mut data = self.device.zeros([N]).expect("an array");
        add(&self.kernel, &mut data, &ours, LONG).expect("a launch");
    }

    fn values(&self, slice: &CudaSlice<u32>) -> Vec<u32> {
        self.theirs.clone_dtoh(slice).expect("a copy")
    }
}

#[test]
fn shapes_are_those_of_the_slice() {
    assert_eq!(row_major::<u8, 2>([3, 4], 12).expect("all of it").strides, [4, 1]);
    for (shape, len) in [([3, 4], 13), ([3, 5], 12), ([usize::MAX, 2], 12)] {
        let text = row_major::<u8, 2>(shape, len).expect_err("another number").to_string();
        assert!(text.contains(&format!("a slice of {len} elements")), "{text}");
    }
    assert!(row_major::<f4e2m1fn, 1>([4], 4).expect_err("two in a byte").to_string().contains("use u8"));
    assert_eq!(with_strides::<u8, 2>([3, 4], [1, 3], 12).expect("columns").strides, [1, 3]);
    assert_eq!(with_strides::<u8, 2>([3, 4], [5, 1], 14).expect("with gaps").span(), 14);
    let text = with_strides::<u8, 2>([3, 4], [5, 1], 13).expect_err("too short").to_string();
    assert!(text.contains("takes 14") && text.contains("13 elements"), "{text}");
    assert!(with_strides::<u8, 2>([3, 4], [0, 1], 13).is_err());
}

#[test]
fn slices_are_arguments_of_launches_on_any_stream() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    let add_one = |x: crate::Array<u32, 1>, y: crate::ArrayMut<u32, 1>| {
        y.store(crate::bid(0), x.load(crate::bid(0), [256]) + 1u32);
    };
    let grid = N.div_ceil(256);
    let (first, mut second) = (both.zeros(), both.zeros());
    crate::launch(add_one, grid, (&first, &mut second))?;
    let (first, mut second, mut third) = (second, both.zeros(), both.zeros());
    let theirs = stream(&both.theirs)?;
    let launch = crate::Launch::new(grid);
    launch.stream(&theirs).launch(add_one, (first.as_view(), third.as_view_mut()))?;
    assert_eq!(both.values(&third), [2; N]);
    launch.stream(&both.ours).launch(add_one, (read(&third, [N])?, write(&mut second, [N])?))?;
    assert_eq!(both.values(&second), [3; N]);
    // The launch waits for slow work on another stream of cudarc, and cudarc for the launch.
    let (mut x, mut y) = (both.zeros(), both.zeros());
    with(&both.theirs, (write(&mut x, [N])?,), |ours, (mut x,)| add_to(&both.kernel, &mut x, ours, LONG))?;
    crate::launch(add_one, grid, (&x, &mut y))?;
    let expected: Vec<u32> = both.values(&x).iter().map(|x| x + 1).collect();
    assert_eq!(both.values(&y), expected);
    let error = read(&y, [N + 1]).expect_err("another number of elements").to_string();
    assert!(error.contains("elements"), "{error}");
    Ok(())
}

#[test]
fn kernels_on_borrowed_slices_are_in_the_order_of_cudarc() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    let mut slice = both.zeros();
    for round in 1..=4 {
        with(&both.theirs, (write(&mut slice, [N])?,), |stream, (mut view,)| {
            // On the stream of cudarc, and on one that cudarc does not know.
            let on = if round % 2 == 0 { stream } else { &both.ours };
            add_to(&both.kernel, &mut view, on, LONG)
        })?;
        assert_eq!(both.values(&slice), vec![round; N]);
    }
    // A part of the slice, and the next work of another stream of cudarc.
    let other = both.theirs.context().new_stream().expect("a stream");
    with(&both.theirs, write(slice.slice_mut(10..20), [10])?, |_, mut view| {
        add_to(&both.kernel, &mut view, &both.ours, LONG)
    })?;
    let values: Vec<u32> = other.clone_dtoh(&slice).expect("a copy");
    assert!(values.iter().enumerate().all(|(i, &x)| x == 4 + u32::from((10..20).contains(&i))), "{values:?}");
    // Read twice, and with strides.
    with(&both.theirs, (read(&slice, [10, 100])?, read_strided(&slice, [5, 2], [1, 5])?), |_, (all, part)| {
        assert_eq!(all.slice(1, 15..16)?.to_vec()?, [[5].as_slice(), &[4; 9]].concat());
        assert_eq!(part.to_vec()?, [4; 10]);
        Ok(())
    })
}

#[test]
fn slices_become_arrays_and_slices_again() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    let mut array = array(both.zeros(), [N])?;
    let address = array.address();
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    assert_eq!(array.to_vec()?, vec![1; N]);
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    let slice = super::slice(array.into_shape([10, N / 10])?, &both.theirs)?;
    assert_eq!(both.values(&slice), vec![2; N]);
    // Freed by cudarc while work of this crate is in flight.
    let mut array = super::array(slice, [N])?;
    assert_eq!(array.address(), address);
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    drop(array);
    assert_eq!(both.values(&both.zeros()), vec![0; N]);
    Ok(())
}

#[test]
fn arrays_become_slices() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    let mut array = both.device.zeros([N])?;
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    let slice = super::slice(array, &both.theirs)?;
    assert_eq!(both.values(&slice), vec![1; N]);
    drop(slice);
    both.theirs.synchronize().expect("freed as it was made");
    assert!(super::slice(both.device.zeros::<u32, 1>([0])?, &both.theirs)?.is_empty());
    let text = super::slice(Device::cpu().zeros::<u32, 1>([N])?, &both.theirs).expect_err("on the host").to_string();
    assert!(text.contains("the cpu device"), "{text}");
    Ok(())
}

#[test]
fn borrowed_arrays_are_released_in_order() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    let mut array = both.device.zeros([N])?;
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    let copy = lend(&array, &both.theirs, |view| both.theirs.clone_dtod(&view))?.expect("a copy");
    lend_mut(&mut array, &both.theirs, |mut view| both.theirs.memset_zeros(&mut view))?.expect("zeros");
    add(&both.kernel, &mut array, &both.ours, 0)?;
    add(&both.kernel, &mut array, &both.ours, LONG)?;
    assert_eq!((array.to_vec()?, both.values(&copy)), (vec![2; N], vec![1; N]));
    Ok(())
}

#[test]
fn streams_that_are_counted_need_no_other() {
    for (raw, any, needs) in [(0, true, true), (1, true, true), (2, true, true), (0, false, true)] {
        assert_eq!(needs_another(raw, any), needs);
    }
    assert!(!needs_another(0x7f00, true) && needs_another(0x7f00, false));
}

/// Work of a dropped second stream, with which the count of the context is 0, is waited for
/// nevertheless.
#[test]
fn work_of_dropped_streams_is_waited_for() -> Result<()> {
    let Some(both) = both() else { return Ok(()) };
    // A separate context object: only the legacy default stream, and no counted one.
    let context = CudaContext::new(0).expect("a context");
    let default = context.default_stream();
    let ones = vec![1u32; N];
    for round in 0..20 {
        let mut lent = both.device.zeros::<u32, 1>([N])?;
        lend_mut(&mut lent, &default, |mut view| {
            let second = default.fork().expect("a stream");
            both.busy(&second);
            second.memcpy_htod(&ones, &mut view)
        })?
        .expect("a copy");
        assert_eq!(lent.to_vec()?, ones, "lent, round {round}");
        let used = |slice: &mut CudaSlice<u32>| {
            let second = default.fork().expect("a stream");
            both.busy(&second);
            second.memcpy_htod(&ones, slice).expect("a copy");
        };
        let mut slice = default.alloc_zeros::<u32>(N).expect("a slice");
        used(&mut slice);
        assert_eq!(array(slice, [N])?.to_vec()?, ones, "given, round {round}");
        let mut slice = default.alloc_zeros::<u32>(N).expect("a slice");
        used(&mut slice);
        let seen = with(&default, read(&slice, [N])?, |_, view| view.to_vec())?;
        assert_eq!(seen, ones, "borrowed, round {round}");
    }
    Ok(())
}
