//! Rounding, fractions, signs and classification of floats.

use crate::dtype::DType;
use crate::element::{Element, Float, Number, Signed};
use crate::ir::{CmpPred, Opcode, Value};
use crate::ops::support::expr_builder::{ExprBuilder, formula};
use crate::ops::support::operand::{BroadcastOperand, arg_of, elementwise, methods, value};
use crate::tile::{Scalar, Tile, TileLike, Trace, caller_location};

/// Number of fraction bits of a float type.
fn digits<T: Element>() -> i32 {
    match T::DTYPE {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F64 => 52,
        _ => 23,
    }
}

/// Rounds toward zero. A zero result keeps the sign of `x`.
fn truncated(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (down, up) = (c.floor(x), c.ceil(x));
    let negative = c.is_number(CmpPred::Lt, x, 0.0);
    c.select(negative, up, down)
}

/// The next float after `x` toward `other`. The bit patterns of floats ascend with the magnitude.
fn next_after<T: Element>(t: &mut Trace, x: Value, other: Value, shape: &[i64]) -> Value {
    let int = match T::DTYPE.bits() {
        16 => DType::I16,
        32 => DType::I32,
        _ => DType::I64,
    };
    let [bits, other_bits] = [x, other].map(|v| t.put(Opcode::Bitcast, &[v], vec![], int, shape));
    let mut c = ExprBuilder::new(t, T::DTYPE, true, shape);
    let sum = c.add(x, other);
    let (ascends, equal) = (c.is(CmpPred::Lt, x, other), c.is(CmpPred::Eq, x, other));
    let (positive, zero) = (c.is_number(CmpPred::Gt, x, 0.0), c.is_number(CmpPred::Eq, x, 0.0));
    let numbers = [c.is(CmpPred::Eq, x, x), c.is(CmpPred::Eq, other, other)];
    let mut c = ExprBuilder::new(t, int, true, shape);
    let (one, minus, top) = (c.bits(1), c.bits(u64::MAX), c.bits(1 << (int.bits() - 1)));
    let (outward, inward) = (c.select(ascends, one, minus), c.select(ascends, minus, one));
    let step = c.select(positive, outward, inward);
    let next = c.addi(bits, step);
    // The number after zero is the smallest one with the sign of `other`.
    let sign = c.and(other_bits, top);
    let first = c.or(sign, one);
    let next = c.select(zero, first, next);
    let next = c.select(equal, other_bits, next);
    let next = t.put(Opcode::Bitcast, &[next], vec![], T::DTYPE, shape);
    let mut c = ExprBuilder::new(t, T::DTYPE, true, shape);
    numbers.into_iter().fold(next, |next, number| c.select(number, next, sum))
}

methods! { [Float]
    /// The nearest whole number. Halves round away from zero, as by [`f32::round`].
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 2>) {
    ///     let x = x.load(0, [4]);
    ///     y.store((0, 0), ct::stack([x.round(), x.round_ties_even(), x.trunc(), x.fract()], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[2.5, -0.75, 3.5, 1e9], [4])?, device.zeros([4, 4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [3.0, -1.0, 4.0, 1e9, 2.0, -1.0, 4.0, 1e9, 2.0, -0.0, 3.0, 1e9, 0.5, -0.75, 0.5, 0.0]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn round(self) -> Self {
        formula(caller_location(), "round", &[value(self)], |c, v| {
            let whole = truncated(c, v[0]);
            let rest = c.sub(v[0], whole);
            let rest = c.abs(rest);
            let one = c.number(1.0);
            let step = c.with_sign_of(one, v[0]);
            let next = c.add(whole, step);
            let is_half = c.is_number(CmpPred::Ge, rest, 0.5);
            c.select(is_half, next, whole)
        })
    }

    /// The nearest whole number. Halves round to the even one, as by [`f32::round_ties_even`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.5f32, 3.5]).round_ties_even().eq(ct::astile([2.0, 4.0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn round_ties_even(self) -> Self {
        // At this magnitude floats have no fraction bits; the addition rounds to nearest even.
        let limit = 2f64.powi(digits::<T>());
        formula(caller_location(), "round_ties_even", &[value(self)], |c, v| {
            let magnitude = c.abs(v[0]);
            let large = c.number(limit);
            let sum = c.add(magnitude, large);
            let whole = c.sub(sum, large);
            let whole = c.with_sign_of(whole, v[0]);
            let has_digits = c.is(CmpPred::Lt, magnitude, large);
            c.select(has_digits, whole, v[0])
        })
    }

    /// The whole number toward zero.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.5f32, -2.5]).trunc().eq(ct::astile([2.0, -2.0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn trunc(self) -> Self {
        formula(caller_location(), "trunc", &[value(self)], |c, v| truncated(c, v[0]))
    }

    /// The fraction `self - self.trunc()`, exact. The fraction of an infinity is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.5f32, -2.25]).fract().eq(ct::astile([0.5, -0.25])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn fract(self) -> Self {
        formula(caller_location(), "fract", &[value(self)], |c, v| {
            let whole = truncated(c, v[0]);
            c.sub(v[0], whole)
        })
    }

    /// The magnitude of `self` with the sign of `sign`, also for zeros and NaNs.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.5f32, -1.0]).copysign(ct::astile([-0.0, 3.0])).eq(ct::astile([-2.5, 1.0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn copysign(self, sign: impl BroadcastOperand<Self>) -> Self {
        formula(caller_location(), "copysign", &[value(self), arg_of::<Self>(sign)], |c, v| c.with_sign_of(v[0], v[1]))
    }

    /// The next float after `self` toward `other`. The result is `other` if both are equal, and NaN
    /// if either is NaN.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [2]).nextafter(f32::INFINITY));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[1.0, f32::MAX], [2])?, device.zeros([2])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1.0 + f32::EPSILON, f32::INFINITY]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn nextafter(self, other: impl BroadcastOperand<Self>) -> Self {
        let operands = [value(self), arg_of::<Self>(other)];
        elementwise(caller_location(), "nextafter", &operands, |t, v, shape| next_after::<T>(t, v[0], v[1], shape))
    }

    /// Returns true for each element that is an infinity.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([f32::NEG_INFINITY, f32::NAN]).isinf().eq(ct::astile([true, false])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn isinf(self) -> <Self as TileLike>::With<bool> {
        self.magnitude_is("isinf", CmpPred::Eq)
    }

    /// Returns true for each element that is neither NaN nor an infinity.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).isfinite().eq(ct::astile([true, false])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn isfinite(self) -> <Self as TileLike>::With<bool> {
        self.magnitude_is("isfinite", CmpPred::Lt)
    }

    /// Compares the magnitude with infinity.
    #[track_caller]
    fn magnitude_is(self, name: &str, pred: CmpPred) -> <Self as TileLike>::With<bool> {
        elementwise(caller_location(), name, &[value(self)], |t, v, shape| {
            let mut c = ExprBuilder::new(t, T::DTYPE, true, shape);
            let magnitude = c.abs(v[0]);
            c.is_number(pred, magnitude, f64::INFINITY)
        })
    }
}

methods! { [Signed]
    /// The sign as a number, as by Rust's `signum`. For floats it is 1 or -1, also for zeros, and
    /// NaN for NaN. For integers it is 1, 0 or -1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-2.5f32, 0.0]).signum().eq(ct::astile([-1.0, 1.0])));
    /// ct::assert!(ct::astile([-7i32, 0]).signum().eq(ct::astile([-1, 0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn signum(self) -> Self {
        formula(caller_location(), "signum", &[value(self)], |c, v| {
            let (one, minus) = (c.number(1.0), c.number(-1.0));
            if T::DTYPE.is_float() {
                let sign = c.with_sign_of(one, v[0]);
                let is_number = c.is(CmpPred::Eq, v[0], v[0]);
                return c.select(is_number, sign, v[0]);
            }
            let (positive, negative) = (c.is_number(CmpPred::Gt, v[0], 0.0), c.is_number(CmpPred::Lt, v[0], 0.0));
            let zero = c.number(0.0);
            let sign = c.select(negative, minus, zero);
            c.select(positive, one, sign)
        })
    }
}

methods! { [Number]
    /// `self * self`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-3i32, 4]).square().eq(ct::astile([9, 16])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn square(self) -> Self {
        formula(caller_location(), "square", &[value(self)], |c, v| {
            if T::DTYPE.is_float() { c.mul(v[0], v[0]) } else { c.muli(v[0], v[0]) }
        })
    }
}
