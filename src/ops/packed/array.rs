//! Packed arrays in kernels.

use std::marker::PhantomData;
use std::ops::Deref;

use super::store::Target;
use super::tile::NarrowTile;
use super::word_packing::Coded;
use super::words::Source;
use crate::element::Element;
use crate::ops::create::construct::extents;
use crate::ops::support::axis::Axis;
use crate::ops::support::tile_index::TileIndex;
use crate::tile::{Array, ArrayMut, Scalar, Tile, caller_location, record, with_location};
use crate::types::packed_formats::Narrow;

/// An array of elements of 1 to 8 bits ([`Narrow`]), packed along its last axis; read only.
///
/// The launch creates it from a shared reference to a
/// [`PackedDeviceArray`](crate::packed::PackedDeviceArray). It is a handle that is `Copy`.
///
/// ```
/// # use cutlet::doctest::*;
/// fn sum(x: ct::packed::PackedArray<ct::packed::u4, 1>, y: ArrayMut<i32, 1>) {
///     y.store(0, x.load(0, [8]).cast::<i32>().sum(0));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.packed(&[1, 15, 3].map(ct::packed::u4::saturating), [3])?, device.zeros([1])?);
/// ct::launch(sum, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [19]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PackedArray<F, const R: usize> {
    words: Array<u32, R>,
    extent: Scalar<i32>,
    facts: PackedFacts,
    element: PhantomData<F>,
}

/// A [`PackedArray`] that the kernel can also write, by whole tiles. Two tile blocks must not write
/// the same tile. It dereferences to a [`PackedArray`] of the same memory, which has the methods
/// that load.
///
/// ```
/// # use cutlet::doctest::*;
/// fn count(y: ct::packed::PackedArrayMut<ct::packed::u4, 1>) {
///     y.store(ct::bid(0), ct::arange(0..8).cast_narrow::<ct::packed::u4>());
/// }
///
/// let mut y = ct::Device::cpu().packed_zeros::<ct::packed::u4, 1>([10])?;
/// ct::launch(count, 2, (&mut y,))?;
/// assert_eq!(y.to_vec()?.iter().map(|y| y.get()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PackedArrayMut<F, const R: usize> {
    array: PackedArray<F, R>,
}

/// Facts of a packed array that are compiled into the kernel, in addition to those of its words.
/// The type is public because an implementation of a public trait mentions it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedFacts {
    /// Rows are whole groups: no word contains bits after the end of a row.
    pub whole: bool,
    /// At least one offset in bytes exceeds i32.
    pub bytes64: bool,
}

impl<F, const R: usize> PackedArray<F, R> {
    pub(crate) fn new(words: Array<u32, R>, extent: Scalar<i32>, facts: PackedFacts) -> Self {
        PackedArray { words, extent, facts, element: PhantomData }
    }
}

impl<F, const R: usize> PackedArrayMut<F, R> {
    pub(crate) fn new(words: ArrayMut<u32, R>, extent: Scalar<i32>, facts: PackedFacts) -> Self {
        PackedArrayMut { array: PackedArray::new(*words, extent, facts) }
    }
}

impl<F, const R: usize> Deref for PackedArrayMut<F, R> {
    type Target = PackedArray<F, R>;

    fn deref(&self) -> &PackedArray<F, R> {
        &self.array
    }
}

impl<F: Narrow, const R: usize> PackedArray<F, R> {
    #[track_caller]
    fn source(&self, name: &'static str) -> Source {
        let (array, coded, bytes64) = (self.words.handle, Coded::of::<F>(), self.facts.bytes64);
        Source { place: caller_location(), name, array, coded, bytes64 }
    }

    /// Loads the tile of `shape` at a tile index, as [`Array::load`](crate::Array::load).
    /// Elements outside of the array have the code 0.
    ///
    /// Rows of the tile are whole bytes: multiples of 2 elements for 4 bits, and of 8
    /// elements for 3, 5, 6 and 7 bits. Multiples of 32 bits (for 3, 5, 6 and 7 bits: of 32
    /// elements) are read by words. All axes but the last accept `ct::at`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::packed::{Narrow, PackedArray, f6e3m2};
    ///
    /// /// Generic over the type, so over its width.
    /// fn sums<F: Narrow>(x: PackedArray<F, 2>, y: ArrayMut<f32, 2>) {
    ///     let row = ct::bid(0);
    ///     let tiles = x.num_tiles(1, [1, 32]);
    ///     let sum = ct::fold(..tiles, ct::zeros::<f32, 2>([1, 32]), |sum, i| sum + x.load((row, i), [1, 32]).cast::<f32>());
    ///     y.store((row, 0), sum.sum(1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.packed(&vec![f6e3m2::from_f32(0.5); 300], [3, 100])?;
    /// let mut y = device.zeros([3, 1])?;
    /// ct::launch(sums::<f6e3m2>, 3, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [50.0; 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load(&self, index: impl TileIndex<R>, shape: [usize; R]) -> NarrowTile<F, R> {
        let (shape, source) = (extents(shape), self.source("load"));
        NarrowTile::of(record(|t| t.load_packed(&source, &index.components(), &shape)))
    }

    /// Loads a tile and casts it: [`Self::load`], then [`cast`](NarrowTile::cast).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn halves(x: ct::packed::PackedArray<ct::packed::i4, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load_as::<f32>(0, [8]) * 0.5);
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.packed(&[-8, 1, 7].map(ct::packed::i4::saturating), [3])?, device.zeros([3])?);
    /// ct::launch(halves, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [-4.0, 0.5, 3.5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load_as<U: Element>(&self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<U, R> {
        self.load(index, shape).cast::<U>()
    }

    /// The extent of an axis in elements.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn extents(x: ct::packed::PackedArray<ct::packed::u4, 2>, y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, x.extent(0));
    ///     y.store_scalar(1, x.extent(1));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().packed_zeros::<ct::packed::u4, 2>([3, 5])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(extents, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3, 5]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn extent(&self, axis: impl Axis) -> Scalar<i32> {
        let axis = axis.axis(R);
        if axis + 1 == R { self.extent } else { self.words.extent(axis) }
    }

    /// The extents of all axes in elements.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn size(x: ct::packed::PackedArray<ct::packed::u4, 2>, y: ArrayMut<i32, 1>) {
    ///     let [rows, columns] = x.shape();
    ///     y.store_scalar(0, rows * columns);
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().packed_zeros::<ct::packed::u4, 2>([3, 5])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(size, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [15]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shape(&self) -> [Scalar<i32>; R] {
        std::array::from_fn(|axis| self.extent(axis))
    }

    /// The number of tiles of `shape` that cover the array along an axis. The last one may
    /// be partial.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn count(x: ct::packed::PackedArray<ct::packed::u4, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, x.num_tiles(0, [8]));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().packed_zeros::<ct::packed::u4, 1>([17])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(count, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn num_tiles(&self, axis: impl Axis, shape: [usize; R]) -> Scalar<i32> {
        let axis = axis.axis(R);
        let place = caller_location();
        if axis + 1 == R && record(|t| t.legal_shape(place, "num_tiles", &extents(shape))) {
            let step = shape[axis];
            return with_location(place, || (self.extent + (step - 1)) / step);
        }
        let mut shape = shape;
        shape[R - 1] = 1;
        self.words.num_tiles(axis, shape)
    }
}

impl<F: Narrow, const R: usize> PackedArrayMut<F, R> {
    /// Stores a tile at a tile index. Elements outside of the array are not written. Rows of the
    /// tile are whole bytes, as in [`PackedArray::load`].
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet::packed::{Narrow, i3};
    ///
    /// fn quantise(x: Array<f32, 1>, y: ct::packed::PackedArrayMut<i3, 1>) {
    ///     let i = ct::bid(0);
    ///     y.store(i, x.load(i, [16]).round_ties_even().cast_narrow::<i3>());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let x = device.from_fn([20], |[i]| i as f32 / 2.0 - 5.0)?;
    /// let mut y = device.packed_zeros::<i3, 1>([20])?;
    /// ct::launch(quantise, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?.iter().map(|y| y.get()).collect::<Vec<_>>()[..10], [-4, -4, -4, -4, -3, -2, -2, -2, -1, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store(self, index: impl TileIndex<R>, tile: NarrowTile<F, R>) {
        let target = Target { source: self.source("store"), extent: (!self.facts.whole).then_some(self.extent) };
        target.store(&index.components(), tile.bits());
    }

    /// The same array, read only.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn first(x: ct::packed::PackedArray<ct::packed::u4, 1>) -> Scalar<i32> {
    ///     x.load_as::<i32>(0, [8]).get(0)
    /// }
    /// fn kernel(x: ct::packed::PackedArrayMut<ct::packed::u4, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, first(x.as_packed_array()));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (mut x, mut y) = (device.packed(&[9, 1].map(ct::packed::u4::saturating), [2])?, device.zeros([1])?);
    /// ct::launch(kernel, 1, (&mut x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [9]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn as_packed_array(self) -> PackedArray<F, R> {
        *self
    }
}
