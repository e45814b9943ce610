//! The operations on flex, in the memory of its tensors.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn_flex::FlexTensor;
use cutlet as ct;
use cutlet::foreign::ndarray::{HostArray, read, write};
use cutlet::{DeviceViewMut, Stream};
use ndarray::{ArrayView, ArrayViewMut, IxDyn, ShapeBuilder};

use crate::CutletOps;

/// Returns the extents as `R` ones: leading ones are added, or the first extents are joined.
fn joined<const R: usize>(dims: &[usize]) -> [usize; R] {
    let mut shape = [1; R];
    match dims.len().checked_sub(R) {
        None | Some(0) => shape[R - dims.len()..].copy_from_slice(dims),
        Some(more) => {
            shape[0] = dims[..=more].iter().product();
            shape[1..].copy_from_slice(&dims[more + 1..]);
        }
    }
    shape
}

/// Calls `work` with the tensor as an array of `R` axes. Tensors are copied if strides do not
/// express the array: joined axes with gaps, broadcast and reversed axes.
fn with_array<const R: usize, X>(
    x: &FlexTensor,
    work: impl FnOnce(HostArray<'_, f32, R>) -> ct::Result<X>,
) -> ct::Result<X> {
    let dims = x.shape().to_vec();
    let shape = joined::<R>(&dims);
    let strides = |x: &FlexTensor| match R.checked_sub(dims.len()) {
        Some(added) => std::array::from_fn(|d| if d < added { 1 } else { x.layout().strides()[d - added] as usize }),
        None => std::array::from_fn::<_, R, _>(|d| shape[d + 1..].iter().product()),
    };
    let apart = dims.len() <= R && x.layout().strides().iter().all(|&stride| stride > 0);
    let x = if apart || x.is_contiguous() { x.clone() } else { x.to_contiguous() };
    let elements = &x.storage::<f32>()[x.layout().start_offset()..];
    let view = ArrayView::from_shape(IxDyn(&shape).strides(IxDyn(&strides(&x))), elements);
    work(read(&view.expect("the layout of a tensor"))?)
}

/// Returns a tensor of the same shape that `work` writes, as an array of four axes.
fn result(x: &FlexTensor, work: impl FnOnce(&Stream, DeviceViewMut<'_, f32, 4>) -> ct::Result<()>) -> FlexTensor {
    let mut y = FlexTensor::zeros(x.shape().clone(), x.dtype());
    let shape = joined::<4>(&x.shape().to_vec());
    let mut view = ArrayViewMut::from_shape(IxDyn(&shape), y.storage_mut::<f32>()).expect("an element for each place");
    let written = write(&mut view).and_then(|mut y| work(&ct::Device::cpu().default_stream(), y.view_mut()));
    // As operations of burn: they have no results for errors.
    written.unwrap_or_else(|error| panic!("{error}"));
    y
}

impl CutletOps for Flex {
    fn cutlet_softmax(x: FloatTensor<Self>) -> FloatTensor<Self> {
        result(&x, |stream, y| with_array(&x, |x| cutlet_kernels::softmax(stream, x.view(), y)))
    }

    fn cutlet_rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self> {
        result(&x, |stream, y| {
            with_array(&x, |x| {
                with_array(&weight, |w| cutlet_kernels::rms_norm(stream, x.view(), w.view(), y, epsilon))
            })
        })
    }
}
