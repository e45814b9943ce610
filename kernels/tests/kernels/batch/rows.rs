//! Kernels of rows of matrices: norms, losses, choices, transforms, and kernels of images.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::batch_invariant;
use cutlet_kernels::images::{Convolution, Window, average_pool, max_pool};
use cutlet_kernels::linalg::{cholesky, lu, qr};
use cutlet_kernels::losses::{CrossEntropy, divergence};
use cutlet_kernels::moe::{Router, Scores};
use cutlet_kernels::norms::{
    Gate, HyperConnections, add_layer_norm, add_rms_norm, gated, group_norm, log_softmax, log_softmax_backward,
    rms_norm_backward, sinkhorn, softmax_backward, sparsemax,
};
use cutlet_kernels::numbers::{Fft, Transform, hadamard};
use cutlet_kernels::order::{Draws, Sampling, Selected, greedy, top_k};
use cutlet_kernels::{layer_norm, rms_norm, softmax};

use super::{agree, agree_in_bits, always, bits, of_rows, part, same};
use crate::support::{device, random};

/// Columns of short, middle and long rows, and of rows that several tile blocks of a GPU share.
fn columns() -> Vec<usize> {
    match device().target() {
        Some(_) => vec![100, 1000, 4096, 20_000, 32_768, 70_000],
        None => vec![100, 1000],
    }
}

#[test]
fn softmaxes() -> ct::Result<()> {
    for columns in columns() {
        let shape = ([1, columns], [1, columns]);
        agree::<f32, f32, 2, 2>(shape, softmax)?;
        agree::<f32, f32, 2, 2>(shape, log_softmax)?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| softmax_backward(stream, [x, x], y))?;
        batch_invariant(|| {
            same(of_rows::<f16, f16, 2, 2>(shape, softmax))?;
            same(of_rows::<f16, f16, 2, 2>(shape, |stream, x, y| log_softmax_backward(stream, [x, x], y)))
        })?;
        if columns <= 32_768 {
            agree::<f16, f16, 2, 2>(shape, softmax)?;
        }
    }
    agree::<f32, f32, 2, 2>(([1, 100], [1, 100]), sparsemax)?;
    agree::<f32, f32, 3, 3>(([1, 4, 4], [1, 4, 4]), |stream, x, y| sinkhorn(stream, x, y, 10, 1e-6))
}

#[test]
fn norms() -> ct::Result<()> {
    for columns in columns() {
        let (weight, _) = random::<f32, 1>(1, [columns], 1.0)?;
        let (half, _) = random::<bf16, 1>(1, [columns], 1.0)?;
        let shape = ([1, columns], [1, columns]);
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| rms_norm(stream, x, weight.view(), y, 1e-5))?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| layer_norm(stream, x, [weight.view(), weight.view()], y, 1e-5))?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| {
            let mut sum = device().zeros::<f32, 2>(x.shape())?;
            add_rms_norm(stream, [x, x], weight.view(), [sum.view_mut(), y], 1e-5)
        })?;
        agree::<bf16, bf16, 2, 2>(shape, |stream, x, y| {
            let mut sum = device().zeros::<bf16, 2>(x.shape())?;
            add_layer_norm(stream, [x, x], [half.view(), half.view()], [sum.view_mut(), y], 1e-5)
        })?;
        let of_bf16 = of_rows::<bf16, bf16, 2, 2>(shape, |stream, x, y| rms_norm(stream, x, half.view(), y, 1e-5));
        batch_invariant(|| same(&of_bf16))?;
        if columns <= 32_768 {
            same(of_bf16)?;
        }
        agree_in_bits::<f32, f32, 2, 2>(shape, |stream, x, y| gated(stream, [x, x], y, Gate::Silu))?;
    }
    for columns in [100, 1000, 8192] {
        let (weight, _) = random::<f32, 1>(1, [columns], 1.0)?;
        // The gradient of the weight is a sum over the rows.
        agree_in_bits::<f32, f32, 2, 2>(([1, columns], [1, columns]), |stream, x, dx| {
            let mut dweight = device().zeros::<f32, 1>([columns])?;
            rms_norm_backward(stream, [x, x], None, weight.view(), (dx, dweight.view_mut()), 1e-5)
        })?;
    }
    Ok(())
}

#[test]
fn groups_and_streams() -> ct::Result<()> {
    batch_invariant(|| {
        let (weight, _) = random::<f32, 1>(1, [32], 1.0)?;
        same(of_rows::<f32, f32, 4, 4>(([1, 32, 16, 16], [1, 32, 16, 16]), |stream, x, y| {
            group_norm(stream, x, 4, [weight.view(), weight.view()], y, 1e-5)
        }))?;
        let (matrix, _) = random::<f16, 2>(2, [4 * 256, 24], 1.0)?;
        let (bias, _) = random::<f32, 1>(3, [24], 1.0)?;
        let hyper = HyperConnections { streams: 4, factors: [0.5, 0.6, 0.7] };
        same(of_rows::<f16, f32, 2, 2>(([1, 4 * 256], [1, 24]), |stream, x, weights| {
            let mut scratch = hyper.scratch(device(), x.shape())?;
            hyper.weights(stream, x, matrix.view(), bias.view(), weights, &mut scratch)
        }))
    })
}

#[test]
fn losses_and_choices() -> ct::Result<()> {
    for columns in columns() {
        agree::<f32, f32, 2, 1>(([1, columns], [1]), |stream, x, loss| {
            let labels = device().full([x.shape()[0]], 3)?;
            CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::new() }.forward(stream, x, labels.view(), loss)
        })?;
        batch_invariant(|| {
            same(of_rows::<f16, f16, 2, 2>(([1, columns], [1, columns]), |stream, x, gradient| {
                let mut loss = device().zeros([x.shape()[0]])?;
                let labels = device().full([x.shape()[0]], 3)?;
                let results = (loss.view_mut(), gradient);
                CrossEntropy::new().with_gradient(stream, x, labels.view(), 1.0, results)
            }))?;
            same(of_rows::<f16, f32, 2, 1>(([1, columns], [1]), |stream, x, loss| {
                divergence(stream, [x, x], 0.7, 1.0, (loss, None))
            }))
        })?;
        agree::<f32, i32, 2, 1>(([1, columns], [1]), greedy)?;
        agree::<f32, f32, 2, 2>(([1, columns], [1, 10]), |stream, x, values| {
            let mut positions = device().zeros::<i32, 2>(values.shape())?;
            top_k(stream, x, (values, positions.view_mut()), Selected::Sorted)
        })?;
        always(|range| {
            let logits = part::<f32, 2>(3, [1, columns], &range);
            let (p, draws) = (device().full([range.len()], 0.9f32)?, part::<f32, 1>(4, [1], &range));
            let draws =
                device().array(&draws.to_vec()?.iter().map(|x| x.abs() / 2.1).collect::<Vec<_>>(), [range.len()])?;
            let mut token = device().zeros([range.len()])?;
            let stream = device().default_stream();
            let draws = Draws::Numbers(draws.view());
            Sampling::new().top_p(p.view()).sample(&stream, logits.view(), draws, token.view_mut())?;
            bits(&token)
        })?;
    }
    agree::<f32, f32, 2, 2>(([1, 64], [1, 4]), |stream, x, weights| {
        let mut experts = device().zeros::<i32, 2>(weights.shape())?;
        let router = Router { scores: Scores::Softmax, normalised: true, scale: 1.0 };
        router.launch(stream, x, None, (experts.view_mut(), weights))
    })
}

#[test]
fn losses_of_linear_layers() -> ct::Result<()> {
    batch_invariant(|| {
        let (weights, _) = random::<f16, 2>(3, [300, 64], 1.0)?;
        same(of_rows::<f16, f32, 2, 1>(([1, 64], [1]), |stream, x, loss| {
            let labels = device().full([x.shape()[0]], 3)?;
            let mut logs = device().zeros([x.shape()[0]])?;
            let results = (loss, logs.view_mut());
            CrossEntropy::new().linear_forward(stream, (x, weights.view()), labels.view(), results)
        }))
    })
}

#[test]
fn transforms() -> ct::Result<()> {
    agree::<f32, f32, 2, 2>(([1, 256], [1, 256]), |stream, x, y| hadamard(stream, x, y, 1.0))?;
    agree_in_bits::<f32, f32, 2, 2>(([1, 512], [1, 512]), |stream, x, y| {
        Fft::new(device(), [x.shape()[0], 256])?.run(stream, x, y, Transform::Forward)
    })
}

#[test]
fn images() -> ct::Result<()> {
    let window = Window { size: [2, 2], stride: [2, 2], padding: [0, 0] };
    let shape = ([1, 8, 8, 16], [1, 4, 4, 16]);
    agree::<f32, f32, 4, 4>(shape, |stream, x, y| max_pool(stream, window, x, y))?;
    agree::<f32, f32, 4, 4>(shape, |stream, x, y| average_pool(stream, window, x, y))?;
    let (weights, _) = random::<f16, 4>(3, [3, 3, 32, 48], 1.0)?;
    let convolution = Convolution { padding: [1, 1], ..Convolution::default() };
    batch_invariant(|| {
        same(of_rows::<f16, f16, 4, 4>(([1, 8, 8, 32], [1, 8, 8, 48]), |stream, x, y| {
            convolution.forward(stream, x, weights.view(), y)
        }))
    })
}

/// Well-conditioned matrices: random numbers, and 20 on the diagonal.
#[test]
fn factorizations() -> ct::Result<()> {
    const N: usize = 12;
    let matrices = |range: &std::ops::Range<usize>| {
        let half = part::<f32, 3>(5, [1, N, N], range).to_vec()?;
        let number = |at: usize| {
            let (matrix, i, j) = (at / N / N * N * N, at / N % N, at % N);
            half[matrix + i * N + j] + half[matrix + j * N + i] + if i == j { 20.0 } else { 0.0 }
        };
        device().array(&(0..half.len()).map(number).collect::<Vec<f32>>(), [range.len(), N, N])
    };
    batch_invariant(|| {
        same(|range| {
            let mut a = matrices(&range)?;
            let copy = a.to_vec()?;
            let stream = device().default_stream();
            let mut results = Vec::new();
            let mut l = device().zeros::<f32, 3>([range.len(), N, N])?;
            cholesky(&stream, a.view(), l.view_mut())?;
            results.push(bits(&l)?);
            let mut order = device().zeros::<i32, 2>([range.len(), N])?;
            lu(&stream, a.view(), l.view_mut(), order.view_mut())?;
            results.push(bits(&l)?);
            a = device().array(&copy, [range.len(), N, N])?;
            let (mut q, mut r) = (device().zeros([range.len(), N, N])?, device().zeros([range.len(), N, N])?);
            qr(&stream, a.view(), q.view_mut(), r.view_mut())?;
            results.push(bits(&q)?);
            // The results of a matrix follow one another.
            let each = N * N;
            Ok((0..range.len())
                .flat_map(|i| results.iter().flat_map(move |of| of[i * each..][..each].to_vec()))
                .collect())
        })
    })
}
