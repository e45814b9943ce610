//! Launching on the cpu device: which launches share code, and that none uses wrong code.

use std::sync::atomic::{AtomicUsize, Ordering};

use cutlet as ct;
use cutlet::{DeviceArray, Error};

/// Counts how often it is traced: host code of a kernel runs while tracing only.
macro_rules! counted_kernel {
    ($name:ident, $counter:ident) => {
        static $counter: AtomicUsize = AtomicUsize::new(0);

        fn $name(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, add: ct::Scalar<f32>, tile: usize) {
            $counter.fetch_add(1, Ordering::SeqCst);
            let i = ct::bid(0);
            y.store([i], x.load([i], [tile]) + add);
        }
    };
}

fn ramp(n: usize) -> DeviceArray<f32, 1> {
    ct::Device::cpu().from_fn([n], |[i]| i as f32).unwrap()
}

fn expect(y: &DeviceArray<f32, 1>, value: impl Fn(usize) -> f32) {
    let want: Vec<f32> = (0..y.len()).map(value).collect();
    assert_eq!(y.to_vec().unwrap(), want);
}

#[test]
fn equal_forms_share_code_and_others_do_not() -> ct::Result<()> {
    counted_kernel!(kernel, TRACED);
    let traced = || TRACED.load(Ordering::SeqCst);
    let x = ramp(320);
    let mut y = ct::Device::cpu().zeros([320])?;
    ct::launch(kernel, 20, (&x, &mut y, 1.0f32, ct::Constant(16)))?;
    expect(&y, |i| i as f32 + 1.0);
    ct::launch(kernel, 20, (&x, &mut y, 2.0f32, ct::Constant(16)))?;
    expect(&y, |i| i as f32 + 2.0);
    assert_eq!(traced(), 1, "a scalar is no part of the key");

    ct::launch(kernel, 10, (&x, &mut y, 3.0f32, ct::Constant(32)))?;
    expect(&y, |i| i as f32 + 3.0);
    assert_eq!(traced(), 2, "a constant is");

    let (x48, mut y48) = (ramp(48), ct::Device::cpu().zeros([48])?);
    ct::launch(kernel, 3, (&x48, &mut y48, 4.0f32, ct::Constant(16)))?;
    expect(&y48, |i| i as f32 + 4.0);
    assert_eq!(traced(), 2, "an extent is not, as long as it stays a multiple of 16");

    ct::launch(kernel, 3, (&x.slice(0, 16..64)?, &mut y48, 5.0f32, ct::Constant(16)))?;
    expect(&y48, |i| (i + 16) as f32 + 5.0);
    assert_eq!(traced(), 2, "neither is the start of a slice that keeps the alignment");

    ct::launch(kernel, 3, (&x.slice(0, 1..49)?, &mut y48, 6.0f32, ct::Constant(16)))?;
    expect(&y48, |i| (i + 1) as f32 + 6.0);
    assert_eq!(traced(), 3, "an odd start is");

    let mut y47 = ct::Device::cpu().zeros([47])?;
    ct::launch(kernel, 3, (&x48, &mut y47, 7.0f32, ct::Constant(16)))?;
    expect(&y47, |i| i as f32 + 7.0);
    assert_eq!(traced(), 4, "an odd extent is");

    ct::launch(kernel, 3, (&x.step(0, 3)?, &mut y48, 8.0f32, ct::Constant(16)))?;
    expect(&y48, |i| (3 * i) as f32 + 8.0);
    assert_eq!(traced(), 5, "a stride is");

    let hints = ct::Hints { num_warps: Some(8), ..Default::default() };
    ct::Launch::new(3).hints(hints).launch(kernel, (&x48, &mut y48, 9.0f32, ct::Constant(16)))?;
    expect(&y48, |i| i as f32 + 9.0);
    assert_eq!(traced(), 6, "a hint is");
    Ok(())
}

#[test]
fn constants_are_compared_not_only_hashed() -> ct::Result<()> {
    /// Every value has the same hash.
    #[derive(Clone, PartialEq, Eq)]
    struct Poor(i32);
    impl std::hash::Hash for Poor {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }
    fn kernel(y: ct::ArrayMut<i32, 1>, Poor(value): Poor) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], value));
    }
    let mut y = ct::Device::cpu().zeros([8])?;
    for value in [3, 4, 3, 5, 4] {
        ct::launch(kernel, 1, (&mut y, ct::Constant(Poor(value))))?;
        assert_eq!(y.to_vec()?, [value; 8]);
    }
    Ok(())
}

#[test]
fn captured_values_are_never_stale() -> ct::Result<()> {
    let mut y = ct::Device::cpu().zeros([8])?;
    for value in [1, 2, 1, 3, 1] {
        let kernel = |y: ct::ArrayMut<i32, 1>| y.store([ct::bid(0)], ct::full::<i32, 1>([8], value));
        ct::launch(kernel, 1, (&mut y,))?;
        assert_eq!(y.to_vec()?, [value; 8]);
    }
    // A capture of size zero still has its own type; a borrowed one is looked at each time.
    let cell = std::cell::Cell::new(5);
    let kernel = |y: ct::ArrayMut<i32, 1>| y.store([ct::bid(0)], ct::full::<i32, 1>([8], cell.get()));
    for value in [5, 6] {
        cell.set(value);
        ct::launch(kernel, 1, (&mut y,))?;
        assert_eq!(y.to_vec()?, [value; 8]);
    }
    Ok(())
}

#[test]
fn function_pointers_of_one_type_are_not_confused() -> ct::Result<()> {
    type Fill = fn(ct::ArrayMut<i32, 1>);
    fn ones(y: ct::ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], 1));
    }
    fn twos(y: ct::ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], 2));
    }
    let mut y = ct::Device::cpu().zeros([8])?;
    for (kernel, value) in [(ones as Fill, 1), (twos, 2), (ones, 1)] {
        ct::launch(kernel, 1, (&mut y,))?;
        assert_eq!(y.to_vec()?, [value; 8]);
        ct::launch(&kernel, 1, (&mut y,))?;
        assert_eq!(y.to_vec()?, [value; 8]);
    }
    Ok(())
}

#[test]
fn generic_kernels_are_one_kernel_for_each_type() -> ct::Result<()> {
    trait Step {
        const BY: i32;
    }
    struct One;
    struct Two;
    impl Step for One {
        const BY: i32 = 1;
    }
    impl Step for Two {
        const BY: i32 = 2;
    }
    fn kernel<S: Step>(y: ct::ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], S::BY));
    }
    let mut y = ct::Device::cpu().zeros([8])?;
    ct::launch(kernel::<One>, 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [1; 8]);
    ct::launch(kernel::<Two>, 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [2; 8]);
    Ok(())
}

#[test]
fn many_threads_trace_once() -> ct::Result<()> {
    counted_kernel!(kernel, TRACED);
    let x = ramp(256);
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for t in 0..8 {
            let (x, barrier) = (&x, &barrier);
            scope.spawn(move || {
                let mut y = ct::Device::cpu().zeros([256]).unwrap();
                barrier.wait();
                for round in 0..20 {
                    let add = (t * 100 + round) as f32;
                    ct::launch(kernel, 16, (x, &mut y, add, ct::Constant(16))).unwrap();
                    expect(&y, |i| i as f32 + add);
                }
            });
        }
    });
    assert_eq!(TRACED.load(Ordering::SeqCst), 1);
    Ok(())
}

#[test]
fn a_kernel_that_panicked_while_traced_can_be_launched_again() -> ct::Result<()> {
    static FAIL: AtomicUsize = AtomicUsize::new(1);
    fn kernel(y: ct::ArrayMut<i32, 1>) {
        assert_eq!(FAIL.load(Ordering::SeqCst), 0, "the kernel's own panic");
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], 1));
    }
    let mut y = ct::Device::cpu().zeros([8])?;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ct::launch(kernel, 1, (&mut y,))));
    assert!(caught.is_err());
    assert_eq!(y.to_vec()?, [0; 8]);
    FAIL.store(0, Ordering::SeqCst);
    ct::launch(kernel, 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [1; 8]);
    Ok(())
}

#[test]
fn a_bad_kernel_says_so_every_time_and_writes_nothing() -> ct::Result<()> {
    fn kernel(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>) {
        let tile = x.load([0, 0], [3, 8]);
        y.store([0, 0], tile);
    }
    let device = ct::Device::cpu();
    let x = device.full([8, 8], 1.0f32)?;
    let mut y = device.zeros([8, 8])?;
    for _ in 0..2 {
        match ct::launch(kernel, 1, (&x, &mut y)) {
            Err(Error::Kernel(problems)) => assert!(problems[0].to_string().contains("launch.rs"), "{}", problems[0]),
            other => panic!("expected an error of the kernel, got {other:?}"),
        }
    }
    assert_eq!(y.to_vec()?, [0.0; 64]);
    Ok(())
}

#[test]
fn grids() -> ct::Result<()> {
    fn kernel(y: ct::ArrayMut<i32, 3>) {
        let [i, j, k] = [ct::bid(0), ct::bid(1), ct::bid(2)];
        let value = i * 100 + j * 10 + k;
        y.store([i, j, k], ct::full::<i32, 3>([1, 1, 1], value));
    }
    let mut y = ct::Device::cpu().full([2, 3, 4], -1)?;
    ct::launch(kernel, [2, 0, 4], (&mut y,))?;
    assert_eq!(y.to_vec()?, [-1; 24], "an extent of 0 runs nothing");
    ct::launch(kernel, (2u32, 3u32, 4u32), (&mut y,))?;
    let want = ct::Device::cpu().from_fn([2, 3, 4], |[i, j, k]| (i * 100 + j * 10 + k) as i32)?;
    assert_eq!(y.to_vec()?, want.to_vec()?);
    for grid in [[1, 1, 65_536], [-1, 1, 1]] {
        assert!(matches!(ct::launch(kernel, grid, (&mut y,)), Err(Error::Argument(_))));
    }
    Ok(())
}

#[test]
fn compiled_kernels_check_what_they_are_launched_with() -> ct::Result<()> {
    let (x, mut y) = (ramp(64), ct::Device::cpu().zeros([64])?);
    let factor = 3.0f32;
    let kernel = move |x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, tile: usize| {
        y.store([ct::bid(0)], x.load([ct::bid(0)], [tile]) * factor);
    };
    let compiled = ct::compile(kernel, (&x, &mut y, ct::Constant(16)))?;
    compiled.launch(4, (&x, &mut y, ct::Constant(16)))?;
    expect(&y, |i| 3.0 * i as f32);
    let refused = compiled.launch(4, (&x, &mut y, ct::Constant(32)));
    assert!(matches!(refused, Err(Error::Argument(_))));
    let refused = compiled.launch(4, (&x.slice(0, 1..)?, &mut y, ct::Constant(16)));
    assert!(matches!(refused, Err(Error::Argument(_))));
    Ok(())
}

#[test]
fn choices_that_do_not_fit_are_errors() -> ct::Result<()> {
    fn kernel(y: ct::ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([8], 1));
    }
    let mut y = ct::Device::cpu().zeros([8])?;
    let refused = ct::Launch::new(1).backend(ct::Backend::Ptx).launch(kernel, (&mut y,));
    assert!(refused.unwrap_err().to_string().contains("cpu device"));
    let refused = ct::launch(kernel, 1, (ct::ArraySpec::new([8]).mutable(),));
    assert!(matches!(refused, Err(Error::Argument(_))));
    let device = ct::Device::cpu();
    ct::Launch::new(1).backend(ct::Backend::Cpu).stream(&device.stream()?).launch(kernel, (&mut y,))?;
    assert_eq!(y.to_vec()?, [1; 8]);
    Ok(())
}

#[test]
fn strided_views_in_and_out() -> ct::Result<()> {
    fn copy(x: ct::Array<i32, 2>, y: ct::ArrayMut<i32, 2>) {
        let at = [ct::bid(0), ct::bid(1)];
        y.store(at, x.load(at, [4, 8]));
    }
    let device = ct::Device::cpu();
    let a = device.from_fn([37, 29], |[i, j]| (100 * i + j) as i32)?;
    let mut b = device.zeros([60, 40])?;
    let view = a.transpose()?.slice(0, 3..28)?.step(1, 2)?;
    assert_eq!(view.shape(), [25, 19]);
    ct::launch(copy, [7, 3], (&view, &mut b.view_mut().slice(0, 20..45)?.slice(1, 21..)?))?;
    let want = device.from_fn([60, 40], |[i, j]| {
        let inside = (20..45).contains(&i) && j >= 21;
        if inside { (100 * (2 * (j - 21)) + i - 20 + 3) as i32 } else { 0 }
    })?;
    assert_eq!(b.to_vec()?, want.to_vec()?);
    Ok(())
}

#[test]
fn empty_arrays_launch() -> ct::Result<()> {
    fn copy(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>) {
        y.store([ct::bid(0), ct::bid(1)], x.load([ct::bid(0), ct::bid(1)], [4, 4]) + 1.0);
    }
    let device = ct::Device::cpu();
    let x = device.zeros([0, 4])?;
    let mut y = device.full([4, 4], 5.0f32)?;
    ct::launch(copy, 1, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, [1.0; 16], "outside of an array is padding");
    ct::launch(copy, 1, (&y, &mut device.zeros([0, 4])?))?;
    Ok(())
}
