//! Loss of group-relative policy optimization and its gradient, against the formulas and their
//! differences.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::losses::{FusedGrpo, Policy};

use crate::support::{close, device, random};

/// Numbers of a token: log-probabilities of the old policy and of the reference, advantage, whether
/// it counts.
type Token = (f64, f64, f64, bool);

fn loss(of: FusedGrpo, logits: &[f64], token: usize, (old, reference, advantage, counts): Token) -> f64 {
    let scaled: Vec<f64> = logits.iter().map(|x| x / f64::from(of.temperature)).collect();
    let max = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log = scaled[token] - max - scaled.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    let ratio = (log - old).exp();
    let bound = of.bound.map_or(f64::INFINITY, f64::from);
    let clipped = ratio.clamp(1.0 - f64::from(of.clip[0]), 1.0 + f64::from(of.clip[1]));
    let apart = reference - log;
    let divergence = f64::from(of.beta) * (apart.exp() - apart - 1.0);
    if counts { -(ratio.min(bound) * advantage).min(clipped * advantage) + divergence } else { 0.0 }
}

fn compare<T: Number>(of: FusedGrpo, [batch, tokens, columns]: [usize; 3], tolerance: f64) -> ct::Result<()> {
    let (logits, exact) = random::<T, 3>(3, [batch, tokens + 1, columns], 3.0)?;
    let chosen: Vec<i32> = (0..batch * tokens).map(|at| (at * 7 % columns) as i32).collect();
    let numbers = |seed, scale: f64, shift: f64| -> ct::Result<Vec<f32>> {
        let (_, values) = random::<f32, 2>(seed, [batch, tokens], scale)?;
        Ok(values.iter().map(|x| (x + shift) as f32).collect())
    };
    let typical = -(columns as f64).ln();
    let (old, reference) = (numbers(4, 3.0, typical)?, numbers(5, 1.0, typical)?);
    let advantages: Vec<f32> = (0..batch).map(|i| 1.5 - i as f32).collect();
    let mask: Vec<i32> = (0..batch * tokens).map(|at| i32::from(at % 5 != 4)).collect();
    let shape = [batch, tokens];
    let device = device();
    let arrays = (device.array(&old, shape)?, device.array(&reference, shape)?, device.array(&mask, shape)?);
    let (of_tokens, of_batch) = (device.array(&chosen, shape)?, device.array(&advantages, [batch])?);
    let policy = Policy {
        tokens: of_tokens.view(),
        advantages: of_batch.view(),
        old: Some(arrays.0.view()),
        reference: Some(arrays.1.view()),
        mask: Some(arrays.2.view()),
    };
    let (mut result, mut logs) = (device.zeros(shape)?, device.zeros(shape)?);
    let stream = device.default_stream();
    of.forward(&stream, logits.view(), policy, (result.view_mut(), logs.view_mut()))?;
    let (dloss, slopes) = random::<f32, 2>(6, shape, 1.0)?;
    let mut gradient = device.full::<T, 3>([batch, tokens + 1, columns], T::from_f64(9.0))?;
    of.backward(&stream, logits.view(), policy, (logs.view(), dloss.view()), gradient.view_mut())?;

    let (mut losses, mut gradients) = (Vec::new(), vec![0.0; exact.len()]);
    for at in 0..batch * tokens {
        let (i, row) = (at / tokens, at / tokens * (tokens + 1) + at % tokens);
        let number = (f64::from(old[at]), f64::from(reference[at]), f64::from(advantages[i]), mask[at] != 0);
        let mut x = exact[row * columns..(row + 1) * columns].to_vec();
        losses.push(loss(of, &x, chosen[at] as usize, number));
        for j in 0..columns {
            const STEP: f64 = 1e-5;
            let middle = x[j];
            let mut shifted = |by| {
                x[j] = middle + by;
                loss(of, &x, chosen[at] as usize, number)
            };
            let slope = (shifted(STEP) - shifted(-STEP)) / (2.0 * STEP);
            x[j] = middle;
            gradients[row * columns + j] = slope * slopes[at];
        }
    }
    close(&result, &losses, tolerance, tolerance);
    close(&gradient, &gradients, tolerance, tolerance);
    Ok(())
}

#[test]
fn losses_and_gradients_are_those_of_the_formula() -> ct::Result<()> {
    compare::<f32>(FusedGrpo { temperature: 0.9, ..FusedGrpo::new() }, [3, 6, 45], 1e-4)?;
    compare::<f32>(FusedGrpo { bound: Some(1.5), clip: [0.1, 0.3], ..FusedGrpo::new() }, [2, 5, 128], 1e-4)?;
    compare::<bf16>(FusedGrpo { beta: 0.0, ..FusedGrpo::new() }, [2, 3, 70], 3e-2)
}

/// Logits whose rows have several chunks.
#[test]
fn rows_are_longer_than_a_tile() -> ct::Result<()> {
    let (batch, tokens, columns) = (1, 2, 40_000);
    let logits = device().zeros::<f32, 3>([batch, tokens + 1, columns])?;
    let (chosen, advantages) = (device().array(&[3, 39_999], [batch, tokens])?, device().array(&[2.0f32], [batch])?);
    let policy =
        Policy { tokens: chosen.view(), advantages: advantages.view(), old: None, reference: None, mask: None };
    let (mut loss, mut logs) = (device().zeros([batch, tokens])?, device().zeros([batch, tokens])?);
    FusedGrpo::new().forward(&device().default_stream(), logits.view(), policy, (loss.view_mut(), logs.view_mut()))?;
    close(&loss, &[-2.0; 2], 1e-6, 0.0);
    close(&logs, &[(columns as f64).ln(); 2], 1e-5, 0.0);
    Ok(())
}

#[test]
fn shapes_are_checked() -> ct::Result<()> {
    let logits = device().zeros::<f32, 3>([1, 2, 4])?;
    let (chosen, advantages) = (device().zeros::<i32, 2>([1, 2])?, device().zeros([1])?);
    let policy =
        Policy { tokens: chosen.view(), advantages: advantages.view(), old: None, reference: None, mask: None };
    let (mut loss, mut logs) = (device().zeros([1, 2])?, device().zeros([1, 2])?);
    let results = (loss.view_mut(), logs.view_mut());
    let fault = FusedGrpo::new().forward(&device().default_stream(), logits.view(), policy, results);
    let fault = fault.err().map(|fault| fault.to_string());
    assert!(fault.is_some_and(|fault| fault.contains("logits of [1, 2, 4] for tokens of [1, 2]")));
    Ok(())
}
