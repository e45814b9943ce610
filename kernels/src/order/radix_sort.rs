//! Radix sort of keys, or of keys with values (Adinets and Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort
//! for GPUs", 2022).
//!
//! 1. One kernel counts the values of all digits of 8 bits.
//! 2. One block turns the counts into the position of the first key of each value.
//! 3. A pass a digit, from the lowest one on. A block takes the next tile by a ticket, ranks its keys, publishes its
//!    counts, and adds up those of earlier tiles (decoupled look-back). Keys and values are sorted in shared memory first, so
//!    that adjacent threads store adjacent elements.
//!
//! A block waits only for tiles with earlier tickets, whose blocks have begun. Arrays have up to 2^30 - 1 elements.

use cutlet as ct;
use cutlet::layout::{Modes, local, spatial};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use super::key::{Direction, Key};
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};

/// Bits of a digit.
const BITS: usize = 8;
/// Values of a digit.
const BINS: usize = 1 << BITS;
/// States of a count in its two upper bits. Other words are unknown yet.
const OWN: u32 = 1 << 30;
const ALL: u32 = 2 << 30;
/// Tiles that one step of the look-back reads.
const WINDOW: usize = 4;

/// Tiles of a sort.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortPlan {
    pub warps: usize,
    /// Elements of a thread.
    pub elements: usize,
    /// Tile blocks of a multiprocessor.
    pub blocks: u32,
}

impl SortPlan {
    /// Sixteen keys of 4 bytes, or eight of 8 bytes or with values, are in the registers of a thread.
    fn new(key: usize, has_values: bool) -> SortPlan {
        match (key, has_values) {
            (..=4, false) => SortPlan { warps: 8, elements: 16, blocks: 3 },
            (..=4, true) => SortPlan { warps: 16, elements: 8, blocks: 2 },
            (_, false) => SortPlan { warps: 8, elements: 8, blocks: 3 },
            (_, true) => SortPlan { warps: 8, elements: 8, blocks: 2 },
        }
    }
}

/// A plan with the direction and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    tile: usize,
    warps: usize,
    blocks: u32,
    /// Layouts are chosen for the code of this device.
    layouts: bool,
    direction: Direction,
}

impl Plan {
    fn new(SortPlan { warps, elements, blocks }: SortPlan, stream: &Stream, direction: Direction) -> Plan {
        Plan { tile: 32 * warps * elements, warps, blocks, layouts: target(stream).is_some(), direction }
    }

    fn hints(self) -> Hints {
        Hints::new().num_warps(self.warps as u32).occupancy(self.blocks)
    }

    /// A warp has adjacent elements, 32 of them in a register: the layout of ranks.
    fn by_warp<T: ByteSized>(self, tile: Tile<T, 1>) -> Tile<T, 1> {
        self.with(tile, spatial([self.warps as i64]) * local([(self.tile / self.warps / 32) as i64]) * spatial([32]))
    }

    /// Adjacent threads have adjacent elements.
    fn by_thread<T: ByteSized>(self, tile: Tile<T, 1>) -> Tile<T, 1> {
        let threads = 32 * self.warps as i64;
        self.with(tile, local([self.tile as i64 / threads]) * spatial([threads]))
    }

    fn with<T: ByteSized>(self, tile: Tile<T, 1>, layout: Modes) -> Tile<T, 1> {
        if self.layouts { tile.with_layout(layout) } else { tile }
    }

    /// Returns the digits of a pass in the order of the direction.
    fn digits<K: Key>(self, keys: Tile<K, 1>, pass: usize) -> Tile<i32, 1> {
        let digits = K::digits(keys, pass * BITS, BITS).cast::<i32>();
        if self.direction == Direction::Descending { (BINS as i32 - 1) - digits } else { digits }
    }
}

/// Counts the values of all digits in shared memory, and adds them up.
fn count<K: Key>(keys: Array<K, 1>, counts: ArrayMut<i32, 2>, plan: Plan) {
    let passes = 8 * size_of::<K>() / BITS;
    let own = ct::scratch::<i32, 1>([passes * BINS]);
    own.store(0, ct::zeros([passes * BINS]));
    let tiles = ct::range(ct::bid(0), keys.num_tiles(0, [plan.tile])).step(ct::num_blocks(0));
    ct::fold(tiles, (), |(), i| {
        let inside = (ct::arange(0..plan.tile) + i * plan.tile).lt(keys.extent(0));
        let options = ct::AtomicOptions::new().relaxed(ct::Scope::Block).mask(inside);
        let tile = keys.load(i, [plan.tile]);
        for pass in 0..passes {
            own.atomic_add_with(plan.digits(tile, pass) + (pass * BINS) as i32, 1, options);
        }
    });
    counts.atomic_store_add((0, 0), own.load(0, [passes * BINS]).reshape([passes, BINS]));
}

/// Replaces counts by the sums of those before in a row.
fn starts(counts: ArrayMut<i32, 2>, passes: usize) {
    let all = counts.load((0, 0), [passes, BINS]);
    counts.store((0, 0), all.cumsum_with(1, ct::ScanOptions::new().exclusive()));
}

/// Arrays of a pass: starts and tickets of all passes; counts of tiles of this pass, and of the next one to be cleared.
type State = (Array<i32, 2>, ArrayMut<i32, 1>, ArrayMut<u32, 2>, ArrayMut<u32, 2>);

/// Sums of the counts of all tiles before `mine`, from the starts on.
fn look_back(tiles: ArrayMut<u32, 2>, start: Tile<i32, 1>, mine: Scalar<i32>) -> Tile<i32, 1> {
    let options = ct::GatherOptions::<u32, 1>::new().relaxed(ct::Scope::Device).padding(ALL);
    let bins = ct::arange(0..BINS);
    let found = bins.lt(0);
    let state = (mine - 1, start, found);
    let (_, sum, _) = ct::loop_with_control(state, |(last, sum, found): (_, Tile<i32, 1>, _), control| {
        let words: Vec<_> = (0..WINDOW).map(|back| tiles.gather_with((last - back, bins), options)).collect();
        let (mut next, mut all, mut unknown) = (sum, found, bins.lt(0));
        for word in words {
            unknown = unknown | (!all & word.lt(OWN));
            next = ct::select(all, next, next + (word & (OWN - 1)).cast::<i32>());
            all = all | word.ge(ALL);
        }
        // 0: to be read again. 1: to be continued. 2: found.
        let progress = (!unknown).select(all.cast::<i32>() + 1, 0).reduce_min(0).item();
        control.continue_if(progress.eq(0), (last, sum, found));
        control.break_if(progress.eq(2), (last, next, all));
        (last - WINDOW, next, all)
    });
    sum
}

/// A pass over a digit. Values are positions if there is no array of them.
fn pass<K: Key, V: Number>(
    (keys, sorted): (Array<K, 1>, ArrayMut<K, 1>),
    (values, sorted_values): (Option<Array<V, 1>>, Option<ArrayMut<V, 1>>),
    (starts, tickets, tiles, next): State,
    (plan, number): (Plan, usize),
) {
    let tile = plan.tile;
    let mine = tickets.entry(number as i32).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    next.store((mine, 0), ct::zeros([1, BINS]));
    let elements = plan.by_warp(keys.load(mine, [tile]));
    let left = keys.extent(0) - mine * tile;
    let numbers = ct::arange(0..tile);
    // Elements beyond the end are the last ones of their tile.
    let digits = ct::select(numbers.lt(left), plan.digits(elements, number), BINS as i32 - 1);
    let (ranks, counts) = digits.ranks(BINS);
    let publish = |words: Tile<u32, 1>| {
        tiles.scatter_with((mine, ct::arange(0..BINS)), words, ct::ScatterOptions::new().relaxed(ct::Scope::Device));
    };
    // The first tile begins at the starts, and knows all.
    let bins = ct::arange(0..BINS);
    let is_first = (bins * 0 + mine).eq(0);
    let start = starts.gather_with((number as i32, bins), ct::GatherOptions::new().mask(is_first));
    publish((start + counts).cast::<u32>() | is_first.select(ALL, OWN));
    let before = counts.cumsum_with(0, ct::ScanOptions::new().exclusive());
    let places = ranks + before.gather(0, digits);
    let own = ct::scratch::<K, 1>([tile]);
    own.scatter(places, elements);
    let own_values = sorted_values.map(|_| {
        let own = ct::scratch::<V, 1>([tile]);
        let values = match values {
            Some(values) => plan.by_warp(values.load(mine, [tile])),
            None => (numbers + mine * tile).cast::<V>(),
        };
        own.scatter(places, values);
        own
    });
    let sums = look_back(tiles, start, mine);
    publish((sums + counts).cast::<u32>() | ALL);
    let elements = plan.by_thread(own.load(0, [tile]));
    let places = (sums - before).gather(0, plan.digits(elements, number)) + numbers;
    let options = ct::ScatterOptions::new().mask(numbers.lt(left));
    sorted.scatter_with(places, elements, options);
    if let (Some(own), Some(values)) = (own_values, sorted_values) {
        values.scatter_with(places, plan.by_thread(own.load(0, [tile])), options);
    }
}

/// Input and output of keys, and of values.
type Pair<'a, T> = (DeviceView<'a, T, 1>, DeviceViewMut<'a, T, 1>);
type Values<'a, V> = (Option<DeviceView<'a, V, 1>>, Option<DeviceViewMut<'a, V, 1>>);

fn sort<K: Key, V: Number>(
    stream: &Stream,
    (keys, mut sorted): Pair<K>,
    (values, mut sorted_values): Values<V>,
    (direction, plan): (Direction, SortPlan),
) -> ct::Result<()> {
    let n = keys.len();
    if n == 0 {
        return Ok(());
    }
    let (plan, device, passes) = (Plan::new(plan, stream, direction), stream.device(), size_of::<K>());
    let count_of_tiles = n.div_ceil(plan.tile);
    let (mut counts, mut tickets) = (device.zeros([passes, BINS])?, device.zeros([passes])?);
    let mut tiles = [device.zeros([count_of_tiles, BINS])?, device.zeros([count_of_tiles, BINS])?];
    let mut spare = device.zeros::<K, 1>([n])?;
    let mut spare_values = sorted_values.as_ref().map(|_| device.zeros::<V, 1>([n])).transpose()?;
    let blocks = (2 * num_multiprocessors(stream)).min(count_of_tiles);
    let launch = |grid: usize| ct::Launch::new(grid).stream(stream).hints(plan.hints());
    launch(blocks).run(count::<K>, (keys, &mut counts, ct::Constant(plan)))?;
    ct::Launch::new(1).stream(stream).run(starts, (&mut counts, ct::Constant(passes)))?;
    for number in 0..passes {
        let [this, next] = &mut tiles;
        let state = (&counts, &mut tickets, this.view_mut(), next.view_mut());
        // The number of passes is even: the last one writes to the result.
        let (from, to) = match number % 2 {
            0 if number == 0 => (keys, spare.view_mut()),
            0 => (sorted.as_view(), spare.view_mut()),
            _ => (spare.view(), sorted.reborrow()),
        };
        let all = match (number, &mut spare_values, &mut sorted_values) {
            (0, Some(spare), _) => (values, Some(spare.view_mut())),
            (_, Some(spare), Some(sorted)) if number % 2 == 0 => (Some(sorted.as_view()), Some(spare.view_mut())),
            (_, Some(spare), Some(sorted)) => (Some(spare.view()), Some(sorted.reborrow())),
            _ => (None, None),
        };
        launch(count_of_tiles).run(pass::<K, V>, ((from, to), all, state, ct::Constant((plan, number))))?;
        tiles.swap(0, 1);
    }
    Ok(())
}

/// Returns an error unless all arrays have as many elements as the keys, fewer than 2^30.
#[track_caller]
fn check(keys: usize, others: &[(&str, usize)]) -> ct::Result<()> {
    for (name, len) in others {
        require(*len == keys, || format!("radix sort of {keys} keys: {name} has {len} elements"))?;
    }
    require(keys < 1 << 30, || format!("radix sort of {keys} keys: at most 2^30 - 1 keys can be sorted"))
}

/// Queues the sort of keys of shape (n): u32, i32, f32, u64, i64 or f64. -0 is before +0, and NaNs are after all numbers.
///
/// ```
/// use cutlet_kernels::order::{Direction, sort_keys};
///
/// let device = cutlet::Device::cpu();
/// let (x, mut y) = (device.array(&[3.0f32, -1.0, 0.0, -0.0], [4])?, device.zeros([4])?);
/// sort_keys(&device.default_stream(), x.view(), y.view_mut(), Direction::Ascending)?;
/// assert_eq!(y.to_vec()?, [-1.0, 0.0, 0.0, 3.0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or 2^30 keys; those of allocation and launch.
#[track_caller]
pub fn sort_keys<K: Key>(
    stream: &Stream,
    keys: DeviceView<K, 1>,
    sorted: DeviceViewMut<K, 1>,
    direction: Direction,
) -> ct::Result<()> {
    sort_keys_by(stream, keys, sorted, (direction, SortPlan::new(size_of::<K>(), false)))
}

/// [`sort_keys`] by a plan.
#[doc(hidden)]
#[track_caller]
pub fn sort_keys_by<K: Key>(
    stream: &Stream,
    keys: DeviceView<K, 1>,
    sorted: DeviceViewMut<K, 1>,
    order: (Direction, SortPlan),
) -> ct::Result<()> {
    check(keys.len(), &[("the result", sorted.len())])?;
    sort::<K, u32>(stream, (keys, sorted), (None, None), order)
}

/// Queues the sort of keys and their values, each of shape (n). Values of equal keys remain in their order.
///
/// ```
/// use cutlet_kernels::order::{Direction, sort_pairs};
///
/// let device = cutlet::Device::cpu();
/// let (keys, values) = (device.array(&[2u32, 7, 2], [3])?, device.array(&[0.5f32, 1.5, 2.5], [3])?);
/// let (mut k, mut v) = (device.zeros([3])?, device.zeros([3])?);
/// let (from, to) = ((keys.view(), values.view()), (k.view_mut(), v.view_mut()));
/// sort_pairs(&device.default_stream(), from, to, Direction::Descending)?;
/// assert_eq!(v.to_vec()?, [1.5, 0.5, 2.5]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or 2^30 keys; those of allocation and launch.
#[track_caller]
pub fn sort_pairs<K: Key, V: Number>(
    stream: &Stream,
    (keys, values): (DeviceView<K, 1>, DeviceView<V, 1>),
    (sorted, sorted_values): (DeviceViewMut<K, 1>, DeviceViewMut<V, 1>),
    direction: Direction,
) -> ct::Result<()> {
    let lens = [("values", values.len()), ("sorted keys", sorted.len()), ("sorted values", sorted_values.len())];
    check(keys.len(), &lens)?;
    sort(stream, (keys, sorted), (Some(values), Some(sorted_values)), (direction, SortPlan::new(size_of::<K>(), true)))
}

/// Queues the sort of keys of shape (n), and the positions of the sorted keys. Equal keys remain in their order.
///
/// ```
/// use cutlet_kernels::order::{Direction, argsort};
///
/// let device = cutlet::Device::cpu();
/// let keys = device.array(&[30i64, 10, 20], [3])?;
/// let (mut sorted, mut positions) = (device.zeros([3])?, device.zeros([3])?);
/// argsort(&device.default_stream(), keys.view(), (sorted.view_mut(), positions.view_mut()), Direction::Ascending)?;
/// assert_eq!(positions.to_vec()?, [1, 2, 0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or 2^30 keys; those of allocation and launch.
#[track_caller]
pub fn argsort<K: Key>(
    stream: &Stream,
    keys: DeviceView<K, 1>,
    (sorted, positions): (DeviceViewMut<K, 1>, DeviceViewMut<i32, 1>),
    direction: Direction,
) -> ct::Result<()> {
    check(keys.len(), &[("sorted keys", sorted.len()), ("positions", positions.len())])?;
    sort(stream, (keys, sorted), (None, Some(positions)), (direction, SortPlan::new(size_of::<K>(), true)))
}
