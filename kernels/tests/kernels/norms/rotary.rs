//! Rotary position embedding.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::norms::{rotary_backward, rotary_pair};
use cutlet_kernels::{Number, Pairs, rotary};

use super::tolerance;
use crate::support::{close, device, random};

/// Rotation of (batch, heads, tokens, dim) by angles of (tokens, dim / 2).
fn turned(x: &[f64], [tokens, dim]: [usize; 2], [cos, sin]: [&[f64]; 2], pairs: Pairs, sign: f64) -> Vec<f64> {
    (0..x.len())
        .map(|at| {
            let (token, i, start) = (at / dim % tokens, at % dim, at - at % dim);
            let (pair, second) = match pairs {
                Pairs::Halves => (i % (dim / 2), i >= dim / 2),
                Pairs::Adjacent => (i / 2, i % 2 == 1),
            };
            let (a, b) = match pairs {
                Pairs::Halves => (x[start + pair], x[start + pair + dim / 2]),
                Pairs::Adjacent => (x[start + 2 * pair], x[start + 2 * pair + 1]),
            };
            let (cos, sin) = (cos[token * dim / 2 + pair], sign * sin[token * dim / 2 + pair]);
            if second { b * cos + a * sin } else { a * cos - b * sin }
        })
        .collect()
}

fn both_ways<T: Number>(batch: usize, heads: [usize; 2], tokens: usize, dim: usize) -> ct::Result<()> {
    let stream = device().default_stream();
    let (absolute, relative) = tolerance::<T>();
    let shapes = heads.map(|heads| [batch, heads, tokens, dim]);
    let ((q, exact_q), (k, exact_k)) = (random::<T, 4>(1, shapes[0], 1.0)?, random::<T, 4>(2, shapes[1], 1.0)?);
    let ((cos, c), (sin, s)) = (random::<T, 2>(3, [tokens, dim / 2], 1.0)?, random::<T, 2>(4, [tokens, dim / 2], 1.0)?);
    for pairs in [Pairs::Halves, Pairs::Adjacent] {
        for sign in [1.0, -1.0] {
            let (mut of_q, mut of_k) = (device().zeros::<T, 4>(shapes[0])?, device().zeros::<T, 4>(shapes[1])?);
            let (angles, results) = ([cos.view(), sin.view()], [of_q.view_mut(), of_k.view_mut()]);
            match sign > 0.0 {
                true => rotary_pair(&stream, [q.view(), k.view()], angles, results, pairs)?,
                false => rotary_backward(&stream, [q.view(), k.view()], angles, results, pairs)?,
            }
            close(&of_q, &turned(&exact_q, [tokens, dim], [&c, &s], pairs, sign), absolute * 10.0, relative);
            close(&of_k, &turned(&exact_k, [tokens, dim], [&c, &s], pairs, sign), absolute * 10.0, relative);
        }
        let mut y = device().zeros::<T, 4>(shapes[0])?;
        rotary(&stream, q.view(), [cos.view(), sin.view()], y.view_mut(), pairs)?;
        close(&y, &turned(&exact_q, [tokens, dim], [&c, &s], pairs, 1.0), absolute * 10.0, relative);
    }
    Ok(())
}

#[test]
fn heads_of_any_size() -> ct::Result<()> {
    for (heads, tokens, dim) in [([3, 1], 5, 24), ([8, 2], 3, 64), ([1, 3], 1, 2), ([2, 0], 9, 80)] {
        both_ways::<f32>(2, heads, tokens, dim)?;
        both_ways::<f16>(1, heads, tokens, dim)?;
        both_ways::<bf16>(1, heads, tokens, dim)?;
    }
    Ok(())
}

#[test]
fn tokens_outside_of_heads() -> ct::Result<()> {
    let ((cos, c), (sin, s)) = (random::<f32, 2>(3, [37, 12], 1.0)?, random::<f32, 2>(4, [37, 12], 1.0)?);
    let (x, exact) = random::<f32, 4>(7, [2, 37, 3, 24], 4.0)?;
    for pairs in [Pairs::Halves, Pairs::Adjacent] {
        let mut y = device().zeros::<f32, 4>([2, 3, 37, 24])?;
        let (stream, x) = (device().default_stream(), x.permute([0, 2, 1, 3])?);
        rotary(&stream, x, [cos.view(), sin.view()], y.view_mut(), pairs)?;
        let moved: Vec<f64> = (0..exact.len())
            .map(|at| {
                let [b, h, t, i] = [at / 24 / 37 / 3, at / 24 / 37 % 3, at / 24 % 37, at % 24];
                exact[((b * 37 + t) * 3 + h) * 24 + i]
            })
            .collect();
        close(&y, &turned(&moved, [37, 24], [&c, &s], pairs, 1.0), 1e-5, 1e-5);
    }
    Ok(())
}

#[test]
fn angles_of_other_tokens_are_refused() -> ct::Result<()> {
    let (x, angles) = (device().zeros::<f32, 4>([1, 1, 4, 8])?, device().zeros::<f32, 2>([3, 4])?);
    let mut y = device().zeros::<f32, 4>([1, 1, 4, 8])?;
    let angles = [angles.view(), angles.view()];
    let fault = rotary(&device().default_stream(), x.view(), angles, y.view_mut(), Pairs::Halves).unwrap_err();
    assert!(fault.to_string().contains("by angles of [3, 4]"), "{fault}");
    Ok(())
}
