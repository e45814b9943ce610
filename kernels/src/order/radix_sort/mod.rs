//! Radix sort of keys, or of keys with values (Adinets and Merrill, "Onesweep: A Faster Least
//! Significant Digit Radix Sort for GPUs", 2022).
//!
//! 1. One kernel counts the values of all digits of 8 bits.
//! 2. One block turns the counts into the position of the first key of each value.
//! 3. A pass a digit, from the lowest one on. A block takes the next tile by a ticket, ranks its
//!    keys, publishes its counts, and adds up those of earlier tiles (decoupled look-back). Keys
//!    and values are sorted in shared memory first, so that adjacent threads store adjacent
//!    elements.
//!
//! A block waits only for tiles with earlier tickets, whose blocks have begun. Arrays have up to
//! 2^30 - 1 elements.

mod kernels;

use cutlet as ct;
use cutlet::element::Number;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};

use super::key::{Direction, Key};
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};
use kernels::{BINS, Plan, Tiles};

/// Input and output of keys, and of values.
type Pair<'a, T> = (DeviceView<'a, T, 1>, DeviceViewMut<'a, T, 1>);
type Values<'a, V> = (Option<DeviceView<'a, V, 1>>, Option<DeviceViewMut<'a, V, 1>>);

/// Counts of the values of digits. Each sort restores their initial values.
#[derive(Debug)]
struct Counts {
    /// Zeros between sorts.
    counts: DeviceArray<i32, 2>,
    tickets: DeviceArray<i32, 1>,
    starts: DeviceArray<i32, 2>,
    /// Counts of tiles, double-buffered between passes. Those of the first one are zeros between
    /// sorts.
    tiles: [DeviceArray<u32, 2>; 2],
}

/// The memory of sorts of n keys, with or without values: for many sorts, or for a graph.
///
/// ```
/// use cutlet_kernels::order::{Direction, RadixSort};
///
/// let device = cutlet::Device::cpu();
/// let mut sort = RadixSort::<u32>::new(device, 3)?;
/// let (x, mut y) = (device.array(&[5u32, 1, 3], [3])?, device.zeros([3])?);
/// sort.keys(&device.default_stream(), x.view(), y.view_mut(), Direction::Descending)?;
/// assert_eq!(y.to_vec()?, [5, 3, 1]);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Debug)]
pub struct RadixSort<K: Key, V: Number = i32> {
    device: Device,
    n: usize,
    spare: DeviceArray<K, 1>,
    spare_values: DeviceArray<V, 1>,
    /// None after an error.
    counts: Option<Counts>,
}

impl<K: Key, V: Number> RadixSort<K, V> {
    /// Allocates the memory of sorts of this many keys.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for 2^30 keys, and that of the allocation.
    #[track_caller]
    pub fn new(device: Device, n: usize) -> ct::Result<RadixSort<K, V>> {
        RadixSort::of(device, n, 0)
    }

    /// Allocates the memory of sorts with values, too.
    ///
    /// # Errors
    /// As [`RadixSort::new`].
    #[track_caller]
    pub fn with_values(device: Device, n: usize) -> ct::Result<RadixSort<K, V>> {
        RadixSort::of(device, n, n)
    }

    #[track_caller]
    fn of(device: Device, n: usize, values: usize) -> ct::Result<RadixSort<K, V>> {
        require(n < 1 << 30, || format!("radix sort of {n} keys: at most 2^30 - 1 keys can be sorted"))?;
        let (spare, spare_values) = (device.zeros([n])?, device.zeros([values])?);
        let mut sort = RadixSort { device, n, spare, spare_values, counts: None };
        sort.counts = Some(sort.new_counts()?);
        Ok(sort)
    }

    /// Queues the sort of keys, as [`sort_keys`].
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of keys; those of the launch.
    #[track_caller]
    pub fn keys(
        &mut self,
        stream: &Stream,
        keys: DeviceView<K, 1>,
        sorted: DeviceViewMut<K, 1>,
        direction: Direction,
    ) -> ct::Result<()> {
        self.check(&[("the array of keys", keys.len()), ("the result", sorted.len())])?;
        self.sort(stream, (keys, sorted), (None, None), direction)
    }

    /// Queues the sort of keys and values, as [`sort_pairs`].
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of keys or values; those of the launch.
    #[track_caller]
    pub fn pairs(
        &mut self,
        stream: &Stream,
        (keys, values): (DeviceView<K, 1>, DeviceView<V, 1>),
        (sorted, sorted_values): (DeviceViewMut<K, 1>, DeviceViewMut<V, 1>),
        direction: Direction,
    ) -> ct::Result<()> {
        let inputs = [("the array of keys", keys.len()), ("the array of values", values.len())];
        self.check(&inputs)?;
        self.check(&[("the result of keys", sorted.len()), ("the result of values", sorted_values.len())])?;
        self.check(&[("the memory for values", self.spare_values.len())])?;
        self.sort(stream, (keys, sorted), (Some(values), Some(sorted_values)), direction)
    }

    /// Queues the sort of keys, and their positions as values, as [`argsort`].
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of keys; those of the launch.
    #[track_caller]
    pub fn positions(
        &mut self,
        stream: &Stream,
        keys: DeviceView<K, 1>,
        (sorted, positions): (DeviceViewMut<K, 1>, DeviceViewMut<V, 1>),
        direction: Direction,
    ) -> ct::Result<()> {
        self.check(&[("the array of keys", keys.len()), ("the result of keys", sorted.len())])?;
        self.check(&[("the result", positions.len()), ("the memory for values", self.spare_values.len())])?;
        self.sort(stream, (keys, sorted), (None, Some(positions)), direction)
    }

    fn tiles(has_values: bool) -> Tiles {
        Tiles::new(size_of::<K>(), has_values)
    }

    #[track_caller]
    fn check(&self, others: &[(&str, usize)]) -> ct::Result<()> {
        let keys = self.n;
        let different = others.iter().find(|(_, len)| *len != keys);
        require(different.is_none(), || {
            let (name, len) = different.copied().unwrap_or_default();
            format!("radix sort of {keys} keys: {name} has {len} elements")
        })
    }

    fn new_counts(&self) -> ct::Result<Counts> {
        let (device, passes) = (self.device, size_of::<K>());
        let tile = Self::tiles(false).tile().min(Self::tiles(true).tile());
        let tiles = self.n.div_ceil(tile);
        Ok(Counts {
            counts: device.zeros([passes, BINS])?,
            tickets: device.zeros([passes])?,
            starts: device.zeros([passes, BINS])?,
            tiles: [device.zeros([tiles, BINS])?, device.zeros([tiles, BINS])?],
        })
    }

    fn sort(
        &mut self,
        stream: &Stream,
        (keys, mut sorted): Pair<K>,
        (values, mut sorted_values): Values<V>,
        direction: Direction,
    ) -> ct::Result<()> {
        if self.n == 0 {
            return Ok(());
        }
        let has_values = sorted_values.is_some();
        let plan = Plan::new(Self::tiles(has_values), stream, direction);
        let blocks = self.n.div_ceil(plan.tile);
        let counts = match self.counts.take() {
            Some(counts) => counts,
            None => self.new_counts()?,
        };
        let Counts { mut counts, mut tickets, mut starts, mut tiles } = counts;
        let passes = size_of::<K>();
        let launch = |grid: usize| ct::Launch::new(grid).stream(stream).hints(plan.hints());
        let counting = (plan.blocks as usize * num_multiprocessors(stream)).min(blocks);
        launch(counting).run(kernels::count::<K>, (keys, &mut counts, ct::Constant(plan)))?;
        let args = (&mut counts, &mut starts, &mut tickets, ct::Constant(passes));
        ct::Launch::new(1).stream(stream).run(kernels::starts, args)?;
        for number in 0..passes {
            let [this, next] = &mut tiles;
            let state = (&starts, &mut tickets, this.view_mut(), next.view_mut());
            // The number of passes is even: the last one writes to the result.
            let (from, to) = match number {
                0 => (keys, self.spare.view_mut()),
                _ if number % 2 == 0 => (sorted.as_view(), self.spare.view_mut()),
                _ => (self.spare.view(), sorted.reborrow()),
            };
            let all = sorted_values.as_mut().map(|sorted| match number {
                0 => (values, self.spare_values.view_mut()),
                _ if number % 2 == 0 => (Some(sorted.as_view()), self.spare_values.view_mut()),
                _ => (Some(self.spare_values.view()), sorted.reborrow()),
            });
            let (from_values, to_values) = all.map_or((None, None), |(from, to)| (from, Some(to)));
            let args = ((from, to), (from_values, to_values), state, ct::Constant((plan, number)));
            launch(blocks).run(kernels::pass::<K, V>, args)?;
            tiles.swap(0, 1);
        }
        self.counts = Some(Counts { counts, tickets, starts, tiles });
        Ok(())
    }
}

/// Queues the sort of keys of shape (n): integers or floats of 16, 32 or 64 bits. -0 is before +0,
/// and NaNs are after all numbers.
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
    RadixSort::<K>::new(stream.device(), keys.len())?.keys(stream, keys, sorted, direction)
}

/// Queues the sort of keys and their values, each of shape (n). Values of equal keys remain in
/// their order.
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
    let mut sort = RadixSort::with_values(stream.device(), keys.len())?;
    sort.pairs(stream, (keys, values), (sorted, sorted_values), direction)
}

/// Queues the sort of keys of shape (n), and the positions of the sorted keys. Equal keys remain in
/// their order.
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
    let mut sort = RadixSort::with_values(stream.device(), keys.len())?;
    sort.positions(stream, keys, (sorted, positions), direction)
}
