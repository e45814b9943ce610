//! Prefix sums and extrema of an array in one pass, by decoupled look-back.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::look_back::{Combine, Scanned, before, ticket, words_shape};
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Elements that a result contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// All up to the element itself.
    Inclusive,
    /// All before the element. The first result is the identity: 0, or the least or the largest
    /// value.
    Exclusive,
}

/// Form of a scan, and its tile.
type Form = (Combine, Prefix, usize);

fn scan<T: Scanned>(x: Array<T, 1>, y: ArrayMut<T, 1>, words: ArrayMut<u64, 2>, (op, prefix, tile): Form) {
    let mine = ticket(words);
    let identity = T::identity(op);
    let loaded = x.load(mine, [tile]);
    let x = match op {
        Combine::Sum => loaded,
        // Zeros beyond the end are no elements.
        _ => (ct::arange(0..tile) + mine * tile).lt(x.extent(0)).select(loaded, identity),
    };
    let (own, options) = match op {
        Combine::Sum => (x.sum(0), ct::ScanOptions::new()),
        Combine::Max => (x.reduce_max(0), ct::ScanOptions::new()),
        Combine::Min => (x.reduce_min(0), ct::ScanOptions::new()),
    };
    let options = if prefix == Prefix::Exclusive { options.exclusive() } else { options };
    let sum = before(words, mine, own.item(), op);
    let all = match op {
        Combine::Sum => x.cumsum_with(0, options) + sum,
        Combine::Max => x.cummax_with(0, options).max(sum),
        Combine::Min => x.cummin_with(0, options).min(sum),
    };
    y.store(mine, all);
}

/// Elements of a tile: fewer where the tiles would not occupy all multiprocessors.
pub fn tile(n: usize, element: usize, stream: &Stream) -> usize {
    let most = if element > 4 { 4096 } else { 16384 };
    (n / (2 * num_multiprocessors(stream)).max(1)).next_power_of_two().clamp(1024, most)
}

/// Queues the sums, or the extrema, of all first elements of an array of shape (n): u32, i32, f32,
/// u64, i64 or f64. The grouping of the sums of floats depends on the order of the blocks.
///
/// ```
/// use cutlet_kernels::order::{Combine, Prefix, prefix};
///
/// let device = cutlet::Device::cpu();
/// let (x, mut y) = (device.array(&[3, 1, 4, 1], [4])?, device.zeros([4])?);
/// prefix(&device.default_stream(), x.view(), y.view_mut(), (Combine::Sum, Prefix::Exclusive))?;
/// assert_eq!(y.to_vec()?, [0, 3, 4, 8]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or 2^31 elements; those of allocation and launch.
#[track_caller]
pub fn prefix<T: Scanned>(
    stream: &Stream,
    x: DeviceView<T, 1>,
    y: DeviceViewMut<T, 1>,
    (op, form): (Combine, Prefix),
) -> ct::Result<()> {
    let n = x.len();
    require(y.len() == n, || format!("prefix of {n} elements: the result has {} elements", y.len()))?;
    require(n < 1 << 31, || format!("prefix of {n} elements: there may be 2^31 - 1"))?;
    if n == 0 {
        return Ok(());
    }
    let tile = tile(n, size_of::<T>(), stream);
    let blocks = n.div_ceil(tile);
    let mut words = stream.device().zeros(words_shape::<T>(blocks))?;
    let launch =
        ct::Launch::new(blocks).stream(stream).hints(Hints::new().occupancy(if size_of::<T>() > 4 { 3 } else { 2 }));
    launch.run(scan::<T>, (x, y, &mut words, ct::Constant((op, form, tile))))
}
