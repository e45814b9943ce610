//! Types of 1 to 8 bits: their codes, and the numbers of the codes.

use super::convert::cast;
use super::row::*;
use crate::format::{Format, Real, Round, Special};

/// Format of codes.
#[derive(Clone, Copy)]
pub enum Narrow {
    Int(u32),
    UInt(u32),
    /// Exponent and fraction bits, and a sign.
    Float(u32, u32),
    /// f8e5m3fnu: no sign, the last code is NaN.
    Scale,
}

impl Narrow {
    pub fn bits(self) -> u32 {
        match self {
            Narrow::Int(bits) | Narrow::UInt(bits) => bits,
            Narrow::Float(exponent, fraction) => 1 + exponent + fraction,
            Narrow::Scale => 8,
        }
    }

    /// Returns the format of the magnitudes of floats.
    fn format(self) -> Format {
        let (exponent, fraction, special) = match self {
            Narrow::Float(exponent, fraction) => (exponent, fraction, Special::Finite),
            _ => (5, 3, Special::NanOnly),
        };
        Format { exponent, fraction, bias: (1 << (exponent - 1)) - 1, special, signed: true }
    }

    /// Returns the value of a code without its higher bits.
    pub fn value(self, code: Number) -> Number {
        let code = code.int() & ((1 << self.bits()) - 1);
        match self {
            Narrow::UInt(_) => Number::Int(code),
            Narrow::Int(bits) => Number::Int(if code >> (bits - 1) == 1 { code - (1 << bits) } else { code }),
            Narrow::Scale if code == 0xff => Number::Float(f64::NAN),
            Narrow::Float(..) | Narrow::Scale => {
                let Format { exponent, fraction, bias, .. } = self.format();
                let (low, field) = (code & ((1 << fraction) - 1), (code >> fraction) & ((1 << exponent) - 1));
                let sign = if code >> (exponent + fraction) == 1 { -1.0 } else { 1.0 };
                let (units, power) = if field == 0 { (low, 1) } else { (low + (1 << fraction), field as i32) };
                Number::Float(sign * units as f64 * 2f64.powi(power - bias - fraction as i32))
            }
        }
    }

    /// The code of the nearest value; integers are cut toward zero.
    pub fn code(self, x: Number) -> Number {
        let mask = (1 << self.bits()) - 1;
        let near = match (self, x) {
            (Narrow::Int(bits), _) => {
                let whole = if let Number::Float(x) = x { x as i128 } else { x.int() };
                return Number::Int(whole.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) & mask);
            }
            (Narrow::UInt(_), _) => {
                let whole = if let Number::Float(x) = x { x as i128 } else { x.int() };
                return Number::Int(whole.clamp(0, mask));
            }
            (_, Number::Float(x)) => x,
            // Those that f64 has not are beyond all of these types.
            (_, Number::Int(x)) => x as f64,
        };
        let format = self.format();
        let near = match self {
            Narrow::Scale if near.is_nan() => return Number::Int(0xff),
            Narrow::Scale if near > 0.0 => near,
            Narrow::Scale => 0.0,
            _ if near.is_nan() => format.largest(),
            _ => near,
        };
        let rounded = format.round(Real::exact(near), Round::NearestEven);
        let is = |code: &i128| matches!(self.value(Number::Int(*code)), Number::Float(x) if x.to_bits() == rounded.to_bits());
        Number::Int((0..=mask).find(is).expect("a number of the type"))
    }
}

/// A row for each type: its codes, their values, and the codes of the next type.
macro_rules! narrow {
    ($($codes:literal $values:literal $name:ident $narrow:expr, $next:literal $to:ident $of:expr;)+) => {
        &[$(
            op! { $codes in "narrow", 2; args [Of(numbers)]; numbers [];
            |_, _, args| Some(vec![Form::new(Kind::U8, args[0].shape)]);
            [T: numbers] |x: Tile<T, 2>;;| { x.cast_narrow::<ct::packed::$name>().codes() }
            |e| e.map(|_, a| $narrow.code(a)) },
            op! { $values in "narrow", 2; args [Of(|k| k == Kind::U8)] kinds numbers; numbers []; to_kind;
            [U: numbers] |x: Tile<u8, 2>;;| { ct::packed::NarrowTile::<ct::packed::$name, 2>::from_codes(x).cast::<U>() }
            |e| {
                let to = e.step.kind;
                e.map(|_, a| cast(to, $narrow.value(a)))
            } },
            op! { $next in "narrow", 1; args [Of(|k| k == Kind::U8)]; numbers []; same;
            [] |x: Tile<u8, 2>;;| { ct::packed::NarrowTile::<ct::packed::$name, 2>::from_codes(x).cast_narrow::<ct::packed::$to>().codes() }
            |e| e.map(|_, a| $of.code($narrow.value(a))) },
        )+]
    };
}

pub const OPS: &[Op] = narrow! {
    "codes of i1" "values of i1" i1 Narrow::Int(1), "i1 to u5" u5 Narrow::UInt(5);
    "codes of i2" "values of i2" i2 Narrow::Int(2), "i2 to u6" u6 Narrow::UInt(6);
    "codes of i3" "values of i3" i3 Narrow::Int(3), "i3 to u7" u7 Narrow::UInt(7);
    "codes of i4" "values of i4" i4 Narrow::Int(4), "i4 to f3e1m1" f3e1m1 Narrow::Float(1, 1);
    "codes of i5" "values of i5" i5 Narrow::Int(5), "i5 to f4e1m2" f4e1m2 Narrow::Float(1, 2);
    "codes of i6" "values of i6" i6 Narrow::Int(6), "i6 to f4e2m1" f4e2m1 Narrow::Float(2, 1);
    "codes of i7" "values of i7" i7 Narrow::Int(7), "i7 to f5e1m3" f5e1m3 Narrow::Float(1, 3);
    "codes of u1" "values of u1" u1 Narrow::UInt(1), "u1 to f5e2m2" f5e2m2 Narrow::Float(2, 2);
    "codes of u2" "values of u2" u2 Narrow::UInt(2), "u2 to f5e3m1" f5e3m1 Narrow::Float(3, 1);
    "codes of u3" "values of u3" u3 Narrow::UInt(3), "u3 to f6e1m4" f6e1m4 Narrow::Float(1, 4);
    "codes of u4" "values of u4" u4 Narrow::UInt(4), "u4 to f6e2m3" f6e2m3 Narrow::Float(2, 3);
    "codes of u5" "values of u5" u5 Narrow::UInt(5), "u5 to f6e3m2" f6e3m2 Narrow::Float(3, 2);
    "codes of u6" "values of u6" u6 Narrow::UInt(6), "u6 to f6e4m1" f6e4m1 Narrow::Float(4, 1);
    "codes of u7" "values of u7" u7 Narrow::UInt(7), "u7 to f7e1m5" f7e1m5 Narrow::Float(1, 5);
    "codes of f3e1m1" "values of f3e1m1" f3e1m1 Narrow::Float(1, 1), "f3e1m1 to f7e2m4" f7e2m4 Narrow::Float(2, 4);
    "codes of f4e1m2" "values of f4e1m2" f4e1m2 Narrow::Float(1, 2), "f4e1m2 to f7e3m3" f7e3m3 Narrow::Float(3, 3);
    "codes of f4e2m1" "values of f4e2m1" f4e2m1 Narrow::Float(2, 1), "f4e2m1 to f7e4m2" f7e4m2 Narrow::Float(4, 2);
    "codes of f5e1m3" "values of f5e1m3" f5e1m3 Narrow::Float(1, 3), "f5e1m3 to f7e5m1" f7e5m1 Narrow::Float(5, 1);
    "codes of f5e2m2" "values of f5e2m2" f5e2m2 Narrow::Float(2, 2), "f5e2m2 to f8e5m3fnu" f8e5m3fnu Narrow::Scale;
    "codes of f5e3m1" "values of f5e3m1" f5e3m1 Narrow::Float(3, 1), "f5e3m1 to i1" i1 Narrow::Int(1);
    "codes of f6e1m4" "values of f6e1m4" f6e1m4 Narrow::Float(1, 4), "f6e1m4 to i2" i2 Narrow::Int(2);
    "codes of f6e2m3" "values of f6e2m3" f6e2m3 Narrow::Float(2, 3), "f6e2m3 to i3" i3 Narrow::Int(3);
    "codes of f6e3m2" "values of f6e3m2" f6e3m2 Narrow::Float(3, 2), "f6e3m2 to i4" i4 Narrow::Int(4);
    "codes of f6e4m1" "values of f6e4m1" f6e4m1 Narrow::Float(4, 1), "f6e4m1 to i5" i5 Narrow::Int(5);
    "codes of f7e1m5" "values of f7e1m5" f7e1m5 Narrow::Float(1, 5), "f7e1m5 to i6" i6 Narrow::Int(6);
    "codes of f7e2m4" "values of f7e2m4" f7e2m4 Narrow::Float(2, 4), "f7e2m4 to i7" i7 Narrow::Int(7);
    "codes of f7e3m3" "values of f7e3m3" f7e3m3 Narrow::Float(3, 3), "f7e3m3 to u1" u1 Narrow::UInt(1);
    "codes of f7e4m2" "values of f7e4m2" f7e4m2 Narrow::Float(4, 2), "f7e4m2 to u2" u2 Narrow::UInt(2);
    "codes of f7e5m1" "values of f7e5m1" f7e5m1 Narrow::Float(5, 1), "f7e5m1 to u3" u3 Narrow::UInt(3);
    "codes of f8e5m3fnu" "values of f8e5m3fnu" f8e5m3fnu Narrow::Scale, "f8e5m3fnu to u4" u4 Narrow::UInt(4);
};
