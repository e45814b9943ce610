//! Operands that a loop makes from loaded tiles: parts of a tile, converted weights, rows with a
//! scale.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::packed::{Narrow, PackedArray, i3, i4, u2, u4};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("operand_conversion/uneven_parts", uneven_parts);
    for m in [16, 64] {
        suite.test(format!("operand_conversion/part_of_an_operand/{m}"), move |session| part_of_an_operand(session, m));
    }
    suite.test("operand_conversion/scaled_rows", scaled_rows);
    for warps in [1, 4] {
        suite.test(format!("operand_conversion/pages/{warps} warps"), move |session| pages(session, warps));
    }
    for tile in [[64, 64], [128, 64], [16, 32], [64, 128]] {
        let name = format!("operand_conversion/invariant/{}x{}", tile[0], tile[1]);
        suite.test(name, move |session| invariant(session, tile));
    }
    macro_rules! weights {
        ($($name:ident)+) => {$(
            for (tile, turned) in [([256, 128, 64], true), ([128, 128, 64], false), ([16, 128, 64], true)] {
                let name = format!("operand_conversion/weights/{}/{}x{}", stringify!($name), tile[0], tile[1]);
                suite.test(name, move |session| weights::<$name>(session, tile, turned));
            }
        )+};
    }
    weights!(i8 f8e4m3fn f8e5m2);
    macro_rules! codes {
        ($($name:ident)+) => {$(
            for (tile, turned) in [([128, 128, 64], false), ([64, 128, 64], true), ([16, 64, 128], true)] {
                let name = format!("operand_conversion/codes/{}/{}x{}", stringify!($name), tile[0], tile[2]);
                suite.test(name, move |session| codes::<$name, f16>(session, tile, turned));
                let name = format!("operand_conversion/codes/{}/bf16/{}x{}", stringify!($name), tile[0], tile[2]);
                suite.test(name, move |session| codes::<$name, bf16>(session, tile, turned));
            }
        )+};
    }
    codes!(u4 i4 u2 i3);
}

/// Rows by weights that are converted before the loop, and by a triangular matrix of ones.
fn invariant_kernel((x, w): (Array<f16, 2>, Array<i8, 2>), y: ArrayMut<f32, 2>, [tm, n]: [usize; 2]) {
    let weights = w.load((0, 0), [n, n]).cast::<f16>();
    let (index, ones) = (ct::arange(0..n), ct::full::<f32, 2>([n, n], 1.0));
    let upper = ct::select(index.unsqueeze(1).le(index.unsqueeze(0)), ones, 0.0).cast::<f16>();
    ct::fold(..x.num_tiles(0, [tm, n]), (), |(), i| {
        let rows = x.load((i, 0), [tm, n]);
        y.store((i, 0), ct::matmul(rows, weights) + ct::matmul(rows, upper));
    });
}

/// The sums are exact. The last tile of rows is not whole.
fn invariant(session: Session, tile: [usize; 2]) -> Result<()> {
    let [m, n] = [3 * tile[0] + 5, tile[1]];
    let x = random::<f16>(70, m * n, Spread::Whole(3));
    let w = random::<i8>(71, n * n, Spread::Whole(3));
    let (device_x, device_w) = (session.array(&x, [m, n])?, session.array(&w, [n, n])?);
    let mut y = session.device().zeros::<f32, 2>([m, n])?;
    session.launch(invariant_kernel, [1], ((&device_x, &device_w), &mut y, Constant(tile)))?;
    let (x, w) = (numbers(&x), numbers(&w));
    let factor = |l: usize, j: usize| w[l * n + j] + f64::from(u8::from(l <= j));
    let sums = Product::new(session, [m, n, n], |i, l| x[i * n + l], factor);
    session.check("rows by two matrices", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    Ok(())
}

/// `y = x · ((w - center) * scale)` of packed weights, whose loads precede that of `x`.
fn codes_kernel<F: Narrow, T: Float + MmaInput<T, f32>>(
    x: Array<T, 2>,
    (w, scales): (PackedArray<F, 2>, Array<T, 2>),
    y: ArrayMut<f32, 2>,
    ([tm, tn, tk], turned): ([usize; 3], bool),
) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let steps = x.num_tiles(1, [tm, tk]);
    let weight = |k: Scalar<i32>| {
        let codes = w.load((k, j), [tk, tn]).cast::<T>() - T::from_f64(1.5);
        codes * scales.load((k / (128 / tk) as i32, j), [1, tn])
    };
    let sum = match turned {
        true => ct::fold(..steps, ct::zeros::<f32, 2>([tn, tm]), |sum, k| {
            ct::mma(weight(k).transpose(), x.load((i, k), [tm, tk]).transpose(), sum)
        })
        .transpose(),
        false => ct::fold(..steps, ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
            let w = weight(k);
            ct::mma(x.load((i, k), [tm, tk]), w, sum)
        }),
    };
    y.store((i, j), sum);
}

/// The sums are exact. The last tiles along all axes are not whole.
fn codes<F: Narrow, T: Float + MmaInput<T, f32>>(session: Session, tile: [usize; 3], turned: bool) -> Result<()> {
    for [m, n, k] in [[tile[0], tile[1], 256], [40, 192, 208]] {
        let x = random::<T>(67, m * k, Spread::Whole(1));
        let values = random::<i32>(68, k * n, Spread::Whole(7));
        let w: Vec<F> = values.iter().map(|&number| F::from_value(f64::from(number.rem_euclid(4)))).collect();
        let groups = k.div_ceil(128);
        let scales = random::<T>(69, groups * n, Spread::Whole(2));
        let (device_x, device_w) = (session.array(&x, [m, k])?, session.device().packed(&w, [k, n])?);
        let device_scales = session.array(&scales, [groups, n])?;
        let mut y = session.device().zeros::<f32, 2>([m, n])?;
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        let arguments = (&device_x, (&device_w, &device_scales), &mut y, Constant((tile, turned)));
        session.launch(codes_kernel::<F, T>, grid, arguments)?;
        let (x, scales) = (numbers(&x), numbers(&scales));
        let weight = |l: usize, j: usize| (w[l * n + j].to_value() - 1.5) * scales[l / 128 * n + j];
        let sums = Product::new(session, [m, n, k], |i, l| x[i * k + l], weight);
        session.check(&format!("{m} x {n} x {k}"), &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// `y = x · (f16(w) * scale)`, with a scale for each column and group of 128 rows. Weights are
/// converted between their load and the product; `turned`: they are its left operand.
fn weights_kernel<T: Element + CastTo<f16>>(
    x: Array<f16, 2>,
    (w, scales): (Array<T, 2>, Array<f16, 2>),
    y: ArrayMut<f32, 2>,
    ([tm, tn, tk], turned): ([usize; 3], bool),
) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let steps = x.num_tiles(1, [tm, tk]);
    let parts = |k: Scalar<i32>| {
        let scale = scales.load((k / (128 / tk) as i32, j), [1, tn]);
        (x.load((i, k), [tm, tk]), w.load((k, j), [tk, tn]).cast::<f16>() * scale)
    };
    let sum = match turned {
        true => ct::fold(..steps, ct::zeros::<f32, 2>([tn, tm]), |sum, k| {
            let (x, w) = parts(k);
            ct::mma(w.transpose(), x.transpose(), sum)
        })
        .transpose(),
        false => ct::fold(..steps, ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
            let (x, w) = parts(k);
            ct::mma(x, w, sum)
        }),
    };
    y.store((i, j), sum);
}

/// Sums of whole numbers are exact. The last tiles along all axes are not whole.
fn weights<T: Element + CastTo<f16>>(session: Session, tile: [usize; 3], turned: bool) -> Result<()> {
    for [m, n, k] in [[tile[0], tile[1], 200], [40, 136, 208]] {
        let x = random::<f16>(67, m * k, Spread::Whole(1));
        let (w, groups) = (random::<T>(68, k * n, Spread::Whole(3)), k.div_ceil(128));
        let scales = random::<f16>(69, groups * n, Spread::Whole(2));
        let (device_x, device_w) = (session.array(&x, [m, k])?, session.array(&w, [k, n])?);
        let device_scales = session.array(&scales, [groups, n])?;
        let mut y = session.device().zeros::<f32, 2>([m, n])?;
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        let arguments = (&device_x, (&device_w, &device_scales), &mut y, Constant((tile, turned)));
        session.launch(weights_kernel::<T>, grid, arguments)?;
        let (x, w, scales) = (numbers(&x), numbers(&w), numbers(&scales));
        let weight = |l: usize, j: usize| w[l * n + j] * scales[l / 128 * n + j];
        let sums = Product::new(session, [m, n, k], |i, l| x[i * k + l], weight);
        session.check(&format!("{m} x {n} x {k}"), &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// Parts whose extents do not divide those of the tile, at constant indices.
fn uneven_parts(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 3>) {
        let wide = x.load((0, 0), [4, 48]);
        y.store((0, 0, 0), wide.extract((0, 0), [4, 32]).unsqueeze(0));
        y.store((1, 0, 0), wide.extract((0, 1), [4, 20]).reshape([1, 4, 20]) * 2);
        let narrow = x.load((0, 1), [4, 32]);
        y.store((2, 0, 0), narrow.extract((ct::bid(0), 1), [2, 12]).unsqueeze(0));
        y.store((3, 0, 0), narrow.extract((0, 0), [3, 24]).unsqueeze(0));
    }
    let data = random::<i32>(61, 4 * 64, Spread::Whole(1000));
    let x = session.array(&data, [4, 64])?;
    let mut y = session.device().zeros::<i32, 3>([4, 4, 32])?;
    session.launch(kernel, [1], (&x, &mut y))?;
    let want = |[part, i, j]: [usize; 3]| {
        let at = |i: usize, j: usize| data[64 * i + j];
        Want::SameBits(match part {
            0 => at(i, j),
            1 if j < 20 => 2 * at(i, 20 + j),
            2 if i < 2 && j < 12 => at(i, 44 + j),
            3 if i < 3 && j < 24 => at(i, 32 + j),
            _ => 0,
        } as u32 as u64)
    };
    session.check("parts", &y, &want)
}

/// `y = f16(x · keyᵀ) · value`, where the value is the first 128 of the 144 numbers of a key.
fn part_of_an_operand(session: Session, m: usize) -> Result<()> {
    const WIDTHS: [usize; 2] = [144, 128];
    fn kernel(x: Array<f16, 2>, keys: Array<f16, 2>, y: ArrayMut<f32, 2>, m: usize) {
        let [whole, part] = WIDTHS;
        let x = x.load((ct::bid(0), 0), [m, whole]);
        let sum = ct::fold(..keys.num_tiles(0, [32, whole]), ct::zeros::<f32, 2>([m, part]), |sum, i| {
            let key = keys.load((i, 0), [32, whole]);
            let scores = ct::mma(x, key.transpose(), ct::zeros::<f32, 2>([m, 32]));
            ct::mma(scores.cast::<f16>(), key.extract((0, 0), [32, part]), sum)
        });
        y.store((ct::bid(0), 0), sum);
    }
    let [whole, part] = WIDTHS;
    for count in [96, 131] {
        let (x, keys) =
            (random::<f16>(62, 2 * m * whole, Spread::Whole(1)), random::<f16>(63, count * whole, Spread::Whole(1)));
        let (device_x, device_keys) = (session.array(&x, [2 * m, whole])?, session.array(&keys, [count, whole])?);
        let mut y = session.device().zeros::<f32, 2>([2 * m, part])?;
        session.launch(kernel, [2], (&device_x, &device_keys, &mut y, Constant(m)))?;
        let (x, keys) = (numbers(&x), numbers(&keys));
        let scores = Product::new(session, [2 * m, count, whole], |i, k| x[i * whole + k], |k, j| keys[j * whole + k]);
        let sums = Product::new(session, [2 * m, part, count], |i, j| scores.at([i, j]), |j, c| keys[j * whole + c]);
        session.check("sums", &y, &|at| Want::exactly(sums.at(at) as f32))?;
    }
    Ok(())
}

/// Rows with a scale of two bytes, which is loaded in a loop with multistage copies of tiles.
fn scaled_rows(session: Session) -> Result<()> {
    fn kernel(x: Array<f16, 2>, (scales, bias): (Array<f16, 1>, Array<f16, 1>), y: ArrayMut<f32, 2>) {
        let sum = ct::fold(..x.num_tiles(0, [8, 256]), ct::zeros::<f32, 2>([8, 256]), |sum, i| {
            let scale = scales.load_scalar(i * 8).cast::<f32>();
            let bias = bias.load(ct::at(ct::bid(0) * 256 + i + 1), [256]).cast::<f32>().unsqueeze(0);
            sum + x.load((i, ct::bid(0)), [8, 256]).cast::<f32>() * scale + bias
        });
        y.store((0, ct::bid(0)), sum);
    }
    let (rows, columns) = (80, 512);
    let x = random::<f16>(64, rows * columns, Spread::Whole(3));
    let (scales, bias) = (random::<f16>(65, rows, Spread::Whole(3)), random::<f16>(66, columns, Spread::Whole(3)));
    let device_x = session.array(&x, [rows, columns])?;
    let vectors = (session.array(&scales, [rows])?, session.array(&bias, [columns])?);
    let mut y = session.device().zeros::<f32, 2>([8, columns])?;
    session.launch(kernel, [2], (&device_x, (&vectors.0, &vectors.1), &mut y))?;
    session.check("sums", &y, &|[r, c]| {
        let term = |i: usize| {
            let shift = c + i + 1;
            let bias = if shift < columns { bias[shift].to_f64() } else { 0.0 };
            x[(8 * i + r) * columns + c].to_f64() * scales[8 * i].to_f64() + bias
        };
        Want::exactly((0..rows / 8).map(term).sum::<f64>() as f32)
    })
}

/// Rows by pages of packed codes in the order of a table, with a scale for each row of a page. No
/// product reads a loaded tile.
fn pages(session: Session, warps: u32) -> Result<()> {
    fn kernel(
        x: Array<f16, 2>,
        (codes, scales, table): (PackedArray<i4, 3>, Array<f32, 2>, Array<i32, 1>),
        y: ArrayMut<f32, 2>,
    ) {
        let rows = x.load((0, 0), [16, 128]);
        let sum = ct::fold(..table.extent(0), ct::zeros::<f32, 2>([16, 64]), |sum, i| {
            let page = table.load_scalar(i);
            let codes = codes.load((page, 0, 0), [1, 64, 128]).cast::<f16>().reshape([64, 128]);
            let product = ct::mma(rows, codes.transpose(), ct::zeros::<f32, 2>([16, 64]));
            sum + product * scales.load((page, 0), [1, 64])
        });
        y.store((0, 0), sum);
    }
    let (count, m, n, k) = (5, 16, 64, 128);
    let x = random::<f16>(75, m * k, Spread::Whole(1));
    let values = random::<i32>(76, count * n * k, Spread::Whole(7));
    let codes: Vec<i4> = values.iter().map(|&number| i4::from_value(f64::from(number))).collect();
    let scales = random::<f32>(77, count * n, Spread::Whole(3));
    // A page that does not exist has zeros.
    let table = [3, 0, 4, 9, 1, 3, 2];
    let device_x = session.array(&x, [m, k])?;
    let device_codes = session.device().packed(&codes, [count, n, k])?;
    let device_scales = session.array(&scales, [count, n])?;
    let device_table = session.array(&table, [table.len()])?;
    let mut y = session.device().zeros::<f32, 2>([m, n])?;
    let options = ct::Hints::new().num_warps(warps);
    session.launch_with(options, kernel, [1], (&device_x, (&device_codes, &device_scales, &device_table), &mut y))?;
    let x = numbers(&x);
    let code = |l: usize, row: usize| codes[row * k + l].to_value();
    let products = Product::new(session, [m, count * n, k], |i, l| x[i * k + l], code);
    session.check("sums", &y, &|[i, j]| {
        let of_page = |page: usize| products.at([i, page * n + j]) * f64::from(scales[page * n + j]);
        let pages = table.iter().map(|&page| page as usize).filter(|&page| page < count);
        Want::exactly(pages.map(of_page).sum::<f64>() as f32)
    })
}
