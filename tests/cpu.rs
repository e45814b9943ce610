//! Whole kernels on the cpu back end, from `launch` to values, against f64 on the host.

use cutlet as ct;
use cutlet::{DeviceArray, Error};

/// Pseudo-random numbers in [-1, 1).
fn noise(i: usize) -> f32 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f64 / (1u64 << 23) as f64 - 1.0) as f32
}

fn matrix(rows: usize, columns: usize) -> DeviceArray<f32, 2> {
    ct::Device::cpu().from_fn([rows, columns], |[i, j]| noise(i * columns + j)).unwrap()
}

fn softmax(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>, shape: [usize; 2]) {
    let i = ct::bid(0);
    let row = x.load_with([i, ct::scalar(0)], shape, ct::LoadOptions::new().padding(ct::Padding::NegInf));
    let powers = (row - row.reduce_max(1)).exp();
    y.store([i, ct::scalar(0)], powers / powers.sum(1));
}

#[test]
fn softmax_of_odd_rows() -> ct::Result<()> {
    let (rows, columns) = (19, 100);
    let x = matrix(rows, columns);
    let mut y = ct::Device::cpu().zeros([rows, columns])?;
    ct::launch(softmax, rows.div_ceil(4), (&x, &mut y, ct::Constant([4, 128])))?;
    let y = y.to_vec()?;
    for i in 0..rows {
        let powers: Vec<f64> = (0..columns).map(|j| (noise(i * columns + j) as f64).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for (j, power) in powers.iter().enumerate() {
            assert!((y[i * columns + j] as f64 - power / sum).abs() < 1e-7);
        }
    }
    Ok(())
}

fn matmul(a: ct::Array<ct::f16, 2>, b: ct::Array<ct::f16, 2>, c: ct::ArrayMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(ct::range(0, a.num_tiles(1, [tm, tk])), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc);
}

#[test]
fn half_matmul_with_a_transposed_operand() -> ct::Result<()> {
    let (m, n, k) = (37, 50, 71);
    let device = ct::Device::cpu();
    let half = |i: usize| ct::f16::from_f32(noise(i));
    let a = device.from_fn([m, k], |[i, p]| half(i * k + p))?;
    // Stored as n × k, used as k × n.
    let b = device.from_fn([n, k], |[j, p]| half(7000 + j * k + p))?;
    let mut c = device.zeros([m, n])?;
    ct::launch(matmul, [m.div_ceil(16), n.div_ceil(32)], (&a, &b.transpose()?, &mut c, ct::Constant([16, 32, 16])))?;
    let c = c.to_vec()?;
    for (at, &value) in c.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let expected: f64 = (0..k).map(|p| half(i * k + p).to_f64() * half(7000 + j * k + p).to_f64()).sum();
        assert!((value as f64 - expected).abs() < 1e-5, "({i}, {j}): {value} {expected}");
    }
    Ok(())
}

fn quotient(x: ct::Array<i32, 1>, y: ct::Array<i32, 1>, z: ct::ArrayMut<i32, 1>) {
    let i = ct::bid(0);
    z.store([i], x.load([i], [8]).floor_div(y.load([i], [8])));
}

#[test]
fn division_at_a_ragged_edge_and_by_zero() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let x = device.from_fn([30], |[i]| i as i32 - 16)?;
    let mut z = device.zeros([30])?;
    // The last tile divides padding by padding.
    ct::launch(quotient, 4, (&x, &device.full([30], 3)?, &mut z))?;
    let expected: Vec<i32> = (0..30).map(|i| (i - 16i32).div_euclid(3)).collect();
    assert_eq!(z.to_vec()?, expected);
    let y = device.from_fn([30], |[i]| (i != 21) as i32)?;
    ct::launch(quotient, 4, (&x, &y, &mut z))?;
    assert_eq!(z.to_vec()?, (0..30).map(|i| if i == 21 { 0 } else { i - 16 }).collect::<Vec<i32>>());
    Ok(())
}

fn outside(x: ct::Array<i32, 1>, y: ct::ArrayMut<i32, 1>) {
    let i = ct::bid(0);
    // SAFETY: not kept by the last block, on purpose; the cpu back end checks the promise.
    let promised = unsafe { ct::LoadOptions::new().check_bounds(false) };
    y.store([i], x.load_with([i + 1], [8], promised));
}

#[test]
fn an_access_outside_names_the_line() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([24], 3)?, device.zeros([24])?);
    match ct::launch(outside, 3, (&x, &mut y)) {
        Err(Error::Execution(problem)) => {
            let place = problem.location.as_ref().expect("a place");
            assert!(place.file.ends_with("cpu.rs"), "{place}");
            assert!(
                problem.to_string().contains("assumed to be in bounds") && problem.to_string().contains("(2, 0, 0)")
            );
        }
        other => panic!("an execution error, got {other:?}"),
    }
    Ok(())
}

fn read(x: ct::Ptr<i32>, y: ct::ArrayMut<i32, 1>, n: ct::Scalar<i64>) {
    // SAFETY: broken by the tests, on purpose, in ways that the cpu back end sees.
    y.store_scalar(0, unsafe { x.offset(n).load() + y.pointer().offset(n).load() });
}

#[test]
fn broken_contracts_of_pointers_are_errors() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([24], 3)?, device.full([24], 4)?);
    let good = ct::RawPtr::<i32>::new(x.address());
    let mut message = |x: ct::RawPtr<i32>, n: i64| match ct::launch(read, 1, (x, &mut y, n)) {
        Err(Error::Execution(problem)) => problem.message,
        other => panic!("an execution error, got {other:?}"),
    };
    // A pointer into an array remains inside of it.
    let other = device.zeros::<i32, 1>([64])?;
    let inside = ct::RawPtr::<i32>::new(other.address());
    assert_eq!(message(inside, 24), "out of bounds: reads 4 bytes at byte 96 of an array of 96 bytes");
    assert_eq!(message(ct::RawPtr::new(0), 0), "reads through a null pointer");
    let odd = message(ct::RawPtr::new(good.address() + 2), 0);
    assert!(odd.contains("is not a multiple of the element size, 4 bytes"), "{odd}");
    ct::launch(read, 1, (good, &mut y, 23i64))?;
    assert_eq!(y.to_vec()?[0], 7);
    Ok(())
}

/// The first number of `x`, and a store to the element `n` of `x`, through a pointer that a loop
/// carries.
fn carried(x: ct::Ptr<i32>, y: ct::ArrayMut<i32, 1>, n: ct::Scalar<i64>) {
    // SAFETY: broken by the test, which the check of bounds sees.
    unsafe {
        let (last, first) = ct::fold(ct::range(0, 2), (x, ct::scalar(0)), |(_, _), _| (x.offset(n), x.load()));
        last.store(first + 1);
        y.store_scalar(0, first);
    }
}

#[test]
fn pointers_into_no_array_are_errors_of_the_check_of_bounds() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let (mut x, other, mut y) = (device.full([24], 3)?, device.full([24], 5)?, device.zeros([4])?);
    let checks = ct::Checks { bounds: true, ..ct::Checks::none() };
    let mut run = |x: ct::RawPtr<i32>, n: i64| ct::Launch::new(1).checks(checks).launch(carried, (x, &mut y, n));
    let message = |done: ct::Result<()>| match done {
        Err(Error::Execution(problem)) => problem.message,
        other => panic!("an execution error, got {other:?}"),
    };
    // In another array of the device, which the launch does not have.
    run(ct::RawPtr::new(x.address()), 23)?;
    assert_eq!((x.to_vec()?[23], other.to_vec()?), (4, vec![5; 24]));
    let behind = message(ct::Launch::new(1).checks(checks).launch(carried, (ct::ByPointer(&mut x), &mut y, 24i64)));
    assert_eq!(behind, "out of bounds: writes 4 bytes at byte 96 of an array of 96 bytes");
    // Memory of this process that is no array: an error with the check alone.
    let mut foreign = vec![7; 1 << 16];
    let address = ct::RawPtr::new(foreign[1 << 15..].as_mut_ptr().expose_provenance() as u64);
    let message = message(ct::Launch::new(1).checks(checks).launch(carried, (address, &mut y, 1i64)));
    assert!(message.contains("reads 4 bytes at") && message.contains("in no array of the cpu device"), "{message}");
    ct::Launch::new(1).checks(ct::Checks::none()).launch(carried, (address, &mut y, 1i64))?;
    assert_eq!(foreign[1 << 15..][..4], [7, 8, 7, 7]);
    Ok(())
}

/// Each element of `y` is the number of Collatz steps of an element of `x`. Adds one to loaded
/// numbers, in some iterations of a loop.
fn successors(x: ct::ArrayMut<i32, 1>, rounds: ct::Scalar<i32>) {
    let tile = x.load([0], [4]);
    let next = ct::fold(ct::range(0, rounds), tile, |_, _| {
        // SAFETY: the cpu back end checks it.
        unsafe { tile.unchecked_add(1) }
    });
    x.store([0], next);
}

#[test]
fn broken_promises_not_to_overflow_are_errors_where_they_are_made() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let mut x = device.array(&[1, -1, i32::MAX, i32::MIN], [4])?;
    // Not even a promise, unless the loop runs.
    ct::launch(successors, 1, (&mut x, 0))?;
    let error = ct::launch(successors, 1, (&mut x, 2)).unwrap_err().to_string();
    assert!(error.contains("2147483647 + 1 was assumed to fit 32 bits, signed"), "{error}");
    assert!(error.contains("tests/cpu.rs:") && error.contains(":23"), "{error}");
    // Passes must not fold constants that do not fit.
    fn folded(y: ct::ArrayMut<u8, 1>) {
        // SAFETY: the cpu back end checks it.
        y.store([0], unsafe { ct::full([4], 128u8).unchecked_shl(1) });
    }
    let error = ct::launch(folded, 1, (&mut device.zeros([4])?,)).unwrap_err().to_string();
    assert!(error.contains("128 << 1 was assumed to fit 8 bits, unsigned"), "{error}");
    Ok(())
}

fn collatz(x: ct::Array<i64, 1>, y: ct::ArrayMut<i32, 1>) {
    let i = ct::bid(0);
    let start = (x.load_scalar([i]), ct::scalar(0i32));
    let (_, steps) = ct::while_loop(
        start,
        |(n, _)| n.gt(1),
        |(n, steps)| (ct::if_else((n & 1).eq(0), || n.trunc_div(2), || n * 3 + 1), steps + 1),
    );
    y.store_scalar([i], steps);
}

#[test]
fn loops_that_depend_on_data() -> ct::Result<()> {
    let device = ct::Device::cpu();
    let x = device.from_fn([100], |[i]| i as i64 + 1)?;
    let mut y = device.zeros([100])?;
    ct::launch(collatz, 100, (&x, &mut y))?;
    let steps = |mut n: i64| {
        let mut count = 0;
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        count
    };
    assert_eq!(y.to_vec()?, (1..=100).map(steps).collect::<Vec<i32>>());
    Ok(())
}

/// `cargo test --release --test cpu -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, for release builds"]
fn speeds() -> ct::Result<()> {
    fn add(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>, tile: [usize; 2]) {
        let at = [ct::bid(0), ct::bid(1)];
        y.store(at, x.load(at, tile) + 1.0);
    }
    fn transpose(x: ct::Array<f32, 2>, y: ct::ArrayMut<f32, 2>, tile: [usize; 2]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        y.store([j, i], x.load([i, j], tile).transpose());
    }
    let n = 2048;
    let x = matrix(n, n);
    let mut y = ct::Device::cpu().zeros([n, n])?;
    let timed = |name: &str, run: &mut dyn FnMut() -> ct::Result<()>| -> ct::Result<()> {
        run()?;
        let start = std::time::Instant::now();
        run()?;
        println!("{name}: {:?}", start.elapsed());
        Ok(())
    };
    timed("add 2048²", &mut || ct::launch(add, [n / 32, n / 64], (&x, &mut y, ct::Constant([32, 64]))))?;
    timed("transpose 2048²", &mut || ct::launch(transpose, [n / 32, n / 64], (&x, &mut y, ct::Constant([32, 64]))))?;
    timed("softmax 2048²", &mut || ct::launch(softmax, n, (&x, &mut y, ct::Constant([1, n]))))?;
    let device = ct::Device::cpu();
    let a = device.from_fn([1024, 1024], |[i, j]| ct::f16::from_f32(noise(i * 1024 + j)))?;
    let mut c = device.zeros([1024, 1024])?;
    timed("f16 matmul 1024³", &mut || ct::launch(matmul, [16, 16], (&a, &a, &mut c, ct::Constant([64, 64, 32]))))
}

fn bits(x: DeviceArray<f32, 1>) -> ct::Result<Vec<u32>> {
    Ok(x.to_vec()?.into_iter().map(f32::to_bits).collect())
}

fn extremes(x: ct::Array<f32, 1>, high: ct::ArrayMut<f32, 1>, low: ct::ArrayMut<f32, 1>) {
    let (at, x) = (ct::arange(0..8), x.load(0, [8]));
    high.atomic_max(at, x);
    low.atomic_min(at, x);
}

/// A value that is NaN changes neither numbers nor NaNs, for all signs and other bits.
#[test]
fn nans_of_atomic_extrema() -> ct::Result<()> {
    const NAN: u32 = 0x7fc0_0000;
    let (one, sign) = (1f32.to_bits(), 1 << 31);
    let old = [NAN, NAN | sign, NAN, NAN | sign | 5, NAN, NAN | sign, one, one | sign].map(f32::from_bits);
    let new = [NAN, NAN, NAN | sign, NAN | sign, one, one, NAN, NAN | sign].map(f32::from_bits);
    let device = ct::Device::cpu();
    let x = device.array(&new, [8])?;
    let (mut high, mut low) = (device.array(&old, [8])?, device.array(&old, [8])?);
    ct::launch(extremes, 1, (&x, &mut high, &mut low))?;
    let kept = old.map(f32::to_bits);
    assert_eq!(bits(high)?, [&kept[..5], &[one], &kept[6..]].concat());
    assert_eq!(bits(low)?, [&kept[..4], &[one], &kept[5..]].concat());
    Ok(())
}

fn add(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, z: ct::ArrayMut<f32, 1>) {
    let (at, x) = (ct::arange(0..4), x.load(0, [4]));
    let own = ct::scratch::<f32, 1>([4]);
    own.store(0, y.load(0, [4]));
    own.atomic_add(at, x);
    y.atomic_add(at, x);
    z.store(0, own.load(0, [4]));
}

/// Atomic additions of f32 flush subnormal numbers, but in memory of the tile block's own: as the
/// instructions do.
#[test]
fn atomic_sums_of_subnormal_numbers() -> ct::Result<()> {
    let (normal, small) = (f32::MIN_POSITIVE, f32::from_bits(1));
    let device = ct::Device::cpu();
    let x = device.array(&[0.0, -small, small, -normal], [4])?;
    let mut y = device.array(&[-small, -small, normal, 1.5 * normal], [4])?;
    let mut z = device.zeros([4])?;
    ct::launch(add, 1, (&x, &mut y, &mut z))?;
    assert_eq!(bits(y)?, [0.0, -0.0, normal, 0.0].map(f32::to_bits));
    assert_eq!(bits(z)?, [-small, -2.0 * small, normal + small, 0.5 * normal].map(f32::to_bits));
    Ok(())
}

/// A scalar or a number is the index of one element, whose rank follows from nothing else.
#[test]
fn scalars_index_one_element() -> ct::Result<()> {
    fn kernel(x: ct::Array<i32, 1>, y: ct::ArrayMut<i32, 1>, i: ct::Scalar<u64>) {
        let element = x.gather(i) + x.gather(0) * 10;
        y.scatter(i, element);
        let _before = y.atomic_add(ct::bid(0), i.cast::<i32>());
        y.atomic_max(2, 30);
        let _old = y.atomic_cas(3usize, 0, element + y.gather_with(7, ct::GatherOptions::new().padding(5)));
        y.atomic_sub_with(2, 1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    }
    let (x, mut y) = (ct::Device::cpu().array(&[4, 5, 6], [3])?, ct::Device::cpu().zeros([4])?);
    ct::launch(kernel, 1, (&x, &mut y, 1u64))?;
    assert_eq!(y.to_vec()?, [1, 45, 29, 50]);
    Ok(())
}

/// Host numbers beyond i32 as tile indices, positions, ends of slices, steps and extents: as those
/// of i64.
#[test]
fn host_indices_beyond_i32() -> ct::Result<()> {
    const FAR: usize = (1 << 32) + 1;
    fn kernel(x: ct::Array<i32, 1>, y: ct::ArrayMut<i32, 1>) {
        let outside = [
            x.load(FAR, [1]),
            x.load(usize::MAX, [1]),
            x.load(ct::at(FAR), [1]),
            x.load(ct::at(usize::MAX), [1]),
            x.slice(0, FAR..).load(0, [1]),
        ];
        let inside =
            [x.slice(0, 1..FAR).load(0, [1]), x.step(0, usize::MAX).load(0, [1]), x.reshape([FAR]).load(2, [1])];
        y.store(0, ct::cat(outside, 0));
        y.store(ct::at(5), ct::cat(inside, 0));
    }
    let (x, mut y) = (ct::Device::cpu().array(&[4, 5, 6], [3])?, ct::Device::cpu().full([8], -1)?);
    ct::launch(kernel, 1, (&x, &mut y))?;
    assert_eq!(y.to_vec()?, [0, 0, 0, 0, 0, 5, 4, 6]);
    Ok(())
}
