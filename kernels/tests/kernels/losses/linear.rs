//! Cross-entropy of a linear layer.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::losses::CrossEntropy;

use crate::support::{Numbers, close, device, random};

fn check<T: Number>([tokens, width, words]: [usize; 3], loss: CrossEntropy, part: Option<usize>) -> ct::Result<()> {
    let (stream, seed) = (device().default_stream(), words as u64);
    let (x, exact) = random::<T, 2>(seed, [tokens, width], 1.0)?;
    let (w, of_w) = random::<T, 2>(seed + 1, [words, width], 1.0)?;
    let (dloss, d) = random::<f32, 1>(seed + 2, [tokens], 1.0)?;
    let mut numbers = Numbers::new(seed);
    let label: Vec<i32> = (0..tokens).map(|_| numbers.below(words + 1) as i32 - 1).collect();
    let labels = device().array(&label, [tokens])?;
    let (mut losses, mut logs) = (device().zeros::<f32, 1>([tokens])?, device().zeros::<f32, 1>([tokens])?);
    let inputs = (x.view(), w.view());
    loss.linear_forward(&stream, inputs, labels.view(), (losses.view_mut(), logs.view_mut()))?;
    let (mut dx, mut dw) = (device().zeros::<T, 2>([tokens, width])?, device().zeros::<T, 2>([words, width])?);
    let gradients = (dx.view_mut(), dw.view_mut());
    loss.linear_backward(&stream, inputs, (labels.view(), logs.view()), dloss.view(), part, gradients)?;

    let (s, z, n) = (f64::from(loss.label_smoothing), f64::from(loss.z_loss), words as f64);
    let (mut want, mut of_logs) = (Vec::new(), Vec::new());
    let (mut want_dx, mut want_dw) = (vec![0.0; tokens * width], vec![0.0; words * width]);
    for i in 0..tokens {
        let row = &exact[i * width..][..width];
        let logits: Vec<f64> = of_w.chunks(width).map(|word| word.iter().zip(row).map(|(a, b)| a * b).sum()).collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log = max + logits.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        of_logs.push(log);
        if label[i] < 0 || Some(label[i]) == loss.ignored {
            want.push(0.0);
            continue;
        }
        let hit = label[i] as usize;
        want.push(log - (1.0 - s) * logits[hit] - s * logits.iter().sum::<f64>() / n + z * log * log);
        for j in 0..words {
            let one = if j == hit { 1.0 - s } else { 0.0 };
            // The product reads the gradient as it is stored.
            let exact = d[i] * ((logits[j] - log).exp() * (1.0 + 2.0 * z * log) - s / n - one);
            let stored = T::from_f64(exact).to_f64();
            for k in 0..width {
                want_dx[i * width + k] += stored * of_w[j * width + k];
                want_dw[j * width + k] += stored * row[k];
            }
        }
    }
    let (absolute, relative) = match T::NAME {
        "f32" => (2e-5, 1e-4),
        "f16" => (2e-3, 1e-2),
        _ => (2e-2, 2e-2),
    };
    close(&logs, &of_logs, 1e-4, 1e-5);
    close(&losses, &want, 2e-4, 1e-4);
    close(&dx, &want_dx, absolute, relative);
    close(&dw, &want_dw, absolute, relative);
    Ok(())
}

#[test]
fn layers_of_any_size() -> ct::Result<()> {
    let all = CrossEntropy { label_smoothing: 0.1, z_loss: 1e-2, ignored: Some(3) };
    for loss in [CrossEntropy::new(), all] {
        check::<f32>([5, 9, 20], loss, None)?;
        check::<f16>([33, 40, 300], loss, None)?;
        check::<bf16>([20, 16, 64], loss, None)?;
        check::<f32>([1, 1, 1], loss, None)?;
    }
    Ok(())
}

/// The gradient of the logits in several parts.
#[test]
fn vocabularies_in_parts() -> ct::Result<()> {
    let loss = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::new() };
    check::<f32>([3, 4, 90], loss, Some(40))?;
    check::<f16>([20, 12, 64], loss, Some(32))?;
    check::<f32>([2, 5, 9], loss, Some(1))
}
