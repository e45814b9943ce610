//! Operands that a loop makes from loaded tiles: parts of a tile, converted weights, rows with a scale.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("operand_conversion/uneven_parts", uneven_parts);
    for m in [16, 64] {
        suite
            .test(&format!("operand_conversion/part_of_an_operand/{m}"), move |session| part_of_an_operand(session, m));
    }
    suite.test("operand_conversion/scaled_rows", scaled_rows);
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
        let score = |i: usize, j: usize| -> f64 {
            (0..whole).map(|k| x[i * whole + k].to_f64() * keys[j * whole + k].to_f64()).sum()
        };
        let scores: Vec<f64> = (0..2 * m * count).map(|at| score(at / count, at % count)).collect();
        session.check("sums", &y, &|[i, c]| {
            let terms = (0..count).map(|j| scores[i * count + j] * keys[j * whole + c].to_f64());
            Want::exactly(terms.sum::<f64>() as f32)
        })?;
    }
    Ok(())
}

/// Rows with a scale of two bytes, which is loaded beside tiles that are copied ahead.
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
