//! Operations on elements: floats, integers, comparisons.

use super::row::*;
use crate::format::{Real, Round};

/// The larger of two numbers, +0 above -0.
pub fn larger(a: f64, b: f64) -> f64 {
    if b > a || (a == b && a.is_sign_negative()) { b } else { a }
}

fn ignoring_nan(a: f64, b: f64, pick: impl Fn(f64, f64) -> f64) -> Number {
    Number::Float(if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        pick(a, b)
    })
}

fn keeping_nan(a: f64, b: f64, pick: impl Fn(f64, f64) -> f64) -> Number {
    Number::Float(if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) })
}

pub fn max(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => ignoring_nan(a, b, larger),
        (a, b) => Number::Int(a.int().max(b.int())),
    }
}

pub fn min(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Float(a), Number::Float(b)) => ignoring_nan(a, b, |a, b| -larger(-a, -b)),
        (a, b) => Number::Int(a.int().min(b.int())),
    }
}

pub fn max_nan(a: Number, b: Number) -> Number {
    keeping_nan(a.float(), b.float(), larger)
}

pub fn min_nan(a: Number, b: Number) -> Number {
    keeping_nan(a.float(), b.float(), |a, b| -larger(-a, -b))
}

fn zip_floats(e: &Eval<'_, '_>, f: impl Fn(f64, f64) -> Real) -> Vec<Values> {
    e.zip(|k, a, b| k.rounded(f(a.float(), b.float())))
}

fn floating(e: &Eval<'_, '_>, f: impl Fn(f64) -> f64) -> Vec<Values> {
    e.map(|_, a| Number::Float(f(a.float())))
}

macro_rules! float_binary {
    ($name:literal $weight:literal: $x:ident $y:ident $body:block, $eval:expr) => {
        op! { $name in "floats", $weight; args [Of(floats), Joins]; numbers []; joined;
        [T: floats] |$x: Tile<T, 2>, $y: Tile<T, 2>;;| $body $eval }
    };
}
macro_rules! float_unary {
    ($name:literal $weight:literal: $x:ident $body:block, $eval:expr) => {
        op! { $name in "floats", $weight; args [Of(floats)]; numbers []; same; [T: floats] |$x: Tile<T, 2>;;| $body $eval }
    };
}
/// A difference to be rounded down: where numbers cancel out, the zero has a sign.
fn difference_down(a: f64, b: f64) -> Real {
    let difference = Real::sum(a, -b);
    let is_plain = a == 0.0 && a.is_sign_positive() && b.is_sign_negative();
    if difference.near == 0.0 && difference.rest == 0.0 && !is_plain { Real::exact(-0.0) } else { difference }
}

/// A rounding that is stated.
macro_rules! rounded {
    ($name:literal $mode:ident $round:ident: $method:ident $real:expr) => {
        op! { $name in "floats", 1; args [Of(|k| k == Kind::F32), Joins]; numbers []; joined;
        [T: f32] |x: Tile<T, 2>, y: Tile<T, 2>;;| { x.$method(y, Rounding::$mode) }
        |e| e.zip(|k, a, b| k.rounded_by($real(a.float(), b.float()), Round::$round)) }
    };
}

pub const FLOATS: &[Op] = &[
    float_binary!("add" 20: x y { x + y }, |e| zip_floats(e, Real::sum)),
    float_binary!("sub" 10: x y { x - y }, |e| zip_floats(e, |a, b| Real::sum(a, -b))),
    float_binary!("mul" 15: x y { x * y }, |e| zip_floats(e, Real::product)),
    float_binary!("div" 10: x y { x / y }, |e| zip_floats(e, Real::quotient)),
    float_binary!("rem" 2: x y { x % y }, |e| e.zip(|_, a, b| Number::Float(a.float() % b.float()))),
    float_binary!("max" 7: x y { x.max(y) }, |e| e.zip(|_, a, b| max(a, b))),
    float_binary!("min" 7: x y { x.min(y) }, |e| e.zip(|_, a, b| min(a, b))),
    float_binary!("max_nan" 4: x y { x.max_nan(y) }, |e| e.zip(|_, a, b| max_nan(a, b))),
    float_binary!("min_nan" 4: x y { x.min_nan(y) }, |e| e.zip(|_, a, b| min_nan(a, b))),
    rounded!("add_with Zero" Zero Zero: add_with Real::sum),
    rounded!("sub_with NegInf" NegInf Down: sub_with difference_down),
    rounded!("mul_with PosInf" PosInf Up: mul_with Real::product),
    rounded!("div_with Zero" Zero Zero: div_with Real::quotient),
    float_unary!("neg" 6: x { -x }, |e| floating(e, |a| -a)),
    float_unary!("abs" 5: x { x.abs() }, |e| floating(e, f64::abs)),
    float_unary!("sqrt" 5: x { x.sqrt() }, |e| e.map(|k, a| k.rounded(Real::root(a.float())))),
    float_unary!("floor" 4: x { x.floor() }, |e| floating(e, f64::floor)),
    float_unary!("ceil" 4: x { x.ceil() }, |e| floating(e, f64::ceil)),
    float_binary!("nextafter" 3: x y { x.nextafter(y) }, |e| e.zip(|k, a, b| k.next_after(a.float(), b.float()))),
    op! { "isnan" in "floats", 3; args [Of(floats)]; numbers []; truth; [T: floats] |x: Tile<T, 2>;;| { x.isnan() }
    |e| e.map(|_, a| Number::Int(a.float().is_nan().into())) },
    op! { "fma" in "floats", 10; args [Of(floats), Same, Same]; numbers []; same;
    [T: floats] |x: Tile<T, 2>, y: Tile<T, 2>, z: Tile<T, 2>;;| { x.fma(y, z) }
    |e| e.zip3(|k, [a, b, c]| k.rounded(Real::fused(a.float(), b.float(), c.float()))) },
];

/// Divisors are made harmless where a quotient might not be defined: 1, 3, 5 or 7 where the steps
/// say `odd`, and without their sign otherwise, so that they may be zero.
fn zip_ints(e: &Eval<'_, '_>, f: impl Fn(Kind, i128, i128) -> i128) -> Vec<Values> {
    e.zip(|k, a, b| k.wrapped(f(k, a.int(), b.int())))
}

fn divided(e: &Eval<'_, '_>, round: fn(i128, i128) -> i128, remainder: bool) -> Vec<Values> {
    zip_ints(e, |k, a, b| {
        let divisor = b & ((1 << (k.bits() - 1)) - 1);
        let quotient = if divisor == 0 { 0 } else { round(a, divisor) };
        if remainder { a - divisor * quotient } else { quotient }
    })
}

/// Amounts are read as unsigned.
fn amount(k: Kind, b: i128) -> u32 {
    (b & ((1 << k.bits()) - 1)).min(k.bits().into()) as u32
}

macro_rules! int_binary {
    ($name:literal $weight:literal: $x:ident $y:ident $body:block, $eval:expr) => {
        op! { $name in "integers", $weight; args [Of(ints), Joins]; numbers []; joined;
        [T: ints] |$x: Tile<T, 2>, $y: Tile<T, 2>;;| $body $eval }
    };
}
macro_rules! bit_binary {
    ($name:literal $weight:literal: $x:ident $y:ident $body:block, $eval:expr) => {
        op! { $name in "integers", $weight; args [Of(bits), Joins]; numbers []; joined;
        [T: bits] |$x: Tile<T, 2>, $y: Tile<T, 2>;;| $body $eval }
    };
}
/// Divisions by a divisor without its sign.
macro_rules! division {
    ($name:literal: $x:ident $y:ident $body:block, $round:expr, $remainder:literal) => {
        op! { $name in "integers", 3; args [Of(ints), Joins]; numbers []; joined;
        [T: ints] |$x: Tile<T, 2>, y: Tile<T, 2>;;| {
            let $y = y & <T as Element>::from_bits((1 << (<T as Element>::DTYPE.bits() - 1)) - 1);
            $body
        } |e| divided(e, $round, $remainder) }
    };
}

pub const INTEGERS: &[Op] = &[
    int_binary!("add int" 20: x y { x + y }, |e| zip_ints(e, |_, a, b| a + b)),
    int_binary!("sub int" 10: x y { x - y }, |e| zip_ints(e, |_, a, b| a - b)),
    int_binary!("mul int" 12: x y { x * y }, |e| zip_ints(e, |_, a, b| a.wrapping_mul(b))),
    int_binary!("max int" 5: x y { x.max(y) }, |e| e.zip(|_, a, b| max(a, b))),
    int_binary!("min int" 5: x y { x.min(y) }, |e| e.zip(|_, a, b| min(a, b))),
    int_binary!("shl" 5: x y { x << y }, |e| zip_ints(e, |k, a, b| a << amount(k, b))),
    int_binary!("shr" 5: x y { x >> y }, |e| zip_ints(e, |k, a, b| a >> amount(k, b))),
    int_binary!("mul_hi" 4: x y { x.mul_hi(y) }, |e| zip_ints(e, |k, a, b| a.wrapping_mul(b) >> k.bits())),
    int_binary!("div odd" 5: x y { x / ((y & <T as Element>::from_f64(7.0)) | <T as Element>::from_f64(1.0)) },
        |e| zip_ints(e, |_, a, b| a / ((b & 7) | 1))),
    int_binary!("rem odd" 5: x y { x % ((y & <T as Element>::from_f64(7.0)) | <T as Element>::from_f64(1.0)) },
        |e| zip_ints(e, |_, a, b| a % ((b & 7) | 1))),
    division!("div int": x y { x / y }, |a, b| a / b, false),
    division!("rem int": x y { x % y }, |a, b| a / b, true),
    division!("trunc_div": x y { x.trunc_div(y) }, |a, b| a / b, false),
    division!("floor_div": x y { x.floor_div(y) }, i128::div_euclid, false),
    division!("ceil_div": x y { x.ceil_div(y) }, |a, b| -(-a).div_euclid(b), false),
    division!("modulo": x y { x.modulo(y) }, i128::div_euclid, true),
    bit_binary!("and" 6: x y { x & y }, |e| zip_ints(e, |_, a, b| a & b)),
    bit_binary!("or" 6: x y { x | y }, |e| zip_ints(e, |_, a, b| a | b)),
    bit_binary!("xor" 6: x y { x ^ y }, |e| zip_ints(e, |_, a, b| a ^ b)),
    op! { "not" in "integers", 6; args [Of(bits)]; numbers []; same; [T: bits] |x: Tile<T, 2>;;| { !x }
    |e| e.map(|k, a| k.wrapped(!a.int())) },
    op! { "reverse_bits" in "integers", 3; args [Of(ints)]; numbers []; same; [T: ints] |x: Tile<T, 2>;;| { x.reverse_bits() }
    |e| e.map(|k, a| k.wrapped((a.int() as u128).reverse_bits().cast_signed() >> (128 - k.bits()))) },
    int_binary!("funnel_shl" 3: x y { x.funnel_shl(y, y) }, |e| zip_ints(e, |k, a, b| {
        let low = b & ((1 << k.bits()) - 1);
        ((a << k.bits()) | low) << low.rem_euclid(k.bits().into()) >> k.bits()
    })),
    int_binary!("funnel_shr" 3: x y { x.funnel_shr(y, y) }, |e| zip_ints(e, |k, a, b| {
        let low = b & ((1 << k.bits()) - 1);
        ((a << k.bits()) | low) >> low.rem_euclid(k.bits().into())
    })),
    op! { "powi int" in "integers", 3; args [Of(ints)]; numbers [(0, 9)]; same;
    [T: ints] |x: Tile<T, 2>; n: i32;| { x.powi(n) }
    |e| e.map(|k, a| k.wrapped((0..e.n(0)).fold(1i128, |product, _| product.wrapping_mul(a.int())))) },
    op! { "neg int" in "integers", 4; args [Of(signed_ints)]; numbers []; same; [T: signed_ints] |x: Tile<T, 2>;;| { -x }
    |e| e.map(|k, a| k.wrapped(-a.int())) },
    op! { "abs int" in "integers", 4; args [Of(ints)]; numbers []; same; [T: ints] |x: Tile<T, 2>;;| { x.abs() }
    |e| e.map(|k, a| k.wrapped(a.int().abs())) },
    op! { "clamp" in "integers", 3; args [Of(ints)]; numbers [(0, 9), (0, 90)]; same;
    [T: ints] |x: Tile<T, 2>; low: i32, span: i32;| {
        x.clamp(<T as Element>::from_f64(low as f64), <T as Element>::from_f64((low + span) as f64))
    }
    |e| e.map(|_, a| Number::Int(a.int().clamp(e.n(0).into(), (e.n(0) + e.n(1)).into()))) },
    op! { "map" in "integers", 3; args [Of(ints)]; numbers []; same;
    [T: ints] |x: Tile<T, 2>;;| { x.map(|a| a * a + <T as Element>::from_f64(3.0)) }
    |e| e.map(|k, a| k.wrapped(a.int().wrapping_mul(a.int()).wrapping_add(3))) },
    op! { "zip_map" in "integers", 3; args [Of(ints), Same]; numbers []; same;
    [T: ints] |x: Tile<T, 2>, y: Tile<T, 2>;;| { x.zip_map(y, |a, b| a.max(b) - a) }
    |e| zip_ints(e, |_, a, b| a.max(b) - a) },
    op! { "scalars" in "integers", 3; args [Single(ints), Single(i32s)]; numbers []; same;
    [T: ints] |x: Tile<T, 2>, y: Tile<i32, 2>;;| {
        let (a, b) = (x.item(), y.item());
        b.gt(3).select(a + <T as Element>::from_f64(1.0), a ^ b.cast::<T>()).to_tile::<2>()
    }
    |e| e.zip(|k, a, b| k.wrapped(if b.int() > 3 { a.int() + 1 } else { a.int() ^ b.int() })) },
    op! { "assume_bounds" in "integers", 2; args [Of(ints)]; numbers []; same;
    [T: ints] |x: Tile<T, 2>;;| { unsafe { (x & <T as Element>::from_f64(15.0)).assume_bounds(0..=15) } }
    |e| e.map(|_, a| Number::Int(a.int() & 15)) },
    op! { "assume_divisible_by" in "integers", 2; args [Of(ints)]; numbers []; same;
    [T: ints] |x: Tile<T, 2>;;| { unsafe { (x * <T as Element>::from_f64(16.0)).assume_divisible_by(16) } }
    |e| e.map(|k, a| k.wrapped(a.int().wrapping_mul(16))) },
];

fn compared(e: &Eval<'_, '_>, f: fn(Option<std::cmp::Ordering>) -> bool) -> Vec<Values> {
    e.zip(|_, a, b| {
        let order = match (a, b) {
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
            (a, b) => Some(a.int().cmp(&b.int())),
        };
        Number::Int(f(order).into())
    })
}

macro_rules! comparisons {
    ($($name:ident $text:literal: $eval:expr;)+) => {&[
        $(op! { $text in "comparisons", 5; args [Of(comparable), Joins]; numbers []; truth;
            [T: comparable] |x: Tile<T, 2>, y: Tile<T, 2>;;| { x.$name(y) } |e| compared(e, $eval) },)+
        op! { "select" in "comparisons", 20; args [Of(whole), Same, Stretches(boolean)]; numbers []; same;
            [T: arrays] |x: Tile<T, 2>, y: Tile<T, 2>, c: Tile<bool, 2>;;| { ct::select(c, x, y) }
            |e| e.zip3(|_, [a, b, c]| if c.is_true() { a } else { b }) },
    ]};
}

pub const COMPARISONS: &[Op] = comparisons! {
    eq "eq": |o| o.is_some_and(|o| o.is_eq());
    ne "ne": |o| o.is_none_or(|o| o.is_ne());
    lt "lt": |o| o.is_some_and(|o| o.is_lt());
    le "le": |o| o.is_some_and(|o| o.is_le());
    gt "gt": |o| o.is_some_and(|o| o.is_gt());
    ge "ge": |o| o.is_some_and(|o| o.is_ge());
};
