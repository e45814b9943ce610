//! Unrolled loops: all iterations, at the ends of the counters' types, with early exits, reductions
//! across the block, and memory that one iteration writes and the next one reads.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("unroll/counters", counters);
    suite.test("unroll/wide", wide);
    suite.test("unroll/tiles", tiles);
}

/// From where to where loops of [`counters`] go.
const ENDS: [[i32; 2]; 12] = [
    [0, 0],
    [3, -3],
    [0, 1],
    [0, 2],
    [5, 9],
    [-7, 11],
    [0, 24],
    [i32::MAX - 5, i32::MAX],
    [i32::MAX - 1, i32::MAX],
    [i32::MIN, i32::MIN + 7],
    [i32::MIN, i32::MIN + 1],
    [i32::MAX, i32::MIN],
];

fn mix(acc: Scalar<i64>, i: Scalar<i32>) -> Scalar<i64> {
    acc * 31 + i.cast::<i64>()
}

fn counters(session: Session) -> Result<()> {
    fn kernel(ends: Array<i32, 1>, y: ArrayMut<i64, 2>, step: i32, rounds: u32) {
        let row = ct::bid(0);
        let [start, end] = [0, 1].map(|i| ends.load_scalar(row * 2 + i));
        let range = ct::range(start, end).step(step).unroll(rounds);
        let one = ct::scalar(1i64);
        let early = ct::fold_with_control(range, one, |acc, i, flow| {
            flow.continue_if((i & 1).eq(0), acc * 7);
            mix(acc, i)
        });
        let inner = ct::fold(range, one, |acc, i| {
            let few = ct::range(0, (i & 3) + 1).unroll(rounds);
            ct::fold(few, mix(acc, i), |acc, j| ct::if_else(j.lt(2), || mix(acc, j), || acc * 3))
        });
        for (column, value) in [ct::fold(range, one, mix), early, inner].into_iter().enumerate() {
            y.store_scalar((row, column), value);
        }
    }
    let fold = |step: i32, row: usize, body: &dyn Fn(i64, i64) -> i64| {
        let [start, end] = ENDS[row].map(i64::from);
        (start..end).step_by(step as usize).fold(1, body)
    };
    let mix = |acc: i64, i: i64| acc.wrapping_mul(31).wrapping_add(i);
    let ends = session.array(ENDS.as_flattened(), [2 * ENDS.len()])?;
    for (step, rounds) in [(1, 1), (1, 2), (1, 5), (3, 4), (i32::MAX, 2)] {
        let mut y = session.unwritten::<i64, 2>([ENDS.len(), 3])?;
        session.launch(kernel, [ENDS.len()], (&ends, &mut y, ct::Constant(step), ct::Constant(rounds)))?;
        session.check("numbers", &y, &|[row, column]| {
            Want::exactly(match column {
                0 => fold(step, row, &mix),
                1 => fold(step, row, &|acc, i| if i % 2 == 0 { acc.wrapping_mul(7) } else { mix(acc, i) }),
                _ => fold(step, row, &|acc, i| {
                    (0..(i & 3) + 1).fold(mix(acc, i), |acc, j| if j < 2 { mix(acc, j) } else { acc.wrapping_mul(3) })
                }),
            })
        })?;
    }
    Ok(())
}

/// Counters beyond the range of 32 bits or of signed integers.
fn wide(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i64, 1>, ends: Array<u64, 1>) {
        let [a, b] = [0, 1].map(|i| ends.load_scalar(i));
        let mix = |acc: Scalar<i64>, i: Scalar<i64>| acc * 31 + i;
        let one = ct::scalar(1i64);
        let all = [
            ct::fold(ct::range(a, b).unroll(3), one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(a, b).step(2).unroll(3), one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(a.cast::<u32>(), b.cast::<u32>()).unroll(4), one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(a.cast::<i64>(), b.cast::<i64>()).unroll(2), one, mix),
        ];
        for (place, value) in all.into_iter().enumerate() {
            y.store_scalar(place, value);
        }
    }
    let fold =
        |numbers: &mut dyn Iterator<Item = i64>| numbers.fold(1i64, |acc, i| acc.wrapping_mul(31).wrapping_add(i));
    for ends in [[u64::MAX - 8, u64::MAX], [(1 << 63) - 4, (1 << 63) + 5], [(1 << 31) - 3, (1 << 31) + 3], [7, 8]] {
        let host = session.array(&ends, [2])?;
        let mut y = session.unwritten::<i64, 1>([4])?;
        session.launch(kernel, [1], (&mut y, &host))?;
        let [a, b] = ends;
        session.check("numbers", &y, &|[place]| {
            Want::exactly(match place {
                0 => fold(&mut (a..b).map(|i| i as i64)),
                1 => fold(&mut (a..b).step_by(2).map(|i| i as i64)),
                2 => fold(&mut (a as u32..b as u32).map(i64::from)),
                _ => fold(&mut (a as i64..b as i64)),
            })
        })?;
    }
    Ok(())
}

/// Each iteration reads the elements of the previous one, also those of other threads.
fn tiles(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, sums: ArrayMut<f32, 1>, rounds: u32) {
        let (row, n) = (ct::bid(0), 256);
        let count = x.num_tiles(1, [1, n]);
        y.store((row, 0), x.load((row, 0), [1, n]));
        let total = ct::fold(ct::range(1, count).unroll(rounds), ct::scalar(0.0), |total, k| {
            let before = y.load((row, k - 1), [1, n]).flip(1);
            let next = before + x.load((row, k), [1, n]);
            y.store((row, k), next);
            total + next.reduce_max(1).get([0, 0])
        });
        sums.store_scalar(row, total);
    }
    let (rows, n) = (3usize, 256usize);
    for (tiles, rounds) in [(1usize, 2u32), (2, 3), (9, 4)] {
        let data = random::<f32>(5, rows * n * tiles, Spread::Whole(50));
        let x = session.array(&data, [rows, n * tiles])?;
        let mut y = session.unwritten::<f32, 2>([rows, n * tiles])?;
        let mut sums = session.unwritten::<f32, 1>([rows])?;
        session.launch(kernel, [rows], (&x, &mut y, &mut sums, ct::Constant(rounds)))?;
        let mut want = data.clone();
        let mut totals = vec![0.0; rows];
        for (row, total) in totals.iter_mut().enumerate() {
            let start = row * n * tiles;
            for k in 1..tiles {
                for j in 0..n {
                    want[start + k * n + j] += want[start + (k - 1) * n + n - 1 - j];
                }
                *total += want[start + k * n..][..n].iter().copied().fold(f32::MIN, f32::max);
            }
        }
        session.check("tiles", &y, &|[i, j]| Want::exactly(want[i * n * tiles + j]))?;
        session.check("sums", &sums, &|[i]| Want::exactly(totals[i]))?;
    }
    Ok(())
}
