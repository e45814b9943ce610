//! Element types of random kernels.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::prelude::*;

use crate::data::format_of;
use crate::format::{Format, Real, Round};

/// Applies a macro to every kind of arrays: variant and type, floats and small floats first.
macro_rules! each_kind {
    ($then:ident) => {
        $then! {
            F32 f32 f32s, F16 f16 f16s, Bf16 bf16 bf16s, F64 f64 f64s,
            Tf32 tf32 tf32s, E4m3 f8e4m3fn e4m3s, E5m2 f8e5m2 e5m2s, E8m0 f8e8m0fnu e8m0s;
            I8 i8 i8s, I16 i16 i16s, I32 i32 i32s, I64 i64 i64s,
            U8 u8 u8s, U16 u16 u16s, U32 u32 u32s, U64 u64 u64s, Bool bool bools
        }
    };
}
pub(super) use each_kind;

macro_rules! kinds {
    ($($float:ident $fty:ident $fname:ident),+; $($int:ident $ity:ident $iname:ident),+) => {
        /// An element type. `F4` is for values alone: it has no arrays.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($float,)+
            $($int,)+
            F4,
        }

        impl Kind {
            /// Those that arrays have.
            pub const ARRAYS: &'static [Kind] = &[$(Kind::$float,)+ $(Kind::$int,)+];

            /// The name of the type.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$float => stringify!($fty),)+
                    $(Kind::$int => stringify!($ity),)+
                    Kind::F4 => "f4e2m1fn",
                }
            }

            /// Width of an element.
            pub fn bits(self) -> u32 {
                match self {
                    $(Kind::$float => <$fty as Element>::DTYPE.bits(),)+
                    $(Kind::$int => <$ity as Element>::DTYPE.bits(),)+
                    Kind::F4 => 4,
                }
            }

            fn format(self) -> Option<Format> {
                match self {
                    $(Kind::$float => format_of(<$fty as Element>::DTYPE),)+
                    Kind::F4 => Some(Format::F4E2M1FN),
                    _ => None,
                }
            }
        }

        /// A tile of any kind.
        #[derive(Clone, Copy)]
        pub enum Value {
            $($float(Tile<$fty, 2>),)+
            $($int(Tile<$ity, 2>),)+
            F4(Tile<f4e2m1fn, 2>),
        }

        impl ct::ops::LoopState for Value {
            fn flatten(&self, out: &mut ct::ops::Values) {
                match self {
                    $(Value::$float(tile) => tile.flatten(out),)+
                    $(Value::$int(tile) => tile.flatten(out),)+
                    Value::F4(tile) => tile.flatten(out),
                }
            }
            fn unflatten(&self, from: &mut ct::ops::Values) -> Value {
                match self {
                    $(Value::$float(tile) => Value::$float(tile.unflatten(from)),)+
                    $(Value::$int(tile) => Value::$int(tile.unflatten(from)),)+
                    Value::F4(tile) => Value::F4(tile.unflatten(from)),
                }
            }
        }

        /// Element types of values.
        pub trait Held: Element {
            fn hold(tile: Tile<Self, 2>) -> Value;
            fn tile(value: Value) -> Tile<Self, 2>;
        }
        kinds!(@held $($float $fty)+ $($int $ity)+ F4 f4e2m1fn);
    };
    (@held $($kind:ident $ty:ident)+) => {$(
        impl Held for $ty {
            fn hold(tile: Tile<$ty, 2>) -> Value {
                Value::$kind(tile)
            }
            fn tile(value: Value) -> Tile<$ty, 2> {
                match value {
                    Value::$kind(tile) => tile,
                    _ => unreachable!("programs are well-typed"),
                }
            }
        }
    )+};
}
each_kind!(kinds);

impl Kind {
    /// Types with arithmetic and functions.
    pub const FLOATS: &'static [Kind] = &[Kind::F32, Kind::F16, Kind::Bf16, Kind::F64];
    pub const SIGNED: &'static [Kind] = &[Kind::I32, Kind::I8, Kind::I16, Kind::I64];
    pub const INTS: &'static [Kind] =
        &[Kind::I32, Kind::I8, Kind::I16, Kind::I64, Kind::U8, Kind::U16, Kind::U32, Kind::U64];
    /// Types with atomic operations on bits, and exchanges.
    pub const ATOMIC: &'static [Kind] = &[Kind::I32, Kind::I64, Kind::U32, Kind::U64];

    pub fn is_float(self) -> bool {
        self.format().is_some()
    }

    pub fn is_arithmetic_float(self) -> bool {
        Kind::FLOATS.contains(&self)
    }

    pub fn is_int(self) -> bool {
        Kind::INTS.contains(&self)
    }

    pub fn is_signed(self) -> bool {
        Kind::SIGNED.contains(&self)
    }

    /// Integers: the least and the largest one.
    pub fn range(self) -> (i128, i128) {
        let bits = self.bits();
        if self.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    }

    /// The integer with the low bits of `x`.
    pub fn wrapped(self, x: i128) -> Number {
        let (bits, (_, most)) = (self.bits(), self.range());
        let low = x & ((1 << bits) - 1);
        Number::Int(if low > most { low - (1 << bits) } else { low })
    }

    /// A real number rounded as arithmetic of this type rounds it.
    pub fn rounded(self, real: Real) -> Number {
        self.rounded_by(real, Round::NearestEven)
    }

    pub fn rounded_by(self, real: Real, round: Round) -> Number {
        let format = self.format().expect("a float");
        // Results of f64 arithmetic are already rounded.
        Number::Float(if self == Kind::F64 { real.near } else { format.round(real, round) })
    }

    /// Returns the result of a conversion: types of 8 and 4 bits saturate; the scale type has no
    /// sign, fp4 no NaN.
    pub fn converted(self, exact: Real) -> Number {
        let format = self.format().expect("a float");
        let mut exact = exact;
        if self == Kind::F4 && exact.near.is_nan() {
            return Number::Float(format.largest());
        }
        let mut round = Round::NearestEven;
        if self == Kind::E8m0 {
            round = Round::Zero;
            if exact.near.is_sign_negative() {
                exact = Real { near: -exact.near, rest: -exact.rest };
            }
        }
        let Number::Float(rounded) = self.rounded_by(exact, round) else { unreachable!("a float") };
        let saturates = self.bits() <= 8 && rounded.is_infinite();
        Number::Float(if saturates { format.largest().copysign(rounded) } else { rounded })
    }

    /// The number with this bit pattern.
    pub fn of_bits(self, bits: u64) -> Number {
        macro_rules! float {
            ($($kind:ident $ty:ident)+) => {
                match self {
                    $(Kind::$kind => Number::Float(<$ty as Element>::from_bits(bits).to_f64()),)+
                    _ => self.wrapped(bits.into()),
                }
            };
        }
        float!(F32 f32 F16 f16 Bf16 bf16 F64 f64 Tf32 tf32 E4m3 f8e4m3fn E5m2 f8e5m2 E8m0 f8e8m0fnu F4 f4e2m1fn)
    }

    /// The bit pattern of a number of this type (of a NaN: one of them).
    pub fn to_bits(self, number: Number) -> u64 {
        macro_rules! float {
            ($($kind:ident $ty:ident)+) => {
                match (self, number) {
                    $((Kind::$kind, Number::Float(x)) => Element::to_bits(<$ty as Element>::from_f64(x)),)+
                    (_, number) => number.int() as u64 & (u64::MAX >> (64 - self.bits())),
                }
            };
        }
        float!(F32 f32 F16 f16 Bf16 bf16 F64 f64 Tf32 tf32 E4m3 f8e4m3fn E5m2 f8e5m2 E8m0 f8e8m0fnu F4 f4e2m1fn)
    }

    /// The number of this float type next to `a` on the way to `b`.
    pub fn next_after(self, a: f64, b: f64) -> Number {
        if a.is_nan() || b.is_nan() {
            return Number::Float(f64::NAN);
        }
        if a == b {
            return Number::Float(b);
        }
        let bits = self.to_bits(Number::Float(a));
        let next = match a == 0.0 {
            true => self.to_bits(Number::Float(0f64.copysign(b))) + 1,
            false if (a < b) == (a > 0.0) => bits + 1,
            false => bits - 1,
        };
        self.of_bits(next)
    }

    /// Returns the number whose bits are all zero: of the scale type, which has no zero, its least
    /// number.
    pub fn zero(self) -> Number {
        self.of_bits(0)
    }
}

/// One element on the host: of floats the number, of integers and bool 0 or 1 the whole number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Float(f64),
    Int(i128),
}

impl Number {
    pub fn float(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Int(_) => unreachable!("programs are well-typed"),
        }
    }
    pub fn int(self) -> i128 {
        match self {
            Number::Int(x) => x,
            Number::Float(_) => unreachable!("programs are well-typed"),
        }
    }
    pub fn is_true(self) -> bool {
        self.int() != 0
    }
}
