//! Conversions.

use super::row::*;
use crate::format::{Format, Real, Round};

/// The definition of `cast`.
pub fn cast(to: Kind, a: Number) -> Number {
    match (a, to) {
        (Number::Float(a), Kind::Bool) => Number::Int((a != 0.0).into()),
        (Number::Int(a), Kind::Bool) => Number::Int((a != 0).into()),
        (Number::Float(a), _) if to.is_float() => to.converted(Real::exact(a)),
        (Number::Int(a), _) if to.is_float() => {
            let near = a as f64;
            let exact = Real { near, rest: (a - near as i128) as f64 };
            // The scale type takes integers through f32.
            let through = || Real::exact(Format::F32.round(exact, Round::NearestEven));
            to.converted(if to == Kind::E8m0 { through() } else { exact })
        }
        (Number::Float(a), _) => {
            let (low, high) = to.range();
            Number::Int((a as i128).clamp(low, high))
        }
        (Number::Int(a), _) => to.wrapped(a),
    }
}

fn bitcast(e: &Eval<'_, '_>) -> Vec<Values> {
    let to = e.step.kind;
    e.map(|k, a| to.of_bits(k.to_bits(a)))
}

/// Reading the bits of integers as another type of their width.
macro_rules! bits_of {
    ($name:literal $from:ident $kind:ident to $to:ident $result:ident) => {
        op! { $name in "conversions", 2; args [Of(|k| k == Kind::$kind)] kinds |k| k == Kind::$result; numbers []; to_kind;
        [T: $from, U: $to] |x: Tile<T, 2>;;| { x.bitcast::<U>() } |e| bitcast(e) }
    };
}
/// The bits of floats that are no NaN.
macro_rules! number_bits {
    ($name:literal $from:ident $kind:ident to $to:ident $result:ident) => {
        op! { $name in "conversions", 2; args [Of(|k| k == Kind::$kind)] kinds |k| k == Kind::$result; numbers []; to_kind;
        [T: $from, U: $to] |x: Tile<T, 2>;;| {
            ct::select(x.isnan(), ct::zeros::<T, 2>(x.shape()), x).bitcast::<U>()
        }
        |e| {
            let to = e.step.kind;
            e.map(|k, a| to.of_bits(k.to_bits(if a.float().is_nan() { Number::Float(0.0) } else { a })))
        } }
    };
}

pub const OPS: &[Op] = &[
    op! { "cast" in "conversions", 30; args [Of(any)] kinds any; numbers []; to_kind;
    [T: all, U: all] |x: Tile<T, 2>;;| { x.cast::<U>() }
    |e| {
        let to = e.step.kind;
        e.map(|k, a| if k == to { a } else { cast(to, a) })
    } },
    op! { "cast_saturating" in "conversions", 8; args [Of(ints)] kinds ints; numbers []; to_kind;
    [T: ints, U: ints] |x: Tile<T, 2>;;| { x.cast_saturating::<U>() }
    |e| {
        let (low, high) = e.step.kind.range();
        e.map(|_, a| Number::Int(a.int().clamp(low, high)))
    } },
    bits_of!("bitcast u8 i8" u8 U8 to i8 I8),
    bits_of!("bitcast u8 e4m3" u8 U8 to f8e4m3fn E4m3),
    bits_of!("bitcast i8 e5m2" i8 I8 to f8e5m2 E5m2),
    bits_of!("bitcast u8 e8m0" u8 U8 to f8e8m0fnu E8m0),
    bits_of!("bitcast i16 u16" i16 I16 to u16 U16),
    bits_of!("bitcast i16 f16" i16 I16 to f16 F16),
    bits_of!("bitcast u16 bf16" u16 U16 to bf16 Bf16),
    bits_of!("bitcast u32 f32" u32 U32 to f32 F32),
    bits_of!("bitcast i32 u32" i32 I32 to u32 U32),
    bits_of!("bitcast u64 i64" u64 U64 to i64 I64),
    bits_of!("bitcast i64 f64" i64 I64 to f64 F64),
    number_bits!("bitcast f32 i32" f32 F32 to i32 I32),
    number_bits!("bitcast f16 u16" f16 F16 to u16 U16),
    number_bits!("bitcast bf16 i16" bf16 Bf16 to i16 I16),
    number_bits!("bitcast f64 u64" f64 F64 to u64 U64),
    op! { "pack" in "conversions", 4; args [Of(packs)]; numbers [];
    |_, _, args| {
        let [rows, columns] = args[0].shape;
        let bits = columns * args[0].kind.bits() as usize;
        let legal = bits.is_multiple_of(8) && [rows * columns, rows * bits / 8].iter().all(|n| n.count_ones() <= 3);
        legal.then(|| vec![Form::new(Kind::U8, [rows, bits / 8])])
    };
    [T: packed_bits] |x: Tile<T, 2>;;| { x.pack_to_bytes() }
    |e| {
        let a = e.arg(0);
        let bits = a.kind.bits() as usize;
        e.build(|i, j| match bits {
            1 => Number::Int((0..8).map(|n| a.at(i, 8 * j + n).int() << n).sum()),
            _ => Number::Int((a.at(i, j * 8 / bits).int() >> (8 * j % bits)) & 0xff),
        })
    } },
    op! { "unpack" in "conversions", 4; args [Of(|k| k == Kind::U8)] kinds |k| packs(k) || floats(k) || k == Kind::F4; numbers [];
    |_, step, args| {
        let ([rows, columns], bits) = (args[0].shape, step.kind.bits() as usize);
        let flat = [rows * columns, rows * columns * 8 / bits];
        let legal = columns * 8 % bits == 0 && flat.iter().all(|n| n.count_ones() <= 3);
        legal.then(|| vec![Form::new(step.kind, [rows, columns * 8 / bits])])
    };
    [U: packed] |x: Tile<u8, 2>;;| { x.unpack_from_bytes::<U>() }
    |e| {
        let (a, to) = (e.arg(0), e.step.kind);
        let bits = to.bits() as usize;
        e.build(|i, j| {
            let byte = |n: usize| a.at(i, n).int() as u64;
            match bits {
                1 | 4 => to.of_bits((byte(j * bits / 8) >> (bits * j % 8)) & ((1 << bits) - 1)),
                _ => to.of_bits((0..bits / 8).map(|n| byte(j * bits / 8 + n) << (8 * n)).sum()),
            }
        })
    } },
];

/// Bool and integers that take bytes together.
fn packs(kind: Kind) -> bool {
    bits(kind) && !bytes(kind)
}
