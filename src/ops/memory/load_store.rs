//! Arrays to tiles and back: `load`, `store`, extents, permuted views.
//!
//! An access partitions the array into tiles of one shape. An index counts **tiles**, not elements.
//! Elements outside of the array read as padding (zero by default) and are not written.

use super::access_options::{Access, LoadOptions, StoreOptions};
use super::tile_access::TileAccess;
use crate::dtype::DType;
use crate::element::{ByteSized, CastTo, Element};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Overflow, Padding, Sign, Type};
use crate::ops::create::construct::extents;
use crate::ops::support::axis::{AXES_COUNT, Axis, shown};
use crate::ops::support::i32_count::Counted;
use crate::ops::support::tile_index::{Component, TileIndex};
use crate::ops::support::tile_shape::TileShape;
use crate::sealed::Sealed;
use crate::tile::{
    Array, ArrayHandle, ArrayMut, Handle, Place, Scalar, Tile, Trace, ValueHandle, caller_location, record,
};
use crate::util::collect::CollectVec as _;

/// A call of a method of an array.
#[derive(Clone, Copy)]
struct Method {
    place: Place,
    name: &'static str,
    /// The name of the element type.
    elem: &'static str,
}

impl Trace {
    pub(crate) fn load(&mut self, tile_access: &TileAccess<'_>, index: &[Component]) -> ValueHandle {
        self.at(tile_access.place);
        let rank = tile_access.shape.len();
        if !tile_access.check(self) {
            return self.poison(Type::tile(tile_access.dtype, vec![1; rank]));
        }
        let ty = Type::tile(tile_access.dtype, tile_access.shape);
        if !self.admits(tile_access.place, Effect::Read, rank) {
            return self.poison(ty);
        }
        let Some((view, indices)) = tile_access.locate(self, index) else { return self.poison(ty) };
        let loaded = self.builder.module.intern(Type::tile(tile_access.dtype, tile_access.extents()));
        let types = [loaded, self.builder.module.intern(Type::Token)];
        let attrs = tile_access.access.attrs_of_view(indices.len());
        let results = self.emit(Opcode::LoadView, &[&[view], &indices, &[]], attrs, vec![], &types);
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[results[0]], vec![], tile_access.dtype, &[]),
            _ => results[0],
        };
        self.raw(tile)
    }

    pub(crate) fn store(&mut self, tile_access: &TileAccess<'_>, index: &[Component], tile: ValueHandle) {
        self.at(tile_access.place);
        let rank = tile_access.shape.len();
        let tile = self.check_usable(tile, tile_access.place);
        if !tile_access.check(self) || !self.admits(tile_access.place, Effect::Write, rank) {
            return;
        }
        let Some((view, indices)) = tile_access.locate(self, index) else { return };
        let Some(tile) = tile else { return };
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[tile], vec![], tile_access.dtype, &[1]),
            _ => tile,
        };
        let token = self.builder.module.intern(Type::Token);
        let attrs = tile_access.access.attrs_of_view(indices.len());
        self.emit(Opcode::StoreView, &[&[tile], &[view], &indices, &[]], attrs, vec![], &[token]);
    }

    /// Returns the extent of one axis as i32 or i64.
    fn extent(&mut self, array: ArrayHandle, method: Method, axis: usize, to: DType) -> ValueHandle {
        let Method { place, name, elem } = method;
        self.at(place);
        let ty = Type::scalar(to);
        if self.array_view(array, place).is_none() {
            return self.poison(ty);
        }
        let extents = self.arrays[array.index as usize].extents.clone();
        let Some(&extent) = extents.get(axis) else {
            let message = format!("`{name}`: axis {} of an array with {} axes", shown(axis), extents.len());
            return self.fail(place, ty, message, &[AXES_COUNT]);
        };
        let value = match (self.builder.module.dtype(extent), to) {
            (from, to) if from == to => extent,
            (DType::I64, _) => {
                let fits = self.limit_count(&Counted { place, name, elem, array, axis, step: 1 });
                let value = self.put(Opcode::TruncI, &[extent], vec![Attr::Overflow(Overflow::None)], to, &[]);
                if !fits {
                    self.written(value, [Sign::Signed; 2]);
                }
                value
            }
            _ => self.put(Opcode::ExtI, &[extent], vec![Attr::Sign(Sign::Signed)], to, &[]),
        };
        self.raw(value)
    }

    /// Ensures that the number of all tiles fits i32.
    pub(super) fn limit_indices(&mut self, tile_access: &TileAccess<'_>) {
        if tile_access.check(self) && self.array_view(tile_access.array, tile_access.place).is_some() {
            let axes: Vec<(usize, i64)> =
                (0..tile_access.shape.len()).map(|axis| tile_access.steps_along(axis)).collect_vec();
            let (place, name, elem, array) = (tile_access.place, tile_access.name, tile_access.elem, tile_access.array);
            self.limit_product(&Counted { place, name, elem, array, axis: 0, step: 1 }, &axes);
        }
    }

    pub(crate) fn num_tiles(&mut self, tile_access: &TileAccess<'_>, axis: usize) -> ValueHandle {
        self.at(tile_access.place);
        let ty = Type::scalar(DType::I32);
        let rank = tile_access.shape.len();
        if axis >= rank {
            let message = format!("`num_tiles`: axis {} of an array with {rank} axes", shown(axis));
            return self.fail(tile_access.place, ty, message, &[AXES_COUNT]);
        }
        if !tile_access.check(self) || !self.admits(tile_access.place, Effect::Pure, 0) {
            return self.poison(ty);
        }
        let Some(view) = tile_access.view(self) else { return self.poison(ty) };
        let (place, name, elem, array) = (tile_access.place, tile_access.name, tile_access.elem, tile_access.array);
        let (axis_of_array, step) = tile_access.steps_along(axis);
        self.limit_count(&Counted { place, name, elem, array, axis: axis_of_array, step });
        let types = vec![self.builder.module.intern(ty); rank];
        let values = self.emit(Opcode::GetIndexSpaceShape, &[&[view]], vec![], vec![], &types);
        self.raw(values[axis])
    }
}

impl<T: Element, const R: usize> Array<T, R> {
    /// Loads the tile of `shape` at a tile index: along each axis the elements from
    /// `index * extent` on. Elements outside of the array read as zero.
    ///
    /// A shape with fewer axes than the array is read as if it had axes of extent 1 in front. In
    /// one with more axes, those of extent 1 are ignored. `x.load((i, j), [64])` of a matrix is a
    /// part of a row.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn second(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
    ///     y.store((0, 0), x.load((0, 1), [2, 2])); // columns 2 and 3, of which there is one
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().from_fn([2, 3], |[i, j]| (10 * i + j) as i32)?, ct::Device::cpu().zeros([2, 2])?);
    /// ct::launch(second, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, 0, 12, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load<const N: usize>(&self, index: impl TileIndex<R>, shape: impl TileShape<N>) -> Tile<T, N> {
        self.load_with(index, shape, LoadOptions::default())
    }

    /// Loads a tile with options, as [`Self::load`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn largest(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let options = ct::LoadOptions::new().padding(Padding::NegInf);
    ///     y.store(0, x.load_with(0, [4], options).reduce_max(0));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([3], -2.0f32)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(largest, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [-2.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load_with<const N: usize>(
        &self,
        index: impl TileIndex<R>,
        shape: impl TileShape<N>,
        options: LoadOptions,
    ) -> Tile<T, N> {
        let (place, wanted) = (caller_location(), extents(shape.extents()));
        Tile::from_raw(record(|t| {
            let Some(shape) = t.with_rank(place, "load", &wanted, R) else {
                return t.poison(Type::tile(T::DTYPE, wanted));
            };
            let tile_access = self.tile_access(place, "load", &shape, &options.access, Some(options.padding));
            let tile = t.load(&tile_access, &index.components());
            if N == R { tile } else { t.refit(place, tile, T::DTYPE, &wanted) }
        }))
    }

    /// Loads the element at an element index; zero outside of the array.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn scale(x: ArrayMut<f32, 1>, factor: Array<f32, 1>) {
    ///     x.store(0, x.load(0, [4]) * factor.load_scalar(0));
    /// }
    ///
    /// let (mut x, factor) = (ct::Device::cpu().full([4], 2.0f32)?, ct::Device::cpu().full([1], 3.0f32)?);
    /// ct::launch(scale, 1, (&mut x, &factor))?;
    /// assert_eq!(x.to_vec()?, [6.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load_scalar(&self, index: impl TileIndex<R>) -> Scalar<T>
    where
        T: ByteSized,
    {
        self.load(index, [1; R]).item()
    }

    /// Returns the extent of an axis in elements.
    ///
    /// A launch with an array of 2^31 elements or more along this axis is an
    /// [`Error::Argument`](crate::Error::Argument) with this place. [`Self::extent64`] is for such
    /// arrays. If only the kernel knows the extent, of a part of such an array, the kernel asserts
    /// it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn mean(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [8]).sum(0) / x.extent(0).cast::<f32>());
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([5], 2.0f32)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(mean, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn extent(&self, axis: impl Axis) -> Scalar<i32> {
        let axis = axis.axis(R);
        let place = caller_location();
        Scalar::from_raw(record(|t| {
            t.extent(self.handle, Method { place, name: "extent", elem: T::NAME }, axis, DType::I32)
        }))
    }

    /// Returns the extent of an axis in elements, for arrays with 2^31 elements or more along it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn extents(x: Array<f32, 2>, y: ArrayMut<i64, 1>) {
    ///     y.store_scalar(0, x.extent64(0) * x.extent64(1));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([5, 7], 0.0f32)?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(extents, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [35]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn extent64(&self, axis: impl Axis) -> Scalar<i64> {
        let axis = axis.axis(R);
        let place = caller_location();
        Scalar::from_raw(record(|t| {
            t.extent(self.handle, Method { place, name: "extent64", elem: T::NAME }, axis, DType::I64)
        }))
    }

    /// Returns the extents of all axes in elements, each as [`Self::extent`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn extents(x: Array<f32, 2>, y: ArrayMut<i32, 1>) {
    ///     let [rows, columns] = x.shape();
    ///     y.store_scalar(0, rows);
    ///     y.store_scalar(1, columns);
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().full([5, 7], 0.0f32)?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(extents, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [5, 7]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shape(&self) -> [Scalar<i32>; R] {
        let place = caller_location();
        let method = Method { place, name: "shape", elem: T::NAME };
        std::array::from_fn(|d| Scalar::from_raw(record(|t| t.extent(self.handle, method, d, DType::I32))))
    }

    /// Returns the number of tiles of `shape` that cover the array along an axis. The last one may
    /// be partial. A launch with an array that has 2^31 tiles or more along this axis is an error,
    /// as that of [`Self::extent`]: such an array needs larger tiles.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn sum(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let sums = ct::fold(..x.num_tiles(0, [4]), ct::zeros([4]), |sums, i| sums + x.load(i, [4]));
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
    pub fn num_tiles(&self, axis: impl Axis, shape: impl TileShape<R>) -> Scalar<i32> {
        let axis = axis.axis(R);
        let (shape, access) = (extents(shape.extents()), Access::default());
        let tile_access = self.tile_access(caller_location(), "num_tiles", &shape, &access, Some(Padding::Zero));
        Scalar::from_raw(record(|t| t.num_tiles(&tile_access, axis)))
    }

    pub(crate) fn tile_access<'a>(
        &self,
        place: Place,
        name: &'static str,
        shape: &'a [i64],
        access: &'a Access,
        padding: Option<Padding>,
    ) -> TileAccess<'a> {
        let (array, elem, dtype) = (self.handle, T::NAME, T::DTYPE);
        TileAccess { place, name, array, elem, dtype, shape, step: None, access, padding }
    }
}

/// Value of a store into an array of `T` with `R` axes: a [`Tile<T, R>`].
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn put<T: Element, V: ct::ops::StoreValue<T, 1>>(y: ArrayMut<T, 1>, tile: V) {
///     y.store(0, tile);
/// }
///
/// let mut y = ct::Device::cpu().zeros([2])?;
/// ct::launch(|y| put(y, ct::astile([1, 2])), 1, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored into an array of `{T}` with {R} axes",
    note = "element type and number of axes must agree: `.cast::<{T}>()` converts, `.unsqueeze(axis)`, `.squeeze(axis)`, \
            `.reshape(..)` and `.with_rank()` change the axes; for one element: `store_scalar`; \
            see docs/common_errors.md"
)]
pub trait StoreValue<T, const R: usize>: Sealed + Copy {
    #[doc(hidden)]
    fn stored(self) -> ValueHandle;
}

impl<T: Element, const R: usize> StoreValue<T, R> for Tile<T, R> {
    fn stored(self) -> ValueHandle {
        self.raw()
    }
}

/// The bound of [`Array::store`], which no type satisfies.
#[diagnostic::on_unimplemented(
    message = "an `Array` can only be read: `store`, `scatter` and atomics need an `ArrayMut`",
    note = "take an `ArrayMut<T, R>` in the kernel's parameters and pass `&mut array` at the launch"
)]
pub trait Writable: Sealed {}

impl<T: Element, const R: usize> Array<T, R> {
    /// Reports that an [`Array`] is read-only.
    #[doc(hidden)]
    pub fn store<I, V>(self, _index: I, _value: V)
    where
        Self: Writable,
    {
        unreachable!("nothing is `Writable`")
    }
}

impl<T: Element, const R: usize> ArrayMut<T, R> {
    /// Stores a tile at a tile index: along each axis to the elements from `index * extent` on.
    /// Elements outside of the array are not written.
    ///
    /// The tile has the rank of the array. [`Tile::with_rank`] inserts and removes axes of extent
    /// 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn fill(y: ArrayMut<i32, 1>) {
    ///     y.store(ct::bid(0), ct::full([4], ct::bid(0)));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([6])?;
    /// ct::launch(fill, 2, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 0, 0, 0, 1, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store(self, index: impl TileIndex<R>, tile: impl StoreValue<T, R>) {
        self.store_with(index, tile, StoreOptions::default());
    }

    /// Stores a tile of another element type, which is cast by [`Tile::cast`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn halves(x: Array<f32, 1>, y: ArrayMut<f16, 1>) {
    ///     y.store_as(ct::bid(0), x.load(ct::bid(0), [4]) * 0.5);
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

    /// Stores a tile with options, as [`ArrayMut::store`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn columns(y: ArrayMut<i32, 2>) {
    ///     y.store_with((0, 0), ct::astile([[1, 2], [3, 4]]), ct::StoreOptions::new().order([1, 0]));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([2, 2])?;
    /// ct::launch(columns, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [1, 3, 2, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store_with(self, index: impl TileIndex<R>, tile: impl StoreValue<T, R>, options: StoreOptions) {
        let (place, tile) = (caller_location(), tile.stored());
        record(|t| {
            let shape = t.shape(tile);
            let tile_access = self.tile_access(place, "store", &shape, &options.access, None);
            t.store(&tile_access, &index.components(), tile);
        });
    }

    /// Stores one element at an element index. Outside of the array nothing is written.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn squares(y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(ct::bid(0), ct::bid(0) * ct::bid(0));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([3])?;
    /// ct::launch(squares, 3, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store_scalar(self, index: impl TileIndex<R>, value: impl crate::ops::Operand<Tile<T, R>>)
    where
        T: ByteSized,
    {
        self.store(index, crate::ops::full([1; R], value));
    }

    /// Returns the same array, read-only.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn total(x: Array<i32, 1>) -> Scalar<i32> {
    ///     x.load(0, [4]).sum(0).item()
    /// }
    /// fn kernel(x: ArrayMut<i32, 1>) {
    ///     x.store_scalar(0, total(x.as_array()));
    /// }
    ///
    /// let mut x = ct::Device::cpu().array(&[1, 2, 3, 4], [4])?;
    /// ct::launch(kernel, 1, (&mut x,))?;
    /// assert_eq!(x.to_vec()?, [10, 2, 3, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn as_array(self) -> Array<T, R> {
        *self
    }
}
