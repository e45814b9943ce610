//! Indices, extents, steps and bounds of u32, u64 and i64 up to the largest numbers of these types.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($kernel:ident $wanted:ident: $($name:ident)+;)+) => {$($(
            suite.lean(concat!("unsigned/", stringify!($kernel), "/", stringify!($name)), |session| {
                let far = FAR.iter().filter_map(|&number| $name::try_from(number).ok());
                for number in [0, 3, 63].into_iter().chain(far) {
                    let wanted = $wanted(usize::try_from(number)?.min(1 << 20));
                    let x = session.array(&(1..=EXTENT as i32).collect::<Vec<_>>(), [EXTENT])?;
                    let mut y = session.array(&vec![-7; wanted.len()], [wanted.len()])?;
                    session.launch($kernel::<$name>, [1], (&x, &mut y, number))?;
                    let what = format!("results of {number}");
                    session.check(&what, &y, &|[i]| Want::exactly(wanted[i]))?;
                }
                Ok(())
            });
        )+)+};
    }
    each! {
        pieces wanted_pieces: u32 u64 i64;
        parts wanted_parts: u32 u64 i64;
        loads wanted_loads: u32 u64 i64;
        stores wanted_stores: u32 u64 i64;
    }
    suite.lean("unsigned/bounds", bounds);
    suite.lean("unsigned/tables", tables);
    suite.lean("unsigned/random", random);
}

/// Elements of the array: 1, 2, 3, and so on.
const EXTENT: usize = 64;

/// Numbers beyond each array: around the largest numbers of each type, and those whose product with
/// a step is 0 modulo 2^64.
const FAR: [u64; 13] = [
    i32::MAX as u64,
    1 << 31,
    (1 << 31) + 1,
    u32::MAX as u64,
    1 << 32,
    1 << 61,
    1 << 62,
    (1 << 62) + 1,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];

/// Element `i` of the array; 0 outside.
fn element(i: usize) -> i32 {
    if i < EXTENT { i as i32 + 1 } else { 0 }
}

/// The sum of the elements of a range.
fn sum(range: std::ops::Range<usize>) -> i32 {
    range.map(element).sum()
}

/// Elements and parts of tiles.
fn pieces<I: Int>(x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<I>) {
    let t = x.load(0, [EXTENT]);
    y.store_scalar(0, t.get([i]));
    y.store_scalar(1, t.extract([i], [4]).sum(0));
    y.store_scalar(2, t.set([i], 1000).argmax(0));
    y.store_scalar(3, t.insert([i], ct::full([4], 1000)).argmax(0));
    y.store_scalar(4, t.gather(0, ct::full([1], i)).item());
}

fn wanted_pieces(i: usize) -> Vec<i32> {
    let (i, block) = (i.min(EXTENT - 1), i.min(EXTENT / 4 - 1));
    vec![element(i), sum(4 * block..4 * block + 4), i as i32, 4 * block as i32, element(i)]
}

/// Parts of arrays.
fn parts<I: ct::ops::Count>(x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<I>) {
    let sum = |x: Array<i32, 1>| x.load(0, [EXTENT]).sum(0);
    y.store_scalar(0, sum(x.slice(0, i..)));
    y.store_scalar(1, sum(x.slice(0, ..i)));
    y.store_scalar(2, sum(x.slice(0, i..i)));
    y.store_scalar(3, sum(x.slice(0, ct::range(3, i))));
    y.store_scalar(4, sum(x.slice(0, ct::range(i, 9))));
    y.store_scalar(5, sum(x.step(0, i)));
    y.store_scalar(6, sum(x.reshape([i])));
    let matrix = x.reshape((8, 8));
    y.store_scalar(7, matrix.index_axis(0, i).load(0, [8]).sum(0));
    y.store_scalar(8, matrix.index_axis(1, i).load(0, [8]).sum(0));
    y.store_scalar(9, x.reshape((2, i)).load((0, 0), [2, EXTENT]).sum(..).item());
}

fn wanted_parts(i: usize) -> Vec<i32> {
    vec![
        sum(i..EXTENT.max(i)),
        sum(0..i.min(EXTENT)),
        0,
        sum(3..i.clamp(3, EXTENT)),
        sum(i.min(9)..9),
        (0..EXTENT).step_by(i.max(1)).map(element).sum(),
        sum(0..i.min(EXTENT)),
        if i < 8 { sum(8 * i..8 * i + 8) } else { 0 },
        if i < 8 { (0..8).map(|row| element(8 * row + i)).sum() } else { 0 },
        if i == 0 || i > EXTENT { 0 } else { sum(0..(2 * i).min(EXTENT / i * i)) },
    ]
}

/// Loads.
fn loads<I: Int>(x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<I>) {
    y.store_scalar(0, x.load_scalar(i));
    y.store_scalar(1, x.load(i, [4]).sum(0));
    y.store_scalar(2, x.load(ct::at(i), [4]).sum(0));
    y.store_scalar(3, x.tiled([8]).step([4]).load(i).sum(0));
    y.store_scalar(4, x.load(ct::at(ct::full([4], i)), [4]).sum(0));
    y.store_scalar(5, x.gather(ct::full([4], i)).sum(0));
    y.store_scalar(6, x.entry(i).load());
    // The other axes of a list count elements.
    let matrix = x.reshape((8, 8));
    let rows = ct::arange(0..2);
    y.store_scalar(7, matrix.load((ct::at(rows), i), [2, 4]).sum(..).item());
    y.store_scalar(8, matrix.load((ct::at(rows), ct::at(i)), [2, 4]).sum(..).item());
    y.store_scalar(9, matrix.tiled([2, 8]).step([2, 4]).load((ct::at(rows), i)).sum(..).item());
}

fn wanted_loads(i: usize) -> Vec<i32> {
    let columns = |from: usize, count: usize| {
        let columns = from.min(8)..(from + count).min(8);
        columns.map(|column| element(column) + element(8 + column)).sum()
    };
    vec![
        element(i),
        sum(4 * i..4 * i + 4),
        sum(i..i + 4),
        sum(4 * i..4 * i + 8),
        4 * element(i),
        4 * element(i),
        element(i),
        columns(4 * i, 4),
        columns(i, 4),
        columns(4 * i, 8),
    ]
}

/// Stores and atomics: each adds to one of four arrays of 64 elements.
fn stores<I: Int>(x: Array<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<I>) {
    let part = |number: usize| y.slice(0, number * EXTENT..(number + 1) * EXTENT);
    let (ones, rows) = (x.load(0, [4]), ct::arange(0..2));
    part(0).store(ct::at(i), ones);
    part(1).store(i, ones);
    part(2).atomic_store_add(ct::at(i), ones);
    part(3).tiled([4]).step([2]).atomic_store_add(i, ones);
    part(4).scatter(ct::full([1], i), ct::full([1], 9));
    part(5).reshape((8, 8)).atomic_store_add((ct::at(rows), i), ones.unsqueeze(0).broadcast_to([2, 4]));
    part(6).atomic_store_add(ct::at(ct::full([1], i)), ct::full([1], 1));
}

fn wanted_stores(i: usize) -> Vec<i32> {
    let mut all = vec![-7; 7 * EXTENT];
    let mut put = |part: usize, at: usize, value: i32, adds: bool| {
        if at < EXTENT {
            let old = &mut all[part * EXTENT + at];
            *old = if adds { *old + value } else { value };
        }
    };
    for k in 0..4 {
        let value = element(k);
        put(0, i + k, value, false);
        put(1, 4 * i + k, value, false);
        put(2, i + k, value, true);
        put(3, 2 * i + k, value, true);
        if 4 * i + k < 8 {
            put(5, 4 * i + k, value, true);
            put(5, 8 + 4 * i + k, value, true);
        }
    }
    put(4, i, 9, false);
    put(6, i, 1, true);
    all
}

/// Host numbers of ranges that count in an unsigned type.
fn bounds(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>, three: Scalar<u32>, four: Scalar<u64>) {
        let sum = |x: Array<i32, 1>| x.load(0, [EXTENT]).sum(0);
        y.store_scalar(0, sum(x.slice(0, ct::range(three, 3_000_000_000u32))));
        y.store_scalar(1, sum(x.slice(0, ct::range(four, usize::MAX))));
        y.store_scalar(2, sum(x.slice(0, ct::range(usize::MAX, four))));
    }
    let x = session.array(&(1..=EXTENT as i32).collect::<Vec<_>>(), [EXTENT])?;
    let mut y = session.unwritten([3])?;
    session.launch(kernel, [1], (&x, &mut y, 3u32, 4u64))?;
    session.check("sums", &y, &|[i]| Want::exactly([sum(3..EXTENT), sum(4..EXTENT), 0][i]))
}

/// Arrays of a table: those beyond it are empty.
fn tables(session: Session) -> Result<()> {
    fn kernel(x: ct::Arrays<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<u64>) {
        y.store_scalar(0, x.get(i).load(0, [4]).sum(0));
    }
    let (a, b) = (session.array(&[1, 2, 3], [3])?, session.array(&[10, 20, 30], [3])?);
    let table = ct::ArrayTable::new(&[&a, &b])?;
    for (i, wanted) in [(0, 6), (1, 60), (2, 0), (1 << 63, 0), ((1 << 63) + 1, 0), (u64::MAX, 0)] {
        let mut y = session.unwritten([1])?;
        session.launch(kernel, [1], (&table, &mut y, i))?;
        session.check(&format!("array {i}"), &y, &|_| Want::exactly(wanted))?;
    }
    Ok(())
}

/// Positions of random numbers are modulo their period of 2^34, and so without an end.
fn random(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<u32, 1>, i: Scalar<u64>) {
        let numbers = ct::random::Philox::new(1, 2);
        let low = i & ((1 << 34) - 1);
        y.store(0, numbers.bits(ct::at(i), [8]) ^ numbers.bits(ct::at(low), [8]));
        y.store(1, numbers.bits(i, [8]) ^ numbers.bits(low, [8]));
        y.store(2, numbers.bits(ct::at(ct::full([8], i)), [8]) ^ numbers.bits(ct::at(low), [1]));
    }
    for i in [0, 5, 1 << 34, (1 << 63) + 5, u64::MAX] {
        let mut y = session.unwritten([24])?;
        session.launch(kernel, [1], (&mut y, i))?;
        session.check(&format!("position {i}"), &y, &|_| Want::exactly(0u32))?;
    }
    Ok(())
}
