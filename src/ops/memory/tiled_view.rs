//! Views of arrays as tiles of one shape, with step and options.

use super::access_options::{Access, AccessOptions, example, option, options};
use super::memory_order::{Order, Scope};
use super::tile_access::TileAccess;
use crate::element::{CastTo, Element};
use crate::ir::{MemOrder, Padding};
use crate::ops::control::loop_range::{Bounds, LoopRange, StepRange, range};
use crate::ops::create::construct::{extents, full};
use crate::ops::support::axis::Axis;
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::TileIndex;
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Handle, Scalar, Tile, Trace, ValueHandle, caller_location, record};

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
    pub(crate) shape: [usize; R],
    step: [usize; R],
    order: Option<[usize; R]>,
    padding: Padding,
    loads: AccessOptions,
    pub(crate) stores: AccessOptions,
}

impl<A, const R: usize> TiledView<A, R> {
    /// Sets the step: tile `(i, j)` begins at element `(i * step[0], j * step[1])`. Tiles overlap
    /// if the step is smaller than the extent, and leave gaps if it is larger. Components of an
    /// index by [`at`](crate::at) do not count steps.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Sets the order of axes: axis `d` of the tile, and component `d` of index and step, is along
    /// axis `order[d]` of the array.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Sets the padding, which loads read outside of the array; by default zero. All but `Zero` are
    /// for floats that have the value.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
}

options! { [A, const R: usize] TiledView<A, R>, {loads, stores},
    ["tiles" "x.tiled([4])" "y.store(0, tiles.load(0));"]:
    relaxed acquire latency allow_tma clipped check_bounds
}
options! { [T: Element, const R: usize] TiledView<ArrayMut<T, R>, R>,
    ["tiles" "y.tiled([4])" "tiles.store(0, x.load(0, [4]));"]: release
}

/// All tile indices of a view, the last axis fastest: a loop range with items `[Scalar<i32>; R]`.
/// Made by `TiledView::indices`.
///
/// ```
/// # use cutlet::doctest::*;
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

impl<const R: usize> Sealed for Indices<R> {}
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
            /// Returns a view of the array as tiles of this shape: adjacent ones, or with the
            /// steps of [`TiledView::step`].
            ///
            /// ```
            /// # use cutlet::doctest::*;
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
                let (loads, stores) = (AccessOptions::default(), AccessOptions::default());
                TiledView { array: self, shape, step: shape, order: None, padding: Padding::Zero, loads, stores }
            }
        }

        impl<T: Element, const R: usize> TiledView<$name<T, R>, R> {
            /// Records an access to a tile.
            #[track_caller]
            pub(crate) fn tile_access<O>(
                self,
                name: &'static str,
                options: AccessOptions,
                padding: Option<Padding>,
                record_it: impl FnOnce(&mut Trace, &TileAccess<'_>) -> O,
            ) -> O {
                let (shape, step) = (extents(self.shape), extents(self.step));
                let access = Access { order: self.order.map(Vec::from), options };
                let tile_access = self.array.tile_access(caller_location(), name, &shape, &access, padding);
                record(|t| record_it(t, &TileAccess { step: Some(&step), ..tile_access }))
            }

            /// Returns the number of tiles along an axis that begin inside of the array.
            ///
            /// ```
            /// # use cutlet::doctest::*;
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
            pub fn num_tiles(self, axis: impl Axis) -> Scalar<i32> {
                let axis = axis.axis(R);
                Scalar::from_raw(self.tile_access("num_tiles", self.loads, Some(self.padding), |t, tile_access| {
                    t.num_tiles(tile_access, axis)
                }))
            }

            /// Returns the range of tile indices along an axis, for a loop: from 0 to below
            /// [`Self::num_tiles`].
            ///
            /// ```
            /// # use cutlet::doctest::*;
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
            pub fn tile_range(self, axis: impl Axis) -> StepRange<i32> {
                let axis = axis.axis(R);
                range(0, self.num_tiles(axis))
            }

            /// Returns the range of all tile indices, for one loop: fewer than 2^31.
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
                self.tile_access("indices", self.loads, Some(self.padding), |t, tile_access| {
                    t.limit_indices(tile_access)
                });
                let mut all = first;
                for &count in others {
                    all *= count;
                }
                Indices { counts: std::array::from_fn(|axis| counts[axis]), all: range(0, all) }
            }

            /// Loads the tile at an index. Elements outside of the array read as padding.
            ///
            /// ```
            /// # use cutlet::doctest::*;
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
                Tile::from_raw(self.tile_access("load", self.loads, Some(self.padding), |t, tile_access| {
                    t.load(tile_access, &index.components())
                }))
            }
        }
    };
}
tiles_of!(Array);
#[cfg(not(doctest))] // the examples are the same
tiles_of!(ArrayMut);

impl<T: Element, const R: usize> TiledView<ArrayMut<T, R>, R> {
    /// Stores a tile of another element type, which is cast by [`Tile::cast`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Stores a tile at an index; a scalar or a host value fills it. Elements outside of the array
    /// are not written.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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
        self.tile_access("store", self.stores, None, |t, tile_access| {
            t.store(tile_access, &index.components(), tile.raw())
        });
    }
}
