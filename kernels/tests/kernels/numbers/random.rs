//! Random fills: equal numbers at equal positions, means and variances.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::numbers::{Distribution, Seed, fill_integers, fill_random};

use crate::support::device;

fn moments(x: &[f32]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    (mean, x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n)
}

#[test]
fn distributions() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let n = 30_001;
    let seed = Seed { seed: 11, offset: 5 };
    let mut y = device.zeros::<f32, 1>([n])?;
    for (distribution, mean, variance) in [
        (Distribution::Uniform(-2.0, 4.0), 1.0, 3.0),
        (Distribution::Normal(5.0, 2.0), 5.0, 4.0),
        (Distribution::Bernoulli(0.25), 0.25, 0.1875),
    ] {
        fill_random(&stream, y.view_mut(), distribution, seed)?;
        let first = y.to_vec()?;
        let (m, v) = moments(&first);
        assert!(
            (m - mean).abs() < 0.05 && (v - variance).abs() < 0.03 * variance.max(1.0),
            "{distribution:?}: {m}, {v}"
        );
        // A part has the same numbers.
        let mut part = device.zeros::<f32, 1>([5000])?;
        fill_random(&stream, part.view_mut(), distribution, seed)?;
        assert_eq!(part.to_vec()?, first[..5000]);
    }
    let mut integers = device.zeros([n])?;
    fill_integers(&stream, integers.view_mut(), -5..5, seed)?;
    let integers = integers.to_vec()?;
    for value in -5..5 {
        let count = integers.iter().filter(|&&x| x == value).count();
        assert!((2750..3250).contains(&count), "{value}: {count}");
    }
    assert!(integers.iter().all(|x| (-5..5).contains(x)));
    let mut halves = device.zeros::<bf16, 1>([100])?;
    fill_random(&stream, halves.view_mut(), Distribution::Uniform(0.0, 1.0), seed)?;
    assert!(halves.to_vec()?.iter().all(|x| (0.0..1.0).contains(&x.to_f32())));
    assert!(fill_integers(&stream, device.zeros([1])?.view_mut(), 5..5, seed).is_err());
    fill_integers(&stream, device.zeros([0])?.view_mut(), 0..5, seed)
}
