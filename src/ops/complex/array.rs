//! Arrays of complex numbers: arrays of their interleaved real and imaginary parts.

use crate::util::collect::CollectVec as _;
use std::ops::Deref;

use crate::element::Float;
use crate::ir::{Opcode, Type};
use crate::ops::memory::access_options::{LoadOptions, StoreOptions};
use crate::ops::support::axis::Axis;
use crate::ops::support::tile_index::{Component, IntoIndex, TileIndex};
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Handle, Place, Scalar, Tile, Trace, ValueHandle, caller_location, record};
use crate::types::complex::Complex;

/// An array of complex numbers with parts of type `T` and `R` axes; read only.
///
/// In memory it is an array of `T` with a last axis of twice the extent: pairs of a real and an
/// imaginary part. It is a handle that is `Copy`, created by:
///
/// * the launch, from a [`ComplexDeviceArray`](crate::math::ComplexDeviceArray),
/// * the launch, from another array of such pairs by [`Interleaved`](crate::math::Interleaved),
/// * the kernel, by [`Array::complex`].
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn energy(x: ct::math::ComplexArray<f32, 1>, y: ArrayMut<f32, 1>) {
///     y.store(0, x.load(0, [4]).norm_sqr().sum(0));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.complex(&[ct::math::c64::new(3.0, 4.0); 3], [3])?, device.zeros([1])?);
/// ct::launch(energy, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [75.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ComplexArray<T, const R: usize> {
    reals: Array<T, R>,
}

/// A [`ComplexArray`] that the kernel can also write. It dereferences to a [`ComplexArray`] of the
/// same memory, which has the methods that load.
///
/// ```
/// # use cutlet::doctest::*;
/// fn conjugate(x: ct::math::ComplexArrayMut<f64, 1>) {
///     let i = ct::bid(0);
///     x.store(i, x.load(i, [2]).conj());
/// }
///
/// let mut x = ct::Device::cpu().complex(&[ct::math::c128::new(3.0, 4.0); 3], [3])?;
/// ct::launch(conjugate, 2, (&mut x,))?;
/// assert_eq!(x.to_vec()?, [ct::math::c128::new(3.0, -4.0); 3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ComplexArrayMut<T, const R: usize> {
    array: ComplexArray<T, R>,
}

impl<T, const R: usize> Deref for ComplexArrayMut<T, R> {
    type Target = ComplexArray<T, R>;

    fn deref(&self) -> &ComplexArray<T, R> {
        &self.array
    }
}

impl<T: Float, const R: usize> ComplexArray<T, R> {
    fn of(reals: Array<T, R>) -> Self {
        ComplexArray { reals }
    }
}

impl<T: Float, const R: usize> ComplexArrayMut<T, R> {
    fn of(reals: ArrayMut<T, R>) -> Self {
        ComplexArrayMut { array: ComplexArray::of(*reals) }
    }
}

/// The shape of the parts.
fn shape_of_parts<const R: usize>(mut shape: [usize; R]) -> [usize; R] {
    const { assert!(R >= 1, "an array of complex numbers has at least one axis") };
    shape[R - 1] = shape[R - 1].saturating_mul(2);
    shape
}

/// An index of tiles of complex numbers, as an index of tiles of their parts.
#[derive(Clone, Copy)]
struct OfParts<const R: usize>([Component; R]);

impl<const R: usize> Sealed for OfParts<R> {}
impl<const R: usize> TileIndex<R> for OfParts<R> {
    fn components(self) -> [Component; R] {
        self.0
    }
}

#[track_caller]
fn index_of_parts<const R: usize>(place: Place, name: &str, index: impl TileIndex<R>) -> OfParts<R> {
    let mut index = index.components();
    let last = match index[R - 1] {
        tiles @ Component::Tiles(_) => Some(tiles),
        Component::Elements(number) => record(|t| {
            t.at(place);
            number.doubled(t, place).map(Component::Elements)
        }),
        Component::Sparse(_) => {
            let message =
                format!("`{name}`: the last component of the index of complex numbers is a list of positions");
            let way_out = "lists are for other axes; single numbers: `.reals()` and `gather`";
            record(|t| t.report(place, message, &[way_out]));
            None
        }
    };
    index[R - 1] = last.unwrap_or_else(|| 0usize.component());
    OfParts(index)
}

impl Trace {
    /// Extracts one part of each pair along the last axis.
    fn part_of_pairs(&mut self, place: Place, pairs: ValueHandle, part: usize) -> ValueHandle {
        self.at(place);
        let mut shape = self.shape(pairs);
        let rank = shape.len();
        let dtype = match self.check_usable(pairs, place) {
            Some(value) => self.builder.module.dtype(value),
            None => return pairs,
        };
        shape[rank - 1] /= 2;
        let mut apart = shape.clone();
        apart.push(2);
        let value = self.check_usable(pairs, place).expect("it was usable");
        let apart = self.put(Opcode::Reshape, &[value], vec![], dtype, &apart);
        let apart = self.raw(apart);
        let index: Vec<Component> =
            (0..=rank).map(|axis| if axis == rank { part } else { 0 }.component()).collect_vec();
        let mut thin = shape.clone();
        thin.push(1);
        let thin = self.extract(place, "load", apart, &index, dtype, &thin);
        match self.check_usable(thin, place) {
            Some(value) => {
                let value = self.put(Opcode::Reshape, &[value], vec![], dtype, &shape);
                self.raw(value)
            }
            None => self.poison(Type::tile(dtype, shape)),
        }
    }
}

macro_rules! complex_array {
    ($name:ident $reals:ident) => {
        impl<T: Float, const R: usize> $reals<T, R> {
            /// Returns pairs along the last axis as complex numbers. If the extent is odd, the last
            /// element is a real part; its imaginary part reads as padding and is not written.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn square(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     let z = x.complex().load(0, [2]);
            ///     y.complex().store(0, z * z);
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1.0, 2.0, 0.0, 3.0], [4])?, ct::Device::cpu().zeros([4])?);
            /// ct::launch(square, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [-3.0, 4.0, -9.0, 0.0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn complex(self) -> $name<T, R> {
                $name::of(self)
            }
        }

        impl<T: Float, const R: usize> $name<T, R> {
            /// The parts, as an array with a last axis of twice the extent.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn first(x: ct::math::ComplexArray<f32, 1>, y: ArrayMut<f32, 1>) {
            ///     y.store(0, x.reals().load(0, [2]));
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let (x, mut y) = (device.complex(&[ct::math::c64::new(3.0, 4.0)], [1])?, device.zeros([2])?);
            /// ct::launch(first, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [3.0, 4.0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[must_use]
            pub fn reals(self) -> $reals<T, R> {
                $reals::from_handle(self.reals.handle)
            }
        }
    };
}
complex_array!(ComplexArray Array);
complex_array!(ComplexArrayMut ArrayMut);

impl<T: Float, const R: usize> ComplexArray<T, R> {
    /// Loads the tile of `shape` at a tile index, as [`Array::load`]. Elements outside of
    /// the array are zero. All axes but the last accept a list of positions
    /// ([`ct::at`](crate::at)).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(x: ct::math::ComplexArray<f32, 2>, y: ct::math::ComplexArrayMut<f32, 2>) {
    ///     y.store((0, 0), x.load((0, ct::at(1)), [2, 2]));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let host: Vec<ct::math::c64> = (0..6).map(|i| ct::math::c64::new(i as f32, -1.0)).collect();
    /// let (x, mut y) = (device.complex(&host, [2, 3])?, device.complex_zeros([2, 2])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [host[1], host[2], host[4], host[5]]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load(&self, index: impl TileIndex<R>, shape: [usize; R]) -> Complex<Tile<T, R>> {
        self.load_with(index, shape, LoadOptions::default())
    }

    /// Loads a tile with options, as [`Self::load`]: padding of both parts, order of the
    /// axes, and hints.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn shortest(x: ct::math::ComplexArray<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     let options = ct::LoadOptions::new().padding(Padding::PosInf);
    ///     y.store(0, x.load_with(0, [4], options).abs().reduce_min(0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.complex(&[ct::math::c64::new(3.0, 4.0); 3], [3])?, device.zeros([1])?);
    /// ct::launch(shortest, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [5.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn load_with(&self, index: impl TileIndex<R>, shape: [usize; R], options: LoadOptions) -> Complex<Tile<T, R>> {
        let place = caller_location();
        let pairs = self.reals.load_with(index_of_parts(place, "load", index), shape_of_parts(shape), options);
        let part = |part| Tile::from_raw(record(|t| t.part_of_pairs(place, pairs.raw(), part)));
        Complex { re: part(0), im: part(1) }
    }

    /// The extent of an axis in complex numbers.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(x: ct::math::ComplexArray<f32, 2>, y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, x.extent(0) * 10 + x.extent(1));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().complex_zeros::<f32, 2>([2, 3])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [23]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn extent(&self, axis: impl Axis) -> Scalar<i32> {
        let axis = axis.axis(R);
        let extent = self.reals.extent(axis);
        if axis + 1 == R { (extent >> 1) + (extent & 1) } else { extent }
    }

    /// The number of tiles of `shape` that cover the array along an axis. The last one may
    /// be partial.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(x: ct::math::ComplexArray<f32, 1>, y: ArrayMut<i32, 1>) {
    ///     y.store_scalar(0, x.num_tiles(0, [4]));
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().complex_zeros::<f32, 1>([9])?, ct::Device::cpu().zeros([1])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn num_tiles(&self, axis: impl Axis, shape: [usize; R]) -> Scalar<i32> {
        let axis = axis.axis(R);
        self.reals.num_tiles(axis, shape_of_parts(shape))
    }
}

impl<T: Float, const R: usize> ComplexArrayMut<T, R> {
    /// Stores a tile at a tile index, as [`ArrayMut::store`]. Elements outside of the array are not
    /// written.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn fill(y: ct::math::ComplexArrayMut<f32, 1>) {
    ///     let tile = ct::math::Complex::full([2], ct::math::c64::new(1.0, 2.0));
    ///     y.store(ct::bid(0), tile);
    /// }
    ///
    /// let mut y = ct::Device::cpu().complex_zeros::<f32, 1>([3])?;
    /// ct::launch(fill, 2, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [ct::math::c64::new(1.0, 2.0); 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store(self, index: impl TileIndex<R>, tile: Complex<Tile<T, R>>) {
        self.store_with(index, tile, StoreOptions::default());
    }

    /// Stores a tile with options, as [`Self::store`]: order of the axes, and hints.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn fill(y: ct::math::ComplexArrayMut<f32, 1>) {
    ///     let tile = ct::math::Complex::full([2], ct::math::c64::new(1.0, 2.0));
    ///     y.store_with(ct::bid(0), tile, ct::StoreOptions::new().latency(2));
    /// }
    ///
    /// let mut y = ct::Device::cpu().complex_zeros::<f32, 1>([3])?;
    /// ct::launch(fill, 2, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [ct::math::c64::new(1.0, 2.0); 3]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn store_with(self, index: impl TileIndex<R>, tile: Complex<Tile<T, R>>, options: StoreOptions) {
        let index = index_of_parts(caller_location(), "store", index);
        self.reals().store_with(index, tile.re.interleave(tile.im, R - 1), options);
    }
}
