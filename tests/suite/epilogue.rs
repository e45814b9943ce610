//! Epilogues of products with tiles that exceed the registers several times if each op processes
//! the whole tile: activation functions, stored by TMA, or also reduced.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

const TILE: [usize; 3] = [128, 256, 64];

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("epilogue/gelu", |session| check(session, false));
    suite.test("epilogue/gelu and maxima", |session| check(session, true));
    suite.test("epilogue/extremes", extremes);
}

/// Half of x (1 + tanh ..), as transformers have it.
fn gelu(x: Tile<f32, 2>) -> Tile<f32, 2> {
    let inner = (x * x * x * 0.044715 + x) * 0.797_884_6;
    x * 0.5 * (inner.tanh() + 1.0)
}

fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f16, 2>, most: ArrayMut<f32, 2>, reduced: bool) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let [m, n, k] = TILE;
    let sum = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sum, step| {
        ct::mma(a.load((i, step), [m, k]), b.load((step, j), [k, n]), sum)
    });
    let x = sum * 0.125;
    let result = gelu(x) + x / ((-x).exp() + 1.0);
    y.store((i, j), result.cast::<f16>());
    if reduced {
        most.store((i, j), result.reduce_max(1));
    }
}

fn check(session: Session, reduced: bool) -> Result<()> {
    // Elsewhere than on a GPU one block, for which an interpreter takes seconds.
    let [m, n, k] = match session {
        Session::Run(device) if device != ct::Device::cpu() => [136, 264, 72],
        _ => [120, 248, 64],
    };
    let (a, b) = (random::<f16>(41, m * k, Spread::Whole(2)), random::<f16>(42, k * n, Spread::Whole(2)));
    let grid = [m.div_ceil(TILE[0]), n.div_ceil(TILE[1])];
    let (mut y, mut most) = (session.unwritten::<f16, 2>([m, n])?, session.unwritten::<f32, 2>([m, grid[1]])?);
    let (left, right) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    session.launch(kernel, grid, (&left, &right, &mut y, &mut most, Constant(reduced)))?;
    let finished = |i: usize, j: usize| {
        let sum: f64 = (0..k).map(|p| a[i * k + p].to_f64() * b[p * n + j].to_f64()).sum();
        let x = sum / 8.0;
        let inner = (x * x * x * 0.044715 + x) * 0.797_884_6;
        x * 0.5 * (inner.tanh() + 1.0) + x / ((-x).exp() + 1.0)
    };
    let all: Vec<f64> = (0..m * n).map(|at| finished(at / n, at % n)).collect();
    // The rounding of f16, and the cancellation of small terms.
    let near = |value: f64| Want::Within { value, error: value.abs() * 6e-4 + 2e-5 };
    session.check("finished", &y, &|[i, j]| near(all[i * n + j]))?;
    if reduced {
        session.check("most", &most, &|[i, j]| {
            let columns = j * TILE[1]..((j + 1) * TILE[1]).min(n);
            // Columns outside are products of zeros.
            let outside = if columns.len() < TILE[1] { 0.0 } else { f64::MIN };
            near(columns.map(|column| all[i * n + column]).fold(outside, f64::max))
        })?;
    }
    Ok(())
}

/// Largest and smallest numbers of rows after a product: of every mix of signs, infinities, NaNs
/// and zeros within the rows of one warp, in the first block; of one sign only in the others.
fn extremes(session: Session) -> Result<()> {
    const SIDE: usize = 64;

    fn kernel(a: Array<f16, 2>, d: Array<f32, 2>, out: ArrayMut<f32, 2>) {
        let block = ct::bid(0);
        let zero = a.load((0, 0), [SIDE, SIDE]);
        let x = ct::mma(zero, zero, ct::zeros::<f32, 2>([SIDE, SIDE])) + d.load((block, 0), [SIDE, SIDE]);
        out.store((block, 0), x.reduce_max(1));
        out.store((block, 1), x.reduce_min(1));
    }
    let special = |row: usize, column: usize, x: f32| match (row % 8, column % 16) {
        (0, _) => x,
        (1, _) | (4, 3) => -x.abs(),
        (2, _) => x.abs(),
        (3, _) => f32::NEG_INFINITY,
        (4 | 5, 7) => f32::NAN,
        (4 | 5, 8) => f32::from_bits(0xffc0_0000),
        (4, _) => x.abs(),
        (5, _) => -x.abs(),
        (6, 5) => f32::INFINITY,
        (6, 6) => f32::NEG_INFINITY,
        (6, _) => x,
        (_, column) => [0.0, 1e-40, -1e-40, f32::MIN_POSITIVE][column % 4] * if row % 16 < 8 { 1.0 } else { -1.0 },
    };
    let x = random::<f32>(43, 4 * SIDE * SIDE, Spread::Moderate);
    let number = |row: usize, column: usize| {
        let x = x[row * SIDE + column];
        match row / SIDE {
            0 => special(row, column, x),
            1 => x.abs() + 1.0,
            2 => -x.abs() - 1.0,
            _ => x,
        }
    };
    let d: Vec<f32> = (0..4 * SIDE * SIDE).map(|at| number(at / SIDE, at % SIDE)).collect();
    let a = vec![f16::ZERO; SIDE * SIDE];
    let (a, given) = (session.array(&a, [SIDE, SIDE])?, session.array(&d, [4 * SIDE, SIDE])?);
    let mut out = session.unwritten::<f32, 2>([4 * SIDE, 2])?;
    session.launch(kernel, [4], (&a, &given, &mut out))?;
    session.check("extremes", &out, &|[i, j]| {
        let row = d[i * SIDE..][..SIDE].iter().filter(|x| !x.is_nan()).map(|&x| f64::from(x));
        let value = if j == 0 { row.fold(f64::NEG_INFINITY, f64::max) } else { row.fold(f64::INFINITY, f64::min) };
        if value == 0.0 { Want::AnyZero } else { Want::nearest(value) }
    })
}
