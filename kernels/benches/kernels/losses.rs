//! Rows of `cutlet_kernels::losses`.

use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::losses::{CrossEntropy, Grpo, Policy};

use crate::row::{Row, Work};

/// Cross-entropy with and without the gradient.
fn cross_entropy<T: Number>([rows, columns]: [usize; 2], gradient: bool) -> Row {
    let name = if gradient { "cross_entropy_with_gradient" } else { "cross_entropy" };
    let arrays = if gradient { 2 } else { 1 };
    Row::new(
        format!("{name} {} {rows} {columns}", T::NAME),
        Work::bytes((arrays * rows * columns * size_of::<T>()) as f64),
        move |device| {
            let logits = device.full([rows, columns], T::from_f64(0.5))?;
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

/// Loss of group-relative policy optimization, forward or backward.
fn grpo<T: Number>([batch, tokens, columns]: [usize; 3], backward: bool) -> Row {
    let name = if backward { "grpo_backward" } else { "grpo" };
    let arrays = if backward { 2 } else { 1 };
    Row::new(
        format!("{name} {} {batch} {tokens} {columns}", T::NAME),
        Work::bytes((arrays * batch * tokens * columns * size_of::<T>()) as f64),
        move |device| {
            let logits = || device.full([batch, tokens + 1, columns], T::from_f64(0.5));
            let of_tokens = device.from_fn([batch, tokens], move |[i, j]| ((i + j) * 7919 % columns) as i32)?;
            let numbers = || device.full([batch, tokens], -0.5f32);
            Ok((logits()?, logits()?, of_tokens, device.full([batch], 0.5f32)?, [numbers()?, numbers()?, numbers()?]))
        },
        move |(logits, gradient, tokens, advantages, [old, loss, logs])| {
            let stream = logits.device().default_stream();
            let (tokens, advantages, old) = (tokens.view(), advantages.view(), Some(old.view()));
            let policy = Policy { tokens, advantages, old, reference: old, mask: None };
            match backward {
                false => Grpo::new().forward(&stream, logits.view(), policy, (loss.view_mut(), logs.view_mut())),
                true => {
                    let sums = (logs.view(), loss.view());
                    Grpo::new().backward(&stream, logits.view(), policy, sums, gradient.view_mut())
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
    }
    rows.extend([false, true].map(|backward| grpo::<bf16>([4, 1024, 128_256], backward)));
    rows
}
