//! Ranks of equal elements within a tile.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("ranks/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(ranks: u8 i32 i64 u16);
    suite.test("ranks/warps", warps);
    suite.test("ranks/many_bins", many_bins);
    suite.test("ranks/sorted", sorted);
}

fn kernel<T: Int>(x: Array<T, 1>, rank: ArrayMut<i32, 1>, counts: ArrayMut<i32, 2>, [n, bins]: [usize; 2]) {
    let i = ct::bid(0);
    let (ranks, all) = x.load(i, [n]).ranks(bins);
    rank.store(i, ranks);
    counts.store((i, 0), all.unsqueeze(0));
}

fn check<T: Int>(session: Session, hints: ct::Hints, data: &[T], [n, bins]: [usize; 2]) -> Result<()> {
    let tiles = data.len() / n;
    let x = session.array(data, [data.len()])?;
    let mut rank = session.unwritten::<i32, 1>([data.len()])?;
    let mut counts = session.unwritten::<i32, 2>([tiles, bins])?;
    session.launch_with(hints, kernel::<T>, [tiles], (&x, &mut rank, &mut counts, Constant([n, bins])))?;
    let inside = |at: usize| (0..bins as i128).contains(&value(data[at]));
    session.check(&format!("ranks of {n} in {bins}"), &rank, &|[at]| {
        let before = (at / n * n..at).filter(|&other| data[other] == data[at]).count();
        Want::exactly(if inside(at) { before as i32 } else { 0 })
    })?;
    session.check(&format!("counts of {n} in {bins}"), &counts, &|[tile, bin]| {
        let equal = |at: &usize| value(data[*at]) == bin as i128;
        Want::exactly((tile * n..(tile + 1) * n).filter(equal).count() as i32)
    })
}

/// Numbers of which many are equal, some negative or beyond the bins.
fn numbers<T: Int>(seed: u64, count: usize, limit: i32) -> Vec<T> {
    let mut data = random::<T>(seed, count, Spread::Whole(limit));
    let others = random::<T>(seed + 1, count, Spread::Any);
    data.iter_mut().zip(others).step_by(5).for_each(|(x, other)| *x = other);
    data
}

/// Tiles with fewer elements than a warp, and with several registers of a thread.
fn ranks<T: Int>(session: Session) -> Result<()> {
    for [n, bins] in [[1, 4], [8, 4], [32, 1], [64, 7], [512, 16]] {
        check::<T>(session, ct::Hints::default(), &numbers(n as u64, 2 * n, 9), [n, bins])?;
    }
    Ok(())
}

/// Numbers of warps from one to more than there are ranges.
fn warps(session: Session) -> Result<()> {
    for (n, num_warps) in [(256, 1), (512, 4), (128, 8), (16, 4), (1024, 16)] {
        check::<i32>(session, ct::Hints::new().num_warps(num_warps), &numbers(7, 2 * n, 20), [n, 16])?;
    }
    Ok(())
}

/// More bins than threads, and than shared memory has counts for.
fn many_bins(session: Session) -> Result<()> {
    let hints = ct::Hints::new().num_warps(4);
    check::<i32>(session, hints, &numbers(8, 512, 896), [256, 896])?;
    let hints = ct::Hints::new().num_warps(16);
    check::<u16>(session, hints, &numbers(9, 1024, 4096), [512, 4096])
}

/// A stable sort by the places.
fn sorted(session: Session) -> Result<()> {
    fn kernel(x: Array<u32, 1>, y: ArrayMut<u32, 1>) {
        let x = x.load(0, [256]);
        let digits = (x & 15).cast::<i32>();
        let (ranks, counts) = digits.ranks(16);
        let starts = counts.cumsum_with(0, ct::ScanOptions::new().exclusive());
        y.scatter(starts.gather(0, digits) + ranks, x);
    }
    let x = random::<u32>(4, 256, Spread::Any);
    let given = session.array(&x, [256])?;
    let mut y = session.unwritten::<u32, 1>([256])?;
    session.launch(kernel, [1], (&given, &mut y))?;
    let mut want = x;
    want.sort_by_key(|x| x & 15);
    session.check("sorted", &y, &|[at]| Want::exactly(want[at]))
}
