//! Operators that tiles, scalars and arrays lack. Each has an implementation with a bound that no
//! type satisfies, whose diagnostic rustc prints.

use std::ops::{Add, Div, Index, Mul, Neg, Rem, Sub};

use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Scalar, Tile};

/// Bound of `tile[index]`, which no type satisfies.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let x = ct::astile([1, 2, 3, 4]);
/// ct::assert!(x.get(2).eq(3) & x.extract(1, [2]).eq(ct::astile([3, 4]))); // and not x[2]
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "a tile has no `[..]`: one element is `x.get(i)`, a part of it `x.extract(i, [n])`",
    label = "an index of a tile",
    note = "a tile is in the registers of many threads; its elements are combined by `sum`, `reduce_max` and operators; \
            see docs/common_errors.md"
)]
pub trait IndexOfTile: Sealed {}

/// Bound of `array[index]`, which no type satisfies.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn copy(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), 4)); // and not y[i] = x[i]
/// }
///
/// let (x, mut y) = (ct::Device::cpu().full([6], 2)?, ct::Device::cpu().zeros([6])?);
/// ct::launch(copy, 2, (&x, &mut y))?;
/// assert_eq!(y.to_vec()?, [2; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "an array has no `[..]`: read a tile by `a.load(i, [tile])`, write one by `c.store(i, tile)`",
    label = "an index of an array",
    note = "one element is `a.load_scalar(i)`, `c.store_scalar(i, x)`; \
            see docs/common_errors.md"
)]
pub trait IndexOfArray: Sealed {}

/// Bound of arithmetic on arrays, which no type satisfies.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn sum(a: Array<i32, 1>, b: Array<i32, 1>, c: ArrayMut<i32, 1>) {
///     let i = ct::bid(0);
///     c.store(i, a.load(i, 4) + b.load(i, 4)); // and not a + b
/// }
///
/// let (a, mut c) = (ct::Device::cpu().full([6], 2)?, ct::Device::cpu().zeros([6])?);
/// ct::launch(sum, 2, (&a, &a, &mut c))?;
/// assert_eq!(c.to_vec()?, [4; 6]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "arithmetic is on tiles, and not on whole arrays: load one first, `a.load(i, [tile])`",
    label = "an operand of an array",
    note = "without a kernel, on arrays of the host: `a.expr().zip(&b, |a, b| a + b)`; \
            see docs/common_errors.md"
)]
pub trait OperandOfArray: Sealed {}

/// Bound of conversions by names of other languages, which no type satisfies.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// ct::assert!(ct::astile([2.75f32, 3.0]).cast::<i32>().eq(ct::astile([2, 3]))); // and not astype
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "the conversion of a tile or scalar is `x.cast::<T>()`",
    label = "write `cast` here",
    note = "`cast_saturating` and `cast_with` have other roundings, `bitcast` keeps the bits; \
            see docs/common_errors.md"
)]
pub trait OtherNameOfCast: Sealed {}

impl<T, const R: usize> Tile<T, R> {
    /// Reports that the conversion has another name.
    #[doc(hidden)]
    pub fn astype<U>(self) -> Tile<U, R>
    where
        Self: OtherNameOfCast,
    {
        unreachable!("no type satisfies `OtherNameOfCast`")
    }

    /// Reports that the conversion has another name.
    #[doc(hidden)]
    pub fn to<U>(self) -> Tile<U, R>
    where
        Self: OtherNameOfCast,
    {
        unreachable!("no type satisfies `OtherNameOfCast`")
    }
}

impl<T, I: IndexOfTile, const R: usize> Index<I> for Tile<T, R> {
    type Output = Scalar<T>;
    fn index(&self, _: I) -> &Scalar<T> {
        unreachable!("no type is an `IndexOfTile`")
    }
}

macro_rules! operators_of_arrays {
    ($ty:ident: $($trait:ident $method:ident)+) => {
        impl<T, I: IndexOfArray, const R: usize> Index<I> for $ty<T, R> {
            type Output = Tile<T, R>;
            fn index(&self, _: I) -> &Tile<T, R> {
                unreachable!("no type is an `IndexOfArray`")
            }
        }
        $(impl<T, X: OperandOfArray, const R: usize> $trait<X> for $ty<T, R> {
            type Output = Tile<T, R>;
            fn $method(self, _: X) -> Tile<T, R> {
                unreachable!("no type is an `OperandOfArray`")
            }
        })+
    };
}
operators_of_arrays! { Array: Add add Sub sub Mul mul Div div Rem rem }
operators_of_arrays! { ArrayMut: Add add Sub sub Mul mul Div div Rem rem }

impl<T, const R: usize> Neg for Array<T, R>
where
    Array<T, R>: OperandOfArray,
{
    type Output = Tile<T, R>;
    fn neg(self) -> Tile<T, R> {
        unreachable!("no type is an `OperandOfArray`")
    }
}
