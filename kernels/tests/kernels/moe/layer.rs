//! Products by experts and their combination.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::moe::{Alignment, Experts, Gradients, Rows, Saved, Workspace, combine, gated_product, product};
use cutlet_kernels::norms::Gate;

use crate::support::{Numbers, close, device, random};

/// Tokens, experts of each, all experts, hidden numbers, and numbers between the products.
struct Extents([usize; 5]);

fn check<T: Number>(Extents([tokens, taken, experts, hidden, between]): Extents, tile: usize) -> ct::Result<()> {
    let (stream, mut numbers) = (device().default_stream(), Numbers::new(3));
    let choice: Vec<i32> = (0..tokens)
        .flat_map(|_| {
            let first = numbers.below(experts);
            (0..taken).map(move |slot| ((first + slot * slot) % experts) as i32).collect::<Vec<i32>>()
        })
        .collect();
    let (x, exact) = random::<T, 2>(1, [tokens, hidden], 1.0)?;
    let (first, a) = random::<T, 3>(2, [experts, 2 * between, hidden], 1.0)?;
    let (second, b) = random::<T, 3>(4, [experts, hidden, between], 1.0)?;
    let (weights, w) = random::<f32, 2>(5, [tokens, taken], 1.0)?;
    let mut alignment = Alignment::new(&stream, [tokens, taken], experts, tile)?;
    alignment.launch(&stream, device().array(&choice, [tokens, taken])?.view())?;
    let rows = alignment.num_places();
    let (mut h, mut out) = (device().zeros::<T, 2>([rows, between])?, device().zeros::<T, 2>([rows, hidden])?);
    let mut y = device().zeros::<T, 2>([tokens, hidden])?;
    let operand = (x.view(), Rows::Tokens);
    gated_product(&stream, operand, first.view(), &alignment, Gate::Silu, h.view_mut())?;
    product(&stream, (h.view(), Rows::Places), second.view(), &alignment, out.view_mut())?;
    combine(&stream, out.view(), &alignment, weights.view(), y.view_mut())?;

    let mut want = vec![0.0; tokens * hidden];
    for pair in 0..tokens * taken {
        let (token, expert) = (pair / taken, choice[pair] as usize);
        let row = &exact[token * hidden..][..hidden];
        let dot = |i: usize| -> f64 {
            a[(expert * 2 * between + i) * hidden..][..hidden].iter().zip(row).map(|(a, x)| a * x).sum()
        };
        let h: Vec<f64> = (0..between)
            .map(|i| {
                let gate = dot(i);
                T::from_f64(gate / (1.0 + (-gate).exp()) * dot(i + between)).to_f64()
            })
            .collect();
        for i in 0..hidden {
            let row = &b[(expert * hidden + i) * between..][..between];
            want[token * hidden + i] += w[pair] * row.iter().zip(&h).map(|(b, h)| b * h).sum::<f64>();
        }
    }
    let scale = want.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    let relative = match T::NAME {
        "f32" => 1e-5,
        "f16" => 2e-3,
        _ => 1.5e-2,
    };
    close(&y, &want, relative * scale, 0.0);
    Ok(())
}

#[test]
fn layers_of_any_size() -> ct::Result<()> {
    check::<f32>(Extents([5, 2, 4, 24, 9]), 4)?;
    check::<f16>(Extents([37, 3, 5, 72, 40]), 16)?;
    check::<bf16>(Extents([20, 1, 3, 130, 33]), 16)?;
    check::<f32>(Extents([1, 1, 1, 1, 1]), 1)
}

/// Derivative of the sum of `c` · layer(x) by differences of the numbers that `of` selects.
fn by_differences(values: &[f64], mut sum: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut moved = values.to_vec();
    (0..values.len())
        .map(|at| {
            let mut at_step = |step: f64| {
                moved[at] = values[at] + step;
                let sum = sum(&moved);
                moved[at] = values[at];
                sum
            };
            (at_step(1e-4) - at_step(-1e-4)) / 2e-4
        })
        .collect()
}

/// The gradients of a layer in f32 are those by differences of the layer in f64.
#[test]
fn gradients_are_those_by_differences() -> ct::Result<()> {
    let ([tokens, taken, experts, hidden, between], stream) = ([5, 2, 3, 4, 3], device().default_stream());
    let choice = [0, 2, 2, 1, 0, 1, 2, 0, -1, 2];
    let (x, of_x) = random::<f32, 2>(1, [tokens, hidden], 1.0)?;
    let (first, of_first) = random::<f32, 3>(2, [experts, 2 * between, hidden], 1.0)?;
    let (second, of_second) = random::<f32, 3>(3, [experts, hidden, between], 1.0)?;
    let (weights, of_weights) = random::<f32, 2>(4, [tokens, taken], 1.0)?;
    let (dy, c) = random::<f32, 2>(5, [tokens, hidden], 1.0)?;
    let layer = |x: &[f64], a: &[f64], b: &[f64], w: &[f64]| -> Vec<f64> {
        let mut y = vec![0.0; tokens * hidden];
        for (pair, &expert) in choice.iter().enumerate().filter(|(_, expert)| **expert >= 0) {
            let (token, expert) = (pair / taken, expert as usize);
            let dot = |i: usize| -> f64 {
                (0..hidden).map(|k| a[(expert * 2 * between + i) * hidden + k] * x[token * hidden + k]).sum()
            };
            for i in 0..hidden {
                let h = |k: usize| dot(k) / (1.0 + (-dot(k)).exp()) * dot(k + between);
                let sum: f64 = (0..between).map(|k| b[(expert * hidden + i) * between + k] * h(k)).sum();
                y[token * hidden + i] += w[pair] * sum;
            }
        }
        y
    };
    let sum = |y: Vec<f64>| -> f64 { y.iter().zip(&c).map(|(y, c)| y * c).sum() };

    let mut alignment = Alignment::new(&stream, [tokens, taken], experts, 2)?;
    alignment.launch(&stream, device().array(&choice, [tokens, taken])?.view())?;
    let experts_of = Experts { gate: Gate::Silu, weights: [first.view(), second.view()] };
    let mut y = device().zeros::<f32, 2>([tokens, hidden])?;
    let mut work = Workspace::new(&stream, &alignment, [hidden, between])?;
    experts_of.forward(&stream, x.view(), &alignment, weights.view(), &mut work, y.view_mut())?;
    let want = layer(&of_x, &of_first, &of_second, &of_weights);
    close(&y, &want, 1e-5, 1e-4);
    let mut saved = Saved::new(&stream, &alignment, [hidden, between])?;
    experts_of.forward_saved(&stream, x.view(), &alignment, weights.view(), &mut saved, y.view_mut())?;
    close(&y, &want, 1e-5, 1e-4);
    let (mut dx, mut dweights) =
        (device().zeros::<f32, 2>([tokens, hidden])?, device().zeros::<f32, 2>([tokens, taken])?);
    let mut dfirst = device().zeros::<f32, 3>(first.shape())?;
    let mut dsecond = device().zeros::<f32, 3>(second.shape())?;
    let of_experts = [dfirst.view_mut(), dsecond.view_mut()];
    let gradients = Gradients { dx: dx.view_mut(), dweights: dweights.view_mut(), of_experts };
    experts_of.backward(&stream, &mut saved, dy.view(), &alignment, weights.view(), gradients)?;
    let of = |values: &[f64], which: usize| {
        by_differences(values, |moved| {
            let mut all = [&of_x[..], &of_first, &of_second, &of_weights];
            all[which] = moved;
            sum(layer(all[0], all[1], all[2], all[3]))
        })
    };
    close(&dx, &of(&of_x, 0), 1e-4, 1e-3);
    close(&dfirst, &of(&of_first, 1), 1e-4, 1e-3);
    close(&dsecond, &of(&of_second, 2), 1e-4, 1e-3);
    close(&dweights, &of(&of_weights, 3), 1e-4, 1e-3);
    Ok(())
}

#[test]
fn shapes_are_checked() -> ct::Result<()> {
    let stream = device().default_stream();
    let alignment = Alignment::new(&stream, [2, 1], 2, 4)?;
    let (x, w) = (device().zeros::<f32, 2>([2, 8])?, device().zeros::<f32, 3>([2, 4, 7])?);
    let mut out = device().zeros::<f32, 2>([alignment.num_places(), 4])?;
    let fault = product(&stream, (x.view(), Rows::Tokens), w.view(), &alignment, out.view_mut()).unwrap_err();
    assert!(fault.to_string().contains("2 rows of 7 numbers and 2 experts; x of [2, 8]"), "{fault}");
    Ok(())
}
