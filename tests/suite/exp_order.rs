//! Exponentials between products that wait for each other, which two groups of warps compute in
//! turn where they take as long as the products. Scores are small and whole, so that all weights
//! are powers of two and every sum is exact; but in some rows none is a number, nor is any
//! exponential.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use crate::chained::{number, sum};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("exp_order/f16", |session| of::<f16>(session, false));
    suite.test("exp_order/f8e4m3fn", |session| of::<f8e4m3fn>(session, true));
}

/// No score is larger than this, or its negative smaller.
const MAX_SCORE: i32 = 3;
/// Queries of which there are no scores.
fn is_lost(row: usize) -> bool {
    row % 61 == 17
}

/// Keys of a permuted group, so that scores of small floats are operands where they are.
const GROUP: usize = 16;

/// A tile of rows after the other, of each the weighted sums of values and the sum of its weights;
/// `ordered`: the order of keys of a group is that of scores.
fn kernel<T: MmaInput<T, f32>>(
    (q, k, v): (Array<T, 2>, Array<T, 2>, Array<T, 2>),
    (y, sums): (ArrayMut<f32, 2>, ArrayMut<f32, 1>),
    ([m, n, d], ordered): ([usize; 3], bool),
) where
    f32: CastTo<T>,
{
    let keys = k.extent(0);
    ct::fold(ct::range(ct::bid(0), y.num_tiles(0, [m, d])).step(ct::num_blocks(0)), (), |(), i| {
        let left = q.load((i, 0), [m, d]);
        let start = (ct::zeros([m, d]), ct::full([m, 1], -(MAX_SCORE as f32)), ct::zeros([m, 1]));
        let (acc, _, all) = ct::fold(..k.num_tiles(0, [n, d]), start, |(acc, max, all), j| {
            let scores = ct::mma_fast_acc(left, k.load((j, 0), [n, d]).transpose(), ct::zeros::<f32, 2>([m, n]));
            let scores = scores.max_nan(-(MAX_SCORE as f32)).min_nan(MAX_SCORE as f32);
            let seen = (j * n + ct::arange(0..n)).unsqueeze(0).lt(ct::full([m, 1], keys));
            let scores = ct::if_else((j * n + n).le(keys), || scores, || ct::select(seen, scores, f32::NEG_INFINITY));
            let above = max.max(scores.reduce_max(1));
            let (weights, fade) = ((scores - above).exp2(), (max - above).exp2());
            let narrow = weights.cast::<T>();
            let parts = || narrow.reshape([m, n / GROUP, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([m, n]);
            let narrow = if ordered { parts() } else { narrow };
            let values = v.load((0, j), [d, n]).transpose();
            (ct::mma_fast_acc(narrow, values, acc * fade), above, all * fade + weights.sum(1))
        });
        y.store((i, 0), acc);
        sums.store(i, all.reshape([m]));
    });
}

fn of<T: MmaInput<T, f32>>(session: Session, ordered: bool) -> Result<()>
where
    f32: CastTo<T>,
{
    // The key of a group at this position.
    let ordered_at = |at: usize| at / GROUP * GROUP + (at / 4 % 4 * 2) + (at / 2 % 2 * 8) + at % 2;
    let small = |x: i32| T::from_f64(f64::from(x));
    for [rows, keys, m, n, d] in [[300usize, 400, 128, 128, 64], [130, 260, 128, 128, 32], [150, 256, 128, 128, 128]] {
        let key = |at: usize| if ordered { ordered_at(at) } else { at };
        let columns = keys.next_multiple_of(GROUP);
        let (q, k) = (|i: usize, l: usize| number(i * d + l, 21), |j: usize, l: usize| number(j * d + l, 22));
        let v = |j: usize, c: usize| if j < keys { number(j * d + c, 23) } else { 0 };
        let nan = T::from_f64(f64::NAN);
        let query = |i, l| if l == 0 && is_lost(i) { nan } else { small(q(i, l)) };
        let host_q: Vec<T> = (0..rows * d).map(|at| query(at / d, at % d)).collect();
        let host_k: Vec<T> = (0..keys * d).map(|at| small(k(at / d, at % d))).collect();
        let host_v: Vec<T> = (0..columns * d).map(|at| small(v(key(at % columns), at / columns))).collect();
        let (device_q, device_k) = (session.array(&host_q, [rows, d])?, session.array(&host_k, [keys, d])?);
        let device_v = session.array(&host_v, [d, columns])?;
        let (mut y, mut sums) = (session.unwritten::<f32, 2>([rows, d])?, session.unwritten::<f32, 1>([rows])?);
        let form = ct::Constant(([m, n, d], ordered));
        session.launch(kernel::<T>, [2], ((&device_q, &device_k, &device_v), (&mut y, &mut sums), form))?;
        let most = f64::from(MAX_SCORE);
        let score = |i, j| sum(d, |l| f64::from(q(i, l) * k(j, l))).clamp(-most, most);
        let weights: Vec<Vec<f64>> = (0..rows)
            .map(|i| {
                let scores: Vec<f64> = (0..keys).map(|j| score(i, j)).collect();
                let above = scores.iter().copied().fold(-most, f64::max);
                scores.into_iter().map(|score| (score - above).exp2()).collect()
            })
            .collect();
        let want = |i, number: f64| Want::exactly(if is_lost(i) { f32::NAN } else { number as f32 });
        session.check("sums of weights", &sums, &|[i]| want(i, weights[i].iter().sum()))?;
        session.check("weighted sums", &y, &|[i, c]| want(i, sum(keys, |j| weights[i][j] * f64::from(v(j, c)))))?;
    }
    Ok(())
}
