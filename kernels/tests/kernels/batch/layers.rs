//! Products of groups and of scaled and packed operands, solutions of equations, losses of
//! policies, gradients, and quantised rows.

use std::ops::Range;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{bf16, f8e4m3fn, f16};
use cutlet::packed::{PackedView, u4};
use cutlet_kernels::batch_invariant;
use cutlet_kernels::gguf::{Blocks, product_with};
use cutlet_kernels::images::Convolution;
use cutlet_kernels::linalg::{
    Triangle, determinant, inverse_unit_lower, least_squares, solve, solve_positive, solve_triangular,
};
use cutlet_kernels::losses::{Dpo, FusedGrpo, Grpo, Policy};
use cutlet_kernels::moe::{Router, Scores};
use cutlet_kernels::norms::{HyperConnections, group_norm_backward};
use cutlet_kernels::numbers::{Rounded, quantize_rows};
use cutlet_kernels::products::matmul;
use cutlet_kernels::products::packed::{Order, PackedWeights};

use super::{BATCH, agree_in_bits, always, bits, of_rows, part, same, same_bits};
use crate::support::{Numbers, device, random};

/// Returns the first rows of three groups of a batch in a range, and the end. `each`: rows of an
/// element of the batch.
fn offsets(range: &Range<usize>, each: usize) -> ct::Result<DeviceArray<i32, 1>> {
    let offset = |at: usize| each * (at.clamp(range.start, range.end) - range.start);
    device().array(&[0, 5, 41, BATCH].map(|at| offset(at) as i32), [4])
}

#[test]
fn products_of_groups() -> ct::Result<()> {
    let [terms, columns] = if device().target().is_some() { [1024, 768] } else { [64, 48] };
    let (weights, _) = random::<f16, 3>(3, [3, terms, columns], 0.1)?;
    batch_invariant(|| {
        same(|range| {
            let x = part::<f16, 2>(7, [1, terms], &range);
            let mut y = device().zeros::<f16, 2>([range.len(), columns])?;
            let (stream, offsets) = (device().default_stream(), offsets(&range, 1)?);
            matmul().launch_grouped(&stream, x.view(), weights.view(), offsets.view(), y.view_mut())?;
            bits(&y)
        })
    })
}

#[test]
fn packed_products_of_groups() -> ct::Result<()> {
    let [terms, columns] = if device().target().is_some() { [1024, 776] } else { [96, 72] };
    let (shape, mut numbers) = ([3, terms, columns], Numbers::new(3));
    let of_words = PackedView::<u4, 3>::words(shape);
    let words: Vec<u32> = (0..of_words.iter().product()).map(|_| numbers.word()).collect();
    let words = device().array(&words, of_words)?;
    let (scales, _) = random::<f16, 3>(4, [3, terms / 32, columns], 0.1)?;
    batch_invariant(|| {
        same(|range| {
            let x = part::<f16, 2>(5, [1, terms], &range);
            let mut y = device().zeros::<f16, 2>([range.len(), columns])?;
            let codes = PackedView::<u4, 3>::new(words.view(), shape)?;
            let weights = PackedWeights::new(codes, scales.view(), 32, Order::InputsOutputs)?.centered();
            let (stream, offsets) = (device().default_stream(), offsets(&range, 1)?);
            matmul().launch_grouped_packed(&stream, x.view(), weights, offsets.view(), y.view_mut())?;
            bits(&y)
        })
    })
}

/// Rows of an element of the batch: groups of a batch have more than 64 rows on average, for which
/// the default tile is another one.
const ROWS_OF_SCALED: usize = 5;

/// Returns rows of scaled products of shape (elements of the batch, rows, terms), and the scales of
/// their blocks of terms.
fn scaled(range: &Range<usize>, terms: usize) -> ct::Result<(DeviceArray<f8e4m3fn, 3>, DeviceArray<f32, 2>)> {
    let (rows, blocks) = (range.len() * ROWS_OF_SCALED, terms.div_ceil(128));
    let scales = part::<f32, 3>(5, [1, ROWS_OF_SCALED, blocks], range).to_vec()?;
    let scales = device().from_fn([blocks, rows], |[block, row]| scales[row * blocks + block])?;
    Ok((part(1, [1, ROWS_OF_SCALED, terms], range), scales))
}

#[test]
fn scaled_products_of_groups() -> ct::Result<()> {
    let [terms, columns] = if device().target().is_some() { [1000, 776] } else { [200, 136] };
    let blocks = [terms, columns].map(|extent: usize| extent.div_ceil(128));
    let (weights, _) = random::<f8e4m3fn, 3>(3, [3, columns, terms], 1.0)?;
    let (of_blocks, _) = random::<f32, 3>(4, [3, blocks[0], blocks[1]], 0.1)?;
    batch_invariant(|| {
        same(|range| {
            let (x, scales) = scaled(&range, terms)?;
            let x = x.reshape([range.len() * ROWS_OF_SCALED, terms])?;
            let mut y = device().zeros::<f32, 2>([x.shape()[0], columns])?;
            let (a, b) = ((x, scales.view()), (weights.view().permute([0, 2, 1])?, of_blocks.view()));
            let (stream, offsets) = (device().default_stream(), offsets(&range, ROWS_OF_SCALED)?);
            matmul().launch_scaled_grouped(&stream, a, b, offsets.view(), y.view_mut())?;
            bits(&y)
        })
    })
}

#[test]
fn products_with_scales_of_blocks() -> ct::Result<()> {
    let [terms, columns] = if device().target().is_some() { [1024, 768] } else { [256, 128] };
    let (weights, _) = random::<f8e4m3fn, 2>(3, [columns, terms], 1.0)?;
    let (of_blocks, _) = random::<f32, 2>(4, [terms / 128, columns / 128], 0.1)?;
    batch_invariant(|| {
        same(|range| {
            let (x, scales) = scaled(&range, terms)?;
            let x = x.reshape([range.len() * ROWS_OF_SCALED, terms])?;
            let mut y = device().zeros::<f32, 2>([x.shape()[0], columns])?;
            let (stream, b) = (device().default_stream(), weights.view().transpose()?);
            matmul().launch_scaled(&stream, (x, scales.view()), (b, of_blocks.view()), y.view_mut())?;
            bits(&y)
        })
    })
}

#[test]
fn products_of_gguf_blocks() -> ct::Result<()> {
    let mut numbers = Numbers::new(8);
    for (blocks, [terms, bytes]) in [(Blocks::Q8_0, [64, 68]), (Blocks::Q4K, [256, 144])] {
        // The factors are below 2.
        let weights: Vec<u8> = (0..48 * bytes).map(|_| numbers.word() as u8 & 0x3f).collect();
        let weights = device().array(&weights, [48, bytes])?;
        batch_invariant(|| {
            same(of_rows::<f16, f16, 2, 2>(([1, terms], [1, 48]), |stream, x, y| {
                product_with(stream, blocks, x, weights.view(), y)
            }))
        })?;
    }
    Ok(())
}

/// Symmetric matrices with 20 on the diagonal.
fn matrices(n: usize, range: &Range<usize>) -> ct::Result<DeviceArray<f32, 3>> {
    let half = part::<f32, 3>(5, [1, n, n], range).to_vec()?;
    let number = |[matrix, i, j]: [usize; 3]| {
        let at = |i: usize, j: usize| half[(matrix * n + i) * n + j];
        at(i, j) + at(j, i) + if i == j { 20.0 } else { 0.0 }
    };
    device().from_fn([range.len(), n, n], number)
}

#[test]
fn solutions_of_equations() -> ct::Result<()> {
    const N: usize = 12;
    for which in 0..5 {
        batch_invariant(|| {
            same(|range| {
                let (stream, a) = (device().default_stream(), matrices(N, &range)?);
                let b = part::<f32, 3>(6, [1, N, 2], &range);
                let mut x = device().zeros::<f32, 3>(b.shape())?;
                match which {
                    0 => solve(&stream, a.view(), b.view(), x.view_mut())?,
                    1 => solve_positive(&stream, a.view(), b.view(), x.view_mut())?,
                    2 => solve_triangular(&stream, Triangle::default(), a.view(), b.view(), x.view_mut())?,
                    3 => {
                        let mut inverse = device().zeros::<f32, 3>(a.shape())?;
                        inverse_unit_lower(&stream, a.view(), inverse.view_mut())?;
                        return bits(&inverse);
                    }
                    _ => least_squares(&stream, a.view(), b.view(), x.view_mut())?,
                }
                bits(&x)
            })
        })?;
    }
    batch_invariant(|| {
        same(|range| {
            let mut d = device().zeros::<f32, 1>([range.len()])?;
            determinant(&device().default_stream(), matrices(N, &range)?.view(), d.view_mut())?;
            bits(&d)
        })
    })
}

/// Losses and gradients of each sequence.
#[test]
fn losses_of_policies() -> ct::Result<()> {
    for columns in if device().target().is_some() { vec![300, 20_000] } else { vec![300] } {
        batch_invariant(|| {
            same(|range| {
                let (stream, n) = (device().default_stream(), range.len());
                let logits = part::<f32, 3>(1, [1, 4, columns], &range);
                let (tokens, advantages) = (device().full([n, 3], 7)?, part::<f32, 1>(2, [1], &range));
                let old = part::<f32, 2>(3, [1, 3], &range);
                let (tokens, advantages) = (tokens.view(), advantages.view());
                let policy = Policy { tokens, advantages, old: Some(old.view()), reference: None, mask: None };
                let (mut loss, mut logs) = (device().zeros::<f32, 2>([n, 3])?, device().zeros::<f32, 2>([n, 3])?);
                let grpo = FusedGrpo { beta: 0.0, ..FusedGrpo::new() };
                grpo.forward(&stream, logits.view(), policy, (loss.view_mut(), logs.view_mut()))?;
                let (mut gradient, ones) = (device().zeros::<f32, 3>(logits.shape())?, device().full([n, 3], 1.0f32)?);
                grpo.backward(&stream, logits.view(), policy, (logs.view(), ones.view()), gradient.view_mut())?;
                let (loss, gradient, each) = (bits(&loss)?, bits(&gradient)?, 4 * columns);
                let of = |i: usize| loss[i * 3..][..3].iter().chain(&gradient[i * each..][..each]);
                Ok((0..n).flat_map(of).copied().collect())
            })
        })?;
    }
    agree_in_bits::<f32, f32, 1, 1>(([1], [1]), |stream, entropies, loss| {
        let mut gradient = device().zeros::<f32, 1>(loss.shape())?;
        let grpo = Grpo { low: 0.2, high: 0.3, beta: 0.1 };
        grpo.launch(stream, entropies, (entropies, None, entropies), 2.0, (loss, gradient.view_mut()))
    })?;
    always(|range| {
        let entropies = part::<f32, 3>(1, [1, 2, 700], &range);
        let reference = part::<f32, 2>(2, [1, 2], &range);
        let mut loss = device().zeros::<f32, 1>([range.len()])?;
        let mut gradient = device().zeros::<f32, 3>(entropies.shape())?;
        let (stream, results) = (device().default_stream(), (loss.view_mut(), gradient.view_mut()));
        Dpo { beta: 0.2 }.launch(&stream, entropies.view(), reference.view(), 0.5, results)?;
        bits(&gradient)
    })
}

#[test]
fn gradients_of_routers_and_groups() -> ct::Result<()> {
    always(|range| {
        let logits = part::<f32, 2>(1, [1, 64], &range);
        let dweights = part::<f32, 2>(2, [1, 4], &range);
        let choice: Vec<i32> =
            range.clone().flat_map(|row| (0..4).map(move |slot| (row as i32 + slot * 9) % 64)).collect();
        let choice = device().array(&choice, [range.len(), 4])?;
        let mut gradient = device().zeros::<f32, 2>(logits.shape())?;
        let router = Router { scores: Scores::Softmax, normalised: true, scale: 1.0 };
        let stream = device().default_stream();
        router.backward(&stream, logits.view(), (choice.view(), dweights.view()), gradient.view_mut())?;
        bits(&gradient)
    })?;
    let (weight, _) = random::<f32, 1>(1, [32], 1.0)?;
    // The gradients of weight and bias are sums over the images.
    batch_invariant(|| {
        same_bits(of_rows::<f32, f32, 4, 4>(([1, 32, 16, 16], [1, 32, 16, 16]), |stream, x, dx| {
            let (mut dweight, mut dbias) = (device().zeros::<f32, 1>([32])?, device().zeros::<f32, 1>([32])?);
            group_norm_backward(stream, [x, x], 4, weight.view(), (dx, [dweight.view_mut(), dbias.view_mut()]), 1e-5)
        }))
    })
}

#[test]
fn streams_and_images() -> ct::Result<()> {
    let hyper = HyperConnections { streams: 4, factors: [0.5, 0.6, 0.7] };
    always(|range| {
        let x = part::<bf16, 3>(1, [1, 4, 300], &range);
        let (layer, weights) = (part::<bf16, 2>(2, [1, 300], &range), part::<f32, 2>(3, [1, 24], &range));
        let mut y = device().zeros::<bf16, 3>(x.shape())?;
        let stream = device().default_stream();
        hyper.apply(&stream, x.view(), layer.view(), weights.view(), y.view_mut())?;
        bits(&y)
    })?;
    let (weights, _) = random::<f16, 4>(3, [3, 3, 32, 48], 1.0)?;
    let convolution = Convolution { padding: [1, 1], ..Convolution::default() };
    batch_invariant(|| {
        same_bits(of_rows::<f16, f16, 4, 4>(([1, 8, 8, 48], [1, 8, 8, 32]), |stream, dy, dx| {
            convolution.input_gradient(stream, dy, weights.view(), dx)
        }))
    })
}

#[test]
fn quantised_rows() -> ct::Result<()> {
    always(|range| {
        let x = part::<bf16, 2>(1, [1, 600], &range);
        let mut codes = device().zeros::<f8e4m3fn, 2>(x.shape())?;
        let mut scales = device().zeros::<f32, 2>([range.len(), 1])?;
        let results = (codes.view_mut(), scales.view_mut());
        quantize_rows(&device().default_stream(), x.view(), results, Rounded::Nearest)?;
        let (codes, scales) = (bits(&codes)?, bits(&scales)?);
        Ok((0..range.len()).flat_map(|i| codes[i * 600..][..600].iter().chain(&scales[i..=i])).copied().collect())
    })
}
