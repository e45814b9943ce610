//! Bit reversal and funnel shifts of integers (H. Warren, *Hacker's Delight*, 7-1).

use crate::element::Int;
use crate::ir::Value;
use crate::ops::support::expr_builder::{ExprBuilder, formula};
use crate::ops::support::operand::{BroadcastOperand, arg_of, methods, value};
use crate::tile::{Scalar, Tile, caller_location};

methods! { [Int]
    /// Reverses the order of the bits.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<u8, 1>, y: ArrayMut<u8, 1>) {
    ///     let x = x.load(0, [2]);
    ///     y.store(0, ct::cat([x.reverse_bits(), x.funnel_shl(0xf0, 3)], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0b0001_0110u8, 1], [2])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [0b0110_1000, 0x80, 0b1011_0111, 0b1111]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn reverse_bits(self) -> Self {
        formula(caller_location(), "reverse_bits", &[value(self)], |c, v| reversed(c, v[0]))
    }

    /// Funnel shift to the left: the upper half of `(self:low) << n`, where `self:low` is the
    /// concatenation with `self` as the upper half. `n` counts modulo the width.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1u8, 0x80]).funnel_shl(0xf0, 3).eq(ct::astile([0b1111, 0b111])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn funnel_shl(self, low: impl BroadcastOperand<Self>, n: impl BroadcastOperand<Self>) -> Self {
        let operands = [value(self), arg_of::<Self>(low), arg_of::<Self>(n)];
        formula(caller_location(), "funnel_shl", &operands, |c, v| {
            let [there, back, one] = amounts(c, v[2]);
            let (upper, lower) = (c.shl(v[0], there), c.shr(v[1], one));
            let lower = c.shr(lower, back);
            c.or(upper, lower)
        })
    }

    /// Funnel shift to the right: the lower half of `(self:low) >> n`, where `self:low` is the
    /// concatenation with `self` as the upper half. `n` counts modulo the width.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1u8, 0x80]).funnel_shr(0xf0, 3).eq(ct::astile([0b0011_1110, 0b0001_1110])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn funnel_shr(self, low: impl BroadcastOperand<Self>, n: impl BroadcastOperand<Self>) -> Self {
        let operands = [value(self), arg_of::<Self>(low), arg_of::<Self>(n)];
        formula(caller_location(), "funnel_shr", &operands, |c, v| {
            let [there, back, one] = amounts(c, v[2]);
            let (upper, lower) = (c.shl(v[0], one), c.shr(v[1], there));
            let upper = c.shl(upper, back);
            c.or(upper, lower)
        })
    }
}

/// `n` modulo the width, `width - 1` less that number, and 1.
fn amounts(c: &mut ExprBuilder<'_>, n: Value) -> [Value; 3] {
    let (last, one) = (c.bits(u64::from(c.dtype.bits()) - 1), c.bits(1));
    let there = c.and(n, last);
    [there, c.xor(there, last), one]
}

/// Exchanges adjacent bits, then pairs, groups of four, and so on.
fn reversed(c: &mut ExprBuilder<'_>, mut x: Value) -> Value {
    let mut step = u64::from(c.dtype.bits()) / 2;
    let mut lower = u64::MAX >> (64 - step);
    while step > 0 {
        let (places, mask) = (c.bits(step), c.bits(lower));
        let upper = c.shr(x, places);
        let (upper, low) = (c.and(upper, mask), c.and(x, mask));
        let low = c.shl(low, places);
        x = c.or(upper, low);
        step /= 2;
        lower ^= lower << step;
    }
    x
}
