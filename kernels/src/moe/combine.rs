//! Weighted sums of the results of the experts of each token, in the order of its choices.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::Alignment;
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// A block has all choices of a token, and a part of its columns. `weights`: None for sums.
fn kernel<T: Number>(
    x: Array<T, 2>,
    places: Array<i32, 2>,
    weights: Option<Array<f32, 2>>,
    y: ArrayMut<T, 2>,
    columns: usize,
    slots: usize,
) {
    let along = y.num_tiles(1, [1, columns]);
    let (token, j) = (ct::bid(0) / along, ct::bid(0) % along);
    let start = ct::zeros::<f32, 2>([1, columns]);
    let add = |sum: Tile<f32, 2>, slot: Scalar<i32>| {
        let row = x.load((places.load_scalar((token, slot)), j), [1, columns]).cast::<f32>();
        sum + weights.map_or(row, |weights| row * weights.load_scalar((token, slot)))
    };
    let sum = match slots {
        ..=MAX_UNROLLED => (0..slots).fold(start, |sum, slot| add(sum, ct::scalar(slot as i32))),
        _ => ct::fold(..places.extent(1), start, add),
    };
    y.store((token, j), sum.cast::<T>());
}

/// Rows whose loads are in flight at the same time.
const MAX_UNROLLED: usize = 16;

#[track_caller]
pub(super) fn launch<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    alignment: &Alignment,
    weights: Option<DeviceView<f32, 2>>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let ([tokens, taken], [rows, columns]) = (alignment.tokens(), x.shape());
    require(rows == alignment.num_places() && y.shape() == [tokens, columns], || {
        format!("{} places and {tokens} tokens; x of {:?}, y of {:?}", alignment.num_places(), x.shape(), y.shape())
    })?;
    require(weights.is_none_or(|weights| weights.shape() == [tokens, taken]), || {
        format!("weights of {taken} experts for each of {tokens} tokens, of another shape")
    })?;
    if y.is_empty() {
        return Ok(());
    }
    let tile = columns.next_power_of_two().min(2048);
    let places = alignment.places().reshape([tokens, taken])?;
    let grid = tokens * columns.div_ceil(tile);
    let arguments = (x, places, weights, y, ct::Constant(tile), ct::Constant(taken));
    ct::Launch::new(grid).stream(stream).run(kernel::<T>, arguments)
}

/// Queues the sums of the rows of each token, times the weights of shape (tokens, taken). `x` has a
/// row for each place of the alignment. Sums have one order.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Alignment, combine};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let mut alignment = Alignment::new(&stream, [1, 2], 2, 1)?;
/// alignment.launch(&stream, device.array(&[1, 0], [1, 2])?.view())?;
/// let (x, weights) = (device.array(&[1.0f32, 10.0], [2, 1])?, device.array(&[0.5, 2.0], [1, 2])?);
/// let mut y = device.zeros([1, 1])?;
/// combine(&stream, x.view(), &alignment, weights.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [7.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn combine<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    alignment: &Alignment,
    weights: DeviceView<f32, 2>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    launch(stream, x, alignment, Some(weights), y)
}
