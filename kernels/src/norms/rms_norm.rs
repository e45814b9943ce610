//! RMS norm over the last axis (Zhang and Sennrich, 2019), with a residual, and its gradients.

use cutlet as ct;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::norm::{self, Residual};
use super::norm_backward::{self, Gradient};
use crate::Number;

/// Queues the RMS norm of the rows along the last axis: x / √(mean of x² + epsilon) · weight. Rows
/// may have any length, and arrays up to four axes, or more if their strides are those of fewer
/// axes.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, weight, mut y) = (device.full([2, 4], 3.0f32)?, device.full([4], 2.0)?, device.zeros([2, 4])?);
/// cutlet_kernels::rms_norm(&device.default_stream(), x.view(), weight.view(), y.view_mut(), 0.0)?;
/// assert_eq!(y.to_vec()?, [2.0; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn rms_norm<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    weight: DeviceView<T, 1>,
    y: DeviceViewMut<T, R>,
    epsilon: f32,
) -> ct::Result<()> {
    norm::launch(stream, x, None, (weight, None), y, epsilon)
}

/// Queues `sum = x + residual`, and the RMS norm of the sum, as [`rms_norm`] has it.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, residual, weight) = (device.full([1, 4], 3.0f32)?, device.full([1, 4], 1.0)?, device.full([4], 2.0)?);
/// let (mut sum, mut y) = (device.zeros([1, 4])?, device.zeros([1, 4])?);
/// let (stream, results) = (device.default_stream(), [sum.view_mut(), y.view_mut()]);
/// cutlet_kernels::norms::add_rms_norm(&stream, [x.view(), residual.view()], weight.view(), results, 0.0)?;
/// assert_eq!((sum.to_vec()?, y.to_vec()?), (vec![4.0; 4], vec![2.0; 4]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`rms_norm`].
#[track_caller]
pub fn add_rms_norm<T: Number, const R: usize>(
    stream: &Stream,
    [x, residual]: [DeviceView<T, R>; 2],
    weight: DeviceView<T, 1>,
    [sum, y]: [DeviceViewMut<T, R>; 2],
    epsilon: f32,
) -> ct::Result<()> {
    norm::launch(stream, x, Some(Residual { residual, sum }), (weight, None), y, epsilon)
}

/// Queues the gradients of [`rms_norm`] for its operand and its weight. With `dsum`, `x` is the sum
/// of [`add_rms_norm`], `dsum` the gradient of this sum from its other uses, and `dx` the gradient
/// of operand and residual.
///
/// Sums over rows are added in one order.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, dy, weight) = (device.full([2, 4], 3.0f32)?, device.full([2, 4], 1.0)?, device.full([4], 2.0)?);
/// let (mut dx, mut dweight) = (device.zeros([2, 4])?, device.zeros([4])?);
/// let (stream, inputs) = (device.default_stream(), [x.view(), dy.view()]);
/// let gradients = (dx.view_mut(), dweight.view_mut());
/// cutlet_kernels::norms::rms_norm_backward(&stream, inputs, None, weight.view(), gradients, 0.0)?;
/// assert_eq!((dx.to_vec()?, dweight.to_vec()?), (vec![0.0; 8], vec![2.0; 4]));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn rms_norm_backward<T: Number, const R: usize>(
    stream: &Stream,
    [x, dy]: [DeviceView<T, R>; 2],
    dsum: Option<DeviceView<T, R>>,
    weight: DeviceView<T, 1>,
    (dx, dweight): (DeviceViewMut<T, R>, DeviceViewMut<T, 1>),
    epsilon: f32,
) -> ct::Result<()> {
    norm_backward::launch(stream, Gradient { x, weight, dy, dsum, dx, dweight, dbias: None }, epsilon)
}
