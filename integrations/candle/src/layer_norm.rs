//! Layer norm over the last axis.

use candle_core::{D, Result, Tensor, bail};

use crate::kernel_op::KernelOp;
use crate::number::by_dtype;
use crate::place::vector;
use crate::{gradients, rows_of};

/// Layer norm over the last axis of a tensor of any shape: (x - mean) / √(variance + epsilon) ·
/// weight + bias.
///
/// f32, f16, bf16, weight and bias of the same type; any strides, as [`softmax`](crate::softmax).
/// There is a backward pass.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1f32, 3.0], [5.0, 5.0]], &Device::Cpu)?;
/// let (weight, bias) = (Tensor::new(&[1f32, 2.0], &Device::Cpu)?, Tensor::new(&[0f32, 10.0], &Device::Cpu)?);
/// let y = cutlet_candle::layer_norm(&x, &weight, &bias, 1e-9)?.to_vec2::<f32>()?;
/// assert!((y[0][1] - 12.0).abs() < 1e-5 && (y[1][1] - 10.0).abs() < 1e-5);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// For a weight or bias of another length, rank or type, for other element types and tensors of
/// rank 0; errors of the kernel's launch.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
    let columns = if x.rank() > 0 { x.dim(D::Minus1)? } else { 0 };
    if weight.dims() != [columns] || bias.dims() != [columns] {
        let (x, weight, bias) = (x.dims(), weight.dims(), bias.dims());
        bail!("layer_norm: rows of a tensor of shape {x:?}, a weight of {weight:?} and a bias of {bias:?}")
    }
    let rows = rows_of(x)?;
    let y = by_dtype!("layer_norm", x.dtype(), T => {
        let op = KernelOp::<T, 3, 4, _>::new("cutlet-layer-norm", move |stream, [x, weight, bias], y| {
            cutlet_kernels::layer_norm(stream, x, [vector(weight)?, vector(bias)?], y, epsilon)
        });
        op.backward(move |[x, weight, _], _, grad| Ok(gradients::layer_norm(x, weight, grad, epsilon)?.map(Some)))
            .apply(&rows, weight, bias)
    })?;
    y.reshape(x.shape())
}
