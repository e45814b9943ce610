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

    let hints = ct::Hints::new().num_warps(8);
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
fn new_arrays_are_made_for_each_launch_and_returned() -> ct::Result<()> {
    fn count(x: ct::ArrayMut<i32, 1>, (y, flags): (Vec<ct::ArrayMut<i32, 2>>, ct::ArrayMut<bool, 1>)) {
        let i = ct::bid(0);
        x.store([i], x.load([i], [4]) + 1);
        y[1].store((i, 0), x.load([i], [1, 4]) + y[0].load((i, 0), [1, 4]));
        flags.store_scalar(i, true);
    }
    let mut x = ct::Device::cpu().zeros([7])?;
    for round in 1..3 {
        let new = (vec![ct::NewArray::full([2, 3], 5), ct::NewArray::zeros([2, 3])], ct::NewArray::zeros([3]));
        let ((), (y, flags)) = ct::launch_with_outputs(count, 2, (&mut x, new))?;
        assert_eq!(x.to_vec()?, [round; 7]);
        // Rows of four, of which three have a place; the second begins at element 1.
        assert_eq!(y[0].to_vec()?, [5; 6]);
        assert_eq!(y[1].to_vec()?, [5 + round; 6]);
        assert_eq!(flags.to_vec()?, [true, true, false]);
    }
    // Without a block there is nothing to do, and nothing to write to.
    let none = |_: ct::ArrayMut<f32, 1>| ();
    let (empty,) =
        ct::Launch::new(0).backend(ct::Backend::Cpu).launch_with_outputs(none, (ct::NewArray::zeros([0]),))?;
    assert!(empty.is_empty());
    let compiled = ct::Launch::new(1).backend(ct::Backend::Cpu);
    assert!(compiled.launch_with_outputs(none, (ct::NewArray::zeros([usize::MAX]),)).is_err());
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
    // A capture of size zero has its own type; a borrowed one is read at each launch.
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
#[allow(clippy::needless_borrows_for_generic_args)] // a reference to a kernel is one, too
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
fn many_threads_share_one_kernel() -> ct::Result<()> {
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
    // The first concurrent launches each trace it.
    let traced = TRACED.load(Ordering::SeqCst);
    assert!((1..=8).contains(&traced), "{traced}");
    ct::launch(kernel, 16, (&x, &mut ct::Device::cpu().zeros([256])?, 0f32, ct::Constant(16)))?;
    assert_eq!(TRACED.load(Ordering::SeqCst), traced);
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
fn a_bad_kernel_fails_every_time_and_writes_nothing() -> ct::Result<()> {
    fn kernel(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>) {
        let tile = x.load([0, 0], [15, 8]);
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
    let nothing = ct::launch(kernel, [2, 0, 4], (&mut y,)).unwrap_err().to_string();
    assert!(nothing.contains("grid [2, 0, 4] has no tile blocks"), "{nothing}");
    ct::launch(kernel, [2, 0, 4], (y.view_mut().slice(1, 1..1)?,))?;
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
fn compiled_kernels_check_their_arguments() -> ct::Result<()> {
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
fn raw_launches_check_their_arguments_as_launches_do() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let x = ramp(64);
    let mut y = device.zeros([64])?;
    let add = |x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, tile: usize| y.store(0, x.load(0, [tile]) + 1.0);
    let compiled = ct::compile(add, (&x, &mut y, ct::Constant(32)))?;
    assert!(compiled.raw((&x, &mut y, ct::Constant(32)))?.is_none(), "the cpu device has no raw launches");
    let refused = |result: ct::Result<Option<ct::aot::RawLaunch>>, why: &str| {
        let error = result.map(drop).expect_err(why).to_string();
        assert!(error.contains(why) && error.contains("tests/launch.rs"), "{error}");
    };
    refused(compiled.raw((&x, &mut y, ct::Constant(64))), "was compiled for other arguments");
    refused(compiled.raw((x.slice(0, 1..)?, &mut y, ct::Constant(32))), "was compiled for other arguments");
    let described = ct::ArraySpec::<f32, 1>::new([64]);
    refused(compiled.raw((described, &mut y, ct::Constant(32))), "does not exist");
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

macro_rules! two_counters {
    ($first:ident $second:ident) => {
        static $first: ct::Global<i32, 1> = ct::Global::new([5]);
        static $second: ct::Global<i32, 1> = ct::Global::new([5]);
    };
}

/// Statics of one macro have the same source location and equal values, and closures over them are
/// one type.
#[test]
fn globals_are_told_apart() -> ct::Result<()> {
    two_counters!(FIRST SECOND);
    static OTHER: ct::Global<i32, 1> = ct::Global::new([6]);
    fn count(global: &'static ct::Global<i32, 1>) -> impl Fn(ct::ArrayMut<i32, 1>) {
        move |y| y.entry(0).store(global.array().entry(0).atomic_add(1))
    }
    let mut y = ct::Device::cpu().zeros::<i32, 1>([1])?;
    let mut next = |global| -> ct::Result<i32> {
        ct::launch(count(global), 1, (&mut y,))?;
        Ok(y.to_vec()?[0])
    };
    assert_eq!([next(&FIRST)?, next(&FIRST)?, next(&SECOND)?, next(&FIRST)?, next(&OTHER)?], [5, 6, 5, 7, 6]);
    let (first, second) = (ct::compile(count(&FIRST), (&mut y,))?, ct::compile(count(&SECOND), (&mut y,))?);
    // Closures that capture values are other kernels where another line launches them.
    assert_eq!((FIRST.read(&first)?, SECOND.read(&second)?), ([5], [5]));
    first.launch(1, (&mut y,))?;
    assert_eq!((FIRST.read(&first)?, SECOND.read(&second)?), ([6], [5]));
    match FIRST.read(&second) {
        Err(ct::Error::Argument(problem)) => assert_eq!(
            problem.message,
            "kernel `count_closure` does not use this global: a kernel has those whose `array()` it asks for"
        ),
        other => panic!("an error, got {other:?}"),
    }
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

fn fill(y: ct::ArrayMut<i32, 1>, value: ct::Scalar<i32>) {
    y.store([ct::bid(0)], ct::full::<i32, 1>([16], value));
}

/// Launches `fill`, and returns the result.
fn launch_fill() -> Result<(), String> {
    let mut y = ct::Device::cpu().zeros([16]).unwrap();
    ct::launch(fill, 1, (&mut y, 3)).map_err(|error| error.to_string())?;
    assert_eq!(y.to_vec().unwrap(), [3; 16]);
    Ok(())
}

#[track_caller]
fn assert_nested(result: Result<(), String>) {
    let message = result.expect_err("a launch inside of a kernel");
    assert!(message.contains("inside of another kernel") && message.contains("launch.rs"), "{message}");
}

#[test]
fn nested_launches_are_errors_cold_or_warm() -> ct::Result<()> {
    fn outer(y: ct::ArrayMut<i32, 1>, _: u32) {
        assert_nested(launch_fill());
        let mut other = ct::Device::cpu().zeros::<i32, 1>([16]).unwrap();
        assert_nested(ct::compile(fill, (&mut other, 3)).map(|_| ()).map_err(|error| error.to_string()));
        let spec = ct::ArraySpec::<i32, 1>::new([16]);
        assert_nested(ct::inspect(fill, (spec.mutable(), 3)).ir().map(|_| ()).map_err(|error| error.to_string()));
        y.store([0], ct::full::<i32, 1>([16], 1));
    }
    fn itself(y: ct::ArrayMut<i32, 1>) {
        let mut other = ct::Device::cpu().zeros([16]).unwrap();
        assert_nested(ct::launch(itself, 1, (&mut other,)).map_err(|error| error.to_string()));
        y.store([0], ct::full::<i32, 1>([16], 2));
    }
    let mut y = ct::Device::cpu().zeros([16])?;
    ct::launch(outer, 1, (&mut y, ct::Constant(0)))?;
    launch_fill().expect("outside of a kernel");
    ct::launch(outer, 1, (&mut y, ct::Constant(1)))?;
    assert_eq!(y.to_vec()?, [1; 16]);
    ct::launch(itself, 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [2; 16]);
    let mut other = ct::Device::cpu().zeros::<i32, 1>([16])?;
    let compiled = ct::compile(fill, (&mut other, 3))?;
    let other = std::sync::Mutex::new(other);
    let launch = |y: ct::ArrayMut<i32, 1>| {
        let mut other = other.lock().unwrap();
        assert_nested(compiled.launch(1, (&mut *other, 3)).map_err(|error| error.to_string()));
        y.store([0], ct::full::<i32, 1>([16], 4));
    };
    ct::launch(launch, 1, (&mut y,))?;
    assert_eq!(y.to_vec()?, [4; 16]);
    Ok(())
}

/// A constant whose traits all launch kernels; a call of a trait inside of a kernel is an error.
#[derive(Debug)]
struct Launching(u32);

impl Launching {
    fn launch(&self) {
        let many = |value: u32| {
            let mut y = ct::Device::cpu().zeros([16]).unwrap();
            let kernel = |y: ct::ArrayMut<i32, 1>, value: u32| y.store([0], ct::full::<i32, 1>([16], value as i32));
            ct::launch(kernel, 1, (&mut y, ct::Constant(value))).map_err(|error| error.to_string())
        };
        for value in 0..100 {
            match many(value) {
                Ok(()) => assert!(!cutlet::tile::is_tracing()),
                nested => assert_nested(nested),
            }
        }
    }
}

impl Clone for Launching {
    fn clone(&self) -> Launching {
        self.launch();
        Launching(self.0)
    }
}

impl PartialEq for Launching {
    fn eq(&self, other: &Launching) -> bool {
        self.launch();
        self.0 == other.0
    }
}

impl Eq for Launching {}

impl std::hash::Hash for Launching {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.launch();
        // All in one place, so that they are compared.
        0.hash(state);
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        self.launch();
    }
}

#[test]
fn constants_may_launch() -> ct::Result<()> {
    let kernel = |y: ct::ArrayMut<i32, 1>, c: Launching| y.store([0], ct::full::<i32, 1>([16], c.0 as i32));
    let mut y = ct::Device::cpu().zeros([16])?;
    for round in 0..3 {
        for value in [4, 5] {
            ct::launch(kernel, 1, (&mut y, ct::Constant(Launching(value))))?;
            assert_eq!(y.to_vec()?, [value as i32; 16], "round {round}");
        }
    }
    Ok(())
}

#[test]
fn a_thread_may_launch_while_it_ends() {
    struct AtTheEnd(std::sync::mpsc::Sender<Result<(), String>>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let mut y = ct::Device::cpu().zeros([16]).unwrap();
            let kernel = |y: ct::ArrayMut<i32, 1>| y.store([0], ct::full::<i32, 1>([16], 8));
            let result = ct::launch(kernel, 1, (&mut y,)).map_err(|error| error.to_string());
            assert!(result.is_err() || y.to_vec().unwrap() == [8; 16]);
            self.0.send(result).unwrap();
        }
    }
    thread_local!(static KEPT: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) });
    let (send, received) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // Dropped after the state of the launch for the thread.
        KEPT.set(Some(AtTheEnd(send)));
        launch_fill()
    });
    thread.join().unwrap().unwrap();
    received.recv_timeout(std::time::Duration::from_secs(60)).expect("a launch").unwrap();
}

#[test]
fn a_kernel_may_wait_for_its_pool() {
    fn table(y: ct::ArrayMut<i32, 1>, n: usize) {
        let wait = |ms| std::thread::sleep(std::time::Duration::from_millis(ms));
        rayon::join(|| wait(5), || wait(100));
        y.store([ct::bid(0)], ct::full::<i32, 1>([16], n as i32));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (send, done) = std::sync::mpsc::channel();
    for n in [1, 1, 2] {
        let send = send.clone();
        pool.spawn(move || {
            let mut y = ct::Device::cpu().zeros([16]).unwrap();
            let result = ct::launch(table, 1, (&mut y, ct::Constant(n)));
            send.send((n, result.map(|()| y.to_vec().unwrap()))).unwrap();
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for _ in 0..3 {
        let (n, values) = done.recv_timeout(std::time::Duration::from_secs(60)).expect("no hang");
        assert_eq!(values.unwrap(), [n as i32; 16]);
    }
}

#[test]
fn launches_from_the_threads_of_a_pool() {
    use rayon::prelude::*;
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let wrong: usize = pool.install(|| {
            let one = |k: usize| {
                let n = 16 * (1 + k % 9);
                let mut y = ct::Device::cpu().zeros([n]).unwrap();
                let kernel =
                    |y: ct::ArrayMut<i32, 1>, c: usize| y.store([ct::bid(0)], ct::full::<i32, 1>([16], c as i32));
                ct::launch(kernel, n / 16, (&mut y, ct::Constant(k % 13))).unwrap();
                usize::from(y.to_vec().unwrap() != vec![(k % 13) as i32; n])
            };
            (0..2000).into_par_iter().map(one).sum()
        });
        assert_eq!(wrong, 0, "{threads} threads");
    }
}

#[test]
fn errors_name_the_kernel_that_was_launched() -> ct::Result<()> {
    let mut y = ct::Device::cpu().zeros::<i32, 1>([16])?;
    let value = 1;
    // SAFETY: the cpu device checks this promise.
    let options = || unsafe { ct::StoreOptions::new().check_bounds(false) };
    let kernel = move |y: ct::ArrayMut<i32, 1>, i: ct::Scalar<i32>| {
        y.store_with([i], ct::full::<i32, 1>([16], value), options());
    };
    ct::launch(kernel, 1, (&mut y, 0))?;
    let line = line!() + 2;
    let same = move |y: ct::ArrayMut<i32, 1>, i: ct::Scalar<i32>| {
        y.store_with([i], ct::full::<i32, 1>([16], value), options());
    };
    let error = ct::launch(same, 1, (&mut y, 1)).expect_err("outside of the array").to_string();
    assert!(error.contains(&format!("launch.rs:{line}:")), "{error}");
    Ok(())
}

#[test]
fn panics_that_a_kernel_catches_are_errors_of_the_launch() -> ct::Result<()> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    fn store(y: ct::ArrayMut<i32, 1>) {
        y.store([ct::bid(0)], ct::full::<i32, 1>([16], 5));
    }
    let caught = |body: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    let y = &mut ct::Device::cpu().zeros([16])?;
    let mut message = |kernel: &dyn Fn(ct::ArrayMut<i32, 1>)| {
        let error = ct::launch(|y: ct::ArrayMut<i32, 1>| kernel(y), 1, (&mut *y,)).expect_err("a panic");
        assert_eq!(y.to_vec().unwrap(), [0; 16]);
        error.to_string()
    };
    let tile = || ct::arange(0..16);
    let text = message(&|y| {
        caught(&|| _ = ct::fold(..4, ct::scalar(0), |_, _| panic!("in the body")));
        store(y);
    });
    assert!(text.contains("the body of `fold` panicked") && text.matches("error").count() <= 1, "{text}");
    let text = message(&|y| {
        caught(&|| _ = tile().reduce(0, 0, |_, _| panic!("in the body")));
        store(y);
    });
    assert!(text.contains("panicked, and the kernel caught"), "{text}");
    let text = message(&|y| {
        caught(&|| ct::if_then(ct::bid(0).eq(0), || ct::if_then(ct::bid(1).eq(0), || panic!("in the branch"))));
        store(y);
    });
    assert_eq!(text.matches("the body of `if_then` panicked").count(), 2, "{text}");
    // Caught inside of the outer body, which then continues.
    let text = message(&|y| {
        ct::if_then(ct::bid(0).eq(0), || {
            caught(&|| _ = ct::while_loop(ct::scalar(0), |_| -> bool { panic!("in the condition") }, |i| i + 1));
            store(y);
        });
        store(y);
    });
    assert!(text.contains("the body of `while_loop` panicked") && !text.contains("of `if_then` panicked"), "{text}");
    Ok(())
}

#[test]
fn arrays_without_dimensions() -> ct::Result<()> {
    fn kernel(x: ct::Array<f32, 0>, n: ct::Array<i64, 0>, y: ct::ArrayMut<f32, 0>, z: ct::ArrayMut<f32, 1>) {
        let tile: ct::Tile<f32, 0> = x.load([0; 0], []);
        let n: ct::Scalar<i64> = n.load_scalar([0usize; 0]);
        y.store([0; 0], tile + 1.0);
        z.store([ct::bid(0)], ct::full::<f32, 1>([4], 1.0) * x.load_scalar([0; 0]) + n.cast::<f32>());
    }
    let device = ct::Device::cpu();
    let (x, n) = (device.array(&[2.5f32], [])?, device.array(&[10i64], [])?);
    let (mut y, mut z) = (device.zeros([])?, device.zeros([6])?);
    ct::launch(kernel, 2, (&x, &n, &mut y, &mut z))?;
    assert_eq!((y.to_vec()?, z.to_vec()?), (vec![3.5], vec![12.5; 6]));
    let (x, n) = (ct::ArraySpec::<f32, 0>::new([]), ct::ArraySpec::<i64, 0>::new([]));
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        ct::inspect(kernel, (x, n, x.mutable(), ct::ArraySpec::<f32, 1>::new([6]).mutable())).target(target).ptx()?;
    }
    Ok(())
}

#[test]
fn a_reader_that_writes_waits_for_the_other_readers() -> ct::Result<()> {
    fn axpy(a: ct::Scalar<f32>, x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
        let i = ct::bid(0);
        y.store([i], x.load([i], [1024]) * a + y.load([i], [1024]));
    }
    let Ok(gpu) = ct::Device::gpu(0) else {
        println!("skipped: no GPU");
        return Ok(());
    };
    let n = 1 << 26;
    let one = gpu.full([n], 1f32)?;
    for round in 0..10 {
        let (s0, s1) = (gpu.stream()?, gpu.stream()?);
        let mut a = gpu.full([n], 1f32)?;
        let (mut sum, mut small) = (gpu.zeros::<f32, 1>([n])?, gpu.zeros::<f32, 1>([1024])?);
        gpu.synchronize()?;
        let all = |stream| ct::Launch::new(n / 1024).stream(stream);
        all(&s0).launch(axpy, (1f32, &one, &mut a))?;
        ct::Launch::new(1).stream(&s1).launch(axpy, (1f32, &a, &mut small))?;
        for _ in 0..4 {
            all(&s0).launch(axpy, (1f32, &a, &mut sum))?;
        }
        all(&s1).launch(axpy, (100f32, &one, &mut a))?;
        assert!(sum.to_vec()?.iter().all(|&value| value == 8.0), "round {round}");
    }
    Ok(())
}
