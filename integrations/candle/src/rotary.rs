//! Rotary position embedding.

use candle_core::{Result, Tensor, bail};
pub use cutlet_kernels::Pairs;

use crate::kernel_op::KernelOp;
use crate::number::by_dtype;
use crate::place::matrix;

/// Rotary position embedding of tokens of shape (batch, heads, tokens, dim), by the cosines and
/// sines of angles of shape (tokens, dim / 2). `pairs`: which numbers are rotated together,
/// [`Pairs::Halves`] as in `candle_nn::rotary_emb::rope`, or [`Pairs::Adjacent`] as in `rope_i`.
///
/// f32, f16, bf16, all of one type; any strides. There is a backward pass for the tokens.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// use cutlet_candle::{Pairs, rotary};
///
/// let x = Tensor::new(&[1f32, 2.0, 3.0, 4.0], &Device::Cpu)?.reshape((1, 1, 1, 4))?;
/// let (cos, sin) = (Tensor::new(&[[0f32, 0.0]], &Device::Cpu)?, Tensor::new(&[[1f32, 1.0]], &Device::Cpu)?);
/// let y = rotary(&x, &cos, &sin, Pairs::Halves)?.flatten_all()?;
/// assert_eq!(y.to_vec1::<f32>()?, [-3.0, -4.0, 1.0, 2.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// For other shapes and element types; errors of the kernel's launch.
pub fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor, pairs: Pairs) -> Result<Tensor> {
    match *x.dims() {
        [_, _, tokens, dim] if dim % 2 == 0 && cos.dims() == [tokens, dim / 2] && sin.dims() == cos.dims() => {}
        _ => {
            let (x, cos, sin) = (x.dims(), cos.dims(), sin.dims());
            bail!(
                "rotary: x of shape {x:?}, cos of {cos:?}, sin of {sin:?}: (batch, heads, tokens, dim) and (tokens, dim / 2)"
            )
        }
    }
    by_dtype!("rotary", x.dtype(), T => {
        let op = KernelOp::<T, 3, 4, _>::new("cutlet-rotary", move |stream, [x, cos, sin], y| {
            cutlet_kernels::rotary(stream, x, [matrix(cos)?, matrix(sin)?], y, pairs)
        });
        // The inverse of a rotation is its transpose.
        op.backward(move |[_, cos, sin], _, grad| Ok([Some(rotary(grad, cos, &sin.neg()?, pairs)?), None, None]))
            .apply(x, cos, sin)
    })
}
