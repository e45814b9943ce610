//! Products that others need: tiles that are operands in both directions, weights of 8 bits that a
//! loop carries, and sums that are scaled row by row. All numbers are small and whole, so that
//! every sum is exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::expected::{Product, matrix, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("chained/both_directions", both_directions);
    suite.test("chained/bytes", bytes);
    suite.test("chained/scaled_rows", scaled_rows);
    suite.test("chained/scaled_tiles", scaled_tiles);
    suite.test("chained/branches", branches);
    suite.test("chained/blocks", blocks_of_tiles);
    suite.test("chained/listed_tiles", listed_tiles);
}

/// -1, 0 or 1.
pub fn number(at: usize, seed: usize) -> i32 {
    ((at * 2_654_435_761 + seed * 40_503) >> 7 & 0xffff) as i32 % 3 - 1
}

/// Returns [`number`] of the first places.
fn halves(count: usize, seed: usize) -> Vec<f16> {
    (0..count).map(|at| f16::from_f32(number(at, seed) as f32)).collect()
}

/// Returns the sum of `count` terms.
pub fn sum(count: usize, term: impl Fn(usize) -> f64) -> f64 {
    (0..count).map(term).sum()
}

fn both_directions(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f32, 2>, [m, n, d]: [usize; 3]) {
        let left = a.load((ct::bid(0), 0), [m, d]);
        let acc = ct::fold(..b.num_tiles(0, [n, d]), ct::zeros::<f32, 2>([m, d]), |acc, j| {
            let tile = b.load((j, 0), [n, d]);
            let scores = ct::mma(left, tile.transpose(), ct::zeros::<f32, 2>([m, n]));
            ct::mma(scores.cast::<f16>(), tile, acc)
        });
        y.store((ct::bid(0), 0), acc);
    }
    for [rows, keys, m, n, d] in [[150, 200, 128, 64, 64], [70, 90, 64, 32, 32], [64, 160, 64, 96, 128]] {
        let (host_a, host_b) = (halves(rows * d, 1), halves(keys * d, 2));
        let (device_a, device_b) = (session.array(&host_a, [rows, d])?, session.array(&host_b, [keys, d])?);
        let mut y = session.unwritten::<f32, 2>([rows, d])?;
        session.launch(kernel, [rows.div_ceil(m)], (&device_a, &device_b, &mut y, ct::Constant([m, n, d])))?;
        let (a, b) = (numbers(&host_a), numbers(&host_b));
        let scores = Product::new(session, [rows, keys, d], |i, l| a[i * d + l], |l, j| b[j * d + l]);
        let sums = Product::new(session, [rows, d, keys], |i, j| scores.at([i, j]), |j, c| b[j * d + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// Tiles of both products from a list of blocks, whose length is known at run time and may be zero.
fn listed_tiles(session: Session) -> Result<()> {
    fn kernel(
        [q, k, v]: [Array<f16, 2>; 3],
        (list, counts): (Array<i32, 2>, Array<i32, 1>),
        y: ArrayMut<f32, 2>,
        ([m, n, d], tiles): ([usize; 3], usize),
    ) {
        let (i, keys) = (ct::bid(0), k.extent(0));
        let left = q.load((i, 0), [m, d]);
        let count = counts.load_scalar(i).min(list.extent(1));
        let start = (ct::zeros::<f32, 2>([m, d]), ct::full([m, 1], f32::MIN), ct::zeros([m, 1]));
        let (acc, _, sum) = ct::fold(..count * tiles, start, |(acc, max, sum): (_, Tile<f32, 2>, Tile<f32, 2>), t| {
            let j = list.load_scalar((i, t / tiles)) * tiles + t % tiles;
            let (right, values) = (k.load((j, 0), [n, d]), v.load((j, 0), [n, d]));
            let scores = ct::mma(left, right.transpose(), ct::zeros::<f32, 2>([m, n]));
            let key = (j * n + ct::arange(0..n)).unsqueeze(0);
            let masked = || ct::select(key.lt(keys), scores, f32::NEG_INFINITY);
            let scores = ct::if_else(((j + 1) * n).le(keys), || scores, masked);
            let above = max.max(scores.reduce_max(1));
            let weights = (scores - above).exp2();
            let fade = (max - above).exp2();
            (ct::mma(weights.cast::<f16>(), values, acc * fade), above, sum * fade + weights.sum(1))
        });
        y.store((i, 0), acc / sum.max(1.0));
    }
    let shapes: [([usize; 5], usize); 3] =
        [([130, 300, 128, 128, 32], 2), ([70, 150, 32, 32, 64], 1), ([130, 300, 128, 128, 64], 1)];
    for ([rows, keys, m, n, d], tiles) in shapes {
        let (tall, wide) = (rows.div_ceil(m), keys.div_ceil(n * tiles));
        let (host_q, host_k, host_v) = (halves(rows * d, 1), halves(keys * d, 2), halves(keys * d, 3));
        let q = session.array(&host_q, [rows, d])?;
        let (k, v) = (session.array(&host_k, [keys, d])?, session.array(&host_v, [keys, d])?);
        let list_at = |i: usize, at: usize| (i + wide - at) % wide;
        let lists: Vec<i32> = (0..tall * wide).map(|at| list_at(at / wide, at % wide) as i32).collect();
        let count = |i: usize| if i == 0 { wide } else { 0 };
        let counts: Vec<i32> = (0..tall).map(|i| count(i) as i32).collect();
        let (list, counts) = (session.array(&lists, [tall, wide])?, session.array(&counts, [tall])?);
        let mut y = session.unwritten::<f32, 2>([rows, d])?;
        let arguments = ([&q, &k, &v], (&list, &counts), &mut y, ct::Constant(([m, n, d], tiles)));
        session.launch(kernel, [tall], arguments)?;
        let (q, k, v) = (numbers(&host_q), numbers(&host_k), numbers(&host_v));
        let scores = Product::new(session, [rows, keys, d], |i, l| q[i * d + l], |l, j| k[j * d + l]);
        let seen = |i: usize, j: usize| (0..count(i / m)).any(|at| j / (n * tiles) == list_at(i / m, at));
        let weight = |i: usize, j: usize| if seen(i, j) { scores.at([i, j]).exp2() } else { 0.0 };
        // The last column is the sum of the weights.
        let value = |j: usize, c: usize| if c < d { v[j * d + c] } else { 1.0 };
        let sums = Product::new(session, [rows, d + 1, keys], weight, value);
        session.check("weighted sums", &y, &|[i, c]| {
            let (value, total) = (sums.at([i, c]), sums.at([i, d]));
            Want::Within { value: if total > 0.0 { value / total } else { 0.0 }, error: 1e-2 }
        })?;
    }
    Ok(())
}

fn bytes(session: Session) -> Result<()> {
    fn kernel(
        (q, k, v): (Array<f8e4m3fn, 2>, Array<f8e4m3fn, 2>, Array<f8e4m3fn, 2>),
        y: ArrayMut<f32, 2>,
        ([m, n, d], ordered): ([usize; 3], bool),
    ) {
        let left = q.load((ct::bid(0), 0), [m, d]);
        let acc = ct::fold(..k.num_tiles(0, [n, d]), ct::zeros::<f32, 2>([m, d]), |acc, j| {
            let scores = ct::mma_fast_acc(left, k.load((j, 0), [n, d]).transpose(), ct::zeros::<f32, 2>([m, n]));
            let weights = scores.cast::<f8e4m3fn>();
            let parts = || weights.reshape([m, n / 16, 2, 4, 2]).permute([0, 1, 3, 2, 4]).reshape([m, n]);
            let weights = if ordered { parts() } else { weights };
            ct::mma_fast_acc(weights, v.load((0, j), [d, n]).transpose(), acc)
        });
        y.store((ct::bid(0), 0), acc);
    }
    // The number of the key at this position, of 16.
    let ordered_at = |at: usize| at / 16 * 16 + (at / 4 % 4 * 2) + (at / 2 % 2 * 8) + at % 2;
    for ([rows, keys, m, n, d], ordered) in
        [([150, 192, 128, 64, 64], true), ([150, 192, 128, 64, 64], false), ([70, 256, 64, 128, 32], true)]
    {
        let (q, k) = (|i: usize, l: usize| number(i * d + l, 3), |j: usize, l: usize| number(j * d + l, 4));
        let v = |j: usize, c: usize| number(j * d + c, 5);
        let small = |x: i32| f8e4m3fn::from_f32(x as f32);
        let key = |at: usize| if ordered { ordered_at(at) } else { at };
        let host_q: Vec<f8e4m3fn> = (0..rows * d).map(|at| small(q(at / d, at % d))).collect();
        let host_k: Vec<f8e4m3fn> = (0..keys * d).map(|at| small(k(at / d, at % d))).collect();
        let host_v: Vec<f8e4m3fn> = (0..keys * d).map(|at| small(v(key(at % keys), at / keys))).collect();
        let (device_q, device_k) = (session.array(&host_q, [rows, d])?, session.array(&host_k, [keys, d])?);
        let device_v = session.array(&host_v, [d, keys])?;
        let mut y = session.unwritten::<f32, 2>([rows, d])?;
        let arguments = ((&device_q, &device_k, &device_v), &mut y, ct::Constant(([m, n, d], ordered)));
        session.launch(kernel, [rows.div_ceil(m)], arguments)?;
        let (q, k, v) = (numbers(&host_q), numbers(&host_k), matrix([keys, d], |j, c| f64::from(v(j, c))));
        let scores = Product::new(session, [rows, keys, d], |i, l| q[i * d + l], |l, j| k[j * d + l]);
        let weight = |i: usize, j: usize| f8e4m3fn::from_f32(scores.at([i, j]) as f32).to_f64();
        let sums = Product::new(session, [rows, d, keys], weight, |j, c| v[j * d + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

fn scaled_rows(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f16, 2>, Array<f16, 2>),
        scales: Array<f32, 2>,
        y: ArrayMut<f32, 2>,
        ([m, n, block], ahead): ([usize; 3], bool),
    ) {
        let (i, blocks) = (ct::bid(0), a.num_tiles(1, [m, block]));
        let scale = |k: Scalar<i32>| scales.load((k, i), [1, m]).reshape([m, 1]);
        let start = (ct::zeros::<f32, 2>([m, n]), scale(ct::scalar(0)));
        let (acc, _) = ct::fold(..blocks, start, |(acc, carried), k| {
            let next = scale(if ahead { (k + 1).min(blocks - 1) } else { k });
            let product = ct::mma(a.load((i, k), [m, block]), b.load((k, 0), [block, n]), ct::zeros::<f32, 2>([m, n]));
            (product.fma(if ahead { carried } else { next }, acc), next)
        });
        y.store((i, 0), acc);
    }
    for ([rows, terms, m, n, block], ahead) in
        [([150, 192, 128, 64, 64], true), ([150, 192, 128, 64, 64], false), ([70, 70, 32, 32, 32], true)]
    {
        let (host_a, host_b) = (halves(rows * terms, 6), halves(terms * n, 7));
        let blocks = terms.div_ceil(block);
        let scale = |k: usize, i: usize| 2f64.powi((k * 5 + i) as i32 % 7 - 3);
        let host_scales: Vec<f32> = (0..blocks * rows).map(|at| scale(at / rows, at % rows) as f32).collect();
        let (device_a, device_b) = (session.array(&host_a, [rows, terms])?, session.array(&host_b, [terms, n])?);
        let scales = session.array(&host_scales, [blocks, rows])?;
        let mut y = session.unwritten::<f32, 2>([rows, n])?;
        let arguments = ((&device_a, &device_b), &scales, &mut y, ct::Constant(([m, n, block], ahead)));
        session.launch(kernel, [rows.div_ceil(m)], arguments)?;
        let (a, b) = (numbers(&host_a), numbers(&host_b));
        let scaled = |i: usize, l: usize| a[i * terms + l] * scale(l / block, i);
        let sums = Product::new(session, [rows, n, terms], scaled, |l, j| b[l * n + j]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// Blocks that make one tile after another, each by products that depend on each other, with sums
/// that change their sign: the ring of stages continues from one tile to the next, and where they
/// occupy all of shared memory, one of them is the staging buffer of the stored tile.
fn blocks_of_tiles(session: Session) -> Result<()> {
    fn kernel(
        (a, b, v): (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>),
        y: ArrayMut<f32, 2>,
        ([m, n, d, e], limit): ([usize; 4], i32),
    ) {
        ct::fold(ct::range(ct::bid(0), a.num_tiles(0, [m, d])).step(ct::num_blocks(0)), (), |(), i| {
            let left = a.load((i, 0), [m, d]);
            let acc = ct::fold(..b.num_tiles(0, [n, d]), ct::zeros::<f32, 2>([m, e]), |acc, j| {
                let scores = ct::mma(left, b.load((j, 0), [n, d]).transpose(), ct::zeros::<f32, 2>([m, n]));
                let turn = ct::select(scores.reduce_max(1).gt(limit as f32), -ct::ones::<f32, 2>([m, 1]), 1.0);
                ct::mma(scores.cast::<f16>(), v.load((j, 0), [n, e]), acc * turn)
            });
            y.store((i, 0), acc);
        });
    }
    for ([rows, keys], [m, n, d, e], limit) in
        [([600, 330], [64, 64, 64, 64], 13), ([300, 200], [128, 80, 256, 256], 25)]
    {
        let (host_a, host_b, host_v) = (halves(rows * d, 21), halves(keys * d, 22), halves(keys * e, 23));
        let device_a = session.array(&host_a, [rows, d])?;
        let (device_b, device_v) = (session.array(&host_b, [keys, d])?, session.array(&host_v, [keys, e])?);
        let mut y = session.unwritten::<f32, 2>([rows, e])?;
        let form = ct::Constant(([m, n, d, e], limit));
        session.launch(kernel, [2], ((&device_a, &device_b, &device_v), &mut y, form))?;
        let (a, b, v) = (numbers(&host_a), numbers(&host_b), numbers(&host_v));
        let scores = Product::new(session, [rows, keys, d], |i, l| a[i * d + l], |l, j| b[j * d + l]);
        // Each tile changes the signs of the sums of the tiles before it, or does not.
        let signed = |i: usize| {
            let mut row: Vec<f64> = (0..keys).map(|j| scores.at([i, j])).collect();
            let mut sign = 1.0;
            for tile in row.chunks_mut(n).rev() {
                // Rows after the last one are zeros.
                let least = if tile.len() < n { 0.0 } else { f64::NEG_INFINITY };
                let most = tile.iter().copied().fold(least, f64::max);
                tile.iter_mut().for_each(|score| *score *= sign);
                sign *= if most > f64::from(limit) { -1.0 } else { 1.0 };
            }
            row
        };
        let signed: Vec<f64> = session.expected(|| (0..rows).flat_map(signed).collect());
        let sums = Product::new(session, [rows, e, keys], |i, j| signed[i * keys + j], |j, c| v[j * e + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// Blocks that make one tile after another, with few products for each: if consumer groups issue
/// them alternately, one group is at its next tile before the end of the other one's. The blocks of
/// a cluster of two have their own scales.
fn scaled_tiles(session: Session) -> Result<()> {
    fn kernel(
        (a, b): (Array<f8e4m3fn, 2>, Array<f8e4m3fn, 2>),
        scales: Array<f32, 2>,
        y: ArrayMut<bf16, 2>,
        [m, n, block]: [usize; 3],
    ) {
        let (columns, blocks) = (y.num_tiles(1, [m, n]), a.num_tiles(1, [m, block]));
        let tiles = y.num_tiles(0, [m, n]) * columns;
        ct::fold(ct::range(ct::bid(0), tiles).step(ct::num_blocks(0)), (), |(), index| {
            let (i, j) = (index / columns, index % columns);
            let acc = ct::fold(..blocks, ct::zeros::<f32, 2>([m, n]), |acc, k| {
                let scale = scales.load((k, i), [1, m]).reshape([m, 1]);
                let (a, b) = (a.load((i, k), [m, block]), b.load((k, j), [block, n]));
                ct::mma_fast_acc(a, b, ct::zeros::<f32, 2>([m, n])).fma(scale, acc)
            });
            y.store((i, j), acc.cast::<bf16>());
        });
    }
    let [m, n, block] = [128, 256, 32];
    // Rows of scales that begin at multiples of 16 are auxiliary loads.
    for (rows, terms, pairs) in [(1500, 32, false), (1500, 90, false), (1456, 96, false), (1456, 96, true)] {
        let small = |count: usize, seed: usize| -> Vec<f8e4m3fn> {
            (0..count).map(|at| f8e4m3fn::from_f32(number(at, seed) as f32)).collect()
        };
        let (host_a, host_b) = (small(rows * terms, 8), small(n * terms, 9));
        let scale = |k: usize, i: usize| 2f64.powi((k * 5 + i) as i32 % 7 - 3);
        let host_scales: Vec<f32> =
            (0..terms.div_ceil(block) * rows).map(|at| scale(at / rows, at % rows) as f32).collect();
        let (device_a, device_b) = (session.array(&host_a, [rows, terms])?, session.array(&host_b, [n, terms])?);
        let scales = session.array(&host_scales, [terms.div_ceil(block), rows])?;
        let mut y = session.unwritten::<bf16, 2>([rows, n])?;
        let arguments = ((&device_a, device_b.transpose()?), &scales, &mut y, ct::Constant([m, n, block]));
        let hints = if pairs { ct::Hints::new().num_ctas(2) } else { ct::Hints::new() };
        session.launch_with(hints, kernel, [2], arguments)?;
        let (a, b) = (numbers(&host_a), numbers(&host_b));
        let scaled = |i: usize, l: usize| a[i * terms + l] * scale(l / block, i);
        let sums = Product::new(session, [rows, n, terms], scaled, |l, j| b[j * terms + l]);
        session.check("sums", &y, &|at| Want::exactly(bf16::from_f32(sums.at(at) as f32)))?;
    }
    Ok(())
}

/// Sums of a loop that a product after it adds to, in some of the tiles of a block: they stay
/// where they are, unless something else needs them (`again`).
fn branches(session: Session) -> Result<()> {
    fn kernel((a, b): (Array<f16, 2>, Array<f16, 2>), y: ArrayMut<f32, 2>, ([m, n, block], again): ([usize; 3], bool)) {
        let first = ct::bid(0) * 2;
        ct::fold(first..first + 2, (), |(), i| {
            let add = |acc: Tile<f32, 2>, k: Scalar<i32>| {
                ct::mma(a.load((i, k), [m, block]), b.load((k, 0), [block, n]), acc)
            };
            let all = || {
                let behind = ct::fold(ct::scalar(1)..a.num_tiles(1, [m, block]), ct::zeros([m, n]), add);
                let sum = add(behind, ct::scalar(0));
                if again { sum + behind } else { sum }
            };
            let sum = ct::if_else((i % 3).lt(2), all, || add(ct::full([m, n], 1.0), ct::scalar(0)));
            y.store((i, 0), sum);
        });
    }
    for ([rows, terms, m, n, block], again) in
        [([500, 192, 128, 64, 64], false), ([500, 192, 128, 64, 64], true), ([150, 90, 32, 32, 32], false)]
    {
        let (host_a, host_b) = (halves(rows * terms, 10), halves(terms * n, 11));
        let device_a = session.device().from_fn([rows, terms], |[i, l]| host_a[i * terms + l])?;
        let device_b = session.device().from_fn([terms, n], |[l, j]| host_b[l * n + j])?;
        let mut y = session.unwritten::<f32, 2>([rows, n])?;
        let arguments = ((&device_a, &device_b), &mut y, ct::Constant(([m, n, block], again)));
        session.launch(kernel, [rows.div_ceil(2 * m)], arguments)?;
        let (a, b) = (numbers(&host_a), numbers(&host_b));
        let part = |l: usize, count: usize| {
            Product::new(session, [rows, n, count], |i, k| a[i * terms + l + k], |k, j| b[(l + k) * n + j])
        };
        let (near, far) = (part(0, block), part(block, terms - block));
        session.check("sums", &y, &|at| {
            let (i, near, far) = (at[0], near.at(at), far.at(at));
            Want::exactly(if i / m % 3 < 2 { near + far * if again { 2.0 } else { 1.0 } } else { near + 1.0 } as f32)
        })?;
    }
    Ok(())
}
