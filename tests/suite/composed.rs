//! Functions that are put together of others: maps of several tiles, orders of blocks, locks.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("composed/zip_map", zip_map);
    suite.test("composed/map_reduce", map_reduce);
    suite.test("composed/swizzle", swizzle);
    suite.test("composed/lock", lock);
}

/// Rows and columns stretched against each other, and against a matrix.
fn zip_map(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, rows: Array<i32, 1>, columns: Array<i32, 1>, y: ArrayMut<f32, 2>) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let (rows, columns) = (rows.load(i, [16]).unsqueeze(1), columns.load(j, [32]).unsqueeze(0));
        let both = rows.zip_map(columns, |row, column| (10 * row - column).cast::<f32>());
        let row = columns.zip_map(x.load((i, j), [16, 32]), |column, x| x * column.cast::<f32>());
        y.store((i, j), both.zip_map(row, |a, b| a.max(b)));
    }
    let shape = [37, 70];
    let x = random::<f32>(1, 37 * 70, Spread::Whole(20));
    let (rows, columns) = (random::<i32>(2, 37, Spread::Whole(9)), random::<i32>(3, 70, Spread::Whole(9)));
    let (dx, dr, dc) = (session.array(&x, shape)?, session.array(&rows, [37])?, session.array(&columns, [70])?);
    let mut y = session.unwritten::<f32, 2>(shape)?;
    session.launch(kernel, [3, 3], (&dx, &dr, &dc, &mut y))?;
    session.check("larger", &y, &|[i, j]| {
        let (a, b) = ((10 * rows[i] - columns[j]) as f32, x[ravel([i, j], shape)] * columns[j] as f32);
        Want::SumOf(f64::from(a.max(b)))
    })
}

fn map_reduce(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i64, 2>, z: ArrayMut<i32, 2>) {
        let i = ct::bid(0);
        let x = x.load((i, 0), [8, 128]);
        y.store((i, 0), x.map_reduce(1, 0i64, |x| x.cast::<i64>() * x.cast::<i64>(), |a, b| a + b));
        z.store((i, 0), x.map_reduce([0, 1], 0, |x| x.abs(), |a, b| a.max(b)));
    }
    let shape = [30, 100];
    let x = random::<i32>(4, 3000, Spread::Whole(1 << 20));
    let dx = session.array(&x, shape)?;
    let (mut y, mut z) = (session.unwritten::<i64, 2>([30, 1])?, session.unwritten::<i32, 2>([4, 1])?);
    session.launch(kernel, [4], (&dx, &mut y, &mut z))?;
    session.check("squares", &y, &|[i, _]| {
        Want::exactly(x[100 * i..][..100].iter().map(|&x| i64::from(x) * i64::from(x)).sum::<i64>())
    })?;
    session.check("largest", &z, &|[i, _]| {
        Want::exactly(x[800 * i..].iter().take(800).map(|x| x.abs()).max().unwrap_or(0))
    })
}

/// Every place once, in the stated order.
fn swizzle(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 2>, columns: Scalar<i32>, group: usize) {
        let [row, column] = ct::swizzle_2d(ct::bid(0), y.extent(0), columns, group);
        y.entry([row, column]).atomic_add(ct::bid(0) + 1);
    }
    for ([rows, columns], group) in [([7, 5], 3), ([8, 8], 4), ([1, 9], 8), ([5, 1], 2), ([6, 4], 1), ([3, 11], 64)] {
        let mut y = session.array(&vec![0; rows * columns], [rows, columns])?;
        session.launch(kernel, [rows * columns], (&mut y, columns as i32, ct::Constant(group)))?;
        session.check(&format!("{rows} x {columns} by {group}"), &y, &|[i, j]| {
            let first = i / group * group;
            let height = group.min(rows - first);
            Want::exactly((first * columns + j * height + (i - first)) as i32 + 1)
        })?;
    }
    Ok(())
}

/// Ordinary loads and stores of many blocks under one lock, and under many.
fn lock(session: Session) -> Result<()> {
    fn kernel(locks: ArrayMut<i32, 1>, sums: ArrayMut<i32, 2>, last: ArrayMut<i32, 1>) {
        let which = ct::bid(0) % 3;
        let lock = ct::Lock::new(locks.entry(which));
        let before = lock.with(|| {
            let sum = sums.load((which, 0), [1, 64]);
            sums.store((which, 0), sum + ct::arange_from(64, 1, 1).unsqueeze(0));
            sum.get((0, 0))
        });
        lock.take();
        last.store_scalar(which, last.load_scalar(which).max(before));
        lock.give_back();
    }
    let mut locks = session.array(&[0; 3], [3])?;
    let (mut sums, mut last) = (session.array(&[0; 150], [3, 50])?, session.array(&[0; 3], [3])?);
    session.launch(kernel, [60], (&mut locks, &mut sums, &mut last))?;
    session.check("sums", &sums, &|[_, j]| Want::exactly(20 * (j as i32 + 1)))?;
    session.check("last", &last, &|_| Want::exactly(19))?;
    session.check("locks", &locks, &|_| Want::exactly(0))
}
