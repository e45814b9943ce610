//! Rows of `cutlet_kernels::losses`.

use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::losses::{CrossEntropy, FusedGrpo, Policy, divergence};

use crate::filled::numbers;
use crate::row::{Peak, Row, Work};

/// Cross-entropy with and without the gradient.
fn cross_entropy<T: Number>([rows, columns]: [usize; 2], gradient: bool) -> Row {
    let name = if gradient { "cross_entropy_with_gradient" } else { "cross_entropy" };
    let arrays = if gradient { 2 } else { 1 };
    Row::new(
        format!("{name} {} {rows} {columns}", T::NAME),
        Work::bytes((arrays * rows * columns * size_of::<T>()) as f64),
        move |device| {
            let logits = numbers::<T, 2>(device, [rows, columns], 0.0, 4.0)?;
            let labels = device.from_fn([rows], move |[i]| (i * 7919 % columns) as i32)?;
            Ok((logits, labels, device.zeros([rows])?, device.zeros([rows, columns])?))
        },
        move |(logits, labels, loss, result)| {
            let (stream, entropy) = (logits.device().default_stream(), CrossEntropy::new());
            match gradient {
                false => entropy.forward(&stream, logits.view(), labels.view(), loss.view_mut()),
                true => {
                    let results = (loss.view_mut(), result.view_mut());
                    entropy.with_gradient(&stream, logits.view(), labels.view(), 1.0, results)
                }
            }
        },
    )
}

/// Cross-entropy of a linear layer, of an extent of Llama 3.
fn linear([tokens, width, words]: [usize; 3], backward: bool) -> Row {
    let products = if backward { 3.0 } else { 1.0 };
    let flops = 2.0 * products * (tokens * width * words) as f64;
    Row::new(
        format!("linear_cross_entropy{} bf16 {tokens} {width} {words}", if backward { "_backward" } else { "" }),
        Work { bytes: (2 * width * (tokens + words)) as f64 * products, flops, peak: Peak::F16 },
        move |device| {
            let x = numbers::<bf16, 2>(device, [tokens, width], 0.0, 1.0)?;
            let w = numbers::<bf16, 2>(device, [words, width], 0.0, 0.05)?;
            let labels = device.from_fn([tokens], move |[i]| (i * 7919 % words) as i32)?;
            let vectors = [device.zeros::<f32, 1>([tokens])?, device.zeros([tokens])?];
            let gradients = if backward { [tokens, words] } else { [0, 0] };
            let [dx, dw] = gradients.map(|rows| device.zeros::<bf16, 2>([rows, width]));
            Ok((x, w, labels, vectors, [dx?, dw?]))
        },
        move |(x, w, labels, [loss, logs], [dx, dw])| {
            let (stream, inputs, entropy) = (x.device().default_stream(), (x.view(), w.view()), CrossEntropy::new());
            match backward {
                false => entropy.linear_forward(&stream, inputs, labels.view(), (loss.view_mut(), logs.view_mut())),
                true => {
                    let (saved, gradients) = ((labels.view(), logs.view()), (dx.view_mut(), dw.view_mut()));
                    entropy.linear_backward(&stream, inputs, saved, loss.view(), None, gradients)
                }
            }
        },
    )
}

fn of_divergence([rows, columns]: [usize; 2]) -> Row {
    Row::new(
        format!("divergence bf16 {rows} {columns}"),
        Work::bytes((3 * 2 * rows * columns) as f64),
        move |device| {
            let array = || numbers::<bf16, 2>(device, [rows, columns], 0.0, 4.0);
            Ok(([array()?, array()?, array()?], device.zeros([rows])?))
        },
        |([student, teacher, gradient], loss)| {
            let stream = student.device().default_stream();
            let results = (loss.view_mut(), Some(gradient.view_mut()));
            divergence(&stream, [student.view(), teacher.view()], 2.0, 1.0, results)
        },
    )
}

/// Loss of group-relative policy optimization, forward or backward.
fn grpo<T: Number>([batch, tokens, columns]: [usize; 3], backward: bool) -> Row {
    let name = if backward { "grpo_backward" } else { "grpo" };
    let arrays = if backward { 2 } else { 1 };
    Row::new(
        format!("{name} {} {batch} {tokens} {columns}", T::NAME),
        Work::bytes((arrays * batch * tokens * columns * size_of::<T>()) as f64),
        move |device| {
            let logits = || numbers::<T, 3>(device, [batch, tokens + 1, columns], 0.0, 4.0);
            let of_tokens = device.from_fn([batch, tokens], move |[i, j]| ((i + j) * 7919 % columns) as i32)?;
            let vector = || numbers::<f32, 2>(device, [batch, tokens], -11.0, 1.0);
            Ok((
                logits()?,
                logits()?,
                of_tokens,
                numbers::<f32, 1>(device, [batch], 0.0, 1.0)?,
                [vector()?, vector()?, vector()?],
            ))
        },
        move |(logits, gradient, tokens, advantages, [old, loss, logs])| {
            let stream = logits.device().default_stream();
            let (tokens, advantages, old) = (tokens.view(), advantages.view(), Some(old.view()));
            let policy = Policy { tokens, advantages, old, reference: old, mask: None };
            match backward {
                false => FusedGrpo::new().forward(&stream, logits.view(), policy, (loss.view_mut(), logs.view_mut())),
                true => {
                    let sums = (logs.view(), loss.view());
                    FusedGrpo::new().backward(&stream, logits.view(), policy, sums, gradient.view_mut())
                }
            }
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for gradient in [false, true] {
        rows.extend([[8192, 32768], [4096, 128_256], [2048, 1 << 18]].map(|s| cross_entropy::<bf16>(s, gradient)));
        rows.push(cross_entropy::<f32>([2048, 128_256], gradient));
        rows.push(linear([4096, 4096, 128_256], gradient));
    }
    rows.push(of_divergence([4096, 128_256]));
    rows.extend([false, true].map(|backward| grpo::<bf16>([4, 1024, 128_256], backward)));
    rows
}
