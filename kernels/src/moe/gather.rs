//! Rows of tokens in the order of an alignment.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::Alignment;
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Places of a block, whose rows are in flight at the same time.
const PLACES: usize = 4;

/// A block has some places, and a part of their columns.
fn kernel<T: Number>(
    x: Array<T, 2>,
    pairs: Array<i32, 1>,
    weights: Option<Array<f32, 1>>,
    out: ArrayMut<T, 2>,
    taken: Scalar<i32>,
    columns: usize,
) {
    let along = out.num_tiles(1, [1, columns]);
    let (first, j) = (ct::bid(0) / along * PLACES, ct::bid(0) % along);
    let rows: Vec<Tile<T, 2>> = (0..PLACES)
        .map(|number| {
            let pair = pairs.load_scalar(first + number);
            // A free place is after the last token.
            let row = x.load((pair / taken, j), [1, columns]);
            weights.map_or(row, |weights| (row.cast::<f32>() * weights.load_scalar(pair)).cast::<T>())
        })
        .collect();
    for (number, row) in rows.into_iter().enumerate() {
        out.store((first + number, j), row);
    }
}

/// Queues the rows of the tokens of all places, times the weights of their pairs, of shape (tokens,
/// taken), if there are any. Rows of free places are zero.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Alignment, gather};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let mut alignment = Alignment::new(&stream, [2, 1], 2, 1)?;
/// alignment.launch(&stream, device.array(&[1, 0], [2, 1])?.view())?;
/// let (x, mut out) = (device.array(&[1.0f32, 2.0], [2, 1])?, device.zeros([2, 1])?);
/// gather(&stream, x.view(), &alignment, None, out.view_mut())?;
/// assert_eq!(out.to_vec()?, [2.0, 1.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn gather<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    alignment: &Alignment,
    weights: Option<DeviceView<f32, 2>>,
    out: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let ([tokens, taken], [rows, columns]) = (alignment.tokens(), x.shape());
    require(rows == tokens && out.shape() == [alignment.num_places(), columns], || {
        format!("{tokens} tokens and {} places; x of {:?}, out of {:?}", alignment.num_places(), x.shape(), out.shape())
    })?;
    require(weights.is_none_or(|weights| weights.shape() == [tokens, taken]), || {
        format!("weights of {taken} experts for each of {tokens} tokens, of another shape")
    })?;
    if out.is_empty() {
        return Ok(());
    }
    let weights = weights.map(|weights| weights.reshape([tokens * taken])).transpose()?;
    let tile = columns.next_power_of_two().min(2048);
    let grid = alignment.num_places().div_ceil(PLACES) * columns.div_ceil(tile);
    let arguments = (x, alignment.pairs(), weights, out, taken as i32, ct::Constant(tile));
    ct::Launch::new(grid).stream(stream).run(kernel::<T>, arguments)
}
