//! The tiles of an array as one object: made once, with shape, step and options.

use super::access_options::{LoadOptions, StoreOptions};
use super::memory_order::{Order, Scope};
use super::tile_access::Visit;
use crate::element::{CastTo, Element};
use crate::ir::{MemOrder, Padding};
use crate::ops::control::loop_range::{Bounds, LoopRange, StepRange, range};
use crate::ops::create::construct::{extents, full};
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::TileIndex;
use crate::tile::{Array, ArrayMut, Handle, Scalar, Tile, ValueHandle, caller_location, record};

/// View of an array as tiles of one shape, with the options of their accesses; made by
/// [`Array::tiled`].
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// /// Sums of windows of 4 elements that begin every 2 elements.
/// fn windows(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let windows = x.tiled([4]).step([2]);
///     ct::fold(windows.tile_range(0), (), |(), i| y.tiled([1]).store(i, windows.load(i).sum(0)));
/// }
///
/// let x = ct::Device::cpu().array(&[1, 2, 3, 4, 5, 6, 7], [7])?;
/// let mut y = ct::Device::cpu().zeros([4])?;
/// ct::launch(windows, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [10, 18, 18, 7]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TiledView<A, const R: usize> {
    array: A,
    shape: [usize; R],
    step: [usize; R],
    order: Option<[usize; R]>,
    padding: Padding,
    latency: Option<u32>,
    allow_tma: Option<bool>,
    loads: Order,
    stores: Order,
    checked: bool,
}

impl<A, const R: usize> TiledView<A, R> {
    /// Tile `(i, j)` begins at element `(i * step[0], j * step[1])`: tiles overlap where the step is smaller than the
    /// extent, and leave gaps where it is larger. Components of an index by [`at`](crate::at) do not count steps.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn windows(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.tiled([2]).step([1]).load(1)); // begins at element 1
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3], [3])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(windows, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn step(mut self, step: [usize; R]) -> Self {
        self.step = step;
        self
    }

    /// Axis `d` of the tile lies along axis `order[d]` of the array; so do component `d` of the index and of the step.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn turned(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
    ///     y.store((0, 0), x.tiled([2, 2]).order([1, 0]).load((0, 0)));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [2, 2])?, ct::Device::cpu().zeros([2, 2])?);
    /// ct::launch(turned, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn order(mut self, order: [usize; R]) -> Self {
        self.order = Some(order);
        self
    }

    /// What loads read outside of the array; zero unless stated. All but `Zero` are for floats that have the value.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn largest(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.tiled([4]).padding(Padding::NegInf).load(0).reduce_max(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([3], -2.0f32)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(largest, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [-2.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Loads and stores are relaxed: as [`LoadOptions::relaxed`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// // Blocks may all write this element at a time: one of them wins.
    /// fn any(y: ArrayMut<i32, 1>) {
    ///     y.tiled([1]).relaxed(ct::Scope::Device).store(0, 1 + ct::bid(0));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([1])?;
    /// ct::launch(any, 8, (&mut y,))?;
    /// assert!((1..=8).contains(&y.to_vec()?[0]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn relaxed(mut self, scope: Scope) -> Self {
        (self.loads, self.stores) = (Order::new(MemOrder::Relaxed, scope), Order::new(MemOrder::Relaxed, scope));
        self
    }

    /// Loads acquire, as [`LoadOptions::acquire`]; stores stay as they are.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// // Block 1 waits for what block 0 says.
    /// fn message(data: ArrayMut<f32, 1>, flag: ArrayMut<i32, 1>) {
    ///     let flag = flag.tiled([1]).acquire(ct::Scope::Device).release(ct::Scope::Device);
    ///     let send = || {
    ///         data.store([0], ct::full([4], 1.5));
    ///         flag.store(0, 1);
    ///     };
    ///     let receive = || {
    ///         ct::while_loop((), |()| flag.load(0).item().eq(0), |()| ());
    ///         data.store([1], data.load([0], [4]) * 2.0);
    ///     };
    ///     ct::if_else(ct::bid(0).eq(0), send, receive);
    /// }
    ///
    /// let (mut data, mut flag) = (ct::Device::cpu().zeros([8])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(message, 2, (&mut data, &mut flag))?;
    /// assert_eq!(data.to_vec()?, [1.5, 1.5, 1.5, 1.5, 3.0, 3.0, 3.0, 3.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn acquire(mut self, scope: Scope) -> Self {
        self.loads = Order::new(MemOrder::Acquire, scope);
        self
    }

    /// As [`LoadOptions::latency`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.tiled([4]).latency(8).load(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([4], 3)?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(copy, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn latency(mut self, latency: u32) -> Self {
        self.latency = Some(latency);
        self
    }

    /// As [`LoadOptions::allow_tma`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store(0, x.tiled([4]).allow_tma(false).load(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([4], 3)?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(copy, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn allow_tma(mut self, allow: bool) -> Self {
        self.allow_tma = Some(allow);
        self
    }

    /// `false` is a promise that no element of the tiles that are accessed lies outside of the array.
    ///
    /// # Safety
    /// As [`LoadOptions::check_bounds`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     // SAFETY: launched with four elements.
    ///     let tiles = unsafe { x.tiled([4]).check_bounds(false) };
    ///     y.store(0, tiles.load(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([4], 3)?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(copy, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub unsafe fn check_bounds(mut self, check: bool) -> Self {
        self.checked = check;
        self
    }

    fn load_options(&self) -> LoadOptions {
        let mut options = LoadOptions::new().padding(self.padding);
        options = self.order.iter().fold(options, |options, order| options.order(*order));
        options = self.latency.iter().fold(options, |options, &latency| options.latency(latency));
        options = self.allow_tma.iter().fold(options, |options, &allow| options.allow_tma(allow));
        options.access.memory = self.loads;
        // SAFETY: the caller of `TiledView::check_bounds` has promised it.
        unsafe { options.check_bounds(self.checked) }
    }

    /// Array, shape, step and options of what changes the array.
    pub(crate) fn parts(self) -> (A, [usize; R], [usize; R], StoreOptions) {
        let options = self.store_options();
        (self.array, self.shape, self.step, options)
    }

    fn store_options(&self) -> StoreOptions {
        let mut access = self.load_options().access;
        access.memory = self.stores;
        StoreOptions { access }
    }
}

/// All tile indices of a view, the last axis fastest; a loop range with items `[Scalar<i32>; R]`. Made by
/// `TiledView::indices`.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn total(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
///     let tiles = x.tiled([1, 2]);
///     let indices: ct::ops::Indices<2> = tiles.indices();
///     let sums = ct::fold(indices, ct::zeros([1, 2]), |sums, at| sums + tiles.load(at));
///     y.store_scalar(0, sums.sum(..).item());
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([3, 3], 1)?, ct::Device::cpu().zeros([1])?);
/// ct::launch(total, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [9]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Indices<const R: usize> {
    counts: [Scalar<i32>; R],
    all: StepRange<i32>,
}

impl<const R: usize> LoopRange for Indices<R> {
    type Item = [Scalar<i32>; R];
    fn bounds(&self) -> Bounds {
        self.all.bounds()
    }
    fn item(&self, number: ValueHandle) -> [Scalar<i32>; R] {
        let mut rest = Scalar::from_raw(number);
        let mut item = [rest; R];
        for axis in (1..R).rev() {
            item[axis] = rest % self.counts[axis];
            rest /= self.counts[axis];
        }
        if let Some(first) = item.first_mut() {
            *first = rest;
        }
        item
    }
}

macro_rules! tiles_of {
    ($name:ident) => {
        impl<T: Element, const R: usize> $name<T, R> {
            /// The tiles of this shape, to be accessed by tile index: side by side unless
            /// [`TiledView::step`] says otherwise.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn second(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.tiled([2]).store(0, x.tiled([2]).load(1));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
            /// ct::launch(second, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [3, 4]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn tiled(self, shape: [usize; R]) -> TiledView<Self, R> {
                let (order, latency, allow_tma) = (None, None, None);
                let (padding, weak, step) = (Padding::Zero, Order::default(), shape);
                let (loads, stores, checked) = (weak, weak, true);
                TiledView { array: self, shape, step, order, padding, latency, allow_tma, loads, stores, checked }
            }
        }

        impl<T: Element, const R: usize> TiledView<$name<T, R>, R> {
            /// How many tiles begin inside of the array along an axis.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn count(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store_scalar(0, x.tiled([4]).num_tiles(0));
            ///     y.store_scalar(1, x.tiled([4]).step([2]).num_tiles(0));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().zeros::<i32, 1>([10])?, ct::Device::cpu().zeros([2])?);
            /// ct::launch(count, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [3, 5]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn num_tiles(self, axis: usize) -> Scalar<i32> {
                let (shape, step, options) = (extents(self.shape), extents(self.step), self.load_options());
                let visit = Visit {
                    step: Some(&step),
                    ..self.array.visit(caller_location(), "num_tiles", &shape, &options.access, Some(self.padding))
                };
                Scalar::from_raw(record(|t| t.num_tiles(&visit, axis)))
            }

            /// Returns the range of tile indices along an axis, for a loop: from 0 to below
            /// [`Self::num_tiles`].
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn sum(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     let tiles = x.tiled([4]);
            ///     let sums = ct::fold(tiles.tile_range(0), ct::zeros([4]), |sums, i| sums + tiles.load(i));
            ///     y.store(0, sums.sum(0));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([10], 1)?, ct::Device::cpu().zeros([1])?);
            /// ct::launch(sum, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [10]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn tile_range(self, axis: usize) -> StepRange<i32> {
                range(0, self.num_tiles(axis))
            }

            /// All tile indices, for one loop: fewer than 2^31.
            ///
            /// A launch with an array of more tiles, whose offsets need 64 bits, is an
            /// [`Error::Argument`](crate::Error::Argument) with this place.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// fn total(x: Array<i32, 2>, y: ArrayMut<i32, 1>) {
            ///     let tiles = x.tiled([2, 4]);
            ///     let sums = ct::fold(tiles.indices(), ct::zeros([2, 4]), |sum, index| sum + tiles.load(index));
            ///     y.store_scalar(0, sums.sum(..).item());
            /// }
            ///
            /// let x = ct::Device::cpu().full([5, 9], 1)?;
            /// let mut y = ct::Device::cpu().zeros([1])?;
            /// ct::launch(total, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [45]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn indices(self) -> Indices<R> {
                let mut counts = Vec::with_capacity(R);
                for axis in 0..R {
                    counts.push(self.num_tiles(axis));
                }
                let Some((&first, others)) = counts.split_first() else {
                    return Indices { counts: std::array::from_fn(|_| crate::ops::scalar(1)), all: range(0, 1) };
                };
                let (shape, step, options) = (extents(self.shape), extents(self.step), self.load_options());
                let visit = Visit {
                    step: Some(&step),
                    ..self.array.visit(caller_location(), "indices", &shape, &options.access, Some(self.padding))
                };
                record(|t| t.limit_indices(&visit));
                let mut all = first;
                for &count in others {
                    all *= count;
                }
                Indices { counts: std::array::from_fn(|axis| counts[axis]), all: range(0, all) }
            }

            /// The tile at an index; elements outside of the array read as padding.
            ///
            /// ```
            /// # use cutlet as ct;
            /// # use cutlet::prelude::*;
            /// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     y.store(0, x.tiled([4]).load(0));
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([3], 3)?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(copy, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [3, 3, 3, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn load(self, index: impl TileIndex<R>) -> Tile<T, R> {
                let (shape, step, options) = (extents(self.shape), extents(self.step), self.load_options());
                let visit = Visit {
                    step: Some(&step),
                    ..self.array.visit(caller_location(), "load", &shape, &options.access, Some(self.padding))
                };
                Tile::from_raw(record(|t| t.load(&visit, &index.components())))
            }
        }
    };
}
tiles_of!(Array);
#[cfg(not(doctest))] // the examples are the same
tiles_of!(ArrayMut);

impl<T: Element, const R: usize> TiledView<ArrayMut<T, R>, R> {
    /// Stores release, as [`StoreOptions::release`]; loads stay as they are.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn publish(data: ArrayMut<i32, 1>, flag: ArrayMut<i32, 1>) {
    ///     data.tiled([4]).store(0, 7);
    ///     flag.tiled([1]).release(ct::Scope::Device).store(0, 1);
    /// }
    ///
    /// let (mut data, mut flag) = (ct::Device::cpu().zeros([4])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(publish, 1, (&mut data, &mut flag))?;
    /// assert_eq!((data.to_vec()?, flag.to_vec()?), (vec![7; 4], vec![1]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn release(mut self, scope: Scope) -> Self {
        self.stores = Order::new(MemOrder::Release, scope);
        self
    }

    /// [`Self::store`] of a tile of another element type, which is cast as [`Tile::cast`] does.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn halves(x: Array<f32, 1>, y: ArrayMut<f16, 1>) {
    ///     y.tiled([4]).store_as(ct::bid(0), x.load(ct::bid(0), [4]) * 0.5);
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([6], 3.0f32)?, ct::Device::cpu().zeros([6])?);
    /// ct::launch(halves, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [f16::from_f32(1.5); 6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store_as<S: CastTo<T>>(self, index: impl TileIndex<R>, tile: Tile<S, R>) {
        self.store(index, tile.cast::<T>());
    }

    /// Writes a tile at an index; a scalar or a host value fills it. What lies outside of the array is not written.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn fill(y: ArrayMut<i32, 1>) {
    ///     y.tiled([4]).store(ct::bid(0), ct::bid(0)); // a scalar fills the tile
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([6])?;
    /// ct::launch(fill, 2, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 0, 0, 1, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store(self, index: impl TileIndex<R>, tile: impl Operand<Tile<T, R>>) {
        let tile = full(self.shape, tile);
        let (shape, step, options) = (extents(self.shape), extents(self.step), self.store_options());
        let visit =
            Visit { step: Some(&step), ..self.array.visit(caller_location(), "store", &shape, &options.access, None) };
        record(|t| t.store(&visit, &index.components(), tile.raw()));
    }
}
