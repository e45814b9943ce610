//! Sparsemax over the last axis (Martins and Astudillo, 2016), with its gradient.
//!
//! The result is max(x - τ, 0) with a sum of 1. The threshold τ is found without a sort (Michelot,
//! 1986): τ of the elements above the last τ, until no more elements are dropped. All elements
//! above the maximum minus 1 are the start. A row is in registers from its load to its store, as
//! that of softmax.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use super::rows::{Form, LARGEST_CLUSTER, LONGEST_TILE, collapses, four, is_hopper};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, target};

type Rows = Tile<f32, 4>;

fn forward<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, form: Form) {
    form.promise::<T>(&[]);
    let rows = form.here();
    let x = x.load_with(rows.at(), form.shape(), LoadOptions::new().padding(Padding::NegInf)).cast::<f32>();
    // Differences from the maximum keep their last digits in the sums.
    let x = x - rows.max(x);
    let above = |limit: Rows| {
        let inside = x.gt(limit);
        let sum = rows.sum(ct::select(inside, x, 0.0));
        (sum, rows.sum(inside.cast::<f32>()))
    };
    let start = (ct::full([1, 1, form.rows, 1], -1.0f32), ct::scalar(true));
    let (limit, _) = ct::while_loop(
        start,
        |(_, more): (Rows, Scalar<bool>)| more,
        |(limit, _)| {
            let (sum, count) = above(limit);
            let next = (sum - 1.0) / count;
            (next, next.gt(limit).any([0, 1, 2, 3]).item())
        },
    );
    y.store(rows.at(), (x - limit).max(0.0).cast::<T>());
}

fn backward<T: Number>(y: Array<T, 4>, dy: Array<T, 4>, dx: ArrayMut<T, 4>, form: Form) {
    form.promise::<T>(&[]);
    let rows = form.here();
    let [y, dy] = [y, dy].map(|array| array.load(rows.at(), form.shape()).cast::<f32>());
    let inside = y.gt(0.0);
    let mean = rows.sum(ct::select(inside, dy, 0.0)) / rows.sum(inside.cast::<f32>());
    dx.store(rows.at(), ct::select(inside, dy - mean, 0.0).cast::<T>());
}

#[track_caller]
fn form<T>(shape: [usize; 4], stream: &Stream) -> ct::Result<Form> {
    let largest = if is_hopper(target(stream)) { LARGEST_CLUSTER } else { 1 };
    let form = Form::with_clusters(shape, if size_of::<T>() == 2 { 4096 } else { 2048 }, LONGEST_TILE, largest);
    require(!form.by_chunks, || format!("sparsemax of rows of {}: at most 2^14, on Hopper 2^18", shape[3]))?;
    // Rows of one tile would wait for the one with most iterations; clusters must agree on their
    // number.
    Ok(Form { rows: 1, ..form })
}

/// Queues the sparsemax of the rows along the last axis. Rows have at most 2^14 elements, on Hopper
/// 2^18.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::norms::sparsemax;
///
/// let device = ct::Device::cpu();
/// let x = device.array(&[1.0f32, 0.5, -3.0, 0.0], [1, 4])?;
/// let mut y = device.zeros([1, 4])?;
/// sparsemax(&device.default_stream(), x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [0.75, 0.25, 0.0, 0.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the shapes differ or the rows are longer; those of the launch.
#[track_caller]
pub fn sparsemax<T: Number, const R: usize>(
    stream: &Stream,
    x: DeviceView<T, R>,
    y: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    require(x.shape() == y.shape(), || {
        format!("sparsemax of an array of {:?} into one of {:?}", x.shape(), y.shape())
    })?;
    if x.is_empty() {
        return Ok(());
    }
    let shape = four(x.shape(), collapses(x) && collapses(y.as_view()));
    let form = form::<T>(shape, stream)?;
    form.launch(shape, stream).run(forward::<T>, (x.reshape(shape)?, y.reshape(shape)?, ct::Constant(form)))
}

/// Queues the gradient of [`sparsemax`] from its result and the gradient of the result: over the
/// elements above 0, the difference from their mean.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::norms::sparsemax_backward;
///
/// let device = ct::Device::cpu();
/// let (y, dy) = (device.array(&[0.75f32, 0.25, 0.0], [1, 3])?, device.array(&[1.0f32, 2.0, 9.0], [1, 3])?);
/// let mut dx = device.zeros([1, 3])?;
/// sparsemax_backward(&device.default_stream(), [y.view(), dy.view()], dx.view_mut())?;
/// assert_eq!(dx.to_vec()?, [-0.5, 0.5, 0.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`sparsemax`].
#[track_caller]
pub fn sparsemax_backward<T: Number, const R: usize>(
    stream: &Stream,
    [y, dy]: [DeviceView<T, R>; 2],
    dx: DeviceViewMut<T, R>,
) -> ct::Result<()> {
    require(y.shape() == dy.shape() && y.shape() == dx.shape(), || {
        format!("gradient of sparsemax of arrays of {:?}, {:?} and {:?}", y.shape(), dy.shape(), dx.shape())
    })?;
    if y.is_empty() {
        return Ok(());
    }
    let shape = four(y.shape(), collapses(y) && collapses(dy) && collapses(dx.as_view()));
    let form = form::<T>(shape, stream)?;
    let arguments = (y.reshape(shape)?, dy.reshape(shape)?, dx.reshape(shape)?, ct::Constant(form));
    form.launch(shape, stream).run(backward::<T>, arguments)
}
