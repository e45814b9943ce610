//! Group norm.

use cutlet as ct;
use cutlet::element::f16;
use cutlet_kernels::Number;
use cutlet_kernels::norms::{group_norm, group_norm_backward};

use super::tolerance;
use crate::support::{close, device, random};

const EPSILON: f64 = 1e-5;

fn both_ways<T: Number>([images, channels, high, wide]: [usize; 4], groups: usize) -> ct::Result<()> {
    let (stream, shape, places) = (device().default_stream(), [images, channels, high, wide], high * wide);
    let (absolute, relative) = tolerance::<T>();
    let (x, exact) = random::<T, 4>(1, shape, 3.0)?;
    let (dy, exact_dy) = random::<T, 4>(2, shape, 1.0)?;
    let (weight, w) = random::<T, 1>(3, [channels], 1.0)?;
    let (bias, b) = random::<T, 1>(4, [channels], 1.0)?;
    let mut y = device().zeros::<T, 4>(shape)?;
    let vectors = [weight.view(), bias.view()];
    group_norm(&stream, x.view(), groups, vectors, y.view_mut(), EPSILON as f32)?;
    let mut dx = device().zeros::<T, 4>(shape)?;
    let (mut dweight, mut dbias) = (device().zeros::<T, 1>([channels])?, device().zeros::<T, 1>([channels])?);
    let gradients = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
    group_norm_backward(&stream, [x.view(), dy.view()], groups, weight.view(), gradients, EPSILON as f32)?;

    let len = channels / groups * places;
    let (mut of_y, mut of_x) = (vec![0.0; exact.len()], vec![0.0; exact.len()]);
    let (mut of_weight, mut of_bias) = (vec![0.0; channels], vec![0.0; channels]);
    for group in 0..images * groups {
        let (all, n) = (group * len..(group + 1) * len, len as f64);
        let channel = |at: usize| at / places % channels;
        let mean = exact[all.clone()].iter().sum::<f64>() / n;
        let variance = exact[all.clone()].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + EPSILON).sqrt();
        let normal = |at: usize| (exact[at] - mean) * scale;
        let weighted = |at: usize| exact_dy[at] * w[channel(at)];
        let along = all.clone().map(|at| weighted(at) * normal(at)).sum::<f64>() / n;
        let level = all.clone().map(weighted).sum::<f64>() / n;
        for at in all {
            of_y[at] = normal(at) * w[channel(at)] + b[channel(at)];
            of_x[at] = scale * (weighted(at) - level - normal(at) * along);
            of_weight[channel(at)] += exact_dy[at] * normal(at);
            of_bias[channel(at)] += exact_dy[at];
        }
    }
    close(&y, &of_y, absolute * 10.0, relative);
    close(&dx, &of_x, absolute * 20.0, relative);
    close(&dweight, &of_weight, absolute * 50.0, relative);
    close(&dbias, &of_bias, absolute * 50.0, relative);
    Ok(())
}

#[test]
fn groups_of_any_size() -> ct::Result<()> {
    both_ways::<f32>([2, 6, 5, 7], 3)?;
    both_ways::<f16>([2, 10, 4, 8], 1)?;
    both_ways::<f32>([1, 4, 1, 1], 2)?;
    both_ways::<f32>([3, 8, 3, 3], 8)
}

#[test]
fn groups_of_clusters() -> ct::Result<()> {
    both_ways::<f32>([1, 6, 61, 64], 1)
}

#[test]
fn groups_by_chunks() -> ct::Result<()> {
    both_ways::<f32>([1, 70, 64, 64], 1)
}
