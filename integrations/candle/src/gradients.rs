//! Backward passes of the ready operations, by the gradients of cutlet-kernels.
//!
//! An operation of candle has one result. Several gradients are parts of one vector.

use candle_core::{D, Result, Shape, Tensor, bail};
use cutlet as ct;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::attention::{Gradients, Prefill};
use cutlet_kernels::norms;

use crate::kernel_op::KernelOp;
use crate::number::by_dtype;
use crate::rows_of;

/// Softmax over the last axis, from the result and its gradient.
pub fn softmax(y: &Tensor, grad: &Tensor) -> Result<Tensor> {
    by_dtype!("softmax", y.dtype(), T => {
        let op = KernelOp::<T, 2, 2, _>::new("cutlet-softmax-backward", |stream, [y, dy], dx| {
            norms::softmax_backward(stream, [y, dy], dx)
        });
        op.apply(&rows_of(y)?, &rows_of(grad)?)?.reshape(y.shape())
    })
}

/// RMSNorm: the gradients of x and of the weight.
pub fn rms_norm(x: &Tensor, weight: &Tensor, grad: &Tensor, epsilon: f32) -> Result<[Tensor; 2]> {
    let of_norm = by_dtype!("rms_norm", x.dtype(), T => {
        let op = KernelOp::<T, 3, 2, _>::new("cutlet-rms-norm-backward", move |stream, [x, dy, weight], all| {
            let (dx, [dweight]) = parts(x, all)?;
            norms::rms_norm_backward(stream, [x, dy], None, weight.reshape(dweight.shape())?, (dx, dweight), epsilon)
        });
        op.shape(|[x, ..]| gradients_of_norm::<1>(x)).apply(&rows_of(x)?, &rows_of(grad)?, weight)
    })?;
    let shapes = [x, weight].map(Tensor::shape);
    split(&of_norm, shapes)
}

/// Layer norm: the gradients of x, of the weight and of the bias.
pub fn layer_norm(x: &Tensor, weight: &Tensor, grad: &Tensor, epsilon: f32) -> Result<[Tensor; 3]> {
    let of_norm = by_dtype!("layer_norm", x.dtype(), T => {
        let op = KernelOp::<T, 3, 2, _>::new("cutlet-layer-norm-backward", move |stream, [x, dy, weight], all| {
            let (dx, vectors) = parts(x, all)?;
            let weight = weight.reshape(vectors[0].shape())?;
            norms::layer_norm_backward(stream, [x, dy], None, weight, (dx, vectors), epsilon)
        });
        op.shape(|[x, ..]| gradients_of_norm::<2>(x)).apply(&rows_of(x)?, &rows_of(grad)?, weight)
    })?;
    let shapes = [x, weight, weight].map(Tensor::shape);
    split(&of_norm, shapes)
}

/// The shape of the gradients of rows and of `N` vectors.
fn gradients_of_norm<const N: usize>(x: &Shape) -> Result<Shape> {
    let (rows, columns) = x.dims2()?;
    Ok((1, (rows + N) * columns).into())
}

/// The gradients of rows and of `N` vectors as parts of their vector.
fn parts<'a, T: cutlet_kernels::Number, const N: usize>(
    x: DeviceView<'_, T, 2>,
    all: DeviceViewMut<'a, T, 2>,
) -> ct::Result<(DeviceViewMut<'a, T, 2>, [DeviceViewMut<'a, T, 1>; N])> {
    let [rows, columns] = x.shape();
    let (dx, mut rest) = all.split_at_mut(1, rows * columns)?;
    let mut vectors = Vec::new();
    for _ in 0..N {
        let (vector, others) = rest.split_at_mut(1, columns)?;
        vectors.push(vector.reshape([columns])?);
        rest = others;
    }
    let vectors = vectors.try_into().unwrap_or_else(|_| unreachable!("a vector for each round"));
    Ok((dx.reshape([rows, columns])?, vectors))
}

/// Tensors of these shapes, which follow one another in a vector.
fn split<const N: usize>(all: &Tensor, shapes: [&Shape; N]) -> Result<[Tensor; N]> {
    let all = all.flatten_all()?;
    let mut first = 0;
    let mut tensors = Vec::new();
    for shape in shapes {
        tensors.push(all.narrow(0, first, shape.elem_count())?.reshape(shape)?);
        first += shape.elem_count();
    }
    tensors.try_into().map_err(|_| candle_core::Error::msg("a tensor for each shape"))
}

/// Extents of an attention.
#[derive(Clone, Copy)]
struct Extents {
    q: [usize; 4],
    k: [usize; 4],
}

/// Attention: the gradients of Q, K and V for one of shape (batch, queries, heads, dim).
///
/// The kernels compute the result again, with the logarithms of its sums.
pub fn attention([q, k, v]: [&Tensor; 3], grad: &Tensor, scale: f32, causal: bool) -> Result<[Tensor; 3]> {
    let extents = |x: &Tensor| x.dims4().map(|(a, b, c, d)| [a, b, c, d]);
    let extents = Extents { q: extents(q)?, k: extents(k)? };
    if q.dim(D::Minus1)? > 256 {
        bail!("cutlet-attention: Q of shape {:?}: gradients are of at most 256 numbers of a query", q.dims())
    }
    let grad = grad.transpose(1, 2)?;
    let operands = [q, k, v, &grad].map(Tensor::flatten_all).into_iter().collect::<Result<Vec<_>>>()?;
    let (operands, results) = (Tensor::cat(&operands, 0)?, Shape::from(q.elem_count() + 2 * k.elem_count()));
    let all = by_dtype!("attention", q.dtype(), T => {
        KernelOp::<T, 1, 1, _>::new("cutlet-attention-backward", move |stream, [operands], all| {
            of_attention(stream, extents, operands, all, (scale, causal))
        })
        .shape(move |_| Ok(results.clone()))
        .apply(&operands)
    })?;
    let shapes = [q, k, v].map(Tensor::shape);
    split(&all, shapes)
}

/// Queues the forward pass and the gradients. `operands` are Q, K, V and the gradient of the
/// result, one after another.
fn of_attention<T: cutlet_kernels::Number>(
    stream: &Stream,
    Extents { q, k }: Extents,
    operands: DeviceView<T, 1>,
    all: DeviceViewMut<T, 1>,
    (scale, causal): (f32, bool),
) -> ct::Result<()> {
    let [of_q, of_k] = [q, k].map(|shape| shape.iter().product::<usize>());
    let part = |start: usize, shape: [usize; 4]| {
        operands.slice(0, start..start + shape.iter().product::<usize>())?.reshape(shape)
    };
    let (dy, qkv) = (part(of_q + 2 * of_k, q)?, [part(0, q)?, part(of_q, k)?, part(of_q + of_k, k)?]);
    let (dq, rest) = all.split_at_mut(0, of_q)?;
    let (dk, dv) = rest.split_at_mut(0, of_k)?;
    let gradients = [dq.reshape(q)?, dk.reshape(k)?, dv.reshape(k)?];
    let [batch, heads, queries, _] = q;
    let mut y = stream.device().unspecified::<T, 4>(q)?;
    let mut logs = stream.device().unspecified::<f32, 3>([batch, heads, queries])?;
    Prefill::new(scale).causal(causal).launch(stream, qkv, y.view_mut(), Some(logs.view_mut()))?;
    let [q, k, v] = qkv;
    Gradients::new(scale).causal(causal).launch(stream, [q, k, v, y.view(), dy], logs.view(), gradients)
}
