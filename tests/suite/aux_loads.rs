//! Vectors that all rows of a tile share, loaded in a loop over products: on Hopper they come with
//! the operands.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::CastTo;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("aux_loads/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(levels: i32 u8 f16 bf16 f32 f64);
    suite.test("aux_loads/nearest", nearest);
}

/// Queries, keys of an iteration, and terms of a sum.
const TILE: [usize; 3] = [128, 64, 64];

/// `y = f16(x · keyᵀ + level) · key * fade`, summed over tiles of keys: a level and a fade for each
/// key, the levels used twice.
fn levels_kernel<T: Element + CastTo<f32>>(
    (x, keys): (Array<f16, 2>, Array<f16, 2>),
    (levels, fades): (Array<T, 1>, Array<f32, 2>),
    y: ArrayMut<f32, 2>,
) {
    let [m, n, d] = TILE;
    let x = x.load((ct::bid(0), 0), [m, d]);
    let sum = ct::fold(..keys.num_tiles(0, [n, d]), ct::zeros::<f32, 2>([m, d]), |sum, i| {
        let key = keys.load((i, 0), [n, d]);
        let level = levels.load(i, [n]).cast::<f32>().reshape([1, n]);
        let fade = fades.load((0, i), [1, n]);
        let scores = ct::mma(x, key.transpose(), ct::zeros::<f32, 2>([m, n]));
        let weights = (scores + level) * fade + level;
        ct::mma(weights.cast::<f16>(), key, sum)
    });
    y.store((ct::bid(0), 0), sum);
}

/// Whole numbers, so that sums are exact; keys end inside of a tile, and the elements after them
/// are zero. Rows of 4 and of 3 whole grains of 16 bytes, and of others, which no box can begin
/// with.
fn levels<T: Element + CastTo<f32>>(session: Session) -> Result<()> {
    let d = TILE[2];
    for (queries, count) in [(256, 256), (200, 208), (128, 131), (130, 64)] {
        let x = random::<f16>(41, queries * d, Spread::Whole(1));
        let keys = random::<f16>(42, count * d, Spread::Whole(1));
        let level = random::<T>(43, count, Spread::Whole(2));
        let fade = random::<f32>(44, count, Spread::Whole(1));
        let (device_x, device_keys) = (session.array(&x, [queries, d])?, session.array(&keys, [count, d])?);
        let (levels, fades) = (session.array(&level, [count])?, session.array(&fade, [1, count])?);
        let mut y = session.device().zeros::<f32, 2>([queries, d])?;
        let grid = [queries.div_ceil(TILE[0])];
        session.launch(levels_kernel::<T>, grid, ((&device_x, &device_keys), (&levels, &fades), &mut y))?;
        let (x, keys, level) = (numbers(&x), numbers(&keys), numbers(&level));
        let scores = Product::new(session, [queries, count, d], |i, k| x[i * d + k], |k, j| keys[j * d + k]);
        let weight = |i: usize, j: usize| (scores.at([i, j]) + level[j]) * f64::from(fade[j]) + level[j];
        let sums = Product::new(session, [queries, d, count], weight, |j, c| keys[j * d + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// The nearest centre of each point: a vector that each thread loads for itself, in a loop with a
/// product that begins at zero.
fn nearest_kernel(
    (points, centres, squares): (Array<f16, 2>, Array<f16, 2>, Array<f32, 1>),
    y: ArrayMut<i32, 1>,
    [m, n, d]: [usize; 3],
) {
    let points = points.load((ct::bid(0), 0), [m, d]);
    let start = (ct::full::<f32, 2>([m, 1], f32::INFINITY), ct::zeros::<i32, 2>([m, 1]));
    let (_, label) = ct::fold(..centres.num_tiles(0, [n, d]), start, |(least, label), j| {
        let centres = centres.load((j, 0), [n, d]);
        let products = ct::mma(points, centres.transpose(), ct::zeros::<f32, 2>([m, n]));
        let squares = squares.load_with(j, [n], ct::LoadOptions::new().padding(Padding::PosInf));
        let (at, value) = (squares.unsqueeze(0) - products * 2.0).argmin_with_value(1);
        let is_less = value.lt(least);
        (ct::select(is_less, value, least), ct::select(is_less, at + j * n, label))
    });
    y.store(ct::bid(0), label.reshape([m]));
}

/// Whole numbers, with equal distances; centres that fill tiles, and that end inside of one.
fn nearest(session: Session) -> Result<()> {
    let d = 64;
    for (count, centres, [m, n]) in [(256, 512, [128, 128]), (200, 300, [128, 128]), (130, 256, [64, 256])] {
        let x = random::<f16>(45, count * d, Spread::Whole(2));
        let c = random::<f16>(46, centres * d, Spread::Whole(2));
        let square = |j: usize| (0..d).map(|k| c[j * d + k].to_f32().powi(2)).sum::<f32>();
        let squares: Vec<f32> = (0..centres).map(square).collect();
        let (device_x, device_c) = (session.array(&x, [count, d])?, session.array(&c, [centres, d])?);
        let (device_squares, mut y) = (session.array(&squares, [centres])?, session.unwritten::<i32, 1>([count])?);
        let arrays = (&device_x, &device_c, &device_squares);
        session.launch(nearest_kernel, [count.div_ceil(m)], (arrays, &mut y, Constant([m, n, d])))?;
        let (x, c) = (numbers(&x), numbers(&c));
        let products = Product::new(session, [count, centres, d], |i, k| x[i * d + k], |k, j| c[j * d + k]);
        session.check("labels", &y, &|[i]| {
            let distance = |j: usize| f64::from(squares[j]) - 2.0 * products.at([i, j]);
            let first = (0..centres).fold((f64::INFINITY, 0), |(least, at), j| match distance(j) {
                value if value < least => (value, j),
                _ => (least, at),
            });
            Want::exactly(first.1 as i32)
        })?;
    }
    Ok(())
}
