//! Backward passes of the ready operations, by candle's operations in f32.

use candle_core::{D, DType, Result, Tensor};

fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(DType::F32)
}

/// The mean over the last axis.
fn mean(x: &Tensor) -> Result<Tensor> {
    x.mean_keepdim(D::Minus1)
}

/// The sum over all axes but the last one.
fn over_rows(x: &Tensor, like: &Tensor) -> Result<Tensor> {
    let columns = x.dim(D::Minus1)?;
    x.reshape(((), columns))?.sum(0)?.to_dtype(like.dtype())
}

/// Softmax over the last axis: y (grad - Σ grad y).
pub fn softmax(y: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let (y, dtype) = (wide(y)?, y.dtype());
    let product = (wide(grad)? * &y)?;
    (&product - y.broadcast_mul(&product.sum_keepdim(D::Minus1)?)?)?.to_dtype(dtype)
}

/// RMSNorm: the gradients of x and of the weight.
pub fn rms_norm(x: &Tensor, weight: &Tensor, grad: &Tensor, epsilon: f32) -> Result<[Tensor; 2]> {
    let wide_x = wide(x)?;
    let scale = (mean(&wide_x.sqr()?)? + f64::from(epsilon))?.sqrt()?.recip()?;
    let normal = wide_x.broadcast_mul(&scale)?;
    let scaled = wide(grad)?.broadcast_mul(&wide(weight)?)?;
    let along = normal.broadcast_mul(&mean(&(&scaled * &normal)?)?)?;
    let of_x = (scaled - along)?.broadcast_mul(&scale)?.to_dtype(x.dtype())?;
    Ok([of_x, over_rows(&(wide(grad)? * normal)?, weight)?])
}

/// Layer norm: the gradients of x, of the weight and of the bias.
pub fn layer_norm(x: &Tensor, weight: &Tensor, grad: &Tensor, epsilon: f32) -> Result<[Tensor; 3]> {
    let wide_x = wide(x)?;
    let centered = wide_x.broadcast_sub(&mean(&wide_x)?)?;
    let scale = (mean(&centered.sqr()?)? + f64::from(epsilon))?.sqrt()?.recip()?;
    let normal = centered.broadcast_mul(&scale)?;
    let scaled = wide(grad)?.broadcast_mul(&wide(weight)?)?;
    let along = normal.broadcast_mul(&mean(&(&scaled * &normal)?)?)?;
    let of_x = (scaled.broadcast_sub(&mean(&scaled)?)? - along)?.broadcast_mul(&scale)?.to_dtype(x.dtype())?;
    Ok([of_x, over_rows(&(wide(grad)? * normal)?, weight)?, over_rows(&wide(grad)?, weight)?])
}

/// Attention: the gradients of Q, K and V for one of shape (batch, queries, heads, dim).
pub fn attention([q, k, v]: [&Tensor; 3], grad: &Tensor, scale: f32, causal: bool) -> Result<[Tensor; 3]> {
    let ((_, heads, queries, _), (batch, key_heads, keys, dim)) = (q.dims4()?, k.dims4()?);
    let group = heads / key_heads;
    let spread = |x: &Tensor| {
        let x = wide(x)?.unsqueeze(2)?.broadcast_as((batch, key_heads, group, keys, dim))?;
        x.reshape((batch, heads, keys, dim))
    };
    let gathered =
        |x: Tensor, like: &Tensor| x.reshape((batch, key_heads, group, keys, dim))?.sum(2)?.to_dtype(like.dtype());
    let (wide_q, wide_k, wide_v) = (wide(q)?.contiguous()?, spread(k)?, spread(v)?);
    let mut scores = (wide_q.matmul(&wide_k.t()?)? * f64::from(scale))?;
    if causal {
        let mask: Vec<f32> = (0..queries * keys)
            .map(|at| if at % keys > at / keys + keys - queries { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        scores = scores.broadcast_add(&Tensor::from_vec(mask, (queries, keys), q.device())?)?;
    }
    let weights = {
        let e = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        e.broadcast_div(&e.sum_keepdim(D::Minus1)?)?
    };
    let grad = wide(&grad.transpose(1, 2)?)?.contiguous()?;
    let of_scores = (softmax(&weights, &grad.matmul(&wide_v.t()?)?)? * f64::from(scale))?;
    let of_q = of_scores.matmul(&wide_k)?.to_dtype(q.dtype())?;
    let of_k = gathered(of_scores.t()?.matmul(&wide_q)?, k)?;
    let of_v = gathered(weights.t()?.matmul(&grad)?, v)?;
    Ok([of_q, of_k, of_v])
}
