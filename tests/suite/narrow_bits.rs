//! Packed arrays of 1 to 8 bits: loads, stores and casts, for every format.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::packed::{Narrow, PackedArray, PackedArrayMut};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Runs a generic test for each of these formats; if code is only compiled, for those before the
/// bar.
macro_rules! formats {
    ($session:ident $test:ident: $($some:ident)+ | $($name:ident)+) => {{
        $($test::<ct::packed::$some>($session)?;)+
        if !$session.only_compiles() {
            $($test::<ct::packed::$name>($session)?;)+
        }
        Ok(())
    }};
}

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("narrow_bits/load/u", |s| formats!(s load: u4 u3 | u1 u2 u5 u6 u7));
    suite.test("narrow_bits/load/i", |s| formats!(s load: i4 i5 | i1 i2 i3 i6 i7));
    suite.test(
        "narrow_bits/load/f",
        |s| formats!(s load: f6e3m2 f4e2m1 | f3e1m1 f4e1m2 f5e1m3 f5e2m2 f5e3m1 f6e1m4 f6e2m3),
    );
    suite.test("narrow_bits/load/g", |s| formats!(s load: f7e5m1 | f6e4m1 f7e1m5 f7e2m4 f7e3m3 f7e4m2 f4e2m1fn));
    suite.test("narrow_bits/load/bytes", |s| {
        load::<i8>(s)?;
        load::<u8>(s)?;
        load::<f8e4m3fn>(s)?;
        load::<f8e5m2>(s)
    });
    suite.test("narrow_bits/load/scales", load::<f8e5m3fnu>);
    suite.test("narrow_bits/store/u", |s| formats!(s store: u4 u7 | u1 u2 u3 u5 u6));
    suite.test("narrow_bits/store/i", |s| formats!(s store: i3 i2 | i1 i4 i5 i6 i7));
    suite.test(
        "narrow_bits/store/f",
        |s| formats!(s store: f6e2m3 f4e2m1 | f3e1m1 f4e1m2 f5e1m3 f5e2m2 f5e3m1 f6e1m4 f6e3m2),
    );
    suite.test("narrow_bits/store/g", |s| formats!(s store: f7e4m2 | f6e4m1 f7e1m5 f7e2m4 f7e3m3 f7e5m1 f4e2m1fn));
    suite.test("narrow_bits/store/bytes", |s| {
        store::<i8>(s)?;
        store::<u8>(s)?;
        store::<f8e4m3fn>(s)
    });
    suite.test("narrow_bits/store/scales", store::<f8e5m3fnu>);
    suite.test("narrow_bits/from", |s| {
        from::<f16>(s)?;
        from::<bf16>(s)?;
        from::<f64>(s)?;
        from::<i64>(s)?;
        from::<u32>(s)?;
        from::<i8>(s)?;
        from::<bool>(s)
    });
    suite.test("narrow_bits/words", words);
    suite.test("narrow_bits/small", |s| formats!(s small: u4 i7 | u1 u2 i3 i5 f6e3m2));
    suite.test("narrow_bits/extents", |s| formats!(s extents: u4 f6e3m2 | i2 u5));
    suite.test("narrow_bits/rows", rows);
    suite.test("narrow_bits/product", product);
}

const ROWS: usize = 3;
const COLUMNS: usize = 150;

/// Every code, many times.
fn codes<F: Narrow>(count: usize) -> Vec<F> {
    (0..count).map(|i| F::from_code((i * 37 + i / 256 * 11) as u8)).collect()
}

/// A number as an i32: toward zero, the nearest end of the range, and NaN as 0.
fn whole(value: f64) -> Want {
    Want::exactly(value as i32)
}

/// All codes as f16, bf16, f32 and i32, with edges along both axes.
fn load<F: Narrow>(session: Session) -> Result<()> {
    fn kernel<F: Narrow>(
        x: PackedArray<F, 2>,
        (a, b): (ArrayMut<f16, 2>, ArrayMut<bf16, 2>),
        (c, d): (ArrayMut<f32, 2>, ArrayMut<i32, 2>),
        tile: [usize; 2],
    ) {
        let at = [ct::bid(0), ct::bid(1)];
        let x = x.load(at, tile);
        a.store(at, x.cast());
        b.store(at, x.cast());
        c.store(at, x.cast());
        d.store(at, x.cast());
    }
    let (shape, tile) = ([ROWS, COLUMNS], [2, 64]);
    let data = codes::<F>(ROWS * COLUMNS);
    let x = session.device().packed(&data, shape)?;
    let (mut a, mut b) = (session.unwritten(shape)?, session.unwritten(shape)?);
    let (mut c, mut d) = (session.unwritten(shape)?, session.unwritten(shape)?);
    session.launch(kernel::<F>, [2, 3], (&x, (&mut a, &mut b), (&mut c, &mut d), Constant(tile)))?;
    let value = |i: usize, j: usize| data[i * COLUMNS + j].to_value();
    let name = |to: &str| format!("{} to {to}", F::NAME);
    session.check(&name("f16"), &a, &|[i, j]| Want::nearest(value(i, j)))?;
    session.check(&name("bf16"), &b, &|[i, j]| Want::nearest(value(i, j)))?;
    session.check(&name("f32"), &c, &|[i, j]| Want::nearest(value(i, j)))?;
    session.check(&name("i32"), &d, &|[i, j]| whole(value(i, j)))
}

/// Returns all numbers, the midpoints of two of them, numbers adjacent to the midpoints, and
/// numbers beyond the largest.
fn probes<F: Narrow>() -> Vec<f32> {
    let mut numbers: Vec<f64> = (0..1u32 << F::BITS).map(|code| F::from_code(code as u8).to_value()).collect();
    numbers.retain(|number| number.is_finite());
    numbers.sort_by(f64::total_cmp);
    let mut probes: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    for pair in numbers.windows(2) {
        let middle = ((pair[0] + pair[1]) / 2.0) as f32;
        probes.extend([middle, middle.next_up(), middle.next_down()]);
    }
    let (least, most) = (probes[0], numbers[numbers.len() - 1] as f32);
    probes.extend([most * 1.01, most + 0.5, least * 1.01, least - 0.5, 3e38, -3e38, 1e-44, -1e-44, -0.0]);
    probes.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    probes
}

/// Compares a packed array element by element.
fn check_codes<F: Narrow, const R: usize>(
    session: Session,
    what: &str,
    got: &ct::packed::PackedDeviceArray<F, R>,
    want: &dyn Fn(usize) -> F,
) -> Result<()> {
    if session.only_compiles() {
        return Ok(());
    }
    for (i, got) in got.to_vec()?.into_iter().enumerate() {
        let want = want(i);
        ensure!(got.code() == want.code(), "{what}: {} at {i}: {got:?} instead of {want:?}", F::NAME);
    }
    Ok(())
}

/// Rounded, packed, and read again: zeros follow the end of a row.
fn store<F: Narrow>(session: Session) -> Result<()> {
    fn kernel<F: Narrow>(x: Array<f32, 2>, y: PackedArrayMut<F, 2>, z: ArrayMut<u8, 2>, tile: [usize; 2]) {
        let at = [ct::bid(0), ct::bid(1)];
        // Padding is the largest number, which must not be stored after the end of a row.
        let padded = ct::LoadOptions::new().padding(Padding::NaN);
        y.store(at, x.load_with(at, tile, padded).cast_narrow::<F>());
        z.store(at, y.load(at, tile).codes());
    }
    let data = probes::<F>();
    let columns = data.len().div_ceil(3);
    let shape = [3, columns];
    let at = |i: usize| data.get(i).copied().unwrap_or(1.0);
    let x = session.array(&(0..3 * columns).map(at).collect::<Vec<f32>>(), shape)?;
    let mut y = session.device().packed(&vec![F::from_code(0xff); 3 * columns], shape)?;
    let tiles = columns.div_ceil(64);
    let mut z = session.unwritten([4, tiles * 64])?;
    session.launch(kernel::<F>, [2, tiles], (&x, &mut y, &mut z, Constant([2, 64])))?;
    let want = |i: usize| F::from_value(at(i).into());
    check_codes(session, "stored", &y, &want)?;
    session.check(&format!("{} read again", F::NAME), &z, &|[i, j]| {
        Want::exactly(if i < 3 && j < columns { want(i * columns + j).code() } else { 0 })
    })
}

/// Words in an array of their own, and as the last columns of a larger one.
fn words(session: Session) -> Result<()> {
    fn kernel(x: PackedArray<ct::packed::i4, 2>, y: ArrayMut<i32, 2>) {
        let at = (0, ct::bid(0));
        y.store(at, x.load(at, [4, 64]).cast::<i32>());
    }
    let (shape, lead) = ([3, 201], 4);
    let all = ct::packed::PackedView::<ct::packed::i4, 2>::words(shape)[1];
    let word = |i: usize, j: usize| (i as u32 * 97 + j as u32).wrapping_mul(0x9e37_79b9);
    let data: Vec<u32> = (0..3 * (lead + all)).map(|k| word(k / (lead + all), k % (lead + all))).collect();
    let x = session.array(&data, [3, lead + all])?;
    let mut y = session.unwritten(shape)?;
    let view = ct::packed::PackedView::new(x.slice(1, lead..)?, shape)?;
    session.launch(kernel, [4, 1], (view, &mut y))?;
    session.check("of words", &y, &|[i, j]| {
        let code = (word(i, lead + j / 8) >> (j % 8 * 4)) as i32;
        Want::exactly(code << 28 >> 28)
    })
}

/// From every kind of element to an integer, a float and each other.
fn from<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(
        x: Array<T, 1>,
        a: PackedArrayMut<ct::packed::i4, 1>,
        b: PackedArrayMut<ct::packed::u5, 1>,
        c: PackedArrayMut<ct::packed::f6e3m2, 1>,
        d: PackedArrayMut<ct::packed::u2, 1>,
    ) {
        let x = x.load(0, [256]);
        a.store(0, x.cast_narrow());
        b.store(0, x.cast_narrow());
        let float = x.cast_narrow::<ct::packed::f6e3m2>();
        c.store(0, float);
        d.store(0, float.cast_narrow());
    }
    let mut data = random::<T>(5, 192, Spread::Any);
    data.extend((0..64).map(|i| T::from_f64((i as f64 - 32.0) / 2.0)));
    let x = session.array(&data, [256])?;
    let device = session.device();
    let (mut a, mut b) = (device.packed_zeros([256])?, device.packed_zeros([256])?);
    let (mut c, mut d) = (device.packed_zeros([256])?, device.packed_zeros([256])?);
    session.launch(kernel::<T>, [1], (&x, &mut a, &mut b, &mut c, &mut d))?;
    let value = |i: usize| data[i].to_f64();
    check_codes(session, T::NAME, &a, &|i| Narrow::from_value(value(i)))?;
    check_codes(session, T::NAME, &b, &|i| Narrow::from_value(value(i)))?;
    check_codes(session, T::NAME, &c, &|i| Narrow::from_value(value(i)))?;
    check_codes(session, T::NAME, &d, &|i| Narrow::from_value(ct::packed::f6e3m2::from_value(value(i)).to_value()))
}

/// Tiles of less than a word, and their adjacent stores.
fn small<F: Narrow>(session: Session) -> Result<()> {
    fn kernel<F: Narrow>(x: PackedArray<F, 1>, y: PackedArrayMut<F, 1>, z: PackedArrayMut<F, 1>) {
        let i = ct::bid(0);
        y.store(i, x.load(i, [8]));
        z.store(i, x.load(i, [16]));
    }
    let data = codes::<F>(77);
    let x = session.device().packed(&data, [77])?;
    let (mut y, mut z) = (session.device().packed_zeros([77])?, session.device().packed_zeros([61])?);
    session.launch(kernel::<F>, [10], (&x, &mut y, &mut z))?;
    check_codes(session, "tiles of 8", &y, &|i| data[i])?;
    check_codes(session, "tiles of 16", &z, &|i| data[i])
}

/// Rows of a tile that are no power of two.
fn extents<F: Narrow>(session: Session) -> Result<()> {
    fn kernel<F: Narrow>(x: PackedArray<F, 2>, y: PackedArrayMut<F, 2>, z: ArrayMut<f32, 2>) {
        let i = ct::bid(0);
        y.store((0, i), x.load((0, i), [2, 96]));
        z.store((0, i), x.load_as((0, i), [2, 24]));
    }
    let data = codes::<F>(400);
    let x = session.device().packed(&data, [2, 200])?;
    let (mut y, mut z) = (session.device().packed_zeros([2, 200])?, session.unwritten([2, 72])?);
    session.launch(kernel::<F>, [3], (&x, &mut y, &mut z))?;
    check_codes(session, "tiles of 96", &y, &|i| data[i])?;
    session.check("tiles of 24", &z, &|[i, j]| Want::nearest(data[i * 200 + j].to_value()))
}

/// Three axes; rows by a list of numbers.
fn rows(session: Session) -> Result<()> {
    fn kernel(x: PackedArray<ct::packed::u3, 3>, ids: Array<i32, 1>, y: ArrayMut<f32, 3>, z: ArrayMut<i32, 3>) {
        let part = ct::bid(0);
        y.store((part, 0, 0), x.load_as((part, 0, 0), [1, 4, 128]));
        let ids = ids.load(0, [4]);
        z.store((part, 0, 0), x.load_as((part, ct::at(ids), 1), [1, 4, 32]));
    }
    let shape = [2, 5, 100];
    let data = codes::<ct::packed::u3>(1000);
    let x = session.device().packed(&data, shape)?;
    let ids = [4, 0, 7, 2];
    let (mut y, mut z) = (session.unwritten([2, 4, 100])?, session.unwritten([2, 4, 32])?);
    session.launch(kernel, [2], (&x, &session.array(&ids, [4])?, &mut y, &mut z))?;
    let value = |i: usize, j: usize, k: usize| data[(i * 5 + j) * 100 + k].get();
    session.check("tiles", &y, &|[i, j, k]| Want::exactly(f32::from(value(i, j, k))))?;
    session.check("listed rows", &z, &|[i, j, k]| {
        Want::exactly(if ids[j] < 5 { i32::from(value(i, ids[j] as usize, 32 + k)) } else { 0 })
    })
}

/// Weights of 4 bits with a scale for 32 of them, multiplied.
fn product(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, w: PackedArray<ct::packed::i4, 2>, scales: Array<f16, 2>, y: ArrayMut<f32, 2>) {
        let j = ct::bid(0);
        let sum = ct::fold(..x.num_tiles(1, [32, 32]), ct::zeros::<f32, 2>([32, 64]), |sum, k| {
            let w = w.load((j, k), [64, 32]).cast::<f16>() * scales.load((j, k), [64, 1]);
            ct::mma(x.load((0, k), [32, 32]), w.transpose(), sum)
        });
        y.store((0, j), sum);
    }
    let (m, n, k) = (30, 70, 96);
    let x = random::<f16>(6, m * k, Spread::Whole(3));
    let weights: Vec<ct::packed::i4> = codes(n * k);
    let scales = random::<f16>(7, n * k / 32, Spread::Whole(2));
    let (xs, w) = (session.array(&x, [m, k])?, session.device().packed(&weights, [n, k])?);
    let mut y = session.unwritten([m, n])?;
    session.launch(kernel, [2], (&xs, &w, &session.array(&scales, [n, k / 32])?, &mut y))?;
    session.check("product", &y, &|[i, j]| {
        let term = |l: usize| x[i * k + l].to_f64() * weights[j * k + l].to_value() * scales[j * 3 + l / 32].to_f64();
        Want::SumOf((0..k).map(term).sum())
    })
}
