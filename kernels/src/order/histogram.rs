//! Histograms: a block counts in shared memory, and adds its counts to those in memory.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Bytes of the elements of a tile.
const TILE_BYTES: usize = 16384;
/// Numbers of bins that are counted in shared memory: up to the first one, the compiler counts in
/// copies of the array for each lane. More than the last one are counted in memory.
const OWN: [usize; 2] = [2049, 8192];

fn clear(counts: ArrayMut<i32, 1>) {
    counts.store(ct::bid(0), ct::zeros([1024]));
}

/// Counts bins from 0 to `bins - 1`. Other bins are not counted.
fn count<T: ByteSized>(
    x: Array<T, 1>,
    counts: ArrayMut<i32, 1>,
    bins: usize,
    tile: usize,
    bin: impl Fn(Tile<T, 1>) -> Tile<i32, 1>,
) {
    let tiles = ct::range(ct::bid(0), x.num_tiles(0, [tile])).step(ct::num_blocks(0));
    let in_memory = !(OWN[0]..=OWN[1]).contains(&bins);
    let own = ct::scratch::<i32, 1>([if in_memory { 1 } else { bins }]);
    if !in_memory {
        own.store(0, ct::zeros([bins.next_power_of_two()]));
    }
    ct::fold(tiles, (), |(), i| {
        let places = bin(x.load(i, [tile]));
        // Bins outside of the array are not counted.
        let inside = (ct::arange(0..tile) + i * tile).lt(x.extent(0));
        let scope = if in_memory { ct::Scope::Device } else { ct::Scope::Block };
        let options = ct::AtomicOptions::new().relaxed(scope).mask(inside);
        let to = if in_memory { counts } else { own };
        to.atomic_add_with(places, 1, options);
    });
    if !in_memory {
        counts.atomic_store_add(0, own.load(0, [bins.next_power_of_two()]));
    }
}

fn of_integers<T: Int>(x: Array<T, 1>, counts: ArrayMut<i32, 1>, [bins, tile]: [usize; 2]) {
    count(x, counts, bins, tile, |x| x.cast_saturating::<i32>());
}

/// Bins of equal widths from `lower` on; `factor` is the number of bins over the whole width.
fn of_numbers(x: Array<f32, 1>, counts: ArrayMut<i32, 1>, range: [Scalar<f32>; 3], [bins, tile]: [usize; 2]) {
    let [lower, upper, factor] = range;
    count(x, counts, bins, tile, |x| {
        // A number below `upper` may round to the next bin.
        let place = ((x - lower) * factor).cast::<i32>().min(bins as i32 - 1);
        (x.ge(lower) & x.lt(upper)).select(place, -1)
    });
}

/// Clears the counts. Returns the number of blocks and the tile, unless there are no elements.
fn prepared(stream: &Stream, n: usize, element: usize, counts: DeviceViewMut<i32, 1>) -> ct::Result<(usize, usize)> {
    let tile = TILE_BYTES / element;
    ct::Launch::new(counts.len().div_ceil(1024)).stream(stream).run(clear, (counts,))?;
    Ok(((2 * num_multiprocessors(stream)).min(n.div_ceil(tile)), tile))
}

/// Queues the counts of the integers from 0 to the number of counts. Other integers are not
/// counted.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (x, mut counts) = (device.array(&[0u8, 2, 2, 9], [4])?, device.zeros([3])?);
/// cutlet_kernels::order::histogram(&device.default_stream(), x.view(), counts.view_mut())?;
/// assert_eq!(counts.to_vec()?, [1, 0, 2]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for 2^31 elements; those of the launch.
#[track_caller]
pub fn histogram<T: Int>(stream: &Stream, x: DeviceView<T, 1>, mut counts: DeviceViewMut<i32, 1>) -> ct::Result<()> {
    let (n, bins) = (x.len(), counts.len());
    require(n < 1 << 31, || format!("histogram of {n} elements: there may be 2^31 - 1"))?;
    if bins == 0 {
        return Ok(());
    }
    let (blocks, tile) = prepared(stream, n, size_of::<T>(), counts.reborrow())?;
    if n == 0 {
        return Ok(());
    }
    ct::Launch::new(blocks).stream(stream).run(of_integers::<T>, (x, counts, ct::Constant([bins, tile])))
}

/// Queues the counts of numbers in bins of equal widths from `lower` to before `upper`. Other
/// numbers and NaNs are not counted.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (x, mut counts) = (device.array(&[0.1f32, 0.9, 0.6, 1.0], [4])?, device.zeros([2])?);
/// cutlet_kernels::order::histogram_even(&device.default_stream(), x.view(), 0.0..1.0, counts.view_mut())?;
/// assert_eq!(counts.to_vec()?, [1, 2]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for an empty range or 2^31 elements; those of the launch.
#[track_caller]
pub fn histogram_even(
    stream: &Stream,
    x: DeviceView<f32, 1>,
    range: std::ops::Range<f32>,
    mut counts: DeviceViewMut<i32, 1>,
) -> ct::Result<()> {
    let (n, bins) = (x.len(), counts.len());
    require(range.start < range.end, || format!("histogram of numbers from {} to {}", range.start, range.end))?;
    require(n < 1 << 31, || format!("histogram of {n} elements: there may be 2^31 - 1"))?;
    if bins == 0 {
        return Ok(());
    }
    let (blocks, tile) = prepared(stream, n, 4, counts.reborrow())?;
    if n == 0 {
        return Ok(());
    }
    let factor = (bins as f64 / (f64::from(range.end) - f64::from(range.start))) as f32;
    let numbers = [range.start, range.end, factor];
    ct::Launch::new(blocks).stream(stream).run(of_numbers, (x, counts, numbers, ct::Constant([bins, tile])))
}
