//! Softmax and its logarithm over the last axis, with gradients.
//!
//! A row is in registers from its load to its store: in one tile, or in the tile blocks of a
//! cluster, up to 2^18 columns on Hopper. Longer rows are read twice: for maximum and sum (online
//! softmax; Milakov and Gimelshein, 2018), and for the result.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use super::rows::{Form, Rows, collapses, four, mode};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Loads a tile. Elements after the end of the row are -inf, if there are any.
pub fn load<T: Number>(x: Array<T, 4>, at: [Scalar<i32>; 4], form: Form, padded: bool) -> Tile<f32, 4> {
    let padding = if padded { Padding::NegInf } else { Padding::Zero };
    x.load_with(at, form.shape(), LoadOptions::new().padding(padding)).cast::<f32>()
}

/// Maximum of a row, and the sum of its exponentials, by chunks. Adjacent columns, which a thread
/// loads together, share a maximum and a sum, so that threads exchange nothing before the end of
/// the row.
pub fn online<T>(
    rows: Rows,
    columns: Scalar<i32>,
    form: Form,
    load: impl Fn(Scalar<i32>, bool) -> Tile<f32, 4>,
) -> (Tile<f32, 4>, Tile<f32, 4>) {
    let groups = form.groups::<T>();
    let of_groups = [1, 1, groups[2], 1];
    // Not from -inf on: a chunk of nothing but -inf adds nothing.
    let start = (ct::full::<f32, 4>(of_groups, f32::MIN), ct::zeros::<f32, 4>(of_groups));
    let (maxima, sums) = rows.fold(columns, start, |(max, sum), j, padded| {
        let x = load(j, padded).reshape(groups);
        let above = max.max(x.reduce_max(3));
        (above, sum.fma((max - above).exp(), (x - above).exp().sum(3)))
    });
    let max = maxima.reduce_max(2);
    (max, (sums * (maxima - max).exp()).sum(2))
}

/// `log`: the logarithm of the softmax.
fn forward<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, form: Form, log: bool) {
    form.promise::<T>(&[]);
    let (rows, columns) = (form.here(), x.extent(3));
    if form.by_chunks {
        mode::<T, _>(|| {
            let load = |j: Scalar<i32>, padded| load(x, rows.chunk(j), form, padded);
            let (max, sum) = online::<T>(rows, columns, form, load);
            let (factor, offset) = (1.0 / sum, max + sum.log());
            rows.each_back(columns, |j, padded| {
                let x = load(j, padded);
                let result = if log { x - offset } else { (x - max).exp() * factor };
                y.store(rows.chunk(j), result.cast::<T>());
            });
        });
        return;
    }
    let x = load(x, rows.at(), form, form.padded);
    let below = x - rows.max(x);
    let powers = below.exp();
    let sum = rows.sum(powers);
    let result = if log { below - sum.log() } else { powers * (1.0 / sum) };
    y.store(rows.at(), result.cast::<T>());
}

/// Term of the sum along a row.
fn term([y, dy]: [Tile<f32, 4>; 2], log: bool) -> Tile<f32, 4> {
    if log { dy } else { y * dy }
}

/// Gradient of the logits, from the result, its gradient, and the sum of the row.
fn gradient([y, dy]: [Tile<f32, 4>; 2], sum: Tile<f32, 4>, log: bool) -> Tile<f32, 4> {
    if log { dy - y.exp() * sum } else { y * (dy - sum) }
}

fn backward<T: Number>(y: Array<T, 4>, dy: Array<T, 4>, dx: ArrayMut<T, 4>, form: Form, log: bool) {
    form.promise::<T>(&[]);
    let rows = form.here();
    let load = |at: [Scalar<i32>; 4]| [y, dy].map(|array| array.load(at, form.shape()).cast::<f32>());
    if form.by_chunks {
        let columns = y.extent(3);
        let sums =
            rows.fold(columns, ct::zeros::<f32, 4>(form.shape()), |sum, j, _| sum + term(load(rows.chunk(j)), log));
        let sum = sums.sum(3);
        rows.each_back(columns, |j, _| {
            dx.store(rows.chunk(j), gradient(load(rows.chunk(j)), sum, log).cast::<T>());
        });
        return;
    }
    let tiles = load(rows.at());
    dx.store(rows.at(), gradient(tiles, rows.sum(term(tiles, log)), log).cast::<T>());
}

/// Least elements of a tile of short rows.
fn elements<T>() -> usize {
    if size_of::<T>() == 2 { 4096 } else { 8192 }
}

#[track_caller]
fn launch_forward<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    y: DeviceViewMut<T, R>,
    log: bool,
) -> ct::Result<()> {
    require(x.shape() == y.shape(), || format!("softmax of an array of {:?} into one of {:?}", x.shape(), y.shape()))?;
    if x.is_empty() {
        return Ok(());
    }
    let shape = four(x.shape(), collapses(x) && collapses(y.as_view()));
    let form = Form::of_bytes(shape, elements::<T>(), size_of::<T>(), stream).sized::<T>(shape);
    let arguments = (x.reshape(shape)?, y.reshape(shape)?, ct::Constant(form), ct::Constant(log));
    form.launch(shape, stream).run(forward::<T>, arguments)
}

#[track_caller]
fn launch_backward<T: Number, const R: usize>(
    stream: &Stream,
    [y, dy]: [DeviceView<T, R>; 2],
    dx: DeviceViewMut<T, R>,
    log: bool,
) -> ct::Result<()> {
    require(y.shape() == dy.shape() && y.shape() == dx.shape(), || {
        format!("gradient of softmax of arrays of {:?}, {:?} and {:?}", y.shape(), dy.shape(), dx.shape())
    })?;
    if y.is_empty() {
        return Ok(());
    }
    let shape = four(y.shape(), collapses(y) && collapses(dy) && collapses(dx.as_view()));
    let form = Form::of_bytes(shape, elements::<T>(), 2 * size_of::<T>(), stream).sized::<T>(shape);
    let arguments = (y.reshape(shape)?, dy.reshape(shape)?, dx.reshape(shape)?, ct::Constant(form), ct::Constant(log));
    form.launch(shape, stream).run(backward::<T>, arguments)
}

/// Queues the softmax of the rows along the last axis: exponentials over their sum. Rows may have
/// any length, and arrays up to four axes, or more if their strides are those of fewer axes.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([2, 4], 3.0f32)?, device.zeros([2, 4])?);
/// cutlet_kernels::softmax(&device.default_stream(), x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [0.25; 8]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the shapes differ; those of the launch.
#[track_caller]
pub fn softmax<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    y: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    launch_forward(stream, x, y, false)
}

/// Queues the logarithm of the softmax of the rows along the last axis. Shapes are those of
/// [`softmax`].
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.array(&[0.0f32, 0.0], [1, 2])?, device.zeros([1, 2])?);
/// cutlet_kernels::norms::log_softmax(&device.default_stream(), x.view(), y.view_mut())?;
/// assert!(y.to_vec()?.iter().all(|y| (y + std::f32::consts::LN_2).abs() < 1e-6));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`softmax`].
#[track_caller]
pub fn log_softmax<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    y: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    launch_forward(stream, x, y, true)
}

/// Queues the gradient of [`softmax`]: y · (dy - Σ y · dy), from the result `y` and its gradient
/// `dy`.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (y, dy) = (device.array(&[0.5f32, 0.5], [1, 2])?, device.array(&[1.0f32, 0.0], [1, 2])?);
/// let mut dx = device.zeros([1, 2])?;
/// cutlet_kernels::norms::softmax_backward(&device.default_stream(), [y.view(), dy.view()], dx.view_mut())?;
/// assert_eq!(dx.to_vec()?, [0.25, -0.25]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`softmax`].
#[track_caller]
pub fn softmax_backward<T: Number, const R: usize>(
    stream: &Stream,
    [y, dy]: [DeviceView<T, R>; 2],
    dx: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    launch_backward(stream, [y, dy], dx, false)
}

/// Queues the gradient of [`log_softmax`]: dy - exp(y) · Σ dy, from the result `y` and its gradient
/// `dy`.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (y, dy) = (device.full([1, 2], 0.5f32.ln())?, device.array(&[1.0f32, 0.0], [1, 2])?);
/// let mut dx = device.zeros([1, 2])?;
/// cutlet_kernels::norms::log_softmax_backward(&device.default_stream(), [y.view(), dy.view()], dx.view_mut())?;
/// assert_eq!(dx.to_vec()?, [0.5, -0.5]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`softmax`].
#[track_caller]
pub fn log_softmax_backward<T: Number, const R: usize>(
    stream: &Stream,
    [y, dy]: [DeviceView<T, R>; 2],
    dx: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    launch_backward(stream, [y, dy], dx, true)
}
