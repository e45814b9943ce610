//! Cross-entropy of logits.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::losses::CrossEntropy;

use crate::support::{Numbers, close, device, random};

/// Losses and their gradients for the logits.
fn reference(loss: CrossEntropy, x: &[f64], labels: &[i32], columns: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    let (s, z, n) = (f64::from(loss.label_smoothing), f64::from(loss.z_loss), columns as f64);
    for (row, &label) in x.chunks(columns).zip(labels) {
        if label < 0 || label as usize >= columns || Some(label) == loss.ignored {
            losses.push(0.0);
            gradients.extend(vec![0.0; columns]);
            continue;
        }
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        let mean = row.iter().sum::<f64>() / n;
        losses.push(log - (1.0 - s) * row[label as usize] - s * mean + z * log * log);
        gradients.extend(row.iter().enumerate().map(|(j, x)| {
            let hit = if j == label as usize { 1.0 - s } else { 0.0 };
            (x - log).exp() * (1.0 + 2.0 * z * log) - s / n - hit
        }));
    }
    (losses, gradients)
}

fn check<T: Number>(rows: usize, columns: usize, loss: CrossEntropy) -> ct::Result<()> {
    let stream = device().default_stream();
    let (x, exact) = random::<T, 2>(columns as u64, [rows, columns], 6.0)?;
    let mut numbers = Numbers::new(5);
    let labels: Vec<i32> = (0..rows).map(|_| numbers.below(columns + 1) as i32 - 1).collect();
    let (dloss, exact_dloss) = random::<f32, 1>(6, [rows], 1.0)?;
    let (losses, mut gradients) = reference(loss, &exact, &labels, columns);
    let labels = device().array(&labels, [rows])?;
    let (mut result, mut gradient) = (device().zeros::<f32, 1>([rows])?, device().zeros::<T, 2>([rows, columns])?);
    let relative = if T::NAME == "f32" { 1e-5 } else { 1e-2 };
    loss.forward(&stream, x.view(), labels.view(), result.view_mut())?;
    close(&result, &losses, 1e-5, 1e-5);
    let results = (result.view_mut(), gradient.view_mut());
    loss.with_gradient(&stream, x.view(), labels.view(), 0.5, results)?;
    close(&result, &losses, 1e-5, 1e-5);
    gradients.iter_mut().for_each(|g| *g *= 0.5);
    close(&gradient, &gradients, 1e-6, relative);
    loss.backward(&stream, x.view(), labels.view(), dloss.view(), gradient.view_mut())?;
    gradients.iter_mut().enumerate().for_each(|(at, g)| *g *= 2.0 * exact_dloss[at / columns]);
    close(&gradient, &gradients, 1e-6, relative);
    Ok(())
}

#[test]
fn rows_of_any_length() -> ct::Result<()> {
    let all = CrossEntropy { label_smoothing: 0.1, z_loss: 1e-2, ignored: Some(3) };
    for (rows, columns) in [(4, 1), (7, 10), (20, 129), (3, 1000)] {
        for loss in [CrossEntropy::new(), all] {
            check::<f32>(rows, columns, loss)?;
            check::<f16>(rows, columns, loss)?;
            check::<bf16>(rows, columns, loss)?;
        }
    }
    Ok(())
}

#[test]
fn rows_of_clusters() -> ct::Result<()> {
    check::<f32>(1, 20_000, CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::new() })?;
    check::<bf16>(1, 40_000, CrossEntropy::new())
}

#[test]
fn rows_by_chunks() -> ct::Result<()> {
    check::<bf16>(5, 40_000, CrossEntropy::new())?;
    check::<f32>(1, (1 << 18) + 5, CrossEntropy { label_smoothing: 0.1, z_loss: 1e-3, ignored: None })
}

#[test]
fn shapes_are_checked() -> ct::Result<()> {
    let (x, labels) = (device().zeros::<f32, 2>([3, 4])?, device().zeros::<i32, 1>([2])?);
    let mut loss = device().zeros::<f32, 1>([3])?;
    let stream = device().default_stream();
    let fault = CrossEntropy::new().forward(&stream, x.view(), labels.view(), loss.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("3 rows of logits; labels, loss and gradient of [2, 3, 3]"), "{fault}");
    Ok(())
}
