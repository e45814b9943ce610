//! Sort of segments of an array, each apart.
//!
//! A segment has a block. A segment that fits a tile is sorted in registers. A longer one is sorted
//! by radix passes over digits of 8 bits: a pass counts the digits, and then moves tile after tile
//! to the places after all earlier equal digits.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::key::{Direction, Key};
use crate::check::require;
use crate::launch::Run;

const BITS: usize = 8;
const BINS: usize = 1 << BITS;
/// Least and most elements of a tile.
const TILES: [usize; 2] = [64, 2048];

/// Input, result and spare memory of keys or of values.
type Moved<T> = (Array<T, 1>, ArrayMut<T, 1>, ArrayMut<T, 1>);

/// The same of values, if there are some.
type MovedValues<V> = (Option<Array<V, 1>>, Option<ArrayMut<V, 1>>, Option<ArrayMut<V, 1>>);

/// Source and destination of a pass: the last one writes to the result.
fn ends<T: ByteSized>((from, to, spare): Moved<T>, pass: usize) -> (Array<T, 1>, ArrayMut<T, 1>) {
    match pass {
        0 => (from, spare),
        _ if pass.is_multiple_of(2) => (to.as_array(), spare),
        _ => (spare.as_array(), to),
    }
}

/// Sorts a segment in registers.
fn short<K: Key, V: Number>(
    (keys, sorted, _): Moved<K>,
    values: Option<Moved<V>>,
    [begin, end]: [Scalar<i32>; 2],
    (tile, direction): (usize, Direction),
) {
    let last = if direction == Direction::Ascending { K::LAST } else { K::FIRST };
    let inside = ct::arange(0..tile).lt(end - begin);
    let elements = inside.select(keys.slice(0, begin..end).load(0, [tile]), last);
    let to = sorted.slice(0, begin..end);
    let Some((values, sorted_values, _)) = values else {
        to.store(0, if direction == Direction::Ascending { elements.sort(0) } else { elements.sort_descending(0) });
        return;
    };
    let places = match direction {
        Direction::Ascending => elements.argsort(0),
        Direction::Descending => elements.argsort_descending(0),
    };
    to.store(0, elements.gather(0, places));
    let elements = values.slice(0, begin..end).load(0, [tile]);
    sorted_values.slice(0, begin..end).store(0, elements.gather(0, places));
}

/// Sorts a segment by passes through memory.
fn long<K: Key, V: Number>(
    keys: Moved<K>,
    values: Option<Moved<V>>,
    [begin, end]: [Scalar<i32>; 2],
    (tile, direction): (usize, Direction),
) {
    let tiles = (end - begin).ceil_div(tile as i32);
    let numbers = ct::arange(0..tile);
    for pass in 0..8 * size_of::<K>() / BITS {
        let (from, to) = ends(keys, pass);
        let (from, to) = (from.slice(0, begin..end), to.slice(0, begin..end));
        let load = |i: Scalar<i32>| {
            let elements = from.load(i, [tile]);
            let digits = K::digits(elements, pass * BITS, BITS).cast::<i32>();
            let digits = if direction == Direction::Ascending { digits } else { BINS as i32 - 1 - digits };
            let inside = (numbers + i * tile).lt(end - begin);
            // Elements beyond the end are not counted.
            (elements, inside.select(digits, BINS as i32), inside)
        };
        let counts = ct::scratch::<i32, 1>([BINS]);
        counts.store(0, ct::zeros([BINS]));
        ct::fold(..tiles, (), |(), i| {
            let (_, digits, inside) = load(i);
            let options = ct::AtomicOptions::new().relaxed(ct::Scope::Block).mask(inside);
            counts.atomic_add_with(digits, 1, options);
        });
        let starts = counts.load(0, [BINS]).cumsum_with(0, ct::ScanOptions::new().exclusive());
        ct::fold(..tiles, starts, |starts: Tile<i32, 1>, i| {
            let (elements, digits, inside) = load(i);
            let (ranks, counts) = digits.ranks(BINS);
            let places = starts.gather(0, digits) + ranks;
            let options = ct::ScatterOptions::new().mask(inside);
            to.scatter_with(places, elements, options);
            if let Some(values) = values {
                let (from, to) = ends(values, pass);
                to.slice(0, begin..end).scatter_with(places, from.slice(0, begin..end).load(i, [tile]), options);
            }
            starts + counts
        });
    }
}

fn segments<K: Key, V: Number>(
    keys: Moved<K>,
    (values, sorted_values, spare_values): MovedValues<V>,
    offsets: Array<i32, 1>,
    form: (usize, Direction),
) {
    let segment = ct::bid(0);
    let range = [offsets.load_scalar(segment), offsets.load_scalar(segment + 1)];
    let values = values.zip(sorted_values).zip(spare_values).map(|((from, to), spare)| (from, to, spare));
    let fits = (range[1] - range[0]).le(form.0 as i32);
    ct::if_then(fits, || short(keys, values, range, form));
    ct::if_then(!fits, || long(keys, values, range, form));
}

/// Returns a tile of twice the mean length.
fn tile(keys: usize, segments: usize) -> usize {
    (2 * keys / segments).next_power_of_two().clamp(TILES[0], TILES[1])
}

/// Eight keys are in the registers of a thread.
fn launch(stream: &Stream, segments: usize, tile: usize) -> ct::Launch<'_> {
    let hints = Hints::new().num_warps((tile / 256).max(1) as u32);
    ct::Launch::new(segments).stream(stream).hints(hints)
}

#[track_caller]
fn check(keys: usize, others: &[(&str, usize)], offsets: usize) -> ct::Result<()> {
    for (name, len) in others {
        require(*len == keys, || format!("segmented sort of {keys} keys: {name} have {len} elements"))?;
    }
    require(keys < 1 << 31, || format!("segmented sort of {keys} keys: there may be 2^31 - 1"))?;
    require(offsets > 0, || "segmented sort: n segments have n + 1 offsets".to_owned())
}

/// Queues the sort of each segment of keys of shape (n). Segment i begins at `offsets[i]` and ends
/// before `offsets[i + 1]`, in ascending order from 0 to n. The order is that of
/// [`sort_keys`](super::sort_keys); bits of NaNs may change. A segment is the work of one
/// multiprocessor: sort few segments of millions of keys one by one.
///
/// ```
/// use cutlet_kernels::order::{Direction, segmented_sort_keys};
///
/// let device = cutlet::Device::cpu();
/// let (keys, offsets) = (device.array(&[3u32, 1, 2, 9, 8], [5])?, device.array(&[0, 3, 5], [3])?);
/// let mut sorted = device.zeros([5])?;
/// let stream = device.default_stream();
/// segmented_sort_keys(&stream, keys.view(), offsets.view(), sorted.view_mut(), Direction::Ascending)?;
/// assert_eq!(sorted.to_vec()?, [1, 2, 3, 8, 9]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or no offset; those of allocation and launch.
#[track_caller]
pub fn segmented_sort_keys<K: Key>(
    stream: &Stream,
    keys: DeviceView<K, 1>,
    offsets: DeviceView<i32, 1>,
    sorted: DeviceViewMut<K, 1>,
    direction: Direction,
) -> ct::Result<()> {
    check(keys.len(), &[("sorted keys", sorted.len())], offsets.len())?;
    let count = offsets.len() - 1;
    if keys.len() * count == 0 {
        return Ok(());
    }
    let mut spare = stream.device().zeros(keys.shape())?;
    let tile = tile(keys.len(), count);
    let form = ct::Constant((tile, direction));
    type NoValues<'a> =
        (Option<DeviceView<'a, u32, 1>>, Option<DeviceViewMut<'a, u32, 1>>, Option<DeviceViewMut<'a, u32, 1>>);
    let none: NoValues = (None, None, None);
    launch(stream, count, tile).run(segments::<K, u32>, ((keys, sorted, &mut spare), none, offsets, form))
}

/// Queues the sort of each segment of keys with their values, as [`segmented_sort_keys`]. Values of
/// equal keys remain in their order.
///
/// ```
/// use cutlet_kernels::order::{Direction, segmented_sort_pairs};
///
/// let device = cutlet::Device::cpu();
/// let (keys, values) = (device.array(&[3u32, 1, 9], [3])?, device.array(&[0.5f32, 1.5, 2.5], [3])?);
/// let (offsets, mut k, mut v) = (device.array(&[0, 2, 3], [3])?, device.zeros([3])?, device.zeros([3])?);
/// let (from, to) = ((keys.view(), values.view()), (k.view_mut(), v.view_mut()));
/// segmented_sort_pairs(&device.default_stream(), from, offsets.view(), to, Direction::Ascending)?;
/// assert_eq!(v.to_vec()?, [1.5, 0.5, 2.5]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or no offset; those of allocation and launch.
#[track_caller]
pub fn segmented_sort_pairs<K: Key, V: Number>(
    stream: &Stream,
    (keys, values): (DeviceView<K, 1>, DeviceView<V, 1>),
    offsets: DeviceView<i32, 1>,
    (sorted, sorted_values): (DeviceViewMut<K, 1>, DeviceViewMut<V, 1>),
    direction: Direction,
) -> ct::Result<()> {
    let lens = [("values", values.len()), ("sorted keys", sorted.len()), ("sorted values", sorted_values.len())];
    check(keys.len(), &lens, offsets.len())?;
    let count = offsets.len() - 1;
    if keys.len() * count == 0 {
        return Ok(());
    }
    let device = stream.device();
    let (mut spare, mut spare_values) = (device.zeros(keys.shape())?, device.zeros(keys.shape())?);
    let tile = tile(keys.len(), count);
    let form = ct::Constant((tile, direction));
    let all = (Some(values), Some(sorted_values), Some(spare_values.view_mut()));
    launch(stream, count, tile).run(segments::<K, V>, ((keys, sorted, &mut spare), all, offsets, form))
}
