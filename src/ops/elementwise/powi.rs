//! Powers with an integer exponent.

use super::compare::mask;
use crate::dtype::DType;
use crate::element::{Element, Number};
use crate::ir::{CmpOrder, CmpPred, Opcode, Value};
use crate::ops::support::expr_builder::ExprBuilder;
use crate::ops::support::operand::{Operand, elementwise, methods, operand, uniform, value};
use crate::tile::{Arg, Scalar, Source, Tile, TileLike, Trace, caller_location};

methods! { [Number]
    /// `self` to an integer power. Integers wrap. With a negative exponent, the integer power is
    /// that of 1 or -1, and 0 for all other bases.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, n: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let x = x.load(0, [4]);
    ///     y.store(0, ct::cat([x.powi(n.load(0, [4])), x.powi(3)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, n) = (device.array(&[2, -3, -1, 7], [4])?, device.array(&[10, 3, -5, -1], [4])?);
    /// let mut y = device.zeros([8])?;
    /// ct::launch(kernel, 1, (&x, &n, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1024, -27, -1, 0, 8, -27, -1, 343]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn powi(self, exponent: impl Operand<<Self as TileLike>::With<i32>>) -> Self {
        let exponent = operand::<<Self as TileLike>::With<i32>>(exponent);
        if T::DTYPE.is_float() {
            return uniform(caller_location(), "powi", Opcode::PowI, vec![], &[value(self), exponent]);
        }
        elementwise(caller_location(), "powi", &[value(self), exponent], |t, v, shape| match known(&exponent) {
            Some(n) => known_power::<T>(t, v[0], n, shape),
            None => power::<T>(t, v[0], v[1], shape),
        })
    }
}

/// Returns the exponent if it is constant during tracing.
fn known(exponent: &Arg) -> Option<i32> {
    match exponent.source {
        Source::Literal(bits) => Some(bits as u32 as i32),
        Source::Extent(extent) => i32::try_from(extent).ok(),
        Source::Value(_) => None,
    }
}

/// Binary exponentiation for a constant exponent: one product for each binary digit and each set
/// bit.
fn known_power<T: Element>(t: &mut Trace, x: Value, n: i32, shape: &[i64]) -> Value {
    if n < 0 {
        let n = t.splat(DType::I32, u64::from(n as u32), shape);
        return inverse::<T>(t, x, n, shape);
    }
    let mut c = ExprBuilder::new(t, T::DTYPE, T::SIGNED, shape);
    let (mut product, mut square, mut rest) = (None, x, n);
    while rest > 0 {
        if rest % 2 == 1 {
            product = Some(product.map_or(square, |product| c.muli(product, square)));
        }
        rest /= 2;
        if rest > 0 {
            square = c.muli(square, square);
        }
    }
    product.unwrap_or_else(|| c.bits(1))
}

fn power<T: Element>(t: &mut Trace, x: Value, n: Value, shape: &[i64]) -> Value {
    let mut square = x;
    let mut product = ExprBuilder::new(t, T::DTYPE, T::SIGNED, shape).bits(1);
    for digit in 0..31 {
        let counts = has(t, n, 1 << digit, shape);
        let mut c = ExprBuilder::new(t, T::DTYPE, T::SIGNED, shape);
        let next = c.muli(product, square);
        product = c.select(counts, next, product);
        if digit < 30 {
            square = c.muli(square, square);
        }
    }
    let inverse = inverse::<T>(t, x, n, shape);
    let negative = has(t, n, 1 << 31, shape);
    ExprBuilder::new(t, T::DTYPE, T::SIGNED, shape).select(negative, inverse, product)
}

/// Returns true if the exponent has this bit.
fn has(t: &mut Trace, n: Value, bit: u64, shape: &[i64]) -> Value {
    let mut c = ExprBuilder::new(t, DType::I32, true, shape);
    let (bit, zero) = (c.bits(bit), c.bits(0));
    let masked = c.and(n, bit);
    mask(t, CmpPred::Ne, CmpOrder::Ordered, DType::I32, true, masked, zero, shape)
}

/// Integer power with a negative exponent.
fn inverse<T: Element>(t: &mut Trace, x: Value, n: Value, shape: &[i64]) -> Value {
    let odd = has(t, n, 1, shape);
    let mut c = ExprBuilder::new(t, T::DTYPE, T::SIGNED, shape);
    let (zero, one) = (c.bits(0), c.bits(1));
    let is_one = c.is(CmpPred::Eq, x, one);
    let of_one = c.select(is_one, one, zero);
    if !T::SIGNED {
        return of_one;
    }
    let minus = c.bits(u64::MAX);
    let alternating = c.select(odd, minus, one);
    let is_minus = c.is(CmpPred::Eq, x, minus);
    c.select(is_minus, alternating, of_one)
}
