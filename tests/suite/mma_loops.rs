//! Loops with matrix products as users first write them: masks in each iteration, scaled operands,
//! factors before maxima, tiles that are loaded before the loop. All numbers are small and whole,
//! so each sum is exact.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for mask in Mask::ALL {
        suite.test(format!("mma_loops/{mask:?}").to_lowercase(), move |session| masked(session, mask));
    }
    for form in ["plain", "scaled", "residual", "added", "factor"] {
        suite.test(format!("mma_loops/{form}"), move |session| operands(session, form));
    }
    suite.test("mma_loops/argument_factor", argument_factor);
    suite.test("mma_loops/triangle", triangle);
    suite.test("mma_loops/several_values", several_values);
}

/// Condition on the positions of a row and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mask {
    /// Keys before a limit.
    Limit,
    /// Keys up to the row, and before a limit.
    Causal,
    /// Keys after the row.
    After,
    /// Keys in a window around the row.
    Window,
    /// A sum that wraps around.
    Wrapped,
    /// A difference and a multiple.
    Multiple,
    /// A bias instead of a select.
    Bias,
}

impl Mask {
    const ALL: [Mask; 7] =
        [Mask::Limit, Mask::Causal, Mask::After, Mask::Window, Mask::Wrapped, Mask::Multiple, Mask::Bias];

    /// Returns the mask of keys `[1, n]` and rows `[m, 1]`.
    fn of(self, key: Tile<i32, 2>, row: Tile<i32, 2>, limit: Scalar<i32>) -> Tile<bool, 2> {
        let [m, n] = [row.shape()[0], key.shape()[1]];
        match self {
            Mask::Limit => key.lt(limit).broadcast_to([m, n]),
            Mask::Causal | Mask::Bias => key.le(row) & key.lt(limit),
            Mask::After => key.gt(row),
            Mask::Window => (row - key).le(40) & (key - row).lt(24),
            Mask::Wrapped => (key + (i32::MAX - 100)).ge(row - limit),
            Mask::Multiple => (limit - key * 3).ge(row * -1),
        }
    }

    /// Returns the same for one key and one row.
    fn holds(self, key: i32, row: i32, limit: i32) -> bool {
        match self {
            Mask::Limit => key < limit,
            Mask::Causal | Mask::Bias => key <= row && key < limit,
            Mask::After => key > row,
            Mask::Window => row - key <= 40 && key - row < 24,
            Mask::Wrapped => key.wrapping_add(i32::MAX - 100) >= row - limit,
            Mask::Multiple => limit - key * 3 >= -row,
        }
    }
}

const TILES: [[usize; 3]; 2] = [[128, 64, 64], [32, 64, 32]];
const ROWS: usize = 140;
const KEYS: usize = 2 * 64 + 17;
const LIMIT: i32 = 110;
/// Score of a key that the mask hides, or bias.
const HIDDEN: f32 = 3.0;

fn masked(session: Session, mask: Mask) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    fn kernel((q, k, v): Inputs, y: ArrayMut<f32, 2>, limit: Scalar<i32>, ([m, n, d], mask): ([usize; 3], Mask)) {
        let block = ct::bid(0);
        let row = (block * m + ct::arange(0..m)).unsqueeze(1);
        let queries = q.load((block, 0), [m, d]);
        let acc = ct::fold(..k.num_tiles(0, [n, d]), ct::zeros([m, d]), |acc, j| {
            let key = (j * n + ct::arange(0..n)).unsqueeze(0);
            let scores = ct::mma(queries, k.load((j, 0), [n, d]).transpose(), ct::zeros::<f32, 2>([m, n]));
            let seen = mask.of(key, row, limit);
            let scores = match mask {
                Mask::Bias => scores + seen.select(ct::zeros::<f32, 2>([m, n]), HIDDEN),
                _ => seen.select(scores, HIDDEN),
            };
            ct::mma(scores.cast::<f16>(), v.load((j, 0), [n, d]), acc)
        });
        y.store((block, 0), acc);
    }
    for tile @ [m, _, d] in TILES {
        let [q, k, v] = data(d);
        let arrays = [(&q, ROWS), (&k, KEYS), (&v, KEYS)].map(|(list, rows)| session.array(list, [rows, d]));
        let [q_array, k_array, v_array] = arrays;
        let mut y = session.unwritten::<f32, 2>([ROWS, d])?;
        let args = ((&q_array?, &k_array?, &v_array?), &mut y, LIMIT, Constant((tile, mask)));
        session.launch(kernel, [ROWS.div_ceil(m)], args)?;
        let (scores, v) = (products(session, &q, &k, d), numbers(&v));
        let score = |row: usize, key: usize| match (mask.holds(key as i32, row as i32, LIMIT), mask) {
            (true, _) => scores.at([row, key]),
            (false, Mask::Bias) => scores.at([row, key]) + f64::from(HIDDEN),
            (false, _) => f64::from(HIDDEN),
        };
        let sums = Product::new(session, [ROWS, d, KEYS], score, |key, j| v[key * d + j]);
        session.check("masked product", &y, &|at| Want::SumOf(sums.at(at)))?;
    }
    Ok(())
}

/// A factor of scores that is an argument. The first launch compiles code for positive factors, and
/// the second one code for all factors.
fn argument_factor(session: Session) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>);
    type Outputs = (ArrayMut<f32, 1>, ArrayMut<f32, 2>);
    fn kernel((q, k): Inputs, (largest, y): Outputs, factor: Scalar<f32>, [m, n, d]: [usize; 3]) {
        let block = ct::bid(0);
        let queries = q.load((block, 0), [m, d]);
        let start = (ct::full([m, 1], f32::NEG_INFINITY), ct::zeros::<f32, 2>([m, d]));
        let (most, sums) = ct::fold(..k.num_tiles(0, [n, d]), start, |(most, sums), j| {
            let keys = k.load((j, 0), [n, d]);
            let scores = ct::matmul(queries, keys.transpose());
            let most = most.max((scores * (factor * 2.0)).reduce_max(1));
            (most, ct::mma(scores.cast::<f16>(), keys, sums))
        });
        largest.store(block, most.reshape([m]));
        y.store((block, 0), sums);
    }
    for tile @ [m, n, d] in TILES {
        let [q, k, _] = data(d);
        let [q_array, k_array] = [(&q, ROWS), (&k, KEYS)].map(|(list, rows)| session.array(list, [rows, d]));
        let (q_array, k_array) = (q_array?, k_array?);
        let scores = products(session, &q, &k, d);
        let score = |row: usize, key: usize| if key < KEYS { scores.at([row, key]) } else { 0.0 };
        let k = numbers(&k);
        let sums = Product::new(session, [ROWS, d, KEYS], score, |key, c| k[key * d + c]);
        // Zero, and a number that is larger than those of the code for positive factors.
        for factor in [0.25, -0.25, 0.0, 2f32.powi(42), 0.125] {
            let (mut most, mut y) = (session.unwritten::<f32, 1>([ROWS])?, session.unwritten::<f32, 2>([ROWS, d])?);
            let args = ((&q_array, &k_array), (&mut most, &mut y), factor, Constant(tile));
            session.launch(kernel, [ROWS.div_ceil(m)], args)?;
            let products =
                |i: usize| (0..KEYS.next_multiple_of(n)).map(move |key| score(i, key) * 2.0 * f64::from(factor));
            session.check("maxima", &most, &|[i]| Want::SumOf(products(i).fold(f64::MIN, f64::max)))?;
            session.check("sums", &y, &|at| Want::SumOf(sums.at(at)))?;
        }
    }
    Ok(())
}

fn operands(session: Session, form: &'static str) -> Result<()> {
    type Inputs = (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>);
    fn kernel(
        (q, k, r): Inputs,
        (y, most): (ArrayMut<f32, 2>, ArrayMut<f32, 1>),
        scale: Scalar<f32>,
        ([m, n, d], form): ([usize; 3], &'static str),
    ) {
        let block = ct::bid(0);
        let residual = || r.load((block, 0), [m, n]).cast::<f32>();
        let early = (form == "residual").then(residual);
        let queries = q.load((block, 0), [m, d]);
        let queries = if form == "scaled" { (queries.cast::<f32>() * scale).cast::<f16>() } else { queries };
        let start = (ct::zeros::<f32, 2>([m, n]), ct::full([m, 1], f32::NEG_INFINITY));
        let mode = ct::FloatMode::new().contract();
        let (sum, largest) = ct::fold(..k.num_tiles(0, [n, d]), start, |(sum, largest), j| {
            let scores = ct::matmul(queries, k.load((j, 0), [n, d]).transpose());
            let scaled = scores * if form == "factor" { 0.5 } else { 1.0 };
            let largest = largest.max(scaled.reduce_max(1));
            match form {
                "added" => (ct::with_mode(mode, || sum + scores), largest),
                _ => (sum + scores, largest),
            }
        });
        y.store((block, 0), sum + early.unwrap_or_else(residual) * 2.0);
        most.store(block, largest.reshape([m]));
    }
    for tile @ [m, n, d] in TILES {
        let [q, k, r] = data(d);
        let r: Vec<f16> = r.iter().cycle().take(ROWS * n).copied().collect();
        let [q_array, k_array] = [(&q, ROWS), (&k, KEYS)].map(|(list, rows)| session.array(list, [rows, d]));
        let r_array = session.array(&r, [ROWS, n])?;
        let (mut y, mut most) = (session.unwritten::<f32, 2>([ROWS, n])?, session.unwritten::<f32, 1>([ROWS])?);
        let args = ((&q_array?, &k_array?, &r_array), (&mut y, &mut most), 2.0, Constant((tile, form)));
        session.launch(kernel, [ROWS.div_ceil(m)], args)?;
        let scale = if form == "scaled" { 2.0 } else { 1.0 };
        let scores = products(session, &q, &k, d);
        let score = |row: usize, key: usize| if key < KEYS { scores.at([row, key]) * scale } else { 0.0 };
        let sum = |i: usize, j: usize| (j..KEYS.next_multiple_of(n)).step_by(n).map(|key| score(i, key)).sum::<f64>();
        session.check("sums", &y, &|[i, j]| Want::SumOf(sum(i, j) + r[i * n + j].to_f64() * 2.0))?;
        let factor = if form == "factor" { 0.5 } else { 1.0 };
        let largest = |i: usize| (0..KEYS.next_multiple_of(n)).map(|key| score(i, key)).fold(f64::MIN, f64::max);
        session.check("maxima", &most, &|[i]| Want::SumOf(largest(i) * factor))?;
    }
    Ok(())
}

/// Queries, keys and values: whole numbers from -2 to 2.
/// Loops whose trip counts grow with the first index of the tile block, over grids of many shapes.
fn triangle(session: Session) -> Result<()> {
    const TILE: usize = 16;
    fn kernel(a: Array<f16, 2>, y: ArrayMut<f32, 4>) {
        let (x, plane, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let tile = a.load((0, 0), [TILE, TILE]);
        let start = ct::full([TILE, TILE], (batch * 8 + plane).cast::<f32>());
        let sum = ct::fold(..x + 1, start, |sum, j| ct::mma(tile, a.load((j, 0), [TILE, TILE]).transpose(), sum));
        y.store((batch, plane, x, 0), sum.reshape([1, 1, TILE, TILE]));
    }
    let longest = 9;
    let a = random::<f16>(1, longest * TILE * TILE, Spread::Whole(2));
    let a_array = session.array(&a, [longest * TILE, TILE])?;
    let all = products(session, &a[..TILE * TILE], &a, TILE);
    for (x, planes, batches) in [(1, 1, 1), (3, 1, 1), (9, 1, 1), (4, 2, 1), (5, 3, 1), (2, 5, 2), (7, 4, 3), (1, 7, 2)]
    {
        let mut y = session.unwritten::<f32, 4>([batches, planes, x * TILE, TILE])?;
        session.launch(kernel, [x, planes, batches], (&a_array, &mut y))?;
        let value = |row: usize, column: usize| {
            let keys = (0..=row / TILE).map(|block| block * TILE + column);
            keys.map(|key| all.at([row % TILE, key])).sum::<f64>()
        };
        session.check("sums", &y, &|[batch, plane, row, column]| {
            Want::SumOf(value(row, column) + (batch * 8 + plane) as f64)
        })?;
    }
    Ok(())
}

/// Weights that two products with values of 128 columns each read, and their sums.
fn several_values(session: Session) -> Result<()> {
    const TILE: usize = 64;
    const WIDTH: usize = 128;
    fn kernel(
        [q, k, v]: [Array<f16, 2>; 3],
        (first, second, total): (ArrayMut<f32, 2>, ArrayMut<f32, 2>, ArrayMut<f32, 2>),
    ) {
        let queries = q.load((ct::bid(0), 0), [TILE, TILE]);
        let zeros = ct::zeros::<f32, 2>([TILE, WIDTH]);
        let start = ([zeros, zeros], ct::zeros([TILE, 1]));
        let ([left, right], sum) = ct::fold(..k.num_tiles(0, [TILE, TILE]), start, |([left, right], sum), j| {
            let scores = ct::matmul(queries, k.load((j, 0), [TILE, TILE]).transpose());
            let weights = scores.max(0.0).min(3.0);
            let factors = weights.cast::<f16>();
            let left = ct::mma(factors, v.load((j, 0), [TILE, WIDTH]), left * 0.5);
            let right = ct::mma(factors, v.load((j, 1), [TILE, WIDTH]), right * 0.5);
            ([left, right], sum * 0.5 + weights.sum(1))
        });
        first.store((ct::bid(0), 0), left);
        second.store((ct::bid(0), 0), right);
        total.store((ct::bid(0), 0), sum);
    }
    let [q, k] = [(1, TILE), (2, 3 * TILE)].map(|(seed, rows)| random::<f16>(seed, rows * TILE, Spread::Whole(1)));
    let v = random::<f16>(3, 3 * TILE * 2 * WIDTH, Spread::Whole(1));
    let (q_array, k_array) = (session.array(&q, [TILE, TILE])?, session.array(&k, [3 * TILE, TILE])?);
    let v_array = session.array(&v, [3 * TILE, 2 * WIDTH])?;
    let mut first = session.unwritten::<f32, 2>([TILE, WIDTH])?;
    let mut second = session.unwritten::<f32, 2>([TILE, WIDTH])?;
    let mut total = session.unwritten::<f32, 2>([TILE, 1])?;
    session.launch(kernel, [1], ([&q_array, &k_array, &v_array], (&mut first, &mut second, &mut total)))?;
    // Each earlier tile of keys counts half.
    let (scores, v) = (products(session, &q, &k, TILE), numbers(&v));
    let weight = |row: usize, key: usize| scores.at([row, key]).clamp(0.0, 3.0) * 0.5_f64.powi(2 - (key / TILE) as i32);
    // The last column is the sum of the weights.
    let value = |key: usize, column: usize| if column < 2 * WIDTH { v[key * 2 * WIDTH + column] } else { 1.0 };
    let sums = Product::new(session, [TILE, 2 * WIDTH + 1, 3 * TILE], weight, value);
    session.check("first", &first, &|[i, j]| Want::SumOf(sums.at([i, j])))?;
    session.check("second", &second, &|[i, j]| Want::SumOf(sums.at([i, WIDTH + j])))?;
    session.check("total", &total, &|[i, _]| Want::SumOf(sums.at([i, 2 * WIDTH])))
}

fn data(d: usize) -> [Vec<f16>; 3] {
    [(1, ROWS), (2, KEYS), (3, KEYS)].map(|(seed, rows)| random(seed, rows * d, Spread::Whole(2)))
}

/// Products of rows of `d` numbers.
fn products(session: Session, q: &[f16], k: &[f16], d: usize) -> Product {
    let sides = [q.len() / d, k.len() / d, d];
    let (q, k) = (numbers(q), numbers(k));
    Product::new(session, sides, |row, at| q[row * d + at], |at, key| k[key * d + at])
}
