//! Mathematical functions of floats.
//!
//! Their element types are f16, bf16, f32 and f64. The 16-bit types are computed in f32 and
//! rounded.

use super::compare::mask;
use crate::element::{Element, Float, Number};
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Rounding};
use crate::ops::support::float_mode::{function, scoped};
use crate::ops::support::operand::{BroadcastOperand, arg_of, elementwise, methods, uniform, value};
use crate::tile::{Scalar, Tile, TileLike, caller_location};

macro_rules! unary_functions {
    ($($(#[$doc:meta])+ $name:ident = $code:ident $($rounding:ident)?;)+) => {
        // The bound is part of the method, so that the compiler's message is that of `Float`.
        methods! { [Element] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self
            where
                T: Float,
            {
                let attrs = scoped(Opcode::$code, T::DTYPE, vec![$(Attr::Rounding(Rounding::$rounding))?]);
                function(caller_location(), stringify!($name), Opcode::$code, attrs, self)
            }
        )+ }
    };
}

unary_functions! {
    /// e to the power of each element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::astile([0.0f32, f32::NEG_INFINITY]);
    /// ct::assert!(x.exp().eq(ct::astile([1.0, 0.0])));
    /// # });
    /// ```
    exp = Exp Full;
    /// 2 to the power of each element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([3.0f32, -1.0]).exp2().eq(ct::astile([8.0, 0.5])));
    /// # });
    /// ```
    exp2 = Exp2;
    /// Natural logarithm.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, 0.0]).log().eq(ct::astile([0.0, f32::NEG_INFINITY])));
    /// # });
    /// ```
    log = Log;
    /// Natural logarithm, as [`log`](Tile::log): the name in `std`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, 0.0]).ln().eq(ct::astile([0.0, f32::NEG_INFINITY])));
    /// # });
    /// ```
    ln = Log;
    /// Logarithm to base 2.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([8.0f32, 0.5]).log2().eq(ct::astile([3.0, -1.0])));
    /// # });
    /// ```
    log2 = Log2;
    /// Square root, rounded to nearest even.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([2.25f32, 16.0]).sqrt().eq(ct::astile([1.5, 4.0])));
    /// # });
    /// ```
    sqrt = Sqrt NearestEven;
    /// `1 / sqrt(self)`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([4.0f32, 0.0625]).rsqrt() - ct::astile([0.5, 4.0])).abs().lt(1e-6));
    /// # });
    /// ```
    rsqrt = Rsqrt;
    /// Sine of an angle in radians.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.5707964]).sin() - ct::astile([0.0, 1.0])).abs().lt(1e-6));
    /// # });
    /// ```
    sin = Sin;
    /// Cosine of an angle in radians.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.5707964]).cos() - ct::astile([1.0, 0.0])).abs().lt(1e-6));
    /// # });
    /// ```
    cos = Cos;
    /// Tangent of an angle in radians.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 0.7853982]).tan() - ct::astile([0.0, 1.0])).abs().lt(1e-6));
    /// # });
    /// ```
    tan = Tan;
    /// Hyperbolic sine.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).sinh() - ct::astile([0.0, 1.1752012])).abs().lt(1e-6));
    /// # });
    /// ```
    sinh = Sinh;
    /// Hyperbolic cosine.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).cosh() - ct::astile([1.0, 1.5430806])).abs().lt(1e-6));
    /// # });
    /// ```
    cosh = Cosh;
    /// Hyperbolic tangent.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0.0f32, 100.0]).tanh().eq(ct::astile([0.0, 1.0])));
    /// # });
    /// ```
    tanh = Tanh Full;
    /// The largest whole number that is at most the element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.5f32, -1.5]).floor().eq(ct::astile([1.0, -2.0])));
    /// # });
    /// ```
    floor = Floor;
    /// The smallest whole number that is at least the element.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.5f32, -1.5]).ceil().eq(ct::astile([2.0, -1.0])));
    /// # });
    /// ```
    ceil = Ceil;
}

methods! { [Float]
    /// `self` to the power of `exponent`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([2.0f32, 9.0]).pow(ct::astile([10.0, 0.5])) - ct::astile([1024.0, 3.0])).abs().lt(1e-3));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn pow(self, exponent: impl BroadcastOperand<Self>) -> Self {
        uniform(caller_location(), "pow", Opcode::PowF, vec![], &[value(self), arg_of::<Self>(exponent)])
    }

    /// `self` to the power of `exponent`, as [`pow`](Tile::pow): the name in `std`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([2.0f32, 9.0]).powf(0.5) - ct::astile([1.4142135, 3.0])).abs().lt(1e-6));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn powf(self, exponent: impl BroadcastOperand<Self>) -> Self {
        uniform(caller_location(), "powf", Opcode::PowF, vec![], &[value(self), arg_of::<Self>(exponent)])
    }

    /// Angle of the point (x, `self`) in radians, between -π and π: `y.atan2(x)`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (y, x) = (ct::astile([1.0f32, 0.0]), ct::astile([0.0, -1.0]));
    /// ct::assert!((y.atan2(x) - ct::astile([1.5707964, 3.1415927])).abs().lt(1e-6));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn atan2(self, x: impl BroadcastOperand<Self>) -> Self {
        uniform(caller_location(), "atan2", Opcode::Atan2, vec![], &[value(self), arg_of::<Self>(x)])
    }

    /// Returns true for each element that is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([f32::NAN, 1.0]).isnan().eq(ct::astile([true, false])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn isnan(self) -> <Self as TileLike>::With<bool> {
        elementwise(caller_location(), "isnan", &[value(self)], |t, v, shape| {
            mask(t, CmpPred::Ne, CmpOrder::Unordered, T::DTYPE, T::SIGNED, v[0], v[0], shape)
        })
    }
}

macro_rules! approximations {
    ($($(#[$doc:meta])+ $name:ident = $code:ident;)+) => {$(
        impl<const R: usize> Tile<f32, R> {
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self {
                let attrs = vec![Attr::Rounding(Rounding::Approx)];
                uniform(caller_location(), stringify!($name), Opcode::$code, attrs, &[value(self)])
            }
        }
        impl Scalar<f32> {
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self {
                let attrs = vec![Attr::Rounding(Rounding::Approx)];
                uniform(caller_location(), stringify!($name), Opcode::$code, attrs, &[value(self)])
            }
        }
    )+};
}
approximations! {
    /// e to the power of each element, by the fast path of the hardware: 2^(x · log2 e).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).exp_approx() - ct::astile([1.0, 2.7182817])).abs().lt(1e-5));
    /// # });
    /// ```
    exp_approx = Exp;
    /// Hyperbolic tangent by the fast instruction of the hardware.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).tanh_approx() - ct::astile([0.0, 0.7615942])).abs().lt(1e-3));
    /// # });
    /// ```
    tanh_approx = Tanh;
    /// Natural logarithm by the fast instruction of the hardware. The absolute error is 2^-21, or
    /// the relative error if the magnitude of the result exceeds 1. Subnormal numbers count as 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([1.0f32, 2.0]).log_approx() - ct::astile([0.0, 0.6931472])).abs().lt(1e-6));
    /// # });
    /// ```
    log_approx = Log;
    /// Logarithm to base 2 by the fast instruction of the hardware. The absolute error is 2^-21, or
    /// the relative error if the magnitude of the result exceeds 1. Subnormal numbers count as 0.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([1.0f32, 8.0]).log2_approx() - ct::astile([0.0, 3.0])).abs().lt(1e-6));
    /// # });
    /// ```
    log2_approx = Log2;
    /// Sine by the fast instruction of the hardware. The error is 2^-20 for arguments from -2π to
    /// 2π, and larger outside.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).sin_approx() - ct::astile([0.0, 0.841471])).abs().lt(2e-6));
    /// # });
    /// ```
    sin_approx = Sin;
    /// Cosine by the fast instruction of the hardware. The error is 2^-20 for arguments from -2π to
    /// 2π, and larger outside.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).cos_approx() - ct::astile([1.0, 0.5403023])).abs().lt(2e-6));
    /// # });
    /// ```
    cos_approx = Cos;
}

methods! { [Number]
    /// The magnitude. Floats lose their sign bit. The smallest signed integer is unchanged (it
    /// wraps), and unsigned integers are unchanged.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([-1.5f32, 2.0]).abs().eq(ct::astile([1.5, 2.0])));
    /// ct::assert!(ct::astile([-7i32, i32::MIN]).abs().eq(ct::astile([7, i32::MIN])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn abs(self) -> Self {
        match (T::DTYPE.is_float(), T::SIGNED) {
            (true, _) => uniform(caller_location(), "abs", Opcode::AbsF, vec![], &[value(self)]),
            (false, true) => uniform(caller_location(), "abs", Opcode::AbsI, vec![], &[value(self)]),
            (false, false) => self,
        }
    }
}
