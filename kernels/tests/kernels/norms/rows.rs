//! RMS norm and layer norm with their gradients.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::norms::{add_layer_norm, add_rms_norm, layer_norm_backward, rms_norm_backward};
use cutlet_kernels::{Number, layer_norm, rms_norm};

use super::tolerance;
use crate::support::{close, device, random};

const EPSILON: f64 = 1e-5;

/// Normalised rows, and the inverse deviation of each.
fn normal(x: &[f64], columns: usize, centered: bool) -> (Vec<f64>, Vec<f64>) {
    let mut all = (Vec::new(), Vec::new());
    for row in x.chunks(columns) {
        let n = columns as f64;
        let mean = if centered { row.iter().sum::<f64>() / n } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + EPSILON).sqrt();
        all.0.extend(row.iter().map(|x| (x - mean) * scale));
        all.1.push(scale);
    }
    all
}

fn forward_and_backward<T: Number>(rows: usize, columns: usize) -> ct::Result<()> {
    let (stream, shape) = (device().default_stream(), [rows, columns]);
    let (absolute, relative) = tolerance::<T>();
    let (x, exact) = random::<T, 2>(columns as u64, shape, 3.0)?;
    let (residual, _) = random::<T, 2>(11, shape, 3.0)?;
    let (dy, exact_dy) = random::<T, 2>(12, shape, 1.0)?;
    let (dsum, exact_dsum) = random::<T, 2>(13, shape, 1.0)?;
    let (weight, w) = random::<T, 1>(14, [columns], 1.0)?;
    let (bias, b) = random::<T, 1>(15, [columns], 1.0)?;
    let make = || device().zeros::<T, 2>(shape);
    let (mut y, mut sum, mut dx) = (make()?, make()?, make()?);
    let (mut dweight, mut dbias) = (device().zeros::<T, 1>([columns])?, device().zeros::<T, 1>([columns])?);
    for centered in [false, true] {
        let result = |normal: &[f64]| -> Vec<f64> {
            let bias = |j: usize| if centered { b[j] } else { 0.0 };
            normal.iter().enumerate().map(|(at, n)| n * w[at % columns] + bias(at % columns)).collect()
        };
        let (epsilon, vectors) = (EPSILON as f32, [weight.view(), bias.view()]);
        match centered {
            true => layer_norm(&stream, x.view(), vectors, y.view_mut(), epsilon)?,
            false => rms_norm(&stream, x.view(), weight.view(), y.view_mut(), epsilon)?,
        }
        close(&y, &result(&normal(&exact, columns, centered).0), absolute * 10.0, relative);
        let operands = [x.view(), residual.view()];
        match centered {
            true => add_layer_norm(&stream, operands, vectors, [sum.view_mut(), y.view_mut()], epsilon)?,
            false => add_rms_norm(&stream, operands, weight.view(), [sum.view_mut(), y.view_mut()], epsilon)?,
        }
        let of_sum: Vec<f64> = sum.to_vec()?.iter().map(|x| x.to_f64()).collect();
        let pairs = exact.iter().zip(residual.to_vec()?);
        close(&sum, &pairs.map(|(x, r)| x + r.to_f64()).collect::<Vec<f64>>(), 0.0, relative);
        let (normals, scales) = normal(&of_sum, columns, centered);
        close(&y, &result(&normals), absolute * 10.0, relative);
        let inputs = [sum.view(), dy.view()];
        match centered {
            true => {
                let gradients = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
                layer_norm_backward(&stream, inputs, Some(dsum.view()), weight.view(), gradients, epsilon)?;
            }
            false => {
                let gradients = (dx.view_mut(), dweight.view_mut());
                rms_norm_backward(&stream, inputs, Some(dsum.view()), weight.view(), gradients, epsilon)?;
            }
        }
        let (mut of_x, mut of_weight, mut of_bias) = (exact_dsum.clone(), vec![0.0; columns], vec![0.0; columns]);
        for (i, scale) in scales.iter().enumerate() {
            let at = |j: usize| i * columns + j;
            let weighted = |j: usize| exact_dy[at(j)] * w[j];
            let along = (0..columns).map(|j| weighted(j) * normals[at(j)]).sum::<f64>() / columns as f64;
            let level = (0..columns).map(weighted).sum::<f64>() / columns as f64;
            for j in 0..columns {
                let level = if centered { level } else { 0.0 };
                of_x[at(j)] += scale * (weighted(j) - level - normals[at(j)] * along);
                of_weight[j] += exact_dy[at(j)] * normals[at(j)];
                of_bias[j] += exact_dy[at(j)];
            }
        }
        // If the variance is near 0, differences of nearly equal terms are divided by its root.
        let largest = scales.iter().copied().fold(1.0, f64::max);
        close(&dx, &of_x, absolute * 10.0 * largest, relative);
        close(&dweight, &of_weight, absolute * 10.0, relative);
        if centered {
            close(&dbias, &of_bias, absolute * 10.0, relative);
        }
    }
    Ok(())
}

#[test]
fn rows_of_any_length() -> ct::Result<()> {
    for (rows, columns) in [(3, 1), (5, 7), (70, 64), (3, 100), (2, 1000)] {
        forward_and_backward::<f32>(rows, columns)?;
        forward_and_backward::<f16>(rows, columns)?;
        forward_and_backward::<bf16>(rows, columns)?;
    }
    Ok(())
}

#[test]
fn rows_of_clusters() -> ct::Result<()> {
    // Two tile blocks in the gradient of layer norm.
    forward_and_backward::<f16>(5, 12_000)?;
    forward_and_backward::<f32>(1, 20_000)
}

#[test]
fn rows_by_chunks() -> ct::Result<()> {
    forward_and_backward::<f16>(4, 40_000)?;
    forward_and_backward::<f32>(1, (1 << 18) + 5)
}

#[test]
fn rows_with_strides() -> ct::Result<()> {
    let (x, exact) = random::<f32, 4>(7, [2, 5, 3, 50], 4.0)?;
    let (weight, w) = random::<f32, 1>(14, [50], 1.0)?;
    let (dy, exact_dy) = random::<f32, 4>(9, [2, 3, 5, 50], 1.0)?;
    let (mut y, stream) = (device().zeros::<f32, 4>([2, 3, 5, 50])?, device().default_stream());
    let x = x.permute([0, 2, 1, 3])?;
    rms_norm(&stream, x, weight.view(), y.view_mut(), EPSILON as f32)?;
    let (normals, _) = normal(&exact, 50, false);
    let place = |at: usize| {
        let [b, h, t, i] = [at / 750, at / 250 % 3, at / 50 % 5, at % 50];
        ((b * 5 + t) * 3 + h) * 50 + i
    };
    close(&y, &(0..1500).map(|at| normals[place(at)] * w[at % 50]).collect::<Vec<f64>>(), 1e-5, 1e-5);
    let (mut dx, mut dweight) = (device().zeros::<f32, 4>([2, 3, 5, 50])?, device().zeros::<f32, 1>([50])?);
    let gradients = (dx.view_mut(), dweight.view_mut());
    rms_norm_backward(&stream, [x, dy.view()], None, weight.view(), gradients, EPSILON as f32)?;
    let mut of_weight = vec![0.0; 50];
    (0..1500).for_each(|at| of_weight[at % 50] += exact_dy[at] * normals[place(at)]);
    close(&dweight, &of_weight, 1e-5, 1e-5);
    let fault = rms_norm(&stream, x, weight.slice(0, 1..)?, y.view_mut(), 1e-5).unwrap_err().to_string();
    assert!(fault.contains("a weight (and bias) of [49, 50] elements"), "{fault}");
    Ok(())
}

/// Tiles of short rows reach beyond the last row, whose zeros have no part in the sums.
#[test]
fn rows_after_the_last_one_are_left_out() -> ct::Result<()> {
    let (x, dy, weight) = (device().full([3, 4], 2.0f32)?, device().full([3, 4], 1.0f32)?, device().full([4], 1.0f32)?);
    let (mut dx, mut dweight) = (device().zeros::<f32, 2>([3, 4])?, device().zeros::<f32, 1>([4])?);
    let (stream, gradients) = (device().default_stream(), (dx.view_mut(), dweight.view_mut()));
    rms_norm_backward(&stream, [x.view(), dy.view()], None, weight.view(), gradients, 0.0)?;
    close(&dweight, &[3.0; 4], 1e-6, 0.0);
    close(&dx, &[0.0; 12], 1e-6, 0.0);
    Ok(())
}
