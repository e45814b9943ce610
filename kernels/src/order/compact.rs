//! Compaction: the elements that a mask or a predicate selects, in their order, in one pass by
//! decoupled look-back.
//!
//! A block counts the selected elements of its tile, and adds the counts of all earlier tiles. The
//! elements are moved together in shared memory first, so that adjacent threads store adjacent
//! elements.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::look_back::{Combine, before, ticket, words_shape};
use super::prefix::tile;
use crate::check::require;
use crate::launch::Run;

/// A predicate: a function of tiles without captured variables.
pub type Predicate<T> = fn(Tile<T, 1>) -> Tile<bool, 1>;

/// Writes the selected elements of tile `mine`, and the number of all selected elements.
fn move_together<T: Number>(
    x: Tile<T, 1>,
    selected: Tile<bool, 1>,
    (y, count): (ArrayMut<T, 1>, ArrayMut<i32, 1>),
    (words, mine, end): (ArrayMut<u64, 2>, Scalar<i32>, Scalar<i32>),
) {
    let [tile] = x.shape();
    let numbers = ct::arange(0..tile);
    let ones = (numbers + mine * tile).lt(end).select(selected.cast::<i32>(), 0);
    let (places, own) = (ones.cumsum(0) - ones, ones.sum(0).item());
    let together = ct::scratch::<T, 1>([tile]);
    together.scatter_with(places, x, ct::ScatterOptions::new().mask(ones.eq(1)));
    let first = before::<i32>(words, mine, own, Combine::Sum);
    let elements = together.gather_with(numbers, ct::GatherOptions::new().mask(numbers.lt(own)));
    y.scatter_with(numbers + first, elements, ct::ScatterOptions::new().mask(numbers.lt(own)));
    let is_last = mine.eq(words.extent(1) - 2);
    count.scatter_with(ct::arange(0..1), ct::full([1], first + own), ct::ScatterOptions::new().mask(is_last.to_tile()));
}

fn by_mask<T: Number>(
    (x, mask): (Array<T, 1>, Array<u8, 1>),
    results: (ArrayMut<T, 1>, ArrayMut<i32, 1>),
    words: ArrayMut<u64, 2>,
    tile: usize,
) {
    let mine = ticket(words);
    let selected = mask.load(mine, [tile]).ne(0);
    move_together(x.load(mine, [tile]), selected, results, (words, mine, x.extent(0)));
}

fn by_predicate<T: Number>(
    x: Array<T, 1>,
    results: (ArrayMut<T, 1>, ArrayMut<i32, 1>),
    words: ArrayMut<u64, 2>,
    (predicate, tile): (Predicate<T>, usize),
) {
    let mine = ticket(words);
    let elements = x.load(mine, [tile]);
    move_together(elements, predicate(elements), results, (words, mine, x.extent(0)));
}

/// Tile, number of blocks, and words of the look-back.
fn prepared(stream: &Stream, n: usize, element: usize) -> ct::Result<(usize, usize, ct::DeviceArray<u64, 2>)> {
    let tile = tile(n, element.max(4), stream) / 2;
    let blocks = n.div_ceil(tile);
    Ok((tile, blocks, stream.device().zeros(words_shape::<i32>(blocks))?))
}

#[track_caller]
fn check(n: usize, y: usize, count: usize) -> ct::Result<()> {
    require(y >= n, || format!("compaction of {n} elements: the result has only {y} elements"))?;
    require(count == 1, || format!("compaction: the count has {count} elements and not one"))?;
    require(n < 1 << 31, || format!("compaction of {n} elements: there may be 2^31 - 1"))
}

/// Queues the compaction of the elements of shape (n) whose mask is not 0, in their order, and
/// their number, of shape (1). The result has room for n elements. The elements beyond the count
/// are not written.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (x, mask) = (device.array(&[0.5f32, 1.5, 2.5], [3])?, device.array(&[1u8, 0, 1], [3])?);
/// let (mut y, mut count) = (device.zeros([3])?, device.zeros([1])?);
/// let results = (y.view_mut(), count.view_mut());
/// cutlet_kernels::order::compact(&device.default_stream(), (x.view(), mask.view()), results)?;
/// assert_eq!((y.to_vec()?[..2].to_vec(), count.to_vec()?[0]), (vec![0.5, 2.5], 2));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of allocation and launch.
#[track_caller]
pub fn compact<T: Number>(
    stream: &Stream,
    (x, mask): (DeviceView<T, 1>, DeviceView<u8, 1>),
    (y, mut count): (DeviceViewMut<T, 1>, DeviceViewMut<i32, 1>),
) -> ct::Result<()> {
    let n = x.len();
    check(n, y.len(), count.len())?;
    require(mask.len() == n, || format!("compaction of {n} elements: the mask has {} elements", mask.len()))?;
    if n == 0 {
        return count.copy_from(&[0]);
    }
    let (tile, blocks, mut words) = prepared(stream, n, size_of::<T>())?;
    let launch = ct::Launch::new(blocks).stream(stream).hints(Hints::new().occupancy(2));
    launch.run(by_mask::<T>, ((x, mask), (y, count), &mut words, ct::Constant(tile)))
}

/// Queues the compaction of the elements of shape (n) for which a predicate holds, as [`compact`].
///
/// ```
/// let device = cutlet::Device::cpu();
/// let x = device.array(&[3, -1, 4, -1, 5], [5])?;
/// let (mut y, mut count) = (device.zeros([5])?, device.zeros([1])?);
/// let results = (y.view_mut(), count.view_mut());
/// cutlet_kernels::order::compact_if(&device.default_stream(), x.view(), results, |x| x.gt(0))?;
/// assert_eq!((y.to_vec()?[..3].to_vec(), count.to_vec()?[0]), (vec![3, 4, 5], 3));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit; those of allocation and launch.
#[track_caller]
pub fn compact_if<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 1>,
    (y, mut count): (DeviceViewMut<T, 1>, DeviceViewMut<i32, 1>),
    predicate: Predicate<T>,
) -> ct::Result<()> {
    let n = x.len();
    check(n, y.len(), count.len())?;
    if n == 0 {
        return count.copy_from(&[0]);
    }
    let (tile, blocks, mut words) = prepared(stream, n, size_of::<T>())?;
    let launch = ct::Launch::new(blocks).stream(stream).hints(Hints::new().occupancy(2));
    launch.run(by_predicate::<T>, (x, (y, count), &mut words, ct::Constant((predicate, tile))))
}
