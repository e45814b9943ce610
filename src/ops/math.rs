//! Mathematical functions of floats: one row each.
//!
//! They work on f16, bf16, f32 and f64; the two 16-bit types are computed in f32 and rounded.

use super::operand::{Operand, elementwise, methods, operand, uniform, value};
use crate::element::{Element, Float, Number};
use crate::ir::{Attr, CmpOrder, CmpPred, Opcode, Rounding};
use crate::ops::compare::mask;
use crate::tile::{Scalar, Tile, TileLike, here};

macro_rules! unary_functions {
    ($($(#[$doc:meta])+ $name:ident = $code:ident $($rounding:ident)?;)+) => {
        // The bound stands at the method, so that the compiler's message is that of `Float`.
        methods! { [Element] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self
            where
                T: Float,
            {
                let attrs = vec![$(Attr::Rounding(Rounding::$rounding))?];
                uniform(here(), stringify!($name), Opcode::$code, attrs, &[value(self)])
            }
        )+ }
    };
}

unary_functions! {
    /// e to the power of each element.
    exp = Exp Full;
    /// 2 to the power of each element.
    exp2 = Exp2;
    /// Natural logarithm.
    log = Log;
    /// Logarithm to base 2.
    log2 = Log2;
    /// Square root, rounded to nearest even.
    sqrt = Sqrt NearestEven;
    /// `1 / sqrt(self)`.
    rsqrt = Rsqrt;
    /// Sine of an angle in radians.
    sin = Sin;
    /// Cosine of an angle in radians.
    cos = Cos;
    /// Tangent of an angle in radians.
    tan = Tan;
    /// Hyperbolic sine.
    sinh = Sinh;
    /// Hyperbolic cosine.
    cosh = Cosh;
    /// Hyperbolic tangent.
    tanh = Tanh Full;
    /// The largest whole number that is not above.
    floor = Floor;
    /// The smallest whole number that is not below.
    ceil = Ceil;
}

methods! { [Float]
    /// `self` to the power of `exponent`.
    #[track_caller]
    #[must_use]
    pub fn pow(self, exponent: impl Operand<Self>) -> Self {
        uniform(here(), "pow", Opcode::PowF, vec![], &[value(self), operand::<Self>(exponent)])
    }

    /// `self` to a whole power.
    #[track_caller]
    #[must_use]
    pub fn powi(self, exponent: impl Operand<<Self as TileLike>::With<i32>>) -> Self {
        let exponent = operand::<<Self as TileLike>::With<i32>>(exponent);
        uniform(here(), "powi", Opcode::PowI, vec![], &[value(self), exponent])
    }

    /// The angle of the point (x, `self`) in radians, between -π and π: `y.atan2(x)`.
    #[track_caller]
    #[must_use]
    pub fn atan2(self, x: impl Operand<Self>) -> Self {
        uniform(here(), "atan2", Opcode::Atan2, vec![], &[value(self), operand::<Self>(x)])
    }

    /// Is each element NaN?
    #[track_caller]
    #[must_use]
    pub fn isnan(self) -> <Self as TileLike>::With<bool> {
        elementwise(here(), "isnan", &[value(self)], |t, v, shape| {
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
                uniform(here(), stringify!($name), Opcode::$code, attrs, &[value(self)])
            }
        }
        impl Scalar<f32> {
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self {
                let attrs = vec![Attr::Rounding(Rounding::Approx)];
                uniform(here(), stringify!($name), Opcode::$code, attrs, &[value(self)])
            }
        }
    )+};
}
approximations! {
    /// e to the power of each element, by the hardware's fast path: 2^(x · log2 e).
    exp_approx = Exp;
    /// Hyperbolic tangent by the hardware's fast instruction.
    tanh_approx = Tanh;
}

methods! { [Number]
    /// The magnitude. Floats only lose their sign bit; of signed integers the smallest one stays as it is
    /// (wrapping), unsigned integers stay as they are.
    #[track_caller]
    #[must_use]
    pub fn abs(self) -> Self {
        match (T::DTYPE.is_float(), T::SIGNED) {
            (true, _) => uniform(here(), "abs", Opcode::AbsF, vec![], &[value(self)]),
            (false, true) => uniform(here(), "abs", Opcode::AbsI, vec![], &[value(self)]),
            (false, false) => self,
        }
    }
}
