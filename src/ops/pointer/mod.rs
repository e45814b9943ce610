//! Pointers in kernels, for memory that is no array of a launch.
//!
//! Arrays check the bounds of accesses, and launches order their memory. Pointers do neither. They
//! are for a table of addresses in memory, memory of another library without known extents, or a
//! structure of several types in one buffer.
//!
//! [`Ptr<T>`] is the address of one element, and [`PtrTile<T, N>`] a tile of addresses. Their
//! sources are [`Array::pointer`], a [`RawPtr`](crate::RawPtr) of a launch, and addresses in memory
//! ([`Ptr::from_addr`]). Loads, stores and atomics are those of `gather`, `scatter` and the atomics
//! of arrays, with the same options, but without bounds checks.
//!
//! # Contract
//! All `unsafe` functions here have one contract. It is for each element that is accessed through a
//! pointer (under the mask, if there is one) or through an array of [`Ptr::array`]:
//!
//! * The element is in memory that this device can access, and that exists while the kernel runs.
//!   For the cpu device it is memory of this process, with initialised bytes.
//! * Its address is a multiple of the size of `T`. The memory is writable, if the element is
//!   written.
//! * No other tile block, other kernel or the host writes it at the same time, or reads it if this
//!   kernel writes it. Excepted are atomics and ordered accesses on all sides.
//! * A pointer of an array, by [`Array::pointer`], `offset` and `cast`, points to elements of this
//!   array. A pointer of [`RawPtr`](crate::RawPtr) or `from_addr` may point to any memory, also to
//!   an array.
//!
//! The compiler assumes nothing of pointers of unknown origin: they may alias all other pointers
//! and arrays, and have no alignment but that of the element. The accesses of one tile block have
//! place in program order, through pointers and arrays.
//!
//! The cpu back end reports some violations: addresses that are no multiples of the size of the
//! element, null, and pointers of arrays that point outside of them. With the check
//! [`bounds`](crate::Checks::bounds), it also reports pointers that point into no array.
//!
//! # Example
//! A linked list in one buffer, which each tile block traverses:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! /// Nodes are a value and the address of the next one, or 0.
//! fn sums(first: Array<i64, 1>, y: ArrayMut<i64, 1>) {
//!     let start = (first.load_scalar(ct::bid(0)), ct::scalar(0i64));
//!     let (_, sum) = ct::while_loop(start, |(at, _)| at.ne(0), |(at, sum)| {
//!         // SAFETY: the host has made the list of addresses of two numbers each, or 0.
//!         unsafe {
//!             let node = ct::Ptr::<i64>::from_addr(at);
//!             (node.offset(1).load(), sum + node.load())
//!         }
//!     });
//!     y.store(ct::bid(0), sum.to_tile::<1>());
//! }
//!
//! let device = ct::Device::cpu();
//! let mut nodes = device.zeros::<i64, 2>([3, 2])?;
//! let place = |i: usize| (nodes.address() + 16 * i as u64) as i64;
//! let data = [5, place(2), 6, 0, 7, place(1)];
//! let starts = [place(0), place(1), 0];
//! nodes.copy_from(&data)?;
//! let (first, mut y) = (device.array(&starts, [3])?, device.zeros([3])?);
//! ct::launch(sums, 3, (&first, &mut y))?;
//! assert_eq!(y.to_vec()?, [18, 6, 0]);
//! # Ok::<(), ct::Error>(())
//! ```

mod access;
mod array;

use super::memory::element_index::{AxisIndex, Component, Request, Span, Target};
use crate::dtype::DType;
use crate::element::{ByteSized, Element, Int};
use crate::ir::op_table::Effect;
use crate::ir::{Elem, Opcode, Type};
use crate::sealed::Sealed;
use crate::tile::{Array, Handle, Place, Scalar, Tile, Trace, ValueHandle, caller_location, record};

pub use crate::tile::{Ptr, PtrTile};

/// An offset of a [`Ptr`] in elements. With a number (i64) or a `Scalar` of integers the result is
/// a [`Ptr`]. With a tile of integers it is a [`PtrTile`] of its rank. With a range (`0..64`, of
/// usize, or [`span`](crate::span)) it is a [`PtrTile`] with one axis.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn ends(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     let first = x.pointer();
///     // SAFETY: launched with four elements.
///     let [last, pair] = unsafe { [first.offset(3).load().to_tile::<1>(), first.offset(1..3).load().sum(0)] };
///     y.store(0, ct::cat([last, pair], 0));
/// }
///
/// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
/// ct::launch(ends, 1, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [4, 5]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of elements",
    note = "a pointer is moved by an i64, a `Scalar` or `Tile` of integers, or a range of usize"
)]
pub trait Offsets: Sealed {
    /// The type of the moved pointers.
    type Pointers<T: ByteSized>: Handle;
    #[doc(hidden)]
    fn offsets(self) -> (Component, usize);
}

macro_rules! offsets {
    ($([$($generics:tt)*] $ty:ty => $rank:expr, $pointers:ty;)+) => {$(
        impl<$($generics)*> Offsets for $ty {
            type Pointers<T: ByteSized> = $pointers;
            fn offsets(self) -> (Component, usize) {
                (AxisIndex::<{ $rank }>::component(self), $rank)
            }
        }
    )+};
}
offsets! {
    [] i64 => 0, Ptr<T>;
    [I: Int] Scalar<I> => 0, Ptr<T>;
    [] Span => 1, PtrTile<T, 1>;
    [] std::ops::Range<usize> => 1, PtrTile<T, 1>;
}
impl<I: Int, const N: usize> Offsets for Tile<I, N> {
    type Pointers<T: ByteSized> = PtrTile<T, N>;
    fn offsets(self) -> (Component, usize) {
        (AxisIndex::<N>::component(self), N)
    }
}

impl Trace {
    /// Returns the type of pointers to elements.
    fn pointer_type(pointee: DType, shape: Vec<i64>) -> Type {
        Type::Tile { elem: Elem::Ptr { pointee, attr: None }, shape }
    }

    /// Emits pointers that are moved by a number of elements. Offsets and pointers are broadcast
    /// together.
    fn offset(
        &mut self,
        place: Place,
        pointee: DType,
        pointers: ValueHandle,
        by: &Component,
        rank: usize,
    ) -> ValueHandle {
        self.at(place);
        let poison = Self::pointer_type(pointee, vec![1; rank]);
        let moved = self.offset_value(place, pointee, pointers, by, rank);
        match moved {
            Some(moved) => self.raw(moved),
            None => self.poison(poison),
        }
    }

    fn offset_value(
        &mut self,
        place: Place,
        dtype: DType,
        pointers: ValueHandle,
        by: &Component,
        rank: usize,
    ) -> Option<crate::ir::Value> {
        let base = self.check_usable(pointers, place)?;
        if !self.admits(place, Effect::Pure, rank) {
            return None;
        }
        let elements = self.position((place, "offset"), rank, 0, by)?;
        let target = Target::Pointers(pointers);
        let request = Request { place, name: "offset", target, dtype, rank, others: &[], mask: None, unchecked: true };
        let shape = self.stretched(&request, &[("pointers", base), ("offset", elements)])?;
        let elements = self.signed_offset(elements, by);
        let elements = self.stretch(elements, &shape);
        let base = self.stretch_pointer(base, dtype, &shape);
        Some(self.pointers(dtype, base, elements, &shape))
    }

    /// Emits a conversion between pointers and integers.
    fn converted_pointer(&mut self, place: Place, code: Opcode, from: ValueHandle, to: Elem) -> ValueHandle {
        self.at(place);
        let ty = Type::Tile { elem: to, shape: self.shape(from) };
        let Some(value) = self.check_usable(from, place) else { return self.poison(ty) };
        if !self.admits(place, Effect::Pure, self.shape(from).len()) {
            return self.poison(ty);
        }
        let id = self.builder.module.intern(ty);
        let value = self.emit(code, &[&[value]], vec![], vec![], &[id])[0];
        self.raw(value)
    }
}

const fn to<T: Element>() -> Elem {
    Elem::Ptr { pointee: T::DTYPE, attr: None }
}

macro_rules! pointers {
    ($([$($generics:tt)*] $ty:ty, $addresses:ty, $with:ident [$($rank:tt)*];)+) => {$(
        impl<T: ByteSized, $($generics)*> $ty {
            /// Returns the same addresses for elements of another type. An address that is accessed
            /// is a multiple of its size.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// // Clears the signs of floats in place.
            /// fn magnitudes(x: ArrayMut<f32, 1>) {
            ///     // SAFETY: 4 elements of the array, which has as many.
            ///     let bits = unsafe { x.pointer().cast::<u32>().offset(0..4) };
            ///     unsafe { bits.atomic_and(0x7fff_ffff) };
            /// }
            ///
            /// let mut x = ct::Device::cpu().array(&[1.0f32, -2.0, -0.5, 4.0], [4])?;
            /// ct::launch(magnitudes, 1, (&mut x,))?;
            /// assert_eq!(x.to_vec()?, [1.0, 2.0, 0.5, 4.0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn cast<U: ByteSized>(self) -> $with<U $($rank)*> {
                let place = caller_location();
                Handle::from_raw(record(|t| t.converted_pointer(place, Opcode::PtrToPtr, self.raw(), to::<U>())))
            }

            /// Returns the addresses, in bytes.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn aligned(x: Array<i32, 1>, y: ArrayMut<i64, 1>) {
            ///     y.store_scalar(0, x.pointer().addr() % 4);
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().full([4], 1)?, ct::Device::cpu().full([1], 9i64)?);
            /// ct::launch(aligned, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub fn addr(self) -> $addresses {
                let place = caller_location();
                let number = Elem::Num(DType::I64);
                Handle::from_raw(record(|t| t.converted_pointer(place, Opcode::PtrToInt, self.raw(), number)))
            }

            /// Returns pointers with these addresses. See [`pointer`](crate::pointer) for an
            /// example.
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer) holds wherever they are accessed.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// fn second(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
            ///     let address = x.pointer().addr() + 4;
            ///     // SAFETY: launched with four elements.
            ///     y.store_scalar(0, unsafe { ct::Ptr::<i32>::from_addr(address).load() });
            /// }
            ///
            /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([1])?);
            /// ct::launch(second, 1, (&x, &mut y))?;
            /// assert_eq!(y.to_vec()?, [2]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[track_caller]
            #[must_use]
            pub unsafe fn from_addr(addresses: $addresses) -> Self {
                let place = caller_location();
                Handle::from_raw(record(|t| {
                    t.converted_pointer(place, Opcode::IntToPtr, addresses.raw(), to::<T>())
                }))
            }
        }
    )+};
}
pointers! {
    [] Ptr<T>, Scalar<i64>, Ptr [];
    [const N: usize] PtrTile<T, N>, Tile<i64, N>, PtrTile [, N];
}

impl<T: ByteSized> Ptr<T> {
    /// Returns the pointer moved by a number of elements, which may be negative, or a tile of such
    /// pointers. Offsets of type u32 and of 64-bit types are computed in 64 bits.
    ///
    /// # Safety
    /// The contract of [`pointer`](crate::pointer) holds wherever the result is accessed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn reversed(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     // SAFETY: launched with four elements.
    ///     y.store(0, unsafe { x.pointer().offset(3).offset(ct::arange_from(4, 0, -1)).load() });
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([4])?);
    /// ct::launch(reversed, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [4, 3, 2, 1]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub unsafe fn offset<O: Offsets>(self, elements: O) -> O::Pointers<T> {
        let (place, (by, rank)) = (caller_location(), elements.offsets());
        Handle::from_raw(record(|t| t.offset(place, T::DTYPE, self.raw(), &by, rank)))
    }
}

impl<T: ByteSized, const N: usize> PtrTile<T, N> {
    /// Returns the pointers moved by numbers of elements, which may be negative: a tile, which is
    /// broadcast together with the pointers, a scalar, a number, or a range along axis 0.
    ///
    /// # Safety
    /// The contract of [`pointer`](crate::pointer) holds wherever the result is accessed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn later(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     // SAFETY: launched with four elements.
    ///     y.store(0, unsafe { x.pointer().offset(0..2).offset(2).load() });
    /// }
    ///
    /// let (x, mut y) = (ct::Device::cpu().array(&[1, 2, 3, 4], [4])?, ct::Device::cpu().zeros([2])?);
    /// ct::launch(later, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3, 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub unsafe fn offset(self, elements: impl AxisIndex<N>) -> PtrTile<T, N> {
        let (place, by) = (caller_location(), elements.component());
        PtrTile::from_raw(record(|t| t.offset(place, T::DTYPE, self.raw(), &by, N)))
    }

    /// Returns the extents, in elements: host numbers, known during tracing.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// fn kernel(x: Array<i32, 1>) {
    ///     // SAFETY: nothing is accessed.
    ///     assert_eq!(unsafe { x.pointer().offset(0..4) }.shape(), [4]);
    /// }
    ///
    /// ct::launch(kernel, 1, (&ct::Device::cpu().full([4], 1)?,))?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn shape(self) -> [usize; N] {
        let shape = record(|t| t.shape(self.raw()));
        std::array::from_fn(|d| shape[d] as usize)
    }
}

impl<T: ByteSized, const R: usize> Array<T, R> {
    /// Returns the address of the element whose indices are all 0: see
    /// [`pointer`](crate::pointer). Along an axis, the elements of an array are
    /// `stride(axis)` elements apart.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn diagonal(x: Array<f32, 2>, y: ArrayMut<f32, 1>) {
    ///     let step = x.stride(0) + x.stride(1);
    ///     let n = ct::arange_from(4, 0i64, 1);
    ///     // SAFETY: elements (n, n) of an array of 3 by 3 elements; the mask leaves out the rest.
    ///     let found = unsafe { x.pointer().offset(n * step).load_with(ct::GatherOptions::new().mask(n.lt(3))) };
    ///     y.store(0, found);
    /// }
    ///
    /// let x = ct::Device::cpu().from_fn([3, 3], |[i, j]| (10 * i + j) as f32)?;
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(diagonal, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0.0, 11.0, 22.0, 0.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn pointer(&self) -> Ptr<T> {
        let place = caller_location();
        Ptr::from_raw(record(|t| match t.array_data(self.handle, place) {
            Some(data) => t.raw(data.base),
            None => t.poison(Type::ptr(T::DTYPE)),
        }))
    }
}
