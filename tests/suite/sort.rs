//! Sorting within tiles, the largest elements.

use std::cmp::Ordering;

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random, specials};
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("sort/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(sort: f64 f32 f16 bf16 i8 i64 u16 u64);
    each!(long: f32);
    each!(positions: f32 i64 u16);
    each!(by_key: f32 u8);
    each!(top: f32 bf16 i32 u16);
}

/// -0 before +0, NaNs last.
fn order<T: Element>(a: T, b: T) -> Ordering {
    match T::DTYPE.is_float() {
        true => {
            let positive = |x: f64| if x.is_nan() { f64::NAN } else { x };
            positive(a.to_f64()).total_cmp(&positive(b.to_f64()))
        }
        false => value(a).cmp(&value(b)),
    }
}

/// Random elements, all special ones, and many that are equal.
fn data<T: Element>(seed: u64, count: usize) -> Vec<T> {
    let mut data = random::<T>(seed, count, Spread::Any);
    let few = random::<T>(seed + 1, count, Spread::Whole(3));
    data.iter_mut().zip(few).step_by(3).for_each(|(x, few)| *x = few);
    data.iter_mut().skip(1).step_by(2).zip(specials::<T>()).for_each(|(x, special)| *x = special);
    data
}

/// Rows and columns of tiles.
fn sort<T: ct::ops::Sorted>(session: Session) -> Result<()> {
    fn kernel<T: ct::ops::Sorted>(x: Array<T, 2>, rows: ArrayMut<T, 2>, back: ArrayMut<T, 2>, columns: ArrayMut<T, 2>) {
        let at = [ct::bid(0), ct::bid(1)];
        let x = x.load(at, [8, 32]);
        rows.store(at, x.sort(1));
        back.store(at, x.sort_descending(1));
        columns.store(at, x.sort(0));
    }
    let shape = [16, 64];
    let data = data::<T>(1, shape[0] * shape[1]);
    let x = session.array(&data, shape)?;
    let mut results = [(); 3].map(|()| session.unwritten::<T, 2>(shape)).into_iter().collect::<Result<Vec<_>>>()?;
    let [rows, back, columns] = &mut results[..] else { unreachable!("three arrays") };
    session.launch(kernel::<T>, [2, 2], (&x, &mut *rows, &mut *back, &mut *columns))?;
    let at = |i, j| data[ravel([i, j], shape)];
    let line = |i: usize, j: usize| {
        let mut all: Vec<T> = (j / 32 * 32..j / 32 * 32 + 32).map(|j| at(i, j)).collect();
        all.sort_by(|a, b| order(*a, *b));
        all
    };
    session.check("rows", rows, &|[i, j]| Want::exactly(line(i, j)[j % 32]))?;
    session.check("descending", back, &|[i, j]| Want::exactly(line(i, j)[31 - j % 32]))?;
    let column = |i: usize, j: usize| {
        let first = i / 8 * 8;
        let mut all: Vec<T> = (first..first + 8).map(|i| at(i, j)).collect();
        all.sort_by(|a, b| order(*a, *b));
        all
    };
    session.check("columns", columns, &|[i, j]| Want::exactly(column(i, j)[i % 8]))
}

/// Rows of which a thread holds as many elements as it can, other ones from step to step. The
/// assembler of Tile IR takes minutes for long ones.
fn long<T: ct::ops::Sorted>(session: Session) -> Result<()> {
    fn kernel<T: ct::ops::Sorted>(x: Array<T, 2>, y: ArrayMut<T, 2>, n: usize) {
        y.store((ct::bid(0), 0), x.load((ct::bid(0), 0), [1, n]).sort(1));
    }
    let n = if session.through_tile_ir() { 256 } else { 4096 };
    let data = data::<T>(17, 2 * n);
    let x = session.array(&data, [2, n])?;
    let mut y = session.unwritten::<T, 2>([2, n])?;
    session.launch(kernel::<T>, [2], (&x, &mut y, Constant(n)))?;
    let mut rows = data;
    rows.chunks_mut(n).for_each(|row| row.sort_by(|&a, &b| order(a, b)));
    session.check("rows", &y, &|[i, j]| Want::exactly(rows[n * i + j]))
}

/// Stable in both directions, of a line that many warps share.
fn positions<T: ct::ops::Sorted>(session: Session) -> Result<()> {
    fn kernel<T: ct::ops::Sorted>(x: Array<T, 1>, up: ArrayMut<i32, 1>, down: ArrayMut<i32, 1>, n: usize) {
        let i = ct::bid(0);
        let x = x.load(i, [n]);
        up.store(i, x.argsort(0));
        down.store(i, x.argsort_descending(0));
    }
    let n = if session.through_tile_ir() && session.only_compiles() { 64 } else { 256 };
    let data = data::<T>(3, 2 * n);
    let x = session.array(&data, [2 * n])?;
    let (mut up, mut down) = (session.unwritten::<i32, 1>([2 * n])?, session.unwritten::<i32, 1>([2 * n])?);
    session.launch(kernel::<T>, [2], (&x, &mut up, &mut down, Constant(n)))?;
    let sorted = |at: usize, descending: bool| {
        let part = &data[at / n * n..][..n];
        let mut all: Vec<i32> = (0..n as i32).collect();
        all.sort_by(|&a, &b| {
            let order = order(part[a as usize], part[b as usize]);
            if descending { order.reverse() } else { order }
        });
        all[at % n]
    };
    session.check("up", &up, &|[at]| Want::exactly(sorted(at, false)))?;
    session.check("down", &down, &|[at]| Want::exactly(sorted(at, true)))
}

/// Rows with values of several widths, one of them a mask; columns with one.
fn by_key<T: ct::ops::Sorted>(session: Session) -> Result<()> {
    fn kernel<T: ct::ops::Sorted>(
        keys: Array<T, 2>,
        (wide, half, mask): (Array<f64, 2>, Array<f16, 2>, Array<bool, 2>),
        rows: (ArrayMut<T, 2>, ArrayMut<f64, 2>, ArrayMut<f16, 2>, ArrayMut<bool, 2>),
        columns: ArrayMut<f16, 2>,
        width: usize,
    ) {
        let (at, tile) = ((ct::bid(0), 0), [16, width]);
        let key = keys.load(at, tile);
        let values = [wide.load(at, tile)];
        let (sorted, ([wide], (half_sorted, mask))) =
            ct::sort_by_key(key, (values, (half.load(at, tile), mask.load(at, tile))), 1);
        rows.0.store(at, sorted);
        rows.1.store(at, wide);
        rows.2.store(at, half_sorted);
        rows.3.store(at, mask);
        columns.store(at, ct::sort_by_key(key, half.load(at, tile), 0).1);
    }
    // tileiras takes minutes for wider tiles.
    let width = if session.through_tile_ir() && session.only_compiles() { 16 } else { 64 };
    let shape = [32, width];
    let keys = data::<T>(11, shape[0] * shape[1]);
    let (wide, half) = (random::<f64>(13, keys.len(), Spread::Any), random::<f16>(14, keys.len(), Spread::Any));
    let mask = random::<bool>(15, keys.len(), Spread::Any);
    let arrays = (session.array(&wide, shape)?, session.array(&half, shape)?, session.array(&mask, shape)?);
    let device_keys = session.array(&keys, shape)?;
    let mut sorted = session.unwritten::<T, 2>(shape)?;
    let mut wides = session.unwritten::<f64, 2>(shape)?;
    let (mut halves, mut columns) = (session.unwritten::<f16, 2>(shape)?, session.unwritten::<f16, 2>(shape)?);
    let mut masks = session.unwritten::<bool, 2>(shape)?;
    let rows = (&mut sorted, &mut wides, &mut halves, &mut masks);
    session.launch(
        kernel::<T>,
        [2],
        (&device_keys, (&arrays.0, &arrays.1, &arrays.2), rows, &mut columns, Constant(width)),
    )?;
    let from = |i: usize, j: usize| {
        let mut all: Vec<usize> = (width * i..width * (i + 1)).collect();
        all.sort_by(|&a, &b| order(keys[a], keys[b]));
        all[j]
    };
    session.check("keys", &sorted, &|[i, j]| Want::exactly(keys[from(i, j)]))?;
    session.check("wide", &wides, &|[i, j]| Want::SameBits(wide[from(i, j)].to_bits()))?;
    session.check("half", &halves, &|[i, j]| Want::SameBits(u64::from(half[from(i, j)].to_bits())))?;
    session.check("mask", &masks, &|[i, j]| Want::exactly(mask[from(i, j)]))?;
    session.check("columns", &columns, &|[i, j]| {
        let mut all: Vec<usize> = (i / 16 * 16..i / 16 * 16 + 16).map(|i| ravel([i, j], shape)).collect();
        all.sort_by(|&a, &b| order(keys[a], keys[b]));
        Want::SameBits(u64::from(half[all[i % 16]].to_bits()))
    })
}

fn top<T: ct::ops::Sorted>(session: Session) -> Result<()> {
    fn kernel<T: ct::ops::Sorted>(x: Array<T, 2>, y: ArrayMut<T, 2>, at: ArrayMut<i32, 2>) {
        let (largest, positions) = x.load((ct::bid(0), 0), [8, 32]).top_k(1, 4);
        y.store((ct::bid(0), 0), largest);
        at.store((ct::bid(0), 0), positions);
    }
    let data = data::<T>(5, 16 * 32);
    let x = session.array(&data, [16, 32])?;
    let (mut y, mut at) = (session.unwritten::<T, 2>([16, 4])?, session.unwritten::<i32, 2>([16, 4])?);
    session.launch(kernel::<T>, [2], (&x, &mut y, &mut at))?;
    let found = |i: usize, j: usize| {
        let part = &data[32 * i..][..32];
        let mut all: Vec<usize> = (0..32).collect();
        all.sort_by(|&a, &b| order(part[a], part[b]).reverse());
        (part[all[j]], all[j] as i32)
    };
    session.check("largest", &y, &|[i, j]| Want::exactly(found(i, j).0))?;
    session.check("positions", &at, &|[i, j]| Want::exactly(found(i, j).1))
}
