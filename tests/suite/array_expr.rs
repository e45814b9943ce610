//! Expressions over whole arrays, and arrays made on their device. (These launch by themselves.)

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::element::ByteSized;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::{value, wrapped};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("array_expr/", stringify!($function), "/", stringify!($name)), |session| match session {
                Session::Run(device) => $function::<$name>(session, device),
                _ => Ok(()),
            });
        )+};
    }
    each!(elements: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(reductions: i8 i32 u64);
    each!(floats: f64 f32 f16);
    each!(scans: i16 i32 u32);
    each!(long_sums: i8 i16 i32 i64 u64 f16 bf16 f32 f64);
    each!(created: f64 f32 bf16 i8 u16 i64);
    macro_rules! one {
        ($($function:ident)+) => {$(
            suite.test(concat!("array_expr/", stringify!($function)), |session| match session {
                Session::Run(device) => $function(session, device),
                _ => Ok(()),
            });
        )+};
    }
    one!(ranks between numbers masks nothing refused long_functions long_lines);
}

/// Arrays: rows and columns of a matrix, and a part of it.
fn forms<T: Element>(array: &DeviceArray<T, 2>) -> Result<[(&'static str, DeviceView<'_, T, 2>); 4]> {
    let [m, n] = array.shape();
    Ok([
        ("whole", array.view()),
        ("transposed", array.transpose()?),
        ("part", array.slice(0, 1..m)?.slice(1, n / 3..n - 1)?),
        ("steps", array.step(0, 2)?.step(1, 3)?.transpose()?),
    ])
}

/// Each element of a form, as the host finds it.
fn host<T: Element>(view: DeviceView<'_, T, 2>) -> Result<impl Fn([usize; 2]) -> T> {
    let (data, shape) = (view.to_vec()?, view.shape());
    Ok(move |at| data[ravel(at, shape)])
}

/// Elements that expressions read and write, of every type and form.
fn elements<T: ByteSized>(session: Session, device: ct::Device) -> Result<()> {
    for shape in [[37, 70], [3, 2500], [1300, 5]] {
        let data = random::<T>(1, shape[0] * shape[1], Spread::Any);
        let array = device.array(&data, shape)?;
        for (form, view) in forms(&array)? {
            let what = format!("{form} of {shape:?}");
            let copy = view.expr().to_array()?;
            let from = host(view)?;
            session.check(&what, &copy, &|at| Want::SameBits(from(at).to_bits()))?;
            // Into places with gaps, and in another form.
            let [m, n] = view.shape();
            let mut target = session.unwritten::<T, 2>([2 * n, m])?;
            let other = device.array(&random::<bool>(2, m * n, Spread::Any), [n, m])?;
            view.zip(other.transpose()?, |x, keep| ct::select(keep, x, T::from_f64(1.0)))
                .store_into(target.view_mut().step(0, 2)?.transpose()?)?;
            let keep = other.to_vec()?;
            session.check(&what, &target, &|[i, j]| match i % 2 {
                0 if keep[ravel([i / 2, j], [n, m])] => Want::SameBits(from([j, i / 2]).to_bits()),
                0 => Want::exactly(T::from_f64(1.0)),
                _ => Want::exactly(crate::harness::unwritten::<T>()),
            })?;
        }
    }
    Ok(())
}

/// Expressions of 0, 1, 3 and 4 axes.
fn ranks(session: Session, device: ct::Device) -> Result<()> {
    let point = device.array(&[3i32], [])?;
    session.check("a point", &point.expr().map(|x| x * 7).to_array()?, &|[]| Want::exactly(21))?;
    ensure!(point.expr().sum_all()? == 3, "the sum of a point");
    let shape = [7, 33, 3, 11];
    let all: Vec<i32> = (0..7 * 33 * 3 * 11).collect();
    let array = device.array(&all, shape)?;
    let turned = array.permute([2, 0, 3, 1])?;
    let from = |[i, j, k, l]: [usize; 4]| ravel([j, l, i, k], shape) as i32;
    session.check("four", &turned.expr().map(|x| x ^ 5).to_array()?, &|at| Want::exactly(from(at) ^ 5))?;
    let space = device.array(&all, [11, 21, 33])?;
    let slice = space.slice(1, 2..7)?;
    let sums = slice.expr().sum(1)?;
    session.check("three", &sums, &|[i, _, k]| {
        Want::exactly((2..7).map(|j| ravel([i, j, k], [11, 21, 33]) as i32).sum::<i32>())
    })?;
    let first = turned.expr().reduce_all(-1, |a, b| ct::select(a.lt(0), b, a))?;
    let last = turned.expr().reduce_all(-1, |a, b| ct::select(b.lt(0), a, b))?;
    ensure!((first, last) == (0, all.len() as i32 - 1), "from {first} to {last}");
    Ok(())
}

type Reduced<T> = (&'static str, fn(DeviceView<'_, T, 2>, usize) -> ct::Result<DeviceArray<T, 2>>, fn(&[T]) -> Want);

fn check_reductions<T: ByteSized>(session: Session, device: ct::Device, data: &[T], rows: &[Reduced<T>]) -> Result<()> {
    for shape in [[37, 50], [2, data.len() / 2], [data.len() / 3, 3]] {
        let array = device.array(&data[..shape[0] * shape[1]], shape)?;
        for (form, view) in forms(&array)? {
            let from = host(view)?;
            for axis in [0, 1] {
                let [extent, others] = [view.shape()[axis], view.shape()[1 - axis]];
                let line = |other: usize| -> Vec<T> {
                    (0..extent).map(|k| from(if axis == 0 { [k, other] } else { [other, k] })).collect()
                };
                let lines: Vec<Vec<T>> = session.expected(|| (0..others).map(line).collect());
                for (name, reduce, want) in rows {
                    let result = reduce(view, axis)?;
                    let what = format!("{name} along {axis} of {form} of {shape:?}");
                    session.check(&what, &result, &|at| want(&lines[at[1 - axis]]))?;
                }
            }
        }
    }
    Ok(())
}

/// The last element that is not 0: the order counts.
fn last_of<T: Number>(a: Scalar<T>, b: Scalar<T>) -> Scalar<T> {
    ct::select(b.eq(T::from_f64(0.0)), a, b)
}

fn last<T: Number>(line: &[T]) -> Want {
    let zero = T::from_f64(0.0);
    Want::exactly(line.iter().rev().find(|x| **x != zero).copied().unwrap_or(zero))
}

/// Returns random numbers, most of them zeros.
fn some<T: Element>(seed: u64, count: usize) -> Vec<T> {
    let mut data = random::<T>(seed, count, Spread::Any);
    data.iter_mut().enumerate().filter(|(i, _)| i % 7 != 3).for_each(|(_, x)| *x = T::from_f64(0.0));
    data.iter_mut().step_by(5).zip(random::<T>(seed + 1, count, Spread::Whole(3))).for_each(|(x, few)| *x = few);
    data
}

fn reductions<T: Int>(session: Session, device: ct::Device) -> Result<()> {
    let rows: [Reduced<T>; 5] = [
        ("sum", |x, axis| x.sum(axis), |line| wrapped::<T>(line.iter().map(|x| value(*x)).sum())),
        (
            "prod",
            |x, axis| x.map(|x| x | T::from_bits(1)).prod(axis),
            |line| wrapped::<T>(line.iter().fold(1i128, |product, x| product.wrapping_mul(value(*x) | 1))),
        ),
        ("max", |x, axis| x.max(axis), |line| wrapped::<T>(line.iter().map(|x| value(*x)).max().expect("a number"))),
        ("min", |x, axis| x.min(axis), |line| wrapped::<T>(line.iter().map(|x| value(*x)).min().expect("a number"))),
        ("last", |x, axis| x.reduce(axis, T::from_f64(0.0), last_of), last),
    ];
    let data = some::<T>(3, 90_001);
    check_reductions(session, device, &data[..9001], &rows)?;
    let array = device.array(&data, [data.len()])?;
    let sum = array.expr().sum_all()?;
    ensure!(wrapped::<T>(data.iter().map(|x| value(*x)).sum()).accepts(sum), "the sum of all is {sum:?}");
    let largest = array.step(0, 3)?.expr().max_all()?;
    let wanted = data.iter().step_by(3).map(|x| value(*x)).max().expect("a number");
    ensure!(value(largest) == wanted, "{largest:?} instead of {wanted}");
    let found = array.expr().reduce_all(T::from_f64(0.0), last_of)?;
    ensure!(last(&data).accepts(found), "the last one is {found:?}");
    Ok(())
}

/// Reductions of floats, with a tolerance relative to the terms.
fn floats<T: Float>(session: Session, device: ct::Device) -> Result<()> {
    let rows: [Reduced<T>; 2] = [
        ("sum", |x, axis| x.sum(axis), |line| Want::SumOf(line.iter().map(|x| x.to_f64()).sum())),
        ("max", |x, axis| x.max(axis), |line| Want::nearest(line.iter().fold(f64::NAN, |a, x| a.max(x.to_f64())))),
    ];
    // Sums that f16 holds.
    let data: Vec<T> = random::<T>(5, 4001, Spread::Whole(1));
    check_reductions(session, device, &data[..2001], &rows)?;
    let x = random::<T>(6, 5000, Spread::Between(-1.0, 1.0));
    let mean = device.array(&x, [50, 100])?.expr().map(|x| x * x).sum_all()?.to_f64() / 5000.0;
    let wanted = x.iter().map(|x| x.to_f64().powi(2)).sum::<f64>() / 5000.0;
    ensure!((mean - wanted).abs() < 0.02, "{mean} instead of {wanted}");
    Ok(())
}

fn scans<T: Int>(_: Session, device: ct::Device) -> Result<()> {
    let data = some::<T>(7, 40_000);
    for shape in [[37, 50], [2, 20_000], [13_333, 3]] {
        let array = device.array(&data[..shape[0] * shape[1]], shape)?;
        for (form, view) in forms(&array)? {
            let from = host(view)?;
            for axis in [0, 1] {
                let what = format!("{form} of {shape:?} along {axis}");
                let of_all = |found: &DeviceArray<T, 2>, name: &str, join: &dyn Fn(i128, i128) -> i128| {
                    let (found, shape) = (found.to_vec()?, view.shape());
                    let others = shape[1 - axis];
                    for line in 0..others {
                        let mut before = None;
                        for k in 0..shape[axis] {
                            let at = if axis == 0 { [k, line] } else { [line, k] };
                            let now = value(from(at));
                            let next = before.map_or(now, |before| join(before, now));
                            let got = found[ravel(at, shape)];
                            ensure!(wrapped::<T>(next).accepts(got), "{name} {what}: {got:?} at {at:?}");
                            before = Some(value(got));
                        }
                    }
                    Ok(())
                };
                of_all(&view.cumsum(axis)?, "sums", &|a, b| a + b)?;
                let zero = T::from_f64(0.0);
                of_all(&view.scan(axis, zero, last_of)?, "last", &|a, b| if b == 0 { a } else { b })?;
            }
        }
    }
    let long = device.array(&data, [data.len()])?;
    let odd = long.expr().map(|x| x | T::from_bits(1)).cumprod(0)?.to_vec()?;
    let mut product = 1i128;
    for (x, y) in data.iter().zip(odd) {
        product = product.wrapping_mul(value(*x) | 1);
        ensure!(wrapped::<T>(product).accepts(y), "products: {y:?}");
    }
    Ok(())
}

/// Sums of lines that many blocks share: exact if no sum is rounded, else the same in each launch.
fn long_sums<T: Number>(_: Session, device: ct::Device) -> Result<()> {
    let longest = match device == ct::Device::cpu() {
        true => 50_003,
        false if T::DTYPE.bits() == 32 => 1 << 22,
        false => 100_003,
    };
    for n in [32_769, longest] {
        let mut data = random::<T>(n as u64, n, Spread::Any);
        if T::DTYPE.is_float() {
            // Differences: the sum of any that follow one another is small.
            let heights = random::<T>(n as u64, n + 1, Spread::Whole(100));
            data = heights.windows(2).map(|pair| T::from_f64(pair[1].to_f64() - pair[0].to_f64())).collect();
        }
        if T::DTYPE == ct::dtype::DType::BF16 {
            // It has integers up to 256 alone, and a sum begins anywhere: at most 200 ones.
            let apart = n.div_ceil(200);
            let one = |i: usize, x: T| if i.is_multiple_of(apart) { x.to_f64().signum() } else { 0.0 };
            data = data.iter().enumerate().map(|(i, &x)| T::from_f64(one(i, x))).collect();
        }
        let sums = device.array(&data, [n])?.expr().cumsum(0)?.to_vec()?;
        let (mut whole, mut real) = (0i128, 0.0);
        for (i, (x, sum)) in data.iter().zip(sums).enumerate() {
            if T::DTYPE.is_float() {
                real += x.to_f64();
                ensure!(sum.to_f64() == real, "{sum:?} instead of {real} at {i} of {n}");
            } else {
                whole = whole.wrapping_add(value(*x));
                ensure!(wrapped::<T>(whole).accepts(sum), "{sum:?} instead of {whole} at {i} of {n}");
            }
        }
    }
    let n = 40_001;
    let array = device.array(&random::<T>(17, n, Spread::Between(-1.0, 1.0)), [n])?;
    let bits = || -> Result<Vec<u64>> { Ok(array.expr().cumsum(0)?.to_vec()?.iter().map(|x| x.to_bits()).collect()) };
    let first = bits()?;
    for _ in 0..if device == ct::Device::cpu() { 1 } else { 3 } {
        ensure!(bits()? == first, "other sums another time");
    }
    Ok(())
}

/// x -> a x + b in a word, a in the upper half: first the one on the left, then the other. The
/// order counts.
fn composed(first: Scalar<u32>, then: Scalar<u32>) -> Scalar<u32> {
    let (a, b) = (then >> 16, then & 0xffff);
    ((first >> 16).wrapping_mul(a) << 16) | ((first & 0xffff).wrapping_mul(a).wrapping_add(b) & 0xffff)
}

fn composed_on_the_host(first: u32, then: u32) -> u32 {
    let (a, b) = (then >> 16, then & 0xffff);
    ((first >> 16).wrapping_mul(a) << 16) | ((first & 0xffff).wrapping_mul(a).wrapping_add(b) & 0xffff)
}

/// Functions that do not commute, of words, of masks and of elements of two words.
fn long_functions(_: Session, device: ct::Device) -> Result<()> {
    let n = if device == ct::Device::cpu() { (1 << 15) + 77 } else { (1 << 20) + 77 };
    // Odd factors, so that none is lost.
    let data: Vec<u32> = random::<u32>(11, n, Spread::Any).iter().map(|x| x | 0x1_0000).collect();
    let array = device.array(&data, [n])?;
    let check = |found: Vec<u32>, what: &str| {
        let mut all = 0x1_0000;
        for (i, (x, found)) in data.iter().zip(found).enumerate() {
            all = composed_on_the_host(all, *x);
            ensure!(found == all, "{what}: {found:#x} instead of {all:#x} at {i}");
        }
        Ok(())
    };
    check(array.expr().scan(0, 0x1_0000, composed)?.to_vec()?, "in a word")?;
    // The same in halves of an element of 64 bits.
    let wide = array.expr().map(|x| (x.cast::<u64>() >> 16 << 32) | (x & 0xffff).cast::<u64>());
    let wide = wide.scan(0, 1 << 32, |first, then| {
        let half = |x: Scalar<u64>| (x >> 32 << 16).wrapping_cast::<u32>() | x.wrapping_cast::<u32>();
        let all = composed(half(first), half(then)).cast::<u64>();
        (all >> 16 << 32) | (all & 0xffff)
    })?;
    check(wide.expr().map(|x| (x >> 32 << 16 | (x & 0xffff)).wrapping_cast::<u32>()).to_array()?.to_vec()?, "in two")?;
    let odd = array.expr().map(|x| (x & 64).ne(0)).scan(0, false, |a, b| a.ne(b))?.to_vec()?;
    let mut ones = 0;
    for (i, (x, odd)) in data.iter().zip(odd).enumerate() {
        ones += u32::from(x & 64 != 0);
        ensure!(odd == (ones % 2 == 1), "whether ones are odd at {i}");
    }
    Ok(())
}

/// A few lines, side by side or one after the other, in arrays that are read in any order.
fn long_lines(_: Session, device: ct::Device) -> Result<()> {
    for shape in [[3, 33_001], [34_001, 2], [1_100, 50], [40, 1_100]] {
        let data = random::<u32>(13, shape[0] * shape[1], Spread::Any);
        let array = device.array(&data, shape)?;
        for (form, view) in forms(&array)? {
            let from = host(view)?;
            // With an array in the other order.
            let [m, n] = view.shape();
            let turned = device.from_fn([n, m], |[i, j]| (i * 31 + j) as u32)?;
            let expr = view.zip(turned.transpose()?, |x, y| (x ^ y) | 0x1_0000);
            let of = |[i, j]: [usize; 2]| (from([i, j]) ^ (j * 31 + i) as u32) | 0x1_0000;
            for axis in [0, 1] {
                let (sums, all) = (expr.cumsum(axis)?.to_vec()?, expr.scan(axis, 0x1_0000, composed)?.to_vec()?);
                for line in 0..[n, m][axis] {
                    let (mut sum, mut function) = (0u32, 0x1_0000);
                    for k in 0..[m, n][axis] {
                        let at = if axis == 0 { [k, line] } else { [line, k] };
                        (sum, function) = (sum.wrapping_add(of(at)), composed_on_the_host(function, of(at)));
                        let found = (sums[ravel(at, [m, n])], all[ravel(at, [m, n])]);
                        ensure!(found == (sum, function), "{form} of {shape:?} along {axis}: {found:x?} at {at:?}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// Numbers that go in when it runs, several functions in one kernel, and one that captures.
fn numbers(session: Session, device: ct::Device) -> Result<()> {
    let x: Vec<f32> = (0..3000).map(|i| i as f32 / 8.0 - 100.0).collect();
    let array = device.array(&x, [3000])?;
    for (scale, shift) in [(2.0f32, 1i32), (-0.5, 7)] {
        let y = array
            .expr()
            .map_with(scale, |x, scale| x * scale)
            .zip(array.expr().map(|x| x.abs()), |a, b| a + b)
            .map_with(shift, |x, shift| x.cast::<i32>() + shift)
            .to_array()?;
        session.check("by argument", &y, &|[i]| Want::exactly((x[i] * scale + x[i].abs()) as i32 + shift))?;
        let y = array.expr().map(move |x| x * scale).to_array()?;
        session.check("by capture", &y, &|[i]| Want::exactly(x[i] * scale))?;
    }
    Ok(())
}

fn masks(session: Session, device: ct::Device) -> Result<()> {
    let data = random::<u8>(8, 90 * 40, Spread::Any);
    let array = device.array(&data, [90, 40])?;
    let line = |i: usize| data[40 * i..][..40].iter();
    let large = array.expr().map(|x| x.gt(250));
    session.check("any", &large.any(1)?, &|[i, _]| Want::exactly(line(i).any(|x| *x > 250)))?;
    session
        .check("all", &array.expr().map(|x| x.lt(252)).all(1)?, &|[i, _]| Want::exactly(line(i).all(|x| *x < 252)))?;
    session.check("count", &large.count(1)?, &|[i, _]| Want::exactly(line(i).filter(|x| **x > 250).count() as i32))
}

/// Arrays without elements.
fn nothing(session: Session, device: ct::Device) -> Result<()> {
    let none = device.zeros::<f32, 2>([5, 0])?;
    ensure!(none.expr().map(|x| x + 1.0).to_array()?.is_empty(), "elements of none");
    session.check("sums", &none.expr().sum(1)?, &|_| Want::exactly(0.0f32))?;
    session.check("largest", &none.expr().max(1)?, &|_| Want::exactly(f32::NEG_INFINITY))?;
    ensure!(none.expr().sum(0)?.shape() == [1, 0], "along the other axis");
    ensure!(none.expr().min_all()? == f32::INFINITY, "the smallest of none");
    let none_long = device.zeros::<f64, 2>([0, 100_000])?;
    ensure!(none_long.expr().cumsum(1)?.is_empty() && none_long.expr().cumsum(0)?.is_empty(), "long sums of none");
    ensure!(none.expr().cumsum(1)?.is_empty() && none.expr().cumsum(0)?.is_empty(), "sums of none");
    ensure!(device.linspace(0.0f32, 1.0, 0)?.is_empty() && device.eye::<i32>(0)?.is_empty(), "none made");
    Ok(())
}

fn refused(_: Session, device: ct::Device) -> Result<()> {
    let (a, b) = (device.zeros::<f32, 2>([2, 3])?, device.zeros::<f32, 2>([3, 2])?);
    let messages = [
        a.expr().zip(b.expr(), |x, y| x + y).to_array().expect_err("other shapes").to_string(),
        a.expr().zip(&b, |x, y| x + y).sum_all().expect_err("other shapes").to_string(),
        a.expr().sum(2).expect_err("no such axis").to_string(),
        a.expr().store_into(&mut device.zeros::<f32, 2>([3, 2])?).expect_err("another shape").to_string(),
    ];
    let wanted = [
        "an expression over arrays of shapes [2, 3] and [3, 2]: they must be equal",
        "an expression over arrays of shapes [2, 3] and [3, 2]: they must be equal",
        "along axis 2 of an array of shape [2, 3]",
        "an expression of shape [2, 3] into an array of [3, 2]",
    ];
    for (message, wanted) in messages.iter().zip(wanted) {
        ensure!(message.contains(wanted) && message.contains("array_expr.rs"), "{message}");
    }
    Ok(())
}

/// Numbers in a row, and the unit matrix.
fn created<T>(session: Session, device: ct::Device) -> Result<()>
where
    T: Number + cutlet::kernel::IntoKernelArg<Scalar<T>>,
    f64: cutlet::element::CastTo<T>,
    i64: cutlet::element::CastTo<T>,
{
    let (first, step) = (T::from_f64(5.0), T::from_f64(3.0));
    session.check("row", &device.arange(2500, first, step)?, &|[i]| match T::DTYPE.is_float() {
        true => Want::nearest(5.0 + 3.0 * i as f64),
        false => wrapped::<T>(5 + 3 * i as i128),
    })?;
    for n in [1, 5, 70] {
        let eye = device.eye::<T>(n)?;
        session.check("unit matrix", &eye, &|[i, j]| Want::exactly(T::from_f64(if i == j { 1.0 } else { 0.0 })))?;
    }
    Ok(())
}

fn between(session: Session, device: ct::Device) -> Result<()> {
    for n in [1, 2, 1000] {
        let between = device.linspace(-1.0f32, 2.5, n)?;
        let wanted = |i: usize| -1.0 + 3.5 * i as f64 / (n.max(2) - 1) as f64;
        session.check("between", &between, &|[i]| Want::Within { value: wanted(i), error: 2f64.powi(-23) })?;
        ensure!(between.to_vec()?[0] == -1.0 && (n == 1 || between.to_vec()?[n - 1] == 2.5), "the ends of {n}");
    }
    Ok(())
}
