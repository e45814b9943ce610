//! Bit counts and rotations, saturating arithmetic, and quotient with remainder of integers.
//!
//! The counts add adjacent bits, pairs and groups of four (H. Warren, *Hacker's Delight*, 5-1).

use super::convert::{Kind, convert};
use crate::element::Int;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, formula};
use crate::ops::support::operand::{BroadcastOperand, arg_of, elementwise, methods, value};
use crate::tile::{Scalar, Tile, TileLike, caller_location};

fn ones(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let shifted = |c: &mut ExprBuilder<'_>, x, n: u64| {
        let n = c.bits(n);
        c.shr(x, n)
    };
    let [twos, fours, eights] = [0x55, 0x33, 0x0f].map(|byte: u64| c.bits(byte * 0x0101_0101_0101_0101));
    let upper = shifted(c, x, 1);
    let upper = c.and(upper, twos);
    let pairs = c.subi(x, upper);
    let upper = shifted(c, pairs, 2);
    let (lower, upper) = (c.and(pairs, fours), c.and(upper, fours));
    let nibbles = c.addi(lower, upper);
    let upper = shifted(c, nibbles, 4);
    let sum = c.addi(nibbles, upper);
    let bytes = c.and(sum, eights);
    match u64::from(c.dtype.bits()) {
        8 => bytes,
        bits => {
            // The highest byte of the product is the sum of all bytes.
            let every = c.bits(0x0101_0101_0101_0101);
            let product = c.muli(bytes, every);
            shifted(c, product, bits - 8)
        }
    }
}

/// Sets all bits below the highest set bit.
fn smeared(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (mut x, mut step) = (x, 1);
    while step < u64::from(c.dtype.bits()) {
        let n = c.bits(step);
        let lower = c.shr(x, n);
        x = c.or(x, lower);
        step *= 2;
    }
    x
}

fn inverted(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let all = c.bits(u64::MAX);
    c.xor(x, all)
}

macro_rules! counts {
    ($($(#[$doc:meta])+ $name:ident = $prepare:expr;)+) => {
        methods! { [Int] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> <Self as TileLike>::With<i32> {
                elementwise(caller_location(), stringify!($name), &[value(self)], |t, v, shape| {
                    let mut c = ExprBuilder::new(t, T::DTYPE, false, shape);
                    let prepared = $prepare(&mut c, v[0]);
                    let count = ones(&mut c, prepared);
                    convert(t, count, Kind { dtype: T::DTYPE, signed: false }, Kind::of::<i32>(), shape)
                })
            }
        )+ }
    };
}

counts! {
    /// The number of bits that are set.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<u16, 1>, y: ArrayMut<i32, 2>) {
    ///     let x = x.load(0, [4]);
    ///     y.store((0, 0), ct::stack([x.count_ones(), x.leading_zeros(), x.trailing_zeros(), ct::zeros([4])], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0u16, 1, 0x0f30, 0xffff], [4])?, device.zeros([3, 4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0, 1, 6, 16, 16, 15, 4, 0, 16, 0, 4, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    count_ones = |_: &mut ExprBuilder<'_>, x| x;
    /// The number of zero bits above the highest set bit; the width if the element is 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0u16, 1]).leading_zeros().eq(ct::astile([16, 15])));
    /// # });
    /// ```
    leading_zeros = |c: &mut ExprBuilder<'_>, x| {
        let below = smeared(c, x);
        inverted(c, below)
    };
    /// The number of zero bits below the lowest set bit; the width if the element is 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0u16, 8]).trailing_zeros().eq(ct::astile([16, 3])));
    /// # });
    /// ```
    trailing_zeros = |c: &mut ExprBuilder<'_>, x| {
        let one = c.bits(1);
        let (less, others) = (c.subi(x, one), inverted(c, x));
        c.and(less, others)
    };
}

methods! { [Int]
    /// `self + other`, saturating at the ends of the range.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i8, 1>, y: ArrayMut<i8, 1>) {
    ///     let x = x.load(0, [2]);
    ///     y.store(0, ct::cat([x.saturating_add(100), x.saturating_sub(100)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[-100i8, 100], [2])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0, 127, -128, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn saturating_add(self, other: impl BroadcastOperand<Self>) -> Self {
        formula(caller_location(), "saturating_add", &[value(self), arg_of::<Self>(other)], |c, v| {
            let sum = c.addi(v[0], v[1]);
            if !T::SIGNED {
                let all = c.bits(u64::MAX);
                let wraps = c.is(CmpPred::Lt, sum, v[0]);
                return c.select(wraps, all, sum);
            }
            // Overflow: the sign of the sum differs from the signs of both operands.
            let (a, b) = (c.xor(v[0], sum), c.xor(v[1], sum));
            let differ = c.and(a, b);
            saturated(c, v[0], sum, differ)
        })
    }

    /// `self - other`, saturating at the ends of the range.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-100i8, 100]).saturating_sub(100).eq(ct::astile([-128, 0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn saturating_sub(self, other: impl BroadcastOperand<Self>) -> Self {
        formula(caller_location(), "saturating_sub", &[value(self), arg_of::<Self>(other)], |c, v| {
            let difference = c.subi(v[0], v[1]);
            if !T::SIGNED {
                let zero = c.bits(0);
                let wraps = c.is(CmpPred::Lt, v[0], v[1]);
                return c.select(wraps, zero, difference);
            }
            let (a, b) = (c.xor(v[0], v[1]), c.xor(v[0], difference));
            let differ = c.and(a, b);
            saturated(c, v[0], difference, differ)
        })
    }

    /// Rotates the bits to the left by `n` places. `n` counts modulo the width.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0x81u8, 0x40]).rotate_left(1).eq(ct::astile([0x03, 0x80])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rotate_left(self, n: impl BroadcastOperand<Self>) -> Self {
        formula(caller_location(), "rotate_left", &[value(self), arg_of::<Self>(n)], |c, v| rotated(c, v[0], v[1], true))
    }

    /// Rotates the bits to the right by `n` places. `n` counts modulo the width.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0x81u8, 0x40]).rotate_right(1).eq(ct::astile([0xc0, 0x20])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rotate_right(self, n: impl BroadcastOperand<Self>) -> Self {
        formula(caller_location(), "rotate_right", &[value(self), arg_of::<Self>(n)], |c, v| rotated(c, v[0], v[1], false))
    }

    /// Quotient, rounded toward zero, and remainder, with one division:
    /// `(self / divisor, self % divisor)`. By zero, the quotient is 0 and the remainder is `self`.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
    ///     let (quotient, remainder) = x.load(0, [4]).div_rem(7);
    ///     y.store(0, ct::cat([quotient, remainder], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[15, -15, 6, 0], [4])?, device.zeros([8])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [2, -2, 0, 0, 1, -1, 6, 0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn div_rem(self, divisor: impl BroadcastOperand<Self>) -> (Self, Self) {
        let divisor = arg_of::<Self>(divisor);
        let quotient: Self = formula(caller_location(), "div_rem", &[value(self), divisor], |c, v| c.divi(v[0], v[1]));
        let remainder = formula(caller_location(), "div_rem", &[value(self), value(quotient), divisor], |c, v| {
            let whole = c.muli(v[1], v[2]);
            c.subi(v[0], whole)
        });
        (quotient, remainder)
    }
}

/// `result`, or the end of the range with the sign of `a` if `differ` is negative.
fn saturated(c: &mut ExprBuilder<'_>, a: Value, result: Value, differ: Value) -> Value {
    let bits = u64::from(c.dtype.bits());
    let (places, largest) = (c.bits(bits - 1), c.bits((1 << (bits - 1)) - 1));
    let sign = c.sar(a, places);
    let end = c.xor(sign, largest);
    let beyond = c.is_number(CmpPred::Lt, differ, 0.0);
    c.select(beyond, end, result)
}

fn rotated(c: &mut ExprBuilder<'_>, x: Value, n: Value, left: bool) -> Value {
    let width = u64::from(c.dtype.bits());
    let (last, zero) = (c.bits(width - 1), c.bits(0));
    let minus = c.subi(zero, n);
    let (there, back) = (c.and(n, last), c.and(minus, last));
    let (up, down) = if left { (there, back) } else { (back, there) };
    let (upper, lower) = (c.shl(x, up), c.shr(x, down));
    c.or(upper, lower)
}
