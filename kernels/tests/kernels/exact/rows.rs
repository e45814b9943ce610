//! Rows: norms, softmax and cross-entropy of rows in one tile and by chunks, sums, prefix sums, and
//! recurrences by chunks and by steps.

use cutlet as ct;
use cutlet::LoadOptions;
use cutlet::prelude::*;
use cutlet_kernels::losses::CrossEntropy;
use cutlet_kernels::norms::group_norm;
use cutlet_kernels::order::{Combine, Prefix, prefix};
use cutlet_kernels::recurrent::{Mamba2, Mamba2Inputs, States};
use cutlet_kernels::{layer_norm, rms_norm, softmax};

use super::{Results, stream};
use crate::support::{device, random};

const EPSILON: f32 = 1e-5;

/// Norm of a row in steps of 32 columns. `centered`: layer norm.
fn norm(
    x: Array<f32, 2>,
    (weight, bias): (Array<f32, 1>, Array<f32, 1>),
    y: ArrayMut<f32, 2>,
    epsilon: Scalar<f32>,
    centered: bool,
) {
    let (row, columns) = (ct::bid(0), x.extent(1));
    let each = || ..columns.ceil_div(32);
    let part = |j: Scalar<i32>| x.load((row, j), [1, 32]).reshape([32]);
    let count = columns.cast::<f32>();
    let start = || ct::zeros::<f32, 1>([1]);
    let mean = match centered {
        true => ct::fold(each(), start(), |sum, j| sum + part(j).sum(0)) / count,
        false => start(),
    };
    let difference = |j: Scalar<i32>| {
        let inside = (j * 32 + ct::arange(0..32)).lt(columns);
        inside.select(part(j) - mean, 0.0)
    };
    let squares = ct::fold(each(), start(), |sum, j| sum + (difference(j) * difference(j)).sum(0));
    let scale = (squares / count + epsilon).rsqrt();
    ct::for_each(each(), |j| {
        let result = difference(j) * scale * weight.load(j, [32]);
        let result = if centered { result + bias.load(j, [32]) } else { result };
        y.store((row, j), result.reshape([1, 32]));
    });
}

/// Rows of 100 columns are one tile, rows of 40,000 columns are read by chunks or by tile blocks of
/// a cluster.
#[test]
fn norms() -> ct::Result<()> {
    for (rows, columns) in [(5, 100), (2, 40_000)] {
        let (x, _) = random::<f32, 2>(1, [rows, columns], 3.0)?;
        let ((weight, _), (bias, _)) = (random::<f32, 1>(2, [columns], 1.0)?, random::<f32, 1>(3, [columns], 1.0)?);
        for centered in [false, true] {
            let mut results = Results::default();
            results.add("steps of 32 columns", || {
                let mut y = device().zeros([rows, columns])?;
                ct::launch(norm, rows, (&x, (&weight, &bias), &mut y, EPSILON, Constant(centered)))?;
                Ok(y)
            })?;
            results.add("kernel", || {
                let mut y = device().zeros([rows, columns])?;
                match centered {
                    true => layer_norm(&stream(), x.view(), [weight.view(), bias.view()], y.view_mut(), EPSILON)?,
                    false => rms_norm(&stream(), x.view(), weight.view(), y.view_mut(), EPSILON)?,
                }
                Ok(y)
            })?;
            results.agree();
        }
    }
    Ok(())
}

/// A group norm of groups of one channel is a layer norm of its positions.
#[test]
fn norms_of_groups() -> ct::Result<()> {
    let [batch, channels, positions] = [2, 3, 50];
    let (x, _) = random::<f32, 3>(1, [batch, channels, positions], 2.0)?;
    let [ones, zeros] = [1.0, 0.0].map(|value| device().full::<f32, 1>([channels], value));
    let (ones, zeros) = (ones?, zeros?);
    let mut results = Results::default();
    results.add("layer norm of each channel", || {
        let (ones, zeros) = (device().full([positions], 1.0f32)?, device().zeros([positions])?);
        let mut y = device().zeros([batch, channels, positions])?;
        layer_norm(&stream(), x.view(), [ones.view(), zeros.view()], y.view_mut(), EPSILON)?;
        Ok(y)
    })?;
    results.add("group norm", || {
        let mut y = device().zeros([batch, channels, positions])?;
        group_norm(&stream(), x.view(), channels, [ones.view(), zeros.view()], y.view_mut(), EPSILON)?;
        Ok(y)
    })?;
    results.agree();
    Ok(())
}

/// A part of a row, with negative infinity beyond its end.
fn masked(x: Array<f32, 2>, at: (Scalar<i32>, Scalar<i32>)) -> Tile<f32, 2> {
    x.load_with(at, [1, 64], LoadOptions::new().padding(Padding::NegInf))
}

/// Softmax without a maximum: the powers of differences are quotients of powers.
fn plain_softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    let (row, each) = (ct::bid(0), || ..x.extent(1).ceil_div(64));
    let powers = |j: Scalar<i32>| masked(x, (row, j)).exp();
    let sum = ct::fold(each(), ct::zeros::<f32, 2>([1, 1]), |sum, j| sum + powers(j).sum(1));
    ct::for_each(each(), |j| y.store((row, j), powers(j) / sum));
}

#[test]
fn softmaxes() -> ct::Result<()> {
    for (rows, columns) in [(5, 100), (2, 40_000)] {
        let (x, _) = random::<f32, 2>(1, [rows, columns], 3.0)?;
        let mut results = Results::default();
        results.add("without a maximum", || {
            let mut y = device().zeros([rows, columns])?;
            ct::launch(plain_softmax, rows, (&x, &mut y))?;
            Ok(y)
        })?;
        results.add("kernel", || {
            let mut y = device().zeros([rows, columns])?;
            softmax(&stream(), x.view(), y.view_mut())?;
            Ok(y)
        })?;
        results.agree();
    }
    Ok(())
}

/// Losses with the maximum of the row, which is a part of the formula: the logarithm is a one-way
/// tag.
fn losses(x: Array<f32, 2>, labels: Array<i32, 1>, loss: ArrayMut<f32, 1>) {
    let (row, each) = (ct::bid(0), || ..x.extent(1).ceil_div(64));
    let part = |j: Scalar<i32>| masked(x, (row, j));
    let max = ct::fold(each(), ct::full::<f32, 2>([1, 1], f32::NEG_INFINITY), |max, j| max.max(part(j).reduce_max(1)));
    let sum = ct::fold(each(), ct::zeros::<f32, 2>([1, 1]), |sum, j| sum + (part(j) - max).exp().sum(1));
    let label = x.load_scalar((row, labels.load_scalar(row)));
    loss.store_scalar(row, (max + sum.log()).item() - label);
}

#[test]
fn cross_entropies() -> ct::Result<()> {
    for (rows, columns) in [(5, 100), (2, 40_000)] {
        let (x, _) = random::<f32, 2>(1, [rows, columns], 3.0)?;
        let labels: Vec<i32> = (0..rows).map(|i| (i * 37 % columns) as i32).collect();
        let labels = device().array(&labels, [rows])?;
        let mut results = Results::default();
        results.add("steps of 64 columns", || {
            let mut loss = device().zeros([rows])?;
            ct::launch(losses, rows, (&x, &labels, &mut loss))?;
            Ok(loss)
        })?;
        results.add("kernel", || {
            let mut loss = device().zeros([rows])?;
            CrossEntropy::new().forward(&stream(), x.view(), labels.view(), loss.view_mut())?;
            Ok(loss)
        })?;
        results.agree();
    }
    Ok(())
}

/// Prefix sums in one pass over many tiles, against a scan of one tile after another.
#[test]
fn prefix_sums() -> ct::Result<()> {
    let n = 9 * 1024 + 7;
    let (x, _) = random::<f32, 1>(1, [n], 1.0)?;
    let mut results = Results::default();
    results.add("one block", || {
        let mut y = device().zeros([n])?;
        let kernel = |x: Array<f32, 1>, y: ArrayMut<f32, 1>| {
            ct::fold(..x.num_tiles(0, [256]), ct::zeros::<f32, 1>([1]), |before, i| {
                let x = x.load(i, [256]);
                y.store(i, x.cumsum(0) + before);
                before + x.sum(0)
            });
        };
        ct::launch(kernel, 1, (&x, &mut y))?;
        Ok(y)
    })?;
    results.add("kernel", || {
        let mut y = device().zeros([n])?;
        prefix(&stream(), x.view(), y.view_mut(), (Combine::Sum, Prefix::Inclusive))?;
        Ok(y)
    })?;
    results.agree();
    Ok(())
}

/// A recurrence with decays, by chunks of 64 steps and step by step: `exp` of a sum is the product
/// of the powers.
#[test]
fn chunks_and_steps() -> ct::Result<()> {
    let [tokens, heads, channels, groups, states] = [70, 2, 8, 1, 16];
    let (x, _) = random::<f32, 4>(1, [1, tokens, heads, channels], 1.0)?;
    let (dt, _) = random::<f32, 3>(2, [1, tokens, heads], 1.0)?;
    let [(b, _), (c, _)] =
        [random::<f32, 4>(3, [1, tokens, groups, states], 1.0)?, random(4, [1, tokens, groups, states], 1.0)?];
    let ((a, _), (d, _)) = (random::<f32, 1>(5, [heads], 1.0)?, random::<f32, 1>(6, [heads], 1.0)?);
    let mut results = Results::default();
    results.add("steps", || {
        let mut out = device().zeros::<f32, 4>([1, tokens, heads, channels])?;
        let mut state = device().zeros([1, heads, states, channels])?;
        for token in 0..tokens {
            let inputs = (
                x.slice(1, token..token + 1)?.reshape([1, heads, channels])?,
                dt.slice(1, token..token + 1)?.reshape([1, heads])?,
                b.slice(1, token..token + 1)?.reshape([1, groups, states])?,
                c.slice(1, token..token + 1)?.reshape([1, groups, states])?,
            );
            let of_heads = (a.view(), None, Some(d.view()));
            let result = out.slice_mut(1, token..token + 1)?.reshape([1, heads, channels])?;
            Mamba2::default().step(&stream(), inputs, of_heads, state.view_mut(), result)?;
        }
        Ok(out)
    })?;
    results.add("chunks", || {
        let mut out = device().zeros([1, tokens, heads, channels])?;
        let (x, dt, a) = (x.view(), dt.view(), a.view());
        let inputs = Mamba2Inputs { x, dt, dt_bias: None, a, b: b.view(), c: c.view(), d: Some(d.view()) };
        Mamba2::default().chunks(&stream(), inputs, None, States::default(), out.view_mut())?;
        Ok(out)
    })?;
    results.agree();
    Ok(())
}
