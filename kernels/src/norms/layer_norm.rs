//! Layer norm over the last axis (Ba, Kiros and Hinton, 2016), with a residual, and its gradients.

use cutlet as ct;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::norm::{self, Residual};
use super::norm_backward::{self, Gradient};
use crate::Number;

/// Queues the layer norm of the rows along the last axis: (x - mean) / √(variance + epsilon) ·
/// weight + bias. Rows may have any length, and arrays up to four axes, or more if their strides
/// are those of fewer axes. The variance is that of the differences from the mean.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32, 3.0], [1, 2])?;
/// let (weight, bias, mut y) = (device.full([2], 2.0)?, device.full([2], 10.0)?, device.zeros([1, 2])?);
/// cutlet_kernels::layer_norm(&device.default_stream(), x.view(), [weight.view(), bias.view()], y.view_mut(), 0.0)?;
/// assert_eq!(y.to_vec()?, [8.0, 12.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn layer_norm<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    [weight, bias]: [DeviceView<T, 1>; 2],
    y: DeviceViewMut<T, R>,
    epsilon: f32,
) -> ct::Result<()> {
    norm::launch(stream, x, None, (weight, Some(bias)), y, epsilon)
}

/// Queues `sum = x + residual`, and the layer norm of the sum, as [`layer_norm`] has it.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, residual) = (device.array(&[1.0f32, 3.0], [1, 2])?, device.array(&[0.0f32, 2.0], [1, 2])?);
/// let (weight, bias) = (device.full([2], 2.0)?, device.full([2], 10.0)?);
/// let (mut sum, mut y) = (device.zeros([1, 2])?, device.zeros([1, 2])?);
/// let (stream, vectors) = (device.default_stream(), [weight.view(), bias.view()]);
/// let results = [sum.view_mut(), y.view_mut()];
/// cutlet_kernels::norms::add_layer_norm(&stream, [x.view(), residual.view()], vectors, results, 0.0)?;
/// assert_eq!((sum.to_vec()?, y.to_vec()?), (vec![1.0, 5.0], vec![8.0, 12.0]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`layer_norm`].
#[track_caller]
pub fn add_layer_norm<T: Number, const R: usize>(
    stream: &Stream,
    [x, residual]: [DeviceView<T, R>; 2],
    [weight, bias]: [DeviceView<T, 1>; 2],
    [sum, y]: [DeviceViewMut<T, R>; 2],
    epsilon: f32,
) -> ct::Result<()> {
    norm::launch(stream, x, Some(Residual { residual, sum }), (weight, Some(bias)), y, epsilon)
}

/// Queues the gradients of [`layer_norm`] for its operand, weight and bias. With `dsum`, `x` is the
/// sum of [`add_layer_norm`], `dsum` the gradient of this sum from its other uses, and `dx` the
/// gradient of operand and residual.
///
/// Sums over rows are added in one order.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, dy) = (device.array(&[1.0f32, 3.0], [1, 2])?, device.array(&[1.0f32, 0.5], [1, 2])?);
/// let (weight, mut dx) = (device.full([2], 2.0)?, device.zeros([1, 2])?);
/// let (mut dweight, mut dbias) = (device.zeros([2])?, device.zeros([2])?);
/// let (stream, inputs) = (device.default_stream(), [x.view(), dy.view()]);
/// let gradients = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
/// cutlet_kernels::norms::layer_norm_backward(&stream, inputs, None, weight.view(), gradients, 0.0)?;
/// assert_eq!((dweight.to_vec()?, dbias.to_vec()?), (vec![-1.0, 0.5], vec![1.0, 0.5]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn layer_norm_backward<T: Number, const R: usize>(
    stream: &Stream,
    [x, dy]: [DeviceView<T, R>; 2],
    dsum: Option<DeviceView<T, R>>,
    weight: DeviceView<T, 1>,
    (dx, [dweight, dbias]): (DeviceViewMut<T, R>, [DeviceViewMut<T, 1>; 2]),
    epsilon: f32,
) -> ct::Result<()> {
    norm_backward::launch(stream, Gradient { x, weight, dy, dsum, dx, dweight, dbias: Some(dbias) }, epsilon)
}
