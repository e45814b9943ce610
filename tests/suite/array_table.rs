//! Tables of arrays: of one, two and five arrays of differing extents, contiguous and not.
//! Indices inside and outside, arrays written through a table, several tables. Arrays that a loop
//! describes in each iteration.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{ArrayTable, Arrays, ArraysMut, DeviceArray};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("array_table/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(loads: f32 f16 i64 u8 bool);
    suite.lean("array_table/views", views);
    suite.lean("array_table/stores", stores);
    suite.lean("array_table/in_a_loop", in_a_loop);
    suite.lean("array_table/products", products);
    suite.lean("array_table/shifted", shifted);
    suite.lean("array_table/wide_indices", wide_indices);
}

/// Extents of the arrays of a table.
fn shapes(count: usize) -> Vec<[usize; 2]> {
    [[37, 64], [16, 48], [1, 5], [50, 33], [128, 16]][..count].to_vec()
}

fn pick<T: ByteSized>(x: Arrays<T, 2>, at: Array<i32, 1>, y: ArrayMut<T, 3>, n: ArrayMut<i32, 2>) {
    let which = at.load_scalar(ct::bid(0));
    let x = x.get(which);
    let tile = x.load((ct::bid(1), ct::bid(2)), [16, 16]);
    y.store((ct::bid(0), ct::bid(1), ct::bid(2)), tile.unsqueeze(0));
    n.entry((ct::bid(0), 0)).store(x.extent(0));
    n.entry((ct::bid(0), 1)).store(x.extent(1));
}

/// Tiles of the arrays of a table, some of which do not exist.
fn loads<T: ByteSized>(session: Session) -> Result<()> {
    for (count, first) in [(1, 0), (2, 0), (5, 0), (2, 3)] {
        let shapes = shapes(first + count)[first..].to_vec();
        let data: Vec<Vec<T>> =
            shapes.iter().enumerate().map(|(i, s)| random(i as u64, s[0] * s[1], Spread::Any)).collect();
        let arrays: Vec<DeviceArray<T, 2>> =
            data.iter().zip(&shapes).map(|(data, &shape)| session.array(data, shape)).collect::<Result<_>>()?;
        let table = ArrayTable::new(&arrays.iter().collect::<Vec<_>>())?;
        let last = count as i32 - 1;
        let at = [0, last, count as i32, -1, i32::MIN, last / 2, i32::MAX];
        let index = session.array(&at, [7])?;
        let (mut y, mut n) = (session.unwritten::<T, 3>([7, 144, 80])?, session.unwritten::<i32, 2>([7, 2])?);
        session.launch(pick::<T>, [7, 9, 5], (&table, &index, &mut y, &mut n))?;
        let which = |i: usize| usize::try_from(at[i]).ok().filter(|&at| at < count);
        session.check("extents", &n, &|[i, axis]| Want::exactly(which(i).map_or(0, |at| shapes[at][axis] as i32)))?;
        let want = |[i, row, column]: [usize; 3]| {
            let inside = which(i).filter(|&at| row < shapes[at][0] && column < shapes[at][1]);
            Want::SameBits(inside.map_or(0, |at| data[at][ravel([row, column], shapes[at])].to_bits()))
        };
        session.check(&format!("{count} arrays"), &y, &want)?;
    }
    Ok(())
}

fn sums(x: Arrays<f32, 2>, y: ArrayMut<f32, 2>) {
    let all = ct::fold(..x.len(), ct::zeros::<f32, 2>([8, 32]), |all, i| {
        all + x.get(i).load((ct::bid(0), 0), [8, 32]) + x.get(i + 1).gather((0, ct::arange(0..32).unsqueeze(0)))
    });
    y.store((ct::bid(0), 0), all);
}

/// Views in any order of memory, and one array more than once.
fn views(session: Session) -> Result<()> {
    let (a, b) = (random::<f32>(1, 20 * 30, Spread::Whole(99)), random::<f32>(2, 40 * 20, Spread::Whole(99)));
    let (x, z) = (session.array(&a, [30, 20])?, session.array(&b, [20, 40])?);
    let turned = x.view().transpose()?;
    let part = z.view().slice(1, 3..)?.step(1, 2)?;
    let table = ArrayTable::new(&[turned, part, turned])?;
    let mut y = session.unwritten::<f32, 2>([24, 32])?;
    session.launch(sums, [3], (&table, &mut y))?;
    let first = |i: usize, j: usize| if i < 20 && j < 30 { a[j * 20 + i] } else { 0.0 };
    let second = |i: usize, j: usize| if i < 20 && j < 19 { b[i * 40 + 3 + 2 * j] } else { 0.0 };
    let want = |[i, j]: [usize; 2]| Want::exactly(2.0 * first(i, j) + second(i, j) + second(0, j) + first(0, j));
    session.check("sums", &y, &want)
}

fn fill(y: ArraysMut<i32, 1>, x: Arrays<i32, 1>) {
    let which = ct::bid(0);
    let (y, x) = (y.get(which - 1), x.get(y.len() - which));
    ct::fold(..y.num_tiles(0, [64]), (), |(), i| {
        y.store(i, x.load(i, [64]) + which);
        y.store(i, y.load(i, [64]) * 2);
        let at = i * 64 + ct::arange_from(64, 63, -1);
        y.scatter(at, y.gather(at) + 1);
    });
    y.entry(0).atomic_add(1000);
}

/// Writes elements through one table and reads them through another one, also without an array.
fn stores(session: Session) -> Result<()> {
    for count in [1, 2, 5] {
        let lengths: Vec<usize> = (0..count).map(|i| 50 + 77 * i).collect();
        let data: Vec<Vec<i32>> = (0..count).map(|i| random(20 + i as u64, 200, Spread::Whole(999))).collect();
        let read: Vec<DeviceArray<i32, 1>> =
            data.iter().map(|data| session.array(data, [200])).collect::<Result<_>>()?;
        let mut written: Vec<DeviceArray<i32, 1>> =
            lengths.iter().map(|&length| session.unwritten([length])).collect::<Result<_>>()?;
        let from = ArrayTable::new(&read.iter().collect::<Vec<_>>())?;
        let mut to = ArrayTable::new_mut(&mut written)?;
        session.launch(fill, [count + 2], (&mut to, &from))?;
        for (i, array) in written.iter().enumerate() {
            // Array i is that of block i + 1, which reads array count - i - 1.
            let want = |[j]: [usize; 1]| {
                let element = data[count - i - 1].get(j).copied().unwrap_or(0);
                Want::exactly((element + i as i32 + 1) * 2 + 1 + if j == 0 { 1000 } else { 0 })
            };
            session.check(&format!("array {i} of {count}"), array, &want)?;
        }
    }
    Ok(())
}

fn pass_on(x: ArraysMut<i32, 1>, y: ArrayMut<i32, 1>) {
    ct::fold(ct::range(1, x.len()), (), |(), i| {
        let (before, after) = (x.get(i - 1), x.get(i));
        after.store(0, after.load(0, [128]) + before.gather(ct::arange_from(128, 127, -1)));
    });
    y.store(0, x.get(x.len() - 1).load(0, [128]));
}

/// Elements that one iteration writes and another one reads, by other threads, from another array
/// or the same one.
fn in_a_loop(session: Session) -> Result<()> {
    let data: Vec<Vec<i32>> = (0..5).map(|i| random(30 + i as u64, 128, Spread::Whole(999))).collect();
    let mut arrays: Vec<DeviceArray<i32, 1>> =
        data.iter().map(|data| session.array(data, [128])).collect::<Result<_>>()?;
    let mut y = session.unwritten::<i32, 1>([128])?;
    let mut table = ArrayTable::new_mut(&mut arrays)?;
    session.launch(pass_on, [1], (&mut table, &mut y))?;
    let mut sum = data[0].clone();
    for data in &data[1..] {
        sum.reverse();
        sum.iter_mut().zip(data).for_each(|(sum, &x)| *sum += x);
    }
    session.check("sum", &y, &|[i]| Want::exactly(sum[i]))
}

fn multiply(a: Arrays<f16, 2>, b: Arrays<f16, 2>, c: ArraysMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
    let which = ct::bid(2);
    let (a, b, c) = (a.get(which), b.get(which), c.get(which));
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load((i, k), [tm, tk]), b.load((k, j), [tk, tn]), acc)
    });
    c.store((i, j), acc);
}

/// Products of the matrices of tables: of differing extents in one launch.
fn products(session: Session) -> Result<()> {
    let shapes = [[128, 64, 64], [64, 96, 128], [33, 17, 80]];
    let mut c = Vec::new();
    let (mut a, mut b, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &[m, n, k]) in shapes.iter().enumerate() {
        let x = random::<f16>(40 + i as u64, m * k, Spread::Whole(4));
        let y = random::<f16>(50 + i as u64, k * n, Spread::Whole(4));
        a.push(session.array(&x, [m, k])?);
        b.push(session.array(&y, [k, n])?);
        c.push(session.unwritten::<f32, 2>([m, n])?);
        let sum = |i: usize, j: usize| (0..k).map(|l| x[i * k + l].to_f32() * y[l * n + j].to_f32()).sum::<f32>();
        wanted.push((0..m * n).map(|at| sum(at / n, at % n)).collect::<Vec<f32>>());
    }
    let (a, b) = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    let (a, b, mut to) = (ArrayTable::new(&a)?, ArrayTable::new(&b)?, ArrayTable::new_mut(&mut c)?);
    session.launch(multiply, [2, 3, 3], (&a, &b, &mut to, Constant([64, 32, 32])))?;
    for (c, wanted) in c.iter().zip(&wanted) {
        session.check("product", c, &|[i, j]| Want::exactly(wanted[i * c.shape()[1] + j]))?;
    }
    Ok(())
}

fn shift(x: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>) {
    ct::fold(0..9, (), |(), i| {
        // The same element belongs to another thread in each iteration.
        let part = x.slice(0, i..i + 512);
        part.store(0, part.load(0, [512]) + i);
        // Each iteration writes the elements of the others, at another index.
        y.slice(0, 8 - i..).store(i, ct::full::<i32, 1>([1], i));
    });
}

/// Arrays that begin elsewhere in each iteration.
fn shifted(session: Session) -> Result<()> {
    let data = random::<i32>(60, 600, Spread::Whole(999));
    let (mut x, mut y) = (session.array(&data, [600])?, session.unwritten::<i32, 1>([32])?);
    session.launch(shift, [1], (&mut x, &mut y))?;
    let want =
        |[j]: [usize; 1]| Want::exactly(data[j] + (0..9).filter(|i| (*i..i + 512).contains(&j)).sum::<usize>() as i32);
    session.check("shifted", &x, &want)?;
    session.check("last one", &y, &|[j]| Want::exactly(if j == 8 { 8 } else { unwritten() }))
}

fn by_wide(x: Arrays<i32, 1>, y: ArrayMut<i32, 1>, i: Scalar<i64>, j: Scalar<u32>) {
    y.entry(0).store(x.get(i).entry(0).load());
    y.entry(1).store(x.get(j).entry(0).load());
    y.entry(2).store(x.get(1).entry(0).load());
    y.entry(3).store(x.get(-1).extent(0) + x.get(2).extent(0));
}

/// Indices of 64 bits and without sign, numbers.
fn wide_indices(session: Session) -> Result<()> {
    let (a, b) = (session.array(&[7], [1])?, session.array(&[8, 9], [2])?);
    let table = ArrayTable::new(&[&a, &b])?;
    for (i, j, want) in [(1i64, 0u32, [8, 7, 8, 0]), (1 << 32, 1 << 31, [0, 0, 8, 0]), (-1, u32::MAX, [0, 0, 8, 0])] {
        let mut y = session.unwritten::<i32, 1>([4])?;
        session.launch(by_wide, [1], (&table, &mut y, i, j))?;
        session.check("by wide indices", &y, &|[at]| Want::exactly(want[at]))?;
    }
    Ok(())
}
