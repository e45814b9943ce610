//! The largest elements of rows: by the tile's own selection, or by radix select for long rows.
//!
//! Long rows have a block each:
//!
//! 1. The first pass of a radix select finds the upper bits of the k-th key.
//! 2. A second pass over the row writes the elements with larger bits, and collects those with
//!    equal bits in shared memory. There the rest of the key is found. If they are too many, the
//!    passes read the row again.
//! 3. A sort in registers orders the results.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::key::Key;
use super::select::{Keys, select_prefix, select_rest};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Longest row of the tile's own selection, and the most elements of its results.
const SHORT: usize = 4096;
/// Elements of a tile of a long row.
const TILE: usize = 8192;
/// Most elements with the first digit of the k-th key that are kept in shared memory.
const CANDIDATES: usize = 8192;
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
    ct::require_rowwise(0);
    let at = (ct::bid(0), 0);
    let loaded = x.load(at, [rows, columns]).cast::<f32>();
    // Positions beyond the end are after all others: equal elements remain in their order.
    let inside = ct::indices([1, columns], 1).lt(x.extent(1));
    let (largest, places) = inside.broadcast_to([rows, columns]).select(loaded, f32::NEG_INFINITY).top_k(1, k);
    values.store(at, largest.cast::<T>());
    positions.store(at, places);
}

/// Numbers of larger and of equal elements before a tile.
type Before = (Scalar<i32>, Scalar<i32>);

/// Places of the elements of a tile: first those of the larger ones, then those of the equal ones.
/// Returns the numbers before the next tile, too.
fn places(larger: Tile<bool, 1>, equal: Tile<bool, 1>, before: Before) -> (Tile<i32, 1>, Tile<i32, 1>, Before) {
    let ones = larger.select(1, equal.select(1u32 << 16, 0));
    let earlier = ones.cumsum(0) - ones;
    let all = ones.sum(0).item();
    let next = (before.0 + (all & 0xffff).cast::<i32>(), before.1 + (all >> 16).cast::<i32>());
    ((earlier & 0xffff).cast::<i32>() + before.0, (earlier >> 16).cast::<i32>() + before.1, next)
}

fn long_rows<T: Number>(
    x: Array<T, 2>,
    values: ArrayMut<T, 2>,
    positions: ArrayMut<i32, 2>,
    (k, tile, order): (usize, usize, Selected),
) {
    let (row, tiles, numbers) = (ct::bid(0), x.num_tiles(1, [1, tile]), ct::arange(0..tile));
    let store = |places: Tile<i32, 1>, elements: Tile<T, 1>, columns: Tile<i32, 1>, mask: Tile<bool, 1>| {
        let options = ct::ScatterOptions::new().mask(mask);
        values.scatter_with((row, places), elements, options);
        positions.scatter_with((row, places), columns, options);
    };
    let load = |i: Scalar<i32>| {
        let elements = x.load((row, i), [1, tile]).reshape([tile]);
        let (keys, columns) = (f32::digits(elements.cast::<f32>(), 0, 32), numbers + i * tile);
        (elements, columns, Keys { keys, weights: None, regarded: columns.lt(x.extent(1)) })
    };
    let found = select_prefix(tiles, |i| load(i).2, |_| ct::scalar(k as u32));
    // Stores the results among some parts of the row, after the larger elements.
    let select = |parts, keys_of: &dyn Fn(Scalar<i32>) -> Keys, columns_of: &dyn Fn(Scalar<i32>) -> _, larger| {
        let (threshold, equal) = select_rest(parts, keys_of, found);
        ct::fold(..parts, (larger, k as i32 - equal.cast::<i32>()), |before, i| {
            let (Keys { keys, regarded, .. }, columns): (_, Tile<i32, 1>) = (keys_of(i), columns_of(i));
            let [larger, equal] = [keys.gt(threshold) & regarded, keys.eq(threshold) & regarded];
            let (of_larger, of_equal, next) = places(larger, equal, before);
            let options = ct::GatherOptions::new().mask(larger | equal);
            let elements = x.gather_with((row, columns), options);
            store(larger.select(of_larger, of_equal), elements, columns, larger | (equal & of_equal.lt(k as i32)));
            next
        });
    };
    let is_few = found.equal.le(CANDIDATES as u32);
    ct::if_then(is_few, || {
        // Elements with a larger prefix are results, those with an equal one are candidates.
        let [keys_of, columns_of] = [(); 2].map(|()| ct::scratch::<u32, 1>([CANDIDATES]));
        keys_of.store(0, ct::zeros([CANDIDATES]));
        columns_of.store(0, ct::zeros([CANDIDATES]));
        let (larger, count) = ct::fold(..tiles, (ct::scalar(0), ct::scalar(0)), |before, i| {
            let (elements, columns, Keys { keys, regarded, .. }) = load(i);
            let prefix = keys >> 20;
            let [larger, equal] = [prefix.gt(found.prefix) & regarded, prefix.eq(found.prefix) & regarded];
            let (of_larger, of_equal, next) = places(larger, equal, before);
            store(of_larger, elements, columns, larger);
            let options = ct::ScatterOptions::new().mask(equal);
            keys_of.scatter_with(of_equal, keys, options);
            columns_of.scatter_with(of_equal, columns.cast::<u32>(), options);
            next
        });
        let part = tile.min(CANDIDATES);
        let regarded = |i: Scalar<i32>| (ct::arange(0..part) + i * part).lt(count);
        let keys = |i| Keys { keys: keys_of.load(i, [part]), weights: None, regarded: regarded(i) };
        select(count.ceil_div(part as i32), &keys, &|i| columns_of.load(i, [part]).cast::<i32>(), larger);
    });
    ct::if_then(!is_few, || select(tiles, &|i| load(i).2, &|i| load(i).1, ct::scalar(0)));
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

/// Queues the `k` largest elements of each row of shape (rows, columns), and their positions:
/// results of shape (rows, k). A NaN is larger than all numbers, and -0 is below +0. Of equal
/// elements the first ones are selected.
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
/// [`ct::Error::Argument`] for results of other shapes, or of more columns than 4096 or the row;
/// those of the launch.
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
