//! Softmax, log-softmax and their gradients.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::norms::{log_softmax, log_softmax_backward, softmax_backward};
use cutlet_kernels::{Number, softmax};

use super::tolerance;
use crate::support::{close, device, random};

/// Logarithms of the softmax of rows.
fn reference(x: &[f64], columns: usize) -> Vec<f64> {
    x.chunks(columns)
        .flat_map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let log = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
            row.iter().map(move |x| x - log).collect::<Vec<f64>>()
        })
        .collect()
}

fn both_ways<T: Number>(rows: usize, columns: usize, scale: f64) -> ct::Result<()> {
    let (stream, shape) = (device().default_stream(), [rows, columns]);
    let (absolute, relative) = tolerance::<T>();
    let (x, exact) = random::<T, 2>(1 + columns as u64, shape, scale)?;
    let (dy, exact_dy) = random::<T, 2>(2, shape, 1.0)?;
    let mut y = device().zeros::<T, 2>(shape)?;
    let mut dx = device().zeros::<T, 2>(shape)?;
    let logs = reference(&exact, columns);
    softmax(&stream, x.view(), y.view_mut())?;
    let powers: Vec<f64> = logs.iter().map(|x| x.exp()).collect();
    close(&y, &powers, absolute, relative);
    softmax_backward(&stream, [y.view(), dy.view()], dx.view_mut())?;
    let stored: Vec<f64> = y.to_vec()?.iter().map(|y| y.to_f64()).collect();
    let terms: Vec<f64> = stored.iter().zip(&exact_dy).map(|(y, dy)| y * dy).collect();
    let sums: Vec<f64> = terms.chunks(columns).map(|row| row.iter().sum()).collect();
    let of_x = |at: usize| stored[at] * (exact_dy[at] - sums[at / columns]);
    let gradient: Vec<f64> = (0..rows * columns).map(of_x).collect();
    close(&dx, &gradient, absolute, relative);
    log_softmax(&stream, x.view(), y.view_mut())?;
    close(&y, &logs, absolute * 10.0, relative);
    log_softmax_backward(&stream, [y.view(), dy.view()], dx.view_mut())?;
    let stored: Vec<f64> = y.to_vec()?.iter().map(|y| y.to_f64()).collect();
    let sums: Vec<f64> = exact_dy.chunks(columns).map(|row| row.iter().sum()).collect();
    let of_x = |at: usize| exact_dy[at] - stored[at].exp() * sums[at / columns];
    let gradient: Vec<f64> = (0..rows * columns).map(of_x).collect();
    close(&dx, &gradient, absolute * 10.0, relative * 2.0);
    Ok(())
}

#[test]
fn rows_of_any_length() -> ct::Result<()> {
    for (rows, columns) in [(3, 1), (5, 7), (9, 64), (3, 100), (2, 1000), (1, 4096)] {
        both_ways::<f32>(rows, columns, 5.0)?;
        both_ways::<f16>(rows, columns, 5.0)?;
        both_ways::<bf16>(rows, columns, 5.0)?;
    }
    Ok(())
}

#[test]
fn rows_of_clusters() -> ct::Result<()> {
    both_ways::<f32>(1, 20_000, 5.0)?;
    both_ways::<f16>(1, 40_000, 5.0)
}

#[test]
fn rows_by_chunks() -> ct::Result<()> {
    both_ways::<bf16>(3, 70_000, 9.0)?;
    both_ways::<f32>(1, (1 << 18) + 5, 9.0)
}

#[test]
fn rows_with_strides() -> ct::Result<()> {
    let (x, exact) = random::<f32, 4>(7, [2, 5, 3, 50], 4.0)?;
    let mut y = device().zeros::<f32, 4>([2, 3, 5, 50])?;
    softmax(&device().default_stream(), x.permute([0, 2, 1, 3])?, y.view_mut())?;
    let logs = reference(&exact, 50);
    let at = |at: usize| {
        let [b, h, t, i] = [at / 750, at / 250 % 3, at / 50 % 5, at % 50];
        logs[((b * 5 + t) * 3 + h) * 50 + i].exp()
    };
    close(&y, &(0..1500).map(at).collect::<Vec<f64>>(), 1e-6, 1e-5);
    // Five axes, and columns of a wider array.
    let (x, exact) = random::<f32, 5>(8, [2, 1, 2, 3, 20], 4.0)?;
    let mut y = device().zeros::<f32, 5>([2, 1, 2, 3, 20])?;
    softmax(&device().default_stream(), x.view(), y.view_mut())?;
    close(&y, &reference(&exact, 20).iter().map(|x| x.exp()).collect::<Vec<f64>>(), 1e-6, 1e-5);
    let part: Vec<f64> = exact.chunks(20).flat_map(|row| &row[3..16]).copied().collect();
    let mut y = device().zeros::<f32, 2>([12, 13])?;
    softmax(&device().default_stream(), x.view().reshape([12, 20])?.slice(1, 3..16)?, y.view_mut())?;
    close(&y, &reference(&part, 13).iter().map(|x| x.exp()).collect::<Vec<f64>>(), 1e-6, 1e-5);
    Ok(())
}

#[test]
fn extremes() -> ct::Result<()> {
    let stream = device().default_stream();
    let x = device().array(&[f32::NEG_INFINITY, 0.0, 3e38, 3e38, 1.0, f32::NEG_INFINITY], [2, 3])?;
    let mut y = device().zeros([2, 3])?;
    softmax(&stream, x.view(), y.view_mut())?;
    close(&y, &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0], 0.0, 0.0);
    let (empty, mut result) = (device().zeros::<f32, 2>([0, 3])?, device().zeros::<f32, 2>([0, 3])?);
    softmax(&stream, empty.view(), result.view_mut())?;
    let fault = softmax(&stream, empty.view(), y.view_mut()).unwrap_err().to_string();
    assert!(fault.contains("softmax of an array of [0, 3] into one of [2, 3]"), "{fault}");
    Ok(())
}
