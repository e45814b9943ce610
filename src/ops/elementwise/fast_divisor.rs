//! Integer division by an invariant divisor, as a multiplication.
//!
//! T. Granlund and P. Montgomery, *Division by invariant integers using multiplication* (PLDI
//! 1994), figure 4.1.

use std::ops::{Div, Rem};

use crate::element::{CastTo, Int};
use crate::ops::create::construct::scalar;
use crate::ops::support::expr_builder::formula;
use crate::ops::support::operand::{Operand, operand};
use crate::tile::{Handle, Scalar, Tile, caller_location, with_location};

/// Element types that a [`Divisor`] divides: integers of 32 bits.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn digits<T: ct::math::Divides>(y: ArrayMut<T, 1>, n: Scalar<T>) {
///     let (tens, ones) = ct::math::Divisor::<T>::new(T::from_f64(10.0)).div_rem(n.to_tile::<1>());
///     y.store(0, ct::cat([tens, ones], 0));
/// }
///
/// let mut y = ct::Device::cpu().zeros([2])?;
/// ct::launch(digits::<u32>, 1, (&mut y, 42u32))?;
/// assert_eq!(y.to_vec()?, [4, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[diagnostic::on_unimplemented(message = "a `Divisor` is an i32 or u32, not `{Self}`")]
pub trait Divides: Int + CastTo<u32> + CastTo<i32> {}
impl Divides for i32 {}
impl Divides for u32 {}

/// A divisor with precomputed factor and shifts, known when the kernel runs. A division is a
/// product and two shifts, and for i32 the signs. The construction costs one 64-bit division.
///
/// The results are those of `/` and `%`: by zero, the quotient is 0 and the remainder is the
/// dividend.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn places(y: ArrayMut<i32, 1>, columns: Scalar<i32>) {
///     let columns = ct::math::Divisor::new(columns);
///     let (row, column) = columns.div_rem(ct::arange(0..16));
///     y.store(0, 10 * row + column);
/// }
///
/// let mut y = ct::Device::cpu().zeros([16])?;
/// ct::launch(places, 1, (&mut y, 6))?;
/// assert_eq!(y.to_vec()?, [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Divisor<T> {
    divisor: Scalar<T>,
    factor: Scalar<u32>,
    first: Scalar<u32>,
    second: Scalar<u32>,
}

impl<T: Divides> std::fmt::Debug for Divisor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Divisor of {}", T::NAME)
    }
}

impl<T: Divides> Divisor<T> {
    /// Prepares the division by a scalar of the kernel or a host number.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let six = ct::math::Divisor::new(ct::num_blocks(0) + 5);
    /// ct::assert!((ct::astile([17, -17]) / six).eq(ct::astile([2, -2])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn new(divisor: impl Operand<Scalar<T>>) -> Divisor<T> {
        let place = caller_location();
        let divisor: Scalar<T> = formula(place, "Divisor::new", &[operand::<Scalar<T>>(divisor)], |_, v| v[0]);
        with_location(place, || Divisor::of(divisor))
    }

    fn of(divisor: Scalar<T>) -> Divisor<T> {
        let magnitude = divisor.abs().cast::<u32>();
        // The number of bits of `divisor - 1`.
        let bits = 32 - (magnitude - 1).leading_zeros();
        let wide = magnitude.cast::<u64>();
        let rest = (scalar(1u64) << bits.cast::<u64>()) - wide;
        let factor = ((rest << 32) / wide + 1).cast::<u32>();
        // With factor 0 and these shifts the quotient is 0.
        let factor = magnitude.eq(0).select(0, factor);
        let (first, second) = (bits.min(1).cast::<u32>(), (bits - 1).max(0).cast::<u32>());
        Divisor { divisor, factor, first, second }
    }

    /// The divisor.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::math::Divisor::new(6i32).get().eq(6));
    /// # });
    /// ```
    #[must_use]
    pub fn get(self) -> Scalar<T> {
        self.divisor
    }

    /// Quotient and remainder: `(x / self, x % self)`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (quotient, rest) = ct::math::Divisor::new(6u32).div_rem(ct::astile([17, 6]));
    /// ct::assert!(quotient.eq(ct::astile([2, 1])) & rest.eq(ct::astile([5, 0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn div_rem<const R: usize>(self, x: Tile<T, R>) -> (Tile<T, R>, Tile<T, R>) {
        let quotient = self.quotient(x);
        (quotient, with_location(caller_location(), || x - quotient * self.divisor))
    }

    #[track_caller]
    fn quotient<const R: usize>(self, x: Tile<T, R>) -> Tile<T, R> {
        let unsigned = |x: Tile<u32, R>| {
            let high = x.mul_hi(self.factor);
            (((x - high) >> self.first) + high) >> self.second
        };
        with_location(caller_location(), || {
            if T::SIGNED {
                let x = x.cast::<i32>();
                let sign = x >> 31;
                let quotient = unsigned(((x ^ sign) - sign).cast::<u32>()).cast::<i32>();
                let sign = sign ^ (self.divisor.cast::<i32>() >> 31);
                // i32 and u32 are one type in the IR.
                Tile::from_raw(((quotient ^ sign) - sign).raw())
            } else {
                Tile::from_raw(unsigned(x.cast::<u32>()).raw())
            }
        })
    }
}

impl<T: Divides, const R: usize> Div<Divisor<T>> for Tile<T, R> {
    type Output = Tile<T, R>;
    #[track_caller]
    fn div(self, divisor: Divisor<T>) -> Tile<T, R> {
        divisor.quotient(self)
    }
}

impl<T: Divides, const R: usize> Rem<Divisor<T>> for Tile<T, R> {
    type Output = Tile<T, R>;
    #[track_caller]
    fn rem(self, divisor: Divisor<T>) -> Tile<T, R> {
        divisor.div_rem(self).1
    }
}
