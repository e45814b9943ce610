//! Tests of `cutlet_kernels::attention`.

mod backward;
mod decode;
mod f8;
mod gpus;
mod latent;
mod packed_backward;
mod packed_decode;
mod prefill;
mod sparse;

/// Row-major rows of `dim` numbers.
pub struct Rows<'a> {
    pub values: &'a [f64],
    pub dim: usize,
}

impl<'a> Rows<'a> {
    pub fn row(&self, at: usize) -> &'a [f64] {
        &self.values[at * self.dim..][..self.dim]
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the weighted mean of the rows of values, and the logarithm of the sum of exponentials.
/// Scores are those of the keys that are seen, with the row of values of each. A sink is a score
/// without a value.
pub fn attended(scores: &[(f64, &[f64])], sink: Option<f64>, dim: usize) -> (Vec<f64>, f64) {
    let most = scores.iter().map(|(score, _)| *score).chain(sink).fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return (vec![0.0; dim], f64::NEG_INFINITY);
    }
    let sum: f64 = scores.iter().map(|(score, _)| (score - most).exp()).chain(sink.map(|s| (s - most).exp())).sum();
    let mut out = vec![0.0; dim];
    for (score, value) in scores {
        let weight = (score - most).exp() / sum;
        out.iter_mut().zip(*value).for_each(|(out, value)| *out += weight * value);
    }
    (out, most + sum.ln())
}

/// Panics at the first logarithm that differs by more than `tolerance`. That of no key is below
/// -1e28.
#[track_caller]
pub fn close_logs(logs: &[f32], reference: &[f64], tolerance: f64) {
    assert_eq!(logs.len(), reference.len());
    for (at, (&x, &want)) in logs.iter().zip(reference).enumerate() {
        let same = if want == f64::NEG_INFINITY { x < -1e28 } else { (f64::from(x) - want).abs() <= tolerance };
        assert!(same, "logarithm {at} is {x}, the reference {want}");
    }
}
