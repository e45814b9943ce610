//! The largest elements of rows: by the tile's own selection, or by radix select for long rows.
//!
//! Long rows have a block each. A radix select finds the k-th key. Another pass over the row writes the larger keys and as
//! many equal ones as are left, each in the order of the row, and a sort in registers orders them.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::key::Key;
use super::select::{Keys, select};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Longest row of the tile's own selection, and the most elements of its results.
const SHORT: usize = 4096;
/// Elements of a tile of a long row.
const TILE: usize = 8192;
/// Most elements of a result.
const MAX_K: usize = 4096;

/// Order of the selected elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selected {
    /// The largest first; equal ones in the order of the row.
    Sorted,
    /// Any order, which is the same in each run.
    Unsorted,
}

fn short_rows<T: Number>(
    x: Array<T, 2>,
    values: ArrayMut<T, 2>,
    positions: ArrayMut<i32, 2>,
    [rows, columns, k]: [usize; 3],
) {
    let at = (ct::bid(0), 0);
    let loaded = x.load(at, [rows, columns]).cast::<f32>();
    // Positions beyond the end are behind all others: equal elements remain in their order.
    let inside = ct::indices([1, columns], 1).lt(x.extent(1));
    let (largest, places) = inside.broadcast_to([rows, columns]).select(loaded, f32::NEG_INFINITY).top_k(1, k);
    values.store(at, largest.cast::<T>());
    positions.store(at, places);
}

fn long_rows<T: Number>(
    x: Array<T, 2>,
    values: ArrayMut<T, 2>,
    positions: ArrayMut<i32, 2>,
    (k, tile, order): (usize, usize, Selected),
) {
    let row = ct::bid(0);
    let tiles = x.num_tiles(1, [1, tile]);
    let numbers = ct::arange(0..tile);
    let load = |i: Scalar<i32>| {
        let elements = x.load((row, i), [1, tile]).reshape([tile]);
        (elements, f32::digits(elements.cast::<f32>(), 0, 32), (numbers + i * tile).lt(x.extent(1)))
    };
    let of_tile = |i| {
        let (_, keys, regarded) = load(i);
        Keys { keys, weights: None, regarded }
    };
    let (threshold, equal) = select(tiles, of_tile, ct::scalar(k as u32));
    // Larger keys are the first results. The number of equal ones before is in the upper half.
    let first_equal = k as i32 - equal.cast::<i32>();
    ct::fold(..tiles, (ct::scalar(0), first_equal), |(larger, equal), i| {
        let (elements, keys, inside) = load(i);
        let (is_larger, is_equal) = (keys.gt(threshold) & inside, keys.eq(threshold) & inside);
        let ones = is_larger.select(1, is_equal.select(1u32 << 16, 0));
        let before = ones.cumsum(0) - ones;
        let places = is_larger.select((before & 0xffff).cast::<i32>() + larger, (before >> 16).cast::<i32>() + equal);
        let taken = is_larger | (is_equal & places.lt(k as i32));
        let options = ct::ScatterOptions::new().mask(taken);
        values.scatter_with((row, places), elements, options);
        positions.scatter_with((row, places), numbers + i * tile, options);
        let all = ones.sum(0).item();
        (larger + (all & 0xffff).cast::<i32>(), equal + (all >> 16).cast::<i32>())
    });
    if order == Selected::Sorted {
        let extent = k.next_power_of_two();
        let at = (row, 0);
        let keys = f32::digits(values.load(at, [1, extent]).reshape([extent]).cast::<f32>(), 0, 32);
        let beyond = ct::arange(0..extent).ge(k as i32);
        let keys = beyond.select(u32::MAX, !keys);
        let (_, places) = ct::sort_by_key(keys, positions.load(at, [1, extent]).reshape([extent]), 0);
        positions.store(at, places.reshape([1, extent]));
        values.store(at, x.gather((row, places)).reshape([1, extent]));
    }
}

/// Queues the `k` largest elements of each row of shape (rows, columns), and their positions: results of shape (rows, k).
/// A NaN is larger than all numbers, and -0 is below +0. Of equal elements the first ones are selected.
///
/// ```
/// use cutlet_kernels::order::{Selected, top_k};
///
/// let device = cutlet::Device::cpu();
/// let x = device.array(&[3.0f32, 1.0, 4.0, 1.0, 5.0, 9.0], [1, 6])?;
/// let (mut values, mut positions) = (device.zeros([1, 2])?, device.zeros([1, 2])?);
/// let results = (values.view_mut(), positions.view_mut());
/// top_k(&device.default_stream(), x.view(), results, Selected::Sorted)?;
/// assert_eq!((values.to_vec()?, positions.to_vec()?), (vec![9.0, 5.0], vec![5, 4]));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for results of other shapes, or of more columns than 4096 or the row; those of the launch.
#[track_caller]
pub fn top_k<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    (values, positions): (DeviceViewMut<T, 2>, DeviceViewMut<i32, 2>),
    order: Selected,
) -> ct::Result<()> {
    let ([rows, columns], [_, k]) = (x.shape(), values.shape());
    let shapes = [values.shape(), positions.shape()];
    require(shapes == [[rows, k]; 2], || format!("top-k of {rows} rows: results of shapes {shapes:?}"))?;
    require(k <= columns && k <= MAX_K, || format!("the {k} largest of {columns} elements: at most {MAX_K}"))?;
    if rows * k == 0 {
        return Ok(());
    }
    if columns <= SHORT && k <= 256 {
        let (extent, k) = (columns.next_power_of_two(), k.next_power_of_two());
        let each = (4096 / extent).clamp(1, 32);
        let launch = ct::Launch::new(rows.div_ceil(each)).stream(stream);
        return launch.run(short_rows::<T>, (x, values, positions, ct::Constant([each, extent, k])));
    }
    let tile = TILE.min(columns.next_power_of_two());
    let launch = ct::Launch::new(rows).stream(stream).hints(Hints::new().num_warps((tile / 256) as u32));
    launch.run(long_rows::<T>, (x, values, positions, ct::Constant((k, tile, order))))
}
