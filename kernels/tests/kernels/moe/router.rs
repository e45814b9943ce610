//! Choice of experts.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::moe::{Router, Scores};

use crate::support::{close, device, random};

/// Scores of all experts of a token.
fn scores(router: Router, row: &[f64]) -> Vec<f64> {
    match router.scores {
        Scores::Sigmoid => row.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Scores::Softmax => {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
            row.iter().map(|x| (x - max).exp() / sum).collect()
        }
    }
}

/// Weights of the chosen experts.
fn weights(router: Router, row: &[f64], chosen: &[i32]) -> Vec<f64> {
    let scores = scores(router, row);
    let of_chosen: Vec<f64> = chosen.iter().map(|&expert| scores[expert as usize]).collect();
    let sum = if router.normalised { of_chosen.iter().sum() } else { 1.0 };
    of_chosen.iter().map(|score| score / sum * f64::from(router.scale)).collect()
}

fn check<T: Number>(tokens: usize, experts: usize, taken: usize, router: Router, biased: bool) -> ct::Result<()> {
    let stream = device().default_stream();
    let (logits, exact) = random::<T, 2>(experts as u64, [tokens, experts], 3.0)?;
    let (bias, b) = random::<f32, 1>(9, [experts], 1.0)?;
    let (mut chosen, mut result) =
        (device().zeros::<i32, 2>([tokens, taken])?, device().zeros::<f32, 2>([tokens, taken])?);
    let results = (chosen.view_mut(), result.view_mut());
    router.launch(&stream, logits.view(), biased.then(|| bias.view()), results)?;
    let indices = chosen.to_vec()?;
    let mut of_weights = Vec::new();
    for (row, chosen) in exact.chunks(experts).zip(indices.chunks(taken)) {
        let keys: Vec<f64> = scores(router, row).iter().zip(&b).map(|(s, b)| if biased { s + b } else { *s }).collect();
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&i, &j| keys[j].total_cmp(&keys[i]));
        for (slot, &expert) in chosen.iter().enumerate() {
            // Keys that differ by less than their rounding have either order.
            assert!((keys[expert as usize] - keys[order[slot]]).abs() < 1e-5, "slot {slot}: expert {expert}");
        }
        let mut distinct = chosen.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), taken);
        of_weights.extend(weights(router, row, chosen));
    }
    close(&result, &of_weights, 1e-6, 1e-4);

    // The gradient of Σ dweights · weights, by differences.
    let (dweights, d) = random::<f32, 2>(10, [tokens, taken], 1.0)?;
    let mut dlogits = device().zeros::<T, 2>([tokens, experts])?;
    router.backward(&stream, logits.view(), (chosen.view(), dweights.view()), dlogits.view_mut())?;
    let mut gradient = Vec::new();
    for ((row, chosen), d) in exact.chunks(experts).zip(indices.chunks(taken)).zip(d.chunks(taken)) {
        for j in 0..experts {
            let at = |step: f64| -> f64 {
                let mut moved = row.to_vec();
                moved[j] += step;
                weights(router, &moved, chosen).iter().zip(d).map(|(w, d)| w * d).sum()
            };
            gradient.push((at(1e-5) - at(-1e-5)) / 2e-5);
        }
    }
    let (absolute, relative) = if T::NAME == "f32" { (1e-6, 1e-4) } else { (1e-3, 1e-2) };
    close(&dlogits, &gradient, absolute, relative);
    Ok(())
}

#[test]
fn experts_of_any_number() -> ct::Result<()> {
    for scores in [Scores::Softmax, Scores::Sigmoid] {
        for normalised in [false, true] {
            let router = Router { scores, normalised, scale: 1.5 };
            check::<f32>(5, 8, 2, router, false)?;
            check::<f32>(33, 60, 6, router, true)?;
            check::<bf16>(3, 64, 8, router, false)?;
            check::<f32>(2, 3, 3, router, false)?;
            check::<f32>(2, 1, 1, router, true)?;
        }
    }
    Ok(())
}
