//! Division with a stated direction of rounding, floored remainder, and high half of a product.

use super::arithmetic::{check_divisor, sign};
use super::compare::mask;
use crate::element::{Element, Int, Number};
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Overflow, Rounding, Sign, Value};
use crate::ops::support::operand::{BroadcastOperand, arg_of, elementwise, methods, value};
use crate::tile::{Arg, Place, Scalar, Tile, Trace, caller_location};

/// `a / b`, rounded in a direction. Floats are divided and then rounded to a whole number.
fn divide<T: Element>(t: &mut Trace, v: &[Value], shape: &[i64], rounding: Rounding) -> Value {
    let dtype = T::DTYPE;
    if !dtype.is_float() {
        // Tile IR has no floored unsigned division. Truncation is equal for unsigned integers.
        let rounding = if !T::SIGNED && rounding == Rounding::NegInf { Rounding::Zero } else { rounding };
        let attrs = vec![Attr::Sign(sign::<T>()), Attr::Rounding(rounding)];
        let quotient = t.put(Opcode::DivI, v, attrs, dtype, shape);
        t.written(quotient, [sign::<T>(); 2]);
        return quotient;
    }
    let quotient = t.put(Opcode::DivF, v, vec![Attr::Rounding(Rounding::NearestEven)], dtype, shape);
    match rounding {
        Rounding::NegInf => t.put(Opcode::Floor, &[quotient], vec![], dtype, shape),
        Rounding::PosInf => t.put(Opcode::Ceil, &[quotient], vec![], dtype, shape),
        _ => {
            let up = t.put(Opcode::Ceil, &[quotient], vec![], dtype, shape);
            let down = t.put(Opcode::Floor, &[quotient], vec![], dtype, shape);
            let negative = is_negative::<T>(t, quotient, shape);
            t.put(Opcode::Select, &[negative, up, down], vec![], dtype, shape)
        }
    }
}

fn is_negative<T: Element>(t: &mut Trace, x: Value, shape: &[i64]) -> Value {
    let zero = t.splat(T::DTYPE, 0, shape);
    mask(t, CmpPred::Lt, CmpOrder::Ordered, T::DTYPE, T::SIGNED, x, zero, shape)
}

/// Remainder with the sign of the divisor: the truncated remainder, plus the divisor if the signs
/// differ.
fn floored_remainder<T: Element>(t: &mut Trace, v: &[Value], shape: &[i64]) -> Value {
    let (dtype, is_float) = (T::DTYPE, T::DTYPE.is_float());
    let (rem, xor) = (if is_float { Opcode::RemF } else { Opcode::RemI }, Opcode::XorI);
    let attrs = if is_float { vec![] } else { vec![Attr::Sign(sign::<T>())] };
    let r = t.put(rem, v, attrs, dtype, shape);
    if !is_float {
        t.written(r, [sign::<T>(); 2]);
    }
    if !is_float && !T::SIGNED {
        return r;
    }
    let mask_type = bool::DTYPE;
    let zero = t.splat(dtype, 0, shape);
    let not_zero = mask(t, CmpPred::Ne, CmpOrder::Unordered, dtype, T::SIGNED, r, zero, shape);
    let signs_differ = match is_float {
        false => {
            let signs = t.put(xor, &[r, v[1]], vec![], dtype, shape);
            is_negative::<T>(t, signs, shape)
        }
        true => {
            let (a, b) = (is_negative::<T>(t, r, shape), is_negative::<T>(t, v[1], shape));
            t.put(xor, &[a, b], vec![], mask_type, shape)
        }
    };
    let moves = t.put(Opcode::AndI, &[not_zero, signs_differ], vec![], mask_type, shape);
    let (add, attr) = match is_float {
        true => (Opcode::AddF, Attr::Rounding(Rounding::NearestEven)),
        false => (Opcode::AddI, Attr::Overflow(Overflow::None)),
    };
    let moved = t.put(add, &[r, v[1]], vec![attr], dtype, shape);
    t.put(Opcode::Select, &[moves, moved, r], vec![], dtype, shape)
}

/// The upper half of the product. Tile IR has only the unsigned one. A negative operand adds the
/// other operand times 2^width to it, which is subtracted again.
fn high_product<T: Element>(t: &mut Trace, v: &[Value], shape: &[i64]) -> Value {
    let dtype = T::DTYPE;
    let unsigned = t.put(Opcode::MulHiI, v, vec![], dtype, shape);
    if !T::SIGNED {
        return unsigned;
    }
    let last_bit = t.splat(dtype, u64::from(dtype.bits() - 1), shape);
    [(v[0], v[1]), (v[1], v[0])].into_iter().fold(unsigned, |high, (x, other)| {
        let all_if_negative = t.put(Opcode::ShrI, &[x, last_bit], vec![Attr::Sign(Sign::Signed)], dtype, shape);
        let excess = t.put(Opcode::AndI, &[all_if_negative, other], vec![], dtype, shape);
        t.put(Opcode::SubI, &[high, excess], vec![Attr::Overflow(Overflow::None)], dtype, shape)
    })
}

/// Returns the operands of a division, and reports a divisor that is the constant 0.
fn checked(place: Place, name: &str, dividend: Arg, divisor: Arg) -> [Arg; 2] {
    check_divisor(place, name, divisor);
    [dividend, divisor]
}

methods! { [Number]
    /// `self / divisor`, rounded toward negative infinity. An integer quotient by zero is 0. Floats
    /// are divided, then floored.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([7, -7]).floor_div(2).eq(ct::astile([3, -4])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn floor_div(self, divisor: impl BroadcastOperand<Self>) -> Self {
        elementwise(caller_location(), "floor_div", &checked(caller_location(), "floor_div", value(self), arg_of::<Self>(divisor)), |t, v, shape| {
            divide::<T>(t, v, shape, Rounding::NegInf)
        })
    }

    /// `self / divisor`, rounded toward positive infinity. An integer quotient by zero is 0. Floats
    /// are divided, then rounded up.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([7, -7]).ceil_div(2).eq(ct::astile([4, -3])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn ceil_div(self, divisor: impl BroadcastOperand<Self>) -> Self {
        elementwise(caller_location(), "ceil_div", &checked(caller_location(), "ceil_div", value(self), arg_of::<Self>(divisor)), |t, v, shape| {
            divide::<T>(t, v, shape, Rounding::PosInf)
        })
    }

    /// `self / divisor`, rounded toward zero. For integers it is equal to `/`. Floats are divided,
    /// then truncated.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([7.0f32, -7.0]).trunc_div(2.0).eq(ct::astile([3.0, -3.0])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn trunc_div(self, divisor: impl BroadcastOperand<Self>) -> Self {
        elementwise(caller_location(), "trunc_div", &checked(caller_location(), "trunc_div", value(self), arg_of::<Self>(divisor)), |t, v, shape| {
            divide::<T>(t, v, shape, Rounding::Zero)
        })
    }

    /// Remainder of the floored division, with the sign of the divisor. An integer remainder by
    /// zero is `self`. The result of `%` has the sign of `self` instead.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([7, -7]).modulo(3).eq(ct::astile([1, 2])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn modulo(self, divisor: impl BroadcastOperand<Self>) -> Self {
        elementwise(caller_location(), "modulo", &checked(caller_location(), "modulo", value(self), arg_of::<Self>(divisor)), floored_remainder::<T>)
    }
}

methods! { [Int]
    /// The upper half of the double-width product.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([u32::MAX, 2]).mul_hi(1 << 31).eq(ct::astile([0x7fff_ffff, 1])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn mul_hi(self, factor: impl BroadcastOperand<Self>) -> Self {
        elementwise(caller_location(), "mul_hi", &[value(self), arg_of::<Self>(factor)], high_product::<T>)
    }
}
