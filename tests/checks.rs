//! Checks on request: each planted fault is found, with its message; kernels without faults run as
//! without checks.

use cutlet as ct;
use cutlet::prelude::*;

fn all(grid: usize) -> ct::Launch<'static> {
    ct::Launch::new(grid).checks(ct::Checks::all())
}

fn only(name: &str) -> ct::Launch<'static> {
    ct::Launch::new(1).checks(name.parse().unwrap())
}

/// Returns the text of an error, with the places of this file as `<line>`, relative to that of the
/// caller.
#[track_caller]
fn said(result: ct::Result<()>) -> String {
    let here = std::panic::Location::caller();
    let mut text = result.expect_err("a fault is planted").to_string();
    let place = format!("{}:", here.file());
    while let Some(at) = text.find(&place) {
        let rest = &text[at + place.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let line: i64 = rest[..digits].parse().unwrap();
        let end = at + place.len() + digits;
        text.replace_range(at..end, &format!("<{}>", line - i64::from(here.line())));
    }
    text
}

/// `x op y` of four elements, of which the fourth is outside of the arrays and is 0.
fn combined<T: ByteSized + Number>(
    name: &str,
    op: impl Fn(Tile<T, 1>, Tile<T, 1>) -> Tile<T, 1> + Copy,
    x: [T; 3],
    y: [T; 3],
) -> [ct::Result<()>; 2] {
    let device = ct::Device::cpu();
    let (x, y, mut z) =
        (device.array(&x, [3]).unwrap(), device.array(&y, [3]).unwrap(), device.array(&x, [3]).unwrap());
    let kernel = |x: Array<T, 1>, y: Array<T, 1>, z: ArrayMut<T, 1>| z.store(0, op(x.load(0, [4]), y.load(0, [4])));
    [only(name).launch(kernel, (&x, &y, &mut z)), ct::launch(kernel, 1, (&x, &y, &mut z))]
}

#[test]
fn division() {
    let [checked, plain] = combined("division", |x, y| x / y, [7, 8, 9], [1, 0, 2]);
    assert!(plain.is_ok());
    let text = checked.unwrap_err().to_string();
    println!("{text}");
    assert!(
        text.contains("division by zero: 8 / 0 in i32 at [1] of the tile, and a store at tests/checks.rs:"),
        "{text}"
    );
    assert!(text.contains("in tile block (0, 0, 0)"));
    type Op = fn(Tile<u8, 1>, Tile<u8, 1>) -> Tile<u8, 1>;
    let ops: [Op; 4] = [|x, y| x % y, |x, y| x.floor_div(y), |x, y| x.ceil_div(y), |x, y| x.modulo(y)];
    for op in ops {
        let [checked, plain] = combined("division", op, [7, 8, 9], [1, 0, 2]);
        assert!(plain.is_ok() && checked.is_err());
        let [checked, _] = combined("division", op, [7, 8, 9], [1, 5, 2]);
        checked.unwrap();
        let [checked, _] = combined("overflow", op, [7, 8, 9], [1, 0, 2]);
        checked.unwrap();
    }
    let [checked, _] = combined("overflow", |x, y| x / y, [i32::MIN, 8, 9], [-1, 0, 2]);
    assert!(checked.unwrap_err().to_string().contains("overflow: -2147483648 / -1 does not fit i32"));
}

/// Returns the message of the check for these three numbers (and zero, which is not stored).
fn told<T: ByteSized + Number>(
    name: &str,
    op: impl Fn(Tile<T, 1>, Tile<T, 1>) -> Tile<T, 1> + Copy,
    x: [T; 3],
    y: [T; 3],
) -> Option<String> {
    let [checked, plain] = combined(name, op, x, y);
    plain.unwrap();
    let text = checked.err()?.to_string();
    Some(text.split_once(": ").unwrap().1.split(" at [").next().unwrap().to_owned())
}

#[test]
fn overflow() {
    let sum = |x, y| told::<i32>("overflow", |x, y| x + y, x, y);
    assert_eq!(sum([1, i32::MAX, 3], [4, 0, -6]), None);
    let text = "overflow: 2147483647 + 1 does not fit i32 (`wrapping_add` is for numbers that may wrap)";
    assert_eq!(sum([1, i32::MAX, 3], [4, 1, -6]).as_deref(), Some(text));
    let text = "overflow: 3 - 4 does not fit u16 (`wrapping_sub` is for numbers that may wrap)";
    assert_eq!(told::<u16>("overflow", |x, y| x - y, [9, 3, 9], [1, 4, 2]).as_deref(), Some(text));
    let text = "overflow: 4294967296 * 4294967296 does not fit u64 (`wrapping_mul` is for numbers that may wrap)";
    assert_eq!(told::<u64>("overflow", |x, y| x * y, [1 << 32; 3], [1, 1 << 32, 2]).as_deref(), Some(text));
    // Meant, or chosen away, or of another check.
    assert_eq!(
        told::<u16>("overflow", |x, y| x.wrapping_sub(y).wrapping_add(x).wrapping_mul(y), [9, 3, 9], [1, 4, 2]),
        None
    );
    assert_eq!(told::<u16>("overflow", |x, y| x.ge(y).select(x - y, 0), [9, 3, 9], [1, 4, 2]), None);
    assert_eq!(told::<u16>("division", |x, y| x - y, [9, 3, 9], [1, 4, 2]), None);
    // Promises are always checked. SAFETY: it is not kept, on the cpu back end.
    let [checked, plain] = combined::<i32>("overflow", |x, y| unsafe { x.unchecked_add(y) }, [i32::MAX; 3], [1; 3]);
    assert!(checked.is_err() && plain.is_err());
}

#[test]
fn sums_that_overflow() {
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([8], 100u8).unwrap(), device.zeros([8]).unwrap());
    let sum = |x: Array<u8, 1>, y: ArrayMut<u8, 1>| y.store(0, x.load(0, [8]).sum(0));
    let text = only("overflow").launch(sum, (&x, &mut y)).unwrap_err().to_string();
    assert!(text.contains("overflow: 200 + 200 does not fit u8"), "{text}");
    let scan = |x: Array<u8, 1>, y: ArrayMut<u8, 1>| y.store(0, x.load(0, [8]).cumsum(0));
    assert!(only("overflow").launch(scan, (&x, &mut y)).is_err());
    let own = |x: Array<u8, 1>, y: ArrayMut<u8, 1>| y.store(0, ct::reduce(x.load(0, [8]), 0, 0u8, |a, b| a + b));
    assert!(only("overflow").launch(own, (&x, &mut y)).is_err());
    let few = |x: Array<u8, 1>, y: ArrayMut<u8, 1>| y.store(0, x.load(0, [2]).sum(0));
    only("all").launch(few, (&x, &mut y)).unwrap();
}

#[test]
fn shifts() {
    let left = |x, y| told::<u32>("shifts", |x, y| x << y, x, y);
    assert_eq!(left([1, 2, 3], [0, 31, 5]), None);
    assert_eq!(left([1, 2, 3], [0, 32, 5]).as_deref(), Some("a shift too far: 2 << 32 in u32, which has 32 bits"));
    let text = "a shift too far: -2 >> 255 in i8, which has 8 bits";
    assert_eq!(told::<i8>("shifts", |x, y| x >> y, [1, -2, 3], [0, -1, 5]).as_deref(), Some(text));
}

#[test]
fn casts() {
    fn cast<T, U>(x: [T; 2]) -> Option<String>
    where
        T: ByteSized + Number + ct::element::CastTo<U>,
        U: ByteSized + Number,
    {
        let device = ct::Device::cpu();
        let (x, mut y) = (device.array(&x, [2]).unwrap(), device.zeros([2]).unwrap());
        let kernel = |x: Array<T, 1>, y: ArrayMut<U, 1>| y.store(0, x.load(0, [2]).cast::<U>());
        ct::launch(kernel, 1, (&x, &mut y)).unwrap();
        let text = only("casts").launch(kernel, (&x, &mut y)).err()?.to_string();
        Some(text.split_once("range: ").unwrap().1.split(',').next().unwrap().to_owned())
    }
    assert_eq!(cast::<f32, i32>([-2147483648.0, 2147483500.0]), None);
    assert_eq!(
        cast::<f32, i32>([1.0, 2147483648.0]).as_deref(),
        Some("2147483648 does not fit i32 at [1] of the tile")
    );
    assert_eq!(cast::<f64, u8>([f64::NAN, 1.0]).as_deref(), Some("NaN does not fit u8 at [0] of the tile"));
    assert_eq!(cast::<f64, u8>([-0.5, 255.5]), None);
    assert_eq!(cast::<f64, u64>([-1.0, 255.5]).as_deref(), Some("-1 does not fit u64 at [0] of the tile"));
    let low = |text: &str| Some(format!("{text} (`wrapping_cast` keeps low bits) at [1] of the tile"));
    assert_eq!(cast::<i32, u8>([255, 256]), low("256 does not fit u8"));
    assert_eq!(cast::<i32, i8>([-128, 127]), None);
    assert_eq!(cast::<i8, u32>([1, -1]), low("-1 does not fit u32"));
    assert_eq!(cast::<u32, i64>([1, u32::MAX]), None);
    assert_eq!(cast::<i32, f32>([1, i32::MAX]), None);
}

#[test]
fn unwritten_scratch() {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>, whole: bool) {
        let own = ct::scratch::<i32, 1>([8]);
        own.store(0, x.load(0, [4]));
        if whole {
            own.scatter(ct::arange_from::<i32>(4, 4, 1), x.load(0, [4]));
        }
        y.store(ct::bid(0), own.load(0, [8]));
    }
    let device = ct::Device::cpu();
    let (x, mut y) = (device.full([4], 1).unwrap(), device.zeros([16]).unwrap());
    all(2).launch(kernel, (&x, &mut y, Constant(true))).unwrap();
    ct::launch(kernel, 2, (&x, &mut y, Constant(false))).unwrap();
    let text = said(all(2).launch(kernel, (&x, &mut y, Constant(false))));
    let want = "<-6>:33: element 4 of scratch memory was never written at [4] of the tile, and a store at <-6>:11 uses it\n  \
                in tile block (0, 0, 0)";
    assert_eq!(text, want);
    // By pointers, by atomics; values that are not selected.
    let gathers = |y: ArrayMut<i32, 1>| {
        let own = ct::scratch::<i32, 1>([8]);
        own.store(1, ct::ones([4]));
        let even = (ct::arange(0..8)).ge(4);
        y.store(0, even.select(own.gather(ct::arange(0..8)), 0));
    };
    all(1).launch(gathers, (&mut y,)).unwrap();
    let gathers = |y: ArrayMut<i32, 1>| {
        let own = ct::scratch::<i32, 1>([8]);
        own.store(1, ct::ones([4]));
        y.store(0, own.gather(ct::arange(0..8)));
    };
    let text = said(all(1).launch(gathers, (&mut y,)));
    assert!(text.contains("element 0 of scratch memory was never written"), "{text}");
    let counts = |y: ArrayMut<i32, 1>| {
        let own = ct::scratch::<i32, 1>([8]);
        y.store_scalar(0, own.entry(3).atomic_add(1));
    };
    let text = said(all(1).launch(counts, (&mut y,)));
    assert!(text.contains("element 3 of scratch memory was never written, and is updated here"), "{text}");
}

#[test]
fn a_doubtful_number_is_an_error_where_it_is_used() {
    let device = ct::Device::cpu();
    let (zero, mut y) = (device.zeros([4]).unwrap(), device.zeros([4]).unwrap());
    macro_rules! used {
        ($what:literal, |$doubtful:ident, $zeros:ident, $y:ident| $body:expr) => {{
            let kernel = |zero: Array<i32, 1>, $y: ArrayMut<i32, 1>| {
                let $zeros = zero.load(0, [4]);
                let $doubtful = zero.load_scalar(0) + 1 / zero.load_scalar(0);
                $body;
            };
            let text = all(1).launch(kernel, (&zero, &mut y)).unwrap_err().to_string();
            assert!(text.contains(concat!("division by zero: 1 / 0 in i32, and ", $what, " at ")), "{text}");
        }};
    }
    used!("a store", |x, zeros, y| y.store(0, zeros + x));
    used!("a branch", |x, zeros, y| ct::if_then(x.eq(0), || y.store(0, zeros)));
    used!("the range of a loop", |x, zeros, y| ct::fold(..x, (), |(), _| y.store(0, zeros)));
    used!("an index", |x, zeros, y| y.store(x, zeros));
    used!("an index", |x, _zeros, y| y.store(0, y.load(x, [4])));
    used!("an assertion", |x, _zeros, _y| ct::assert!(x.eq(0)));
    used!("a print", |x, _zeros, _y| ct::println!("{x}"));
    used!("an atomic operation", |x, _zeros, y| y.entry(0).atomic_add(x));
    used!("an index or mask", |x, zeros, y| y.store(0, y.gather(zeros + x)));
    // Through loops, branches, reductions, and moves of elements.
    used!("a store", |x, zeros, y| y.store(0, ct::fold(..3, zeros, |sum, _| sum + x)));
    used!("a store", |x, zeros, y| y.store(0, ct::if_else(ct::bid(0).eq(0), || zeros + x, || zeros)));
    used!("a store", |x, zeros, y| y.store(0, (zeros + x).sum(0)));
    used!("a store", |x, zeros, y| y.store(0, ct::cat([zeros.extract([0], [2]), (zeros + x).extract([1], [2])], 0)));
    // Unused values: not selected, without an effect, or without a use.
    let kernel = |zero: Array<i32, 1>, y: ArrayMut<i32, 1>| {
        let (zeros, x) = (zero.load(0, [4]), 1 / zero.load_scalar(0));
        y.store(0, (ct::arange(0..4).lt(0)).select(zeros + x, zeros));
        ct::if_then(zero.load_scalar(0).ne(0) & x.eq(0), || y.store(0, zeros));
        let line = (ct::arange(0..4).eq(2)).select(zeros / zeros, zeros);
        y.store(0, line.extract([0], [2]).reshape([2]));
    };
    all(1).launch(kernel, (&zero, &mut y)).unwrap();
}

#[test]
fn races() {
    fn same(y: ArrayMut<i32, 1>) {
        y.store(ct::bid(0) / 2, ct::full::<i32, 1>([4], ct::bid(0)));
    }
    let mut y = ct::Device::cpu().zeros([8]).unwrap();
    let text = all(4).launch(same, (&mut y,)).unwrap_err().to_string();
    let want = "a race: this writes element 0 of an array of 8, which tile block (0, 0, 0) writes at tests/checks.rs:";
    assert!(text.contains(want) && text.ends_with("in tile block (1, 0, 0)"), "{text}");
}

/// A lock as in `examples/mutex.rs`; `acquires`, `releases`: or not.
fn under_lock(lock: ArrayMut<i32, 1>, sums: ArrayMut<i32, 1>, acquires: bool, releases: bool) {
    let (lock, free) = (lock.entry(0), ct::AtomicOptions::new());
    let relaxed = free.relaxed(ct::Scope::Device);
    let (take, give) = (if acquires { free } else { relaxed }, if releases { free } else { relaxed });
    ct::while_loop((), |()| lock.atomic_cas_with(0, 1, take).ne(0), |()| ());
    sums.store(0, sums.load(0, [4]) + 1);
    lock.atomic_xchg_with(0, give);
}

#[test]
fn orders_are_seen() {
    let device = ct::Device::cpu();
    for (acquires, releases) in [(true, true), (false, true), (true, false), (false, false)] {
        let (mut lock, mut sums) = (device.zeros([1]).unwrap(), device.zeros([4]).unwrap());
        let arguments = (&mut lock, &mut sums, Constant(acquires), Constant(releases));
        let result = all(20).launch(under_lock, arguments);
        assert_eq!(result.is_ok(), acquires && releases, "{acquires} {releases}: {result:?}");
        if let Err(error) = result {
            let text = error.to_string();
            assert!(text.contains("a race: this ") && text.contains("element 0 of an array of 4"), "{text}");
        }
    }
}

#[test]
fn races_before_an_acquire_are_found() {
    // One block produces, one consumes. The consumer also writes an element that the producer
    // reads, which is a race with or without an acquire.
    fn kernel(x: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>, faulty: bool) {
        let flag = flag.entry(0);
        let release = ct::AtomicOptions::new().release(ct::Scope::Device);
        let acquire = ct::AtomicOptions::new().acquire(ct::Scope::Device);
        ct::if_else(
            ct::bid(0).eq(0),
            || {
                x.store(0, ct::ones([4]));
                flag.atomic_xchg_with(1, release);
                if faulty {
                    x.store(0, ct::zeros([4]));
                }
            },
            || {
                ct::while_loop((), |()| flag.atomic_add_with(0, acquire).eq(0), |()| ());
                y.store(0, x.load(0, [4]));
            },
        );
    }
    let device = ct::Device::cpu();
    for faulty in [false, true] {
        let arrays = || device.zeros([4]).unwrap();
        let (mut x, mut flag, mut y) = (arrays(), arrays(), arrays());
        let result = all(2).launch(kernel, (&mut x, &mut flag, &mut y, Constant(faulty)));
        assert_eq!(result.is_err(), faulty, "{result:?}");
    }
}

/// The faults of kernels of `examples` that work for a second block of each tile.
#[test]
fn planted_in_examples() {
    let device = ct::Device::cpu();
    // As in histogram.rs, without atomics.
    fn histogram(x: Array<u8, 1>, bins: ArrayMut<i32, 1>, tile: usize) {
        let at = x.load([ct::bid(0)], [tile]).cast::<i32>();
        bins.scatter(at, bins.gather(at) + 1);
    }
    let (x, mut bins) = (device.full([512], 7u8).unwrap(), device.zeros([256]).unwrap());
    let text = all(4).launch(histogram, (&x, &mut bins, Constant(128))).unwrap_err().to_string();
    assert!(text.contains("a race: this reads element 7 of an array of 256"), "{text}");
    // As in prefix_sum.rs, by tickets: the block's number in place of the ticket's.
    fn ticket(y: ArrayMut<i32, 1>, next: ArrayMut<i32, 1>) {
        let mine = next.entry(0).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
        y.store([mine / 2], ct::full::<i32, 1>([4], mine));
    }
    let (mut y, mut next) = (device.zeros([64]).unwrap(), device.zeros([1]).unwrap());
    assert!(
        all(16).launch(ticket, (&mut y, &mut next)).unwrap_err().to_string().contains("a race: this writes element")
    );
}

#[test]
fn checks_belong_to_the_code() {
    let device = ct::Device::cpu();
    let mut y = device.zeros([4]).unwrap();
    let kernel = |y: ArrayMut<i32, 1>| y.store(0, ct::ones::<i32, 1>([4]) / y.load(0, [4]));
    let (plain, checked) = (ct::compile(kernel, (&mut y,)).unwrap(), all(1).compile(kernel, (&mut y,)).unwrap());
    plain.launch(1, (&mut y,)).unwrap();
    assert!(checked.launch(1, (&mut y,)).is_err());
    assert!(all(1).launch_compiled(&checked, (&mut y,)).is_err());
    ct::Launch::new(1).checks(ct::Checks::none()).launch_compiled(&checked, (&mut y,)).unwrap();
    let text = all(1).launch_compiled(&plain, (&mut y,)).unwrap_err().to_string();
    assert!(text.contains("was compiled without the checks"), "{text}");
    assert!(ct::Checks { races: true, ..ct::Checks::none() } == "races".parse().unwrap());
    assert!("race".parse::<ct::Checks>().unwrap_err().contains("expected all, races, bounds"));
}

#[test]
fn promises_become_assertions() {
    fn kernel(x: Array<f32, 2>, at: Array<i32, 1>, y: ArrayMut<f32, 2>, n: Scalar<i32>) {
        // SAFETY: that is the subject of the test.
        let (n, load, gather) = unsafe {
            let load = ct::LoadOptions::new().check_bounds(false);
            (n.assume_divisible_by(8).assume_bounds(0..1000), load, ct::GatherOptions::new().check_bounds(false))
        };
        let rows = x.gather_with((at.load(0, [16]).reshape([16, 1]), ct::arange(0..32).reshape([1, 32])), gather);
        y.store((n, 0), x.load_with([ct::bid(0), n], [16, 32], load) + rows);
    }
    let x = ct::ArraySpec::<f32, 2>::new([100, 100]);
    let at = ct::ArraySpec::<i32, 1>::new([100]);
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        let plain = ct::inspect(kernel, (x, at, x.mutable(), 8)).target(target).ptx().unwrap();
        let code = ct::inspect(kernel, (x, at, x.mutable(), 8)).target(target);
        let checked = code.checks("bounds".parse().unwrap()).ptx().unwrap();
        assert!(!plain.contains("atom.") && checked.matches("atom.").count() >= 5, "{checked}");
    }
    let code = ct::inspect(kernel, (x, at, x.mutable(), 8)).checks(ct::Checks::all());
    let refused = code.ptx().unwrap_err().to_string();
    assert!(refused.contains("the ptx back end checks only assumptions"), "{refused}");
    // The check of races records stores to `y` twice, and loads of `x` never.
    let kernel = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| y.store(ct::bid(0), x.load(ct::bid(0), [64]));
    for target in [ct::Target::SM_80, ct::Target::SM_90A] {
        let x = ct::ArraySpec::<f32, 1>::new([100]);
        let code = ct::inspect(kernel, (x, x.mutable())).target(target);
        let checked = code.checks("races".parse().unwrap()).ptx().unwrap();
        let records = checked.lines().filter(|line| line.contains(".max.s64")).count();
        assert!(records >= 2 && records % 2 == 0, "{checked}");
    }
}

/// A tile or scalar is used: a doubtful element is an error.
macro_rules! used {
    ($($value:expr),+ $(,)?) => {$(
        let value = $value;
        ct::assert!(value.eq(value) | value.ne(value));
    )+};
}

/// Operations that the library puts together of others, on the extreme numbers of each integer
/// type.
#[test]
fn operations_of_the_library_raise_no_alarm_on_integers() {
    macro_rules! each {
        ($($name:ident)+) => {$({
            let (least, most) = ($name::MIN, $name::MAX);
            let data = [least, most, 0, 1, most - 1, least + 1, most / 2, most / 2 + 1];
            let kernel = |x: Array<$name, 1>| {
                let (x, y) = (x.load(0, [8]), x.load(0, [8]).flip(0));
                let (keys, values) = ct::sort_by_key(x, y, 0);
                used!(x.sort(0), x.sort_descending(0), x.argsort(0), x.argsort_descending(0), keys, values);
                used!(x.top_k(0, 2).0, x.top_k(0, 4).1, x.top_k(0, 8).0);
                used!(x.argmax(0), x.argmin(0), x.cummax(0), x.cummin(0), x.histogram(4));
                used!(x.reduce_max(0), x.reduce_min(0), x.reduce_and(0), x.reduce_or(0), x.reduce_xor(0));
                used!(ct::astile([7i32, 5, 3, 1, 0, 2, 4, 6]).gather(0, x), x.gather(0, y));
                used!(x.count_ones(), x.leading_zeros(), x.trailing_zeros(), x.reverse_bits(), !x, x & y, x | y, x ^ y);
                used!(x.funnel_shl(y, 3), x.funnel_shr(y, x), x.rotate_left(y), x.rotate_right(3));
                used!(x.saturating_add(y), x.saturating_sub(y), x.mul_hi(y), x.powi(3), x.relu());
                used!(x.wrapping_add(y), x.wrapping_sub(y), x.wrapping_mul(y), x.clamp(1, 5), x.max(y), x.min(y));
                used!(x.cast_saturating::<i8>(), x.cast_saturating::<u64>(), x.cast_saturating::<u32>());
                used!(x.wrapping_cast::<u8>(), x.wrapping_cast::<i64>(), x.cast::<f32>(), x.bitcast::<$name>());
                used!(x.sum_as::<f64>(0), x.cast::<f64>().cumsum(0), x.cast::<bool>());
                used!(x.get(ct::scalar(most)), x.set(ct::scalar(most), 3), x.extract(ct::scalar(least), [2]));
                used!(x.interleave(y, 0), x.repeat([2]), x.reshape([2, 4]).transpose());
                used!(x.cast_narrow::<ct::packed::u4>().codes(), x.cast_narrow::<ct::packed::i3>().cast::<i32>());
            };
            let x = ct::Device::cpu().array(&data, [8]).unwrap();
            all(1).launch(kernel, (&x,)).unwrap_or_else(|error| panic!("{}: {error}", stringify!($name)));
        })+};
    }
    each!(i8 i16 i32 i64 u8 u16 u32 u64);
}

#[test]
fn divisors_raise_no_alarm() {
    macro_rules! each {
        ($($name:ident)+) => {$({
            let (least, most) = ($name::MIN, $name::MAX);
            let data = [least, most, 0, 1, most - 1, least + 1, most / 2, most / 2 + 1];
            let kernel = |x: Array<$name, 1>, z: ArrayMut<$name, 2>, d: Scalar<$name>| {
                let (x, d) = (x.load(0, [8]), ct::math::Divisor::new(d));
                let (quotient, rest) = d.div_rem(x);
                used!(x / d, x % d);
                z.store((0, 0), quotient.unsqueeze(0));
                z.store((1, 0), rest.unsqueeze(0));
            };
            let device = ct::Device::cpu();
            let (x, mut z) = (device.array(&data, [8]).unwrap(), device.zeros([2, 8]).unwrap());
            for d in data {
                let of = |x: $name| if d == 0 { (0, x) } else { (x.wrapping_div(d), x.wrapping_rem(d)) };
                all(1).launch(kernel, (&x, &mut z, d)).unwrap_or_else(|error| panic!("{d}: {error}"));
                let wanted = data.map(|x| of(x).0).into_iter().chain(data.map(|x| of(x).1));
                assert_eq!(z.to_vec().unwrap(), wanted.collect::<Vec<$name>>(), "{d}");
            }
        })+};
    }
    each!(i32 u32);
}

#[test]
fn random_numbers_raise_no_alarm() {
    fn kernel(y: ArrayMut<i32, 1>, seed: Scalar<u64>, at: Scalar<i64>, low: Scalar<i32>, high: Scalar<i32>) {
        let numbers = ct::random::Philox::new(seed, seed);
        y.store(0, numbers.range(0, [64], low..high));
        used!(numbers.range(ct::at(at), [6], -5..i32::MAX), numbers.range(at, [8], i32::MIN..i32::MAX));
        used!(numbers.bits(at, [8]), numbers.bits(ct::at(at), [8]), numbers.bits(ct::at(ct::full([8], at)), [8]));
        used!(numbers.uniform::<f32, 1>(at, [8]), numbers.uniform::<f64, 2>((at, at), [2, 6]));
        used!(numbers.uniform::<f16, 3>((at, at, at), [2, 2, 4]), numbers.uniform::<bf16, 1>(ct::at(at), [6]));
        used!(numbers.normal::<f32, 1>(at, [8]), numbers.normal::<f64, 1>(at, [8]), numbers.normal::<f16, 1>(at, [8]));
        used!(numbers.exponential::<f32, 1>(at, [8]), numbers.exponential::<f64, 1>(at, [8]));
        let p = numbers.uniform::<f32, 1>(0, [1]).item();
        let coins = numbers.bernoulli(at, [8], p);
        ct::assert!(coins | !coins);
        ct::with_mode(ct::FloatMode::new().approx(), || {
            used!(numbers.normal::<f32, 1>(at, [8]), numbers.exponential::<f32, 1>(at, [8]));
        });
    }
    let mut y = ct::Device::cpu().zeros([64]).unwrap();
    for (low, high) in
        [(-5, i32::MAX), (i32::MIN, i32::MAX), (i32::MAX - 1, i32::MAX), (0, 6), (i32::MIN, i32::MIN + 1)]
    {
        for at in [0, -1, i64::MAX, i64::MIN, 1 << 33, 1 << 62] {
            all(1).launch(kernel, (&mut y, u64::MAX, at, low, high)).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(y.to_vec().unwrap().iter().all(|number| (low..high).contains(number)));
        }
    }
}

#[test]
fn operations_of_the_library_raise_no_alarm_on_floats() {
    macro_rules! each {
        ($($name:ident)+) => {$({
            let number = |x: f64| <$name as Element>::from_f64(x);
            let (most, nan) = (number(3e38), number(f64::NAN));
            let data = [number(f64::INFINITY), number(f64::NEG_INFINITY), nan, number(0.0), number(-0.0), most, -most, number(1e-30)];
            let kernel = |x: Array<$name, 1>| {
                let (x, y) = (x.load(0, [8]), x.load(0, [8]).flip(0));
                used!(x.sort(0), x.sort_descending(0), x.argsort(0), x.top_k(0, 4).1, x.argmax(0), x.argmin_nan(0));
                used!(x.cummax(0), x.cumsum(0), x.cumprod(0), x.softmax(0), x.log_softmax(0), x.sum(0), x.prod(0));
                used!(x.exp(), x.log(), x.sin(), x.tan(), x.sinpi(), x.cospi(), x.pow(y), x.powi(-7), x.erf(), x.erfc());
                used!(x.erfinv(), x.lgamma(), x.gelu(), x.gelu_tanh(), x.silu(), x.softplus(), x.sigmoid(), x.tanh());
                used!(x.asin(), x.acosh(), x.atan2(y), x.cbrt(), x.hypot(y), x.expm1(), x.log1p(), x.exp10(), x.log10());
                used!(x.round(), x.round_ties_even(), x.fract(), x.nextafter(y), x.copysign(y), x.signum(), x.clamp(y, y));
                used!(x.cast_narrow::<ct::packed::f6e2m3>().codes());
                used!(x.floor_div(y), x.modulo(y), x % y, x.isfinite());
            };
            let x = ct::Device::cpu().array(&data, [8]).unwrap();
            all(1).launch(kernel, (&x,)).unwrap_or_else(|error| panic!("{}: {error}", stringify!($name)));
        })+};
    }
    each!(f16 bf16 f32 f64);
}

/// Blocks beyond the last tile have numbers that mean nothing, which is no division by zero.
#[test]
fn blocks_in_groups_raise_no_alarm() {
    fn kernel(y: ArrayMut<i32, 2>, rows: Scalar<i32>, columns: Scalar<i32>) {
        let [i, j] = ct::swizzle_2d(ct::bid(0), rows, columns, 4);
        used!(i, j);
        ct::if_then(ct::bid(0).lt(rows * columns), || y.store((i, j), ct::full([1, 1], 1)));
    }
    let mut y = ct::Device::cpu().zeros([5, 3]).unwrap();
    for (rows, columns) in [(5, 3), (0, 3), (5, 0)] {
        all(64).launch(kernel, (&mut y, rows, columns)).unwrap();
    }
    assert_eq!(y.to_vec().unwrap(), [1; 15]);
}
