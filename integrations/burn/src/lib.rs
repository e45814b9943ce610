//! Kernels of [cutlet](https://docs.rs/cutlet) as operations of [burn](https://burn.dev), with gradients.
//!
//! They run on burn's CPU back end flex, in the memory of its tensors, by the interpreter of
//! cutlet. It defines the results of kernels, and is slow. On GPUs, burn keeps the streams of
//! cubecl private: README.md.

mod flex;
mod gradients;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;

/// The operations of back ends that [`softmax`] and [`rms_norm`] need.
#[backend_extension(Flex, Autodiff)]
pub trait CutletOps: Backend {
    /// Softmax over the last axis.
    fn cutlet_softmax(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// RMSNorm over the last axis, with a weight for each element of a row.
    fn cutlet_rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self>;
}

/// Softmax over the last axis: exponentials over their sum. Tensors are f32, with any strides.
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// let x = Tensor::<2>::from_floats([[0.0, 0.0], [0.0, 1.0986123]], &Device::flex());
/// let y = cutlet_burn::softmax(x.transpose()).into_data().to_vec::<f32>().unwrap();
/// assert!(y.iter().zip([0.5, 0.5, 0.25, 0.75]).all(|(y, want)| (y - want).abs() < 1e-6));
/// ```
///
/// # Panics
/// For other element types and back ends.
pub fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::cutlet_softmax(x.into_dispatch()))
}

/// RMSNorm over the last axis: x / √(mean of x² + epsilon) · weight. Tensors are f32, with any
/// strides.
///
/// # Panics
/// For other element types and back ends, and a weight of another length.
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, epsilon: f32) -> Tensor<D> {
    assert_eq!(x.dims()[D - 1], weight.dims()[0], "a weight of another length than the rows");
    Tensor::from_dispatch(Dispatch::cutlet_rms_norm(x.into_dispatch(), weight.into_dispatch(), epsilon))
}

/// The example of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
