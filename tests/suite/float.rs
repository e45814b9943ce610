//! Float operations element by element: functions, arithmetic in every rounding mode, flush to
//! zero, minimum and maximum with both NaN rules.

use anyhow::Result;
use cutlet::FloatMode;
use cutlet::dtype::DType;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::elementwise::{Binary, COUNT, Moded, Unary, check_binary, check_moded, check_unary, with_special_pairs};
use crate::format::{Format, Real, Round};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    register_for::<f64>(suite);
    register_for::<f32>(suite);
    register_for::<f16>(suite);
    register_for::<bf16>(suite);
    suite.test("float/approximate/f32", approximate);
    suite.test("float/flush_to_zero/f32", |session| flush_to_zero(session, modal_operations()));
    suite.test("float/scope_flushes/f32", |session| flush_to_zero(session, scoped_operations()));
    suite.test("float/scopes", scopes);
}

fn register_for<T: Float + Signed>(suite: &mut Suite) {
    for function in functions::<T>() {
        suite.test(format!("float/{}/{}", function.name, T::NAME), move |session| check_function(session, &function));
    }
    suite.test(format!("float/pow/{}", T::NAME), power::<T>);
    suite.test(format!("float/atan2/{}", T::NAME), angle::<T>);
    suite.test(format!("float/rem/{}", T::NAME), remainder::<T>);
    suite.test(format!("float/min_max/{}", T::NAME), extremes::<T>);
    suite.lean(format!("float/operators/{}", T::NAME), operators::<T>);
    for (mode, round) in MODES {
        let test = move |session| rounded::<T>(session, mode, round, modal_operations());
        suite.test(format!("float/{round:?}/{}", T::NAME), test);
    }
    if T::DTYPE != DType::BF16 {
        let test = |session| rounded::<T>(session, Rounding::NegInf, Round::Down, scoped_operations());
        suite.test(format!("float/scope/{}", T::NAME), test);
    }
}

const MODES: [(Rounding, Round); 4] = [
    (Rounding::NearestEven, Round::NearestEven),
    (Rounding::Zero, Round::Zero),
    (Rounding::NegInf, Round::Down),
    (Rounding::PosInf, Round::Up),
];

/// A function of one argument and how exact it has to be.
pub struct Function<T> {
    pub name: &'static str,
    pub op: Unary<T, T>,
    pub reference: fn(f64) -> f64,
    /// Largest error in units in the last place, on f32 and on f64. 0: rounded to nearest even.
    pub ulps: [f64; 2],
    /// Arguments in addition to special values of all kinds.
    spread: Spread,
}

/// The functions of one argument.
pub fn functions<T: Float>() -> Vec<Function<T>> {
    let function =
        |name, op: Unary<T, T>, reference: fn(f64) -> f64, ulps, spread| Function { name, op, reference, ulps, spread };
    let wide = Spread::Between(-200.0, 200.0);
    let angle = Spread::Between(-50.0, 50.0);
    vec![
        function("exp", |x| x.exp(), f64::exp, [2.5, 2.0], Spread::Between(-110.0, 90.0)),
        function("exp2", |x| x.exp2(), f64::exp2, [2.5, 2.0], Spread::Between(-155.0, 129.0)),
        function("log", |x| x.log(), f64::ln, [2.0, 2.0], Spread::Between(0.0, 4.0)),
        function("log2", |x| x.log2(), f64::log2, [2.5, 2.0], Spread::Between(0.0, 4.0)),
        function("rsqrt", |x| x.rsqrt(), reciprocal_root, [2.0, 2.0], Spread::Between(0.0, 100.0)),
        function("sin", |x| x.sin(), f64::sin, [2.0, 2.0], angle),
        function("cos", |x| x.cos(), f64::cos, [2.0, 2.0], angle),
        function("tan", |x| x.tan(), f64::tan, [4.0, 3.0], angle),
        function("sinh", |x| x.sinh(), f64::sinh, [3.5, 3.0], Spread::Between(-20.0, 20.0)),
        function("cosh", |x| x.cosh(), f64::cosh, [3.0, 3.0], Spread::Between(-20.0, 20.0)),
        function("tanh", |x| x.tanh(), f64::tanh, [3.0, 3.0], Spread::Between(-10.0, 10.0)),
        function("sqrt", |x| x.sqrt(), f64::sqrt, [0.0, 0.0], Spread::Between(0.0, 100.0)),
        function("floor", |x| x.floor(), f64::floor, [0.0, 0.0], wide),
        function("ceil", |x| x.ceil(), f64::ceil, [0.0, 0.0], wide),
        function("abs", |x| x.abs(), f64::abs, [0.0, 0.0], wide),
        function("exp10", |x| x.exp10(), |x| 10f64.powf(x), [4.0, 3.0], Spread::Between(-46.0, 39.0)),
        function("log10", |x| x.log10(), f64::log10, [4.0, 4.0], Spread::Between(0.0, 4.0)),
        function("expm1", |x| x.expm1(), f64::exp_m1, [5.0, 5.0], Spread::Between(-3.0, 5.0)),
        function("log1p", |x| x.log1p(), f64::ln_1p, [4.0, 4.0], Spread::Between(-1.0, 4.0)),
        function("cbrt", |x| x.cbrt(), f64::cbrt, [2.0, 2.0], wide),
        function("asin", |x| x.asin(), f64::asin, [5.0, 5.0], Spread::Between(-1.01, 1.01)),
        function("acos", |x| x.acos(), f64::acos, [5.0, 5.0], Spread::Between(-1.01, 1.01)),
        function("atan", |x| x.atan(), f64::atan, [3.0, 3.0], wide),
        function("erf", |x| x.erf(), |x| erf(x), [3.0, 3.0], Spread::Between(-4.0, 4.0)),
        function("erfc", |x| x.erfc(), |x| erfc(x), [6.0, 6.0], Spread::Between(-5.0, 11.0)),
        function("asinh", |x| x.asinh(), |x| asinh(x), [6.0, 6.0], Spread::Between(-4.0, 4.0)),
        function("acosh", |x| x.acosh(), |x| acosh(x), [6.0, 6.0], Spread::Between(0.99, 4.0)),
        function("atanh", |x| x.atanh(), |x| atanh(x), [6.0, 6.0], Spread::Between(-1.01, 1.01)),
        function("sinpi", |x| x.sinpi(), |x| turned(x, 0.0), [2.0, 3.0], Spread::Between(-9.0, 9.0)),
        function("cospi", |x| x.cospi(), |x| turned(x.abs(), 0.5), [2.0, 3.0], Spread::Between(-9.0, 9.0)),
        function("erfinv", |x| x.erfinv(), inverse_erf, [5.0, 6.0], Spread::Between(-1.01, 1.01)),
        function("sigmoid", |x| x.sigmoid(), |x| 1.0 / (1.0 + (-x).exp()), [4.0, 4.0], Spread::Between(-90.0, 30.0)),
        function("softplus", |x| x.softplus(), softplus, [7.0, 7.0], Spread::Between(-90.0, 30.0)),
        function("relu", |x| x.relu(), |x| if x > 0.0 || x.is_nan() { x } else { 0.0 }, [0.0, 0.0], wide),
        function("square", |x| x.square(), |x| x * x, [0.0, 0.0], wide),
        function("recip", |x| x.recip(), f64::recip, [0.0, 0.0], wide),
        function("trunc", |x| x.trunc(), f64::trunc, [0.0, 0.0], wide),
        function("round", |x| x.round(), f64::round, [0.0, 0.0], Spread::Whole(9)),
        function("round_ties_even", |x| x.round_ties_even(), f64::round_ties_even, [0.0, 0.0], wide),
        function("fract", |x| x.fract(), f64::fract, [0.0, 0.0], wide),
        function("signum", |x| x.signum(), f64::signum, [0.0, 0.0], wide),
    ]
}

// Rust's standard library is linked with that of C, but does not pass these on.
unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
    safe fn erfc(x: f64) -> f64;
    // Rust's own lose digits.
    safe fn asinh(x: f64) -> f64;
    safe fn acosh(x: f64) -> f64;
    safe fn atanh(x: f64) -> f64;
}

/// The sine of π (x + quarter), where the quarter is 0 or 1/2.
fn turned(x: f64, quarter: f64) -> f64 {
    let rest = x % 2.0;
    let halves = (rest * 2.0).round();
    let angle = (rest - halves / 2.0) * std::f64::consts::PI;
    match (halves + 2.0 * quarter).rem_euclid(4.0) as u8 {
        _ if angle.is_nan() => f64::NAN,
        0 => angle.sin(),
        1 => angle.cos(),
        2 => -angle.sin(),
        _ => -angle.cos(),
    }
}

/// By Newton's method, from an exact form of the function: near the ends its complement.
fn inverse_erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a >= 1.0 {
        return if a == 1.0 { x * f64::INFINITY } else { f64::NAN };
    }
    let slope = |y: f64| std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp();
    let mut y = if a < 0.7 { a * 0.886 } else { (-(1.0 - a).ln()).sqrt() };
    for _ in 0..60 {
        let beyond = if a < 0.5 { erf(y) - a } else { (1.0 - a) - erfc(y) };
        y -= beyond / (slope(y) + y * beyond);
    }
    y.copysign(x)
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn reciprocal_root(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Returns the tolerance around a value computed in f64: `ulps` of f32 and f64; 16-bit types are
/// computed in f32 and rounded once more.
fn near<T: Float>(value: f64, ulps: [f64; 2]) -> Want {
    match T::DTYPE {
        DType::F64 => Want::Near { value, ulps: ulps[1] },
        DType::F32 => Want::Near { value, ulps: ulps[0] },
        _ => Want::Near { value, ulps: 0.51 },
    }
}

/// Every value of a 16-bit type; of wider ones specials, all magnitudes, and the given spread.
fn arguments<T: Float>(seed: u64, spread: Spread) -> Vec<T> {
    if T::DTYPE.bits() == 16 {
        return (0..1 << 16).map(T::from_bits).collect();
    }
    let mut values = random(seed, COUNT, Spread::Any);
    values.extend(random::<T>(seed + 1, COUNT, spread));
    values
}

fn check_function<T: Float>(session: Session, function: &Function<T>) -> Result<()> {
    let arguments = arguments::<T>(11, function.spread);
    check_unary(session, function.name, function.op, &arguments, |x| {
        let value = (function.reference)(x.to_f64());
        if function.ulps == [0.0, 0.0] { Want::nearest(value) } else { near::<T>(value, function.ulps) }
    })
}

fn power<T: Float>(session: Session) -> Result<()> {
    let (a, b) = (random(21, COUNT, Spread::Between(0.0, 30.0)), random(22, COUNT, Spread::Between(-8.0, 8.0)));
    let (a, b) = with_special_pairs::<T, T>(a, b);
    check_binary(session, "pow", |a, b| a.pow(b), &a, &b, |a, b| near::<T>(a.to_f64().powf(b.to_f64()), [4.0, 3.0]))
}

fn angle<T: Float>(session: Session) -> Result<()> {
    let (a, b) = with_special_pairs::<T, T>(random(23, COUNT, Spread::Moderate), random(24, COUNT, Spread::Any));
    let want = |a: T, b: T| near::<T>(a.to_f64().atan2(b.to_f64()), [3.0, 3.0]);
    check_binary(session, "atan2", |a, b| a.atan2(b), &a, &b, want)
}

fn remainder<T: Float>(session: Session) -> Result<()> {
    let (a, b) = with_special_pairs::<T, T>(random(25, COUNT, Spread::Moderate), random(26, COUNT, Spread::Moderate));
    check_binary(session, "%", |a, b| a % b, &a, &b, |a, b| Want::nearest(a.to_f64() % b.to_f64()))
}

/// The IEEE operations maximumNumber and minimumNumber (a NaN is ignored) and maximum and minimum
/// (a NaN wins): of two zeros the positive one is larger.
fn extremes<T: Float>(session: Session) -> Result<()> {
    fn larger(a: f64, b: f64) -> f64 {
        if a == b {
            if a.is_sign_positive() { a } else { b }
        } else if a > b {
            a
        } else {
            b
        }
    }
    fn ignoring(a: f64, b: f64, pick: fn(f64, f64) -> f64) -> f64 {
        if a.is_nan() {
            b
        } else if b.is_nan() {
            a
        } else {
            pick(a, b)
        }
    }
    fn spreading(a: f64, b: f64, pick: fn(f64, f64) -> f64) -> f64 {
        if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) }
    }
    let smaller = |a: f64, b: f64| -larger(-a, -b);
    let (a, b) = with_special_pairs::<T, T>(random(27, COUNT, Spread::Moderate), random(28, COUNT, Spread::Any));
    let rows: [(&str, Binary<T, T, T>, fn(f64, f64, fn(f64, f64) -> f64) -> f64, fn(f64, f64) -> f64); 4] = [
        ("max", |a, b| a.max(b), ignoring, larger),
        ("min", |a, b| a.min(b), ignoring, smaller),
        ("max_nan", |a, b| a.max_nan(b), spreading, larger),
        ("min_nan", |a, b| a.min_nan(b), spreading, smaller),
    ];
    for (name, op, rule, pick) in rows {
        check_binary(session, name, op, &a, &b, |a, b| Want::nearest(rule(a.to_f64(), b.to_f64(), pick)))?;
    }
    Ok(())
}

/// The operators, also with a literal and with broadcast operands, and negation.
fn operators<T: Float + Signed>(session: Session) -> Result<()> {
    let (a, b) = with_special_pairs::<T, T>(random(31, COUNT, Spread::Any), random(32, COUNT, Spread::Any));
    let rows: [(&str, Binary<T, T, T>, fn(f64, f64) -> Real); 4] = [
        ("+", |a, b| a + b, Real::sum),
        ("-", |a, b| a - b, |a, b| Real::sum(a, -b)),
        ("*", |a, b| a * b, Real::product),
        ("/", |a, b| a / b, Real::quotient),
    ];
    for (name, op, reference) in rows {
        check_binary(session, name, op, &a, &b, |a, b| {
            Want::Rounded(reference(a.to_f64(), b.to_f64()), Round::NearestEven)
        })?;
    }
    check_unary(session, "neg", |a| -a, &a, |a| Want::nearest(-a.to_f64()))
}

type Modal<T> = [(&'static str, Moded<T>, fn([f64; 3]) -> Real); 6];

/// The same without a mode of their own, in a scope.
fn scoped_operations<T: Float>() -> Modal<T> {
    [
        ("add in a scope", |a, b, _, mode| cutlet::with_mode(mode, || a + b), |[a, b, _]| Real::sum(a, b)),
        ("sub in a scope", |a, b, _, mode| cutlet::with_mode(mode, || a - b), |[a, b, _]| Real::sum(a, -b)),
        ("mul in a scope", |a, b, _, mode| cutlet::with_mode(mode, || a * b), |[a, b, _]| Real::product(a, b)),
        ("div in a scope", |a, b, _, mode| cutlet::with_mode(mode, || a / b), |[a, b, _]| Real::quotient(a, b)),
        ("fma in a scope", |a, b, c, mode| cutlet::with_mode(mode, || a.fma(b, c)), |[a, b, c]| Real::fused(a, b, c)),
        ("sqrt in a scope", |a, _, _, mode| cutlet::with_mode(mode, || a.sqrt()), |[a, _, _]| Real::root(a)),
    ]
}

/// Operations that a scope does not change, nested scopes, and the fast forms.
fn scopes(session: Session) -> Result<()> {
    let inputs = |seed| random::<f64>(seed, COUNT, Spread::Any);
    let (a, b) = (inputs(71), inputs(72));
    let in_flush: Binary<f64, f64, f64> = |a, b| cutlet::with_mode(FloatMode::new().flush_to_zero().approx(), || a * b);
    check_binary(session, "f64 flushed", in_flush, &a, &b, |a, b| {
        Want::Rounded(Real::product(a, b), Round::NearestEven)
    })?;
    let (a, b) = (random::<f32>(73, COUNT, Spread::Moderate), random::<f32>(74, COUNT, Spread::Moderate));
    let nested: Binary<f32, f32, f32> = |a, b| {
        cutlet::with_mode(Rounding::Zero, || {
            let _up = cutlet::with_mode(Rounding::PosInf, || a + b);
            // The inner scope has ended.
            a + b
        })
    };
    check_binary(session, "after a scope", nested, &a, &b, |a, b| {
        Want::Rounded(Real::sum(f64::from(a), f64::from(b)), Round::Zero)
    })?;
    let stated: Binary<f32, f32, f32> = |a, b| cutlet::with_mode(Rounding::Zero, || a.mul_with(b, Rounding::NegInf));
    check_binary(session, "stated", stated, &a, &b, |a, b| {
        Want::Rounded(Real::product(f64::from(a), f64::from(b)), Round::Down)
    })?;
    let inner: Binary<f32, f32, f32> =
        |a, b| cutlet::with_mode(Rounding::Zero, || cutlet::with_mode(Rounding::PosInf, || a * b));
    check_binary(session, "inner scope", inner, &a, &b, |a, b| {
        Want::Rounded(Real::product(f64::from(a), f64::from(b)), Round::Up)
    })?;
    let fast: Unary<f32, f32> = |x| cutlet::with_mode(FloatMode::new().approx(), || x.exp() / x.sqrt());
    let positive = random::<f32>(75, COUNT, Spread::Between(0.01, 20.0));
    check_unary(session, "approximate", fast, &positive, |x| {
        let x = f64::from(x);
        Want::Near { value: x.exp() / x.sqrt(), ulps: 9.0 + 1.5 * x }
    })?;
    // With a bound of its own.
    let own: Unary<f32, f32> = |x| cutlet::with_mode(FloatMode::new().approx(), || x.erf());
    check_unary(session, "erf", own, &positive, |x| Want::Near { value: erf(f64::from(x)), ulps: 3.0 })
}

/// Arithmetic that takes a rounding: operation and exact result.
fn modal_operations<T: Float>() -> Modal<T> {
    [
        ("add", |a, b, _, mode| a.add_with(b, mode), |[a, b, _]| Real::sum(a, b)),
        ("sub", |a, b, _, mode| a.sub_with(b, mode), |[a, b, _]| Real::sum(a, -b)),
        ("mul", |a, b, _, mode| a.mul_with(b, mode), |[a, b, _]| Real::product(a, b)),
        ("div", |a, b, _, mode| a.div_with(b, mode), |[a, b, _]| Real::quotient(a, b)),
        ("fma", |a, b, c, mode| a.fma_with(b, c, mode), |[a, b, c]| Real::fused(a, b, c)),
        ("sqrt", |a, _, _, mode| a.sqrt_with(mode), |[a, _, _]| Real::root(a)),
    ]
}

fn rounded<T: Float>(session: Session, mode: Rounding, round: Round, operations: Modal<T>) -> Result<()> {
    // The references are exact for f64 of moderate size, and for all values of the narrower types.
    let spread = if T::DTYPE == DType::F64 { Spread::Moderate } else { Spread::Any };
    let inputs = |seed| random::<T>(seed, COUNT, spread);
    let (mut a, mut b, c) = (inputs(41), inputs(42), inputs(43));
    if T::DTYPE != DType::F64 {
        (a, b) = with_special_pairs(a, b);
    }
    for (name, op, reference) in operations {
        check_moded(session, name, op, mode.into(), [&a, &b, &c], |values| {
            let exact = reference(values);
            // x + -x: the zero is negative only when rounding down.
            let cancels = exact.near == 0.0 && exact.rest == 0.0 && adds(name);
            if cancels { zero_sum(name, values, round) } else { Want::Rounded(exact, round) }
        })?;
    }
    Ok(())
}

/// Returns true for the name of a sum.
fn adds(name: &str) -> bool {
    matches!(&name[..3], "add" | "sub" | "fma")
}

/// The sign of a sum that is exactly zero: that of both terms if they agree, else the mode decides.
fn zero_sum(name: &str, [a, b, c]: [f64; 3], round: Round) -> Want {
    let (first, second) = match &name[..3] {
        "add" => (a, b),
        "sub" => (a, -b),
        _ => (a * b, c),
    };
    let agree = first.is_sign_negative() == second.is_sign_negative();
    let negative = if agree { first.is_sign_negative() } else { round == Round::Down };
    Want::nearest(if negative { -0.0 } else { 0.0 })
}

fn flush_to_zero(session: Session, operations: Modal<f32>) -> Result<()> {
    let format = Format::F32;
    let is_subnormal = |x: f64| x != 0.0 && x.abs() < format.smallest_normal();
    let flush = |x: f64| if is_subnormal(x) { 0f64.copysign(x) } else { x };
    let mode = FloatMode::new().flush_to_zero();
    let inputs = |seed| random::<f32>(seed, COUNT, Spread::Any);
    let (a, b) = with_special_pairs(inputs(51), inputs(52));
    let c = inputs(53);
    let flushed = |exact: Real| {
        let rounded = format.round(exact, Round::NearestEven);
        if is_subnormal(rounded) {
            Want::nearest(flush(rounded))
        } else if is_subnormal(exact.near) {
            // Rounds up to the smallest normal number: hardware may test before or after rounding.
            Want::OneOf([0f64.copysign(rounded), rounded])
        } else {
            Want::Rounded(exact, Round::NearestEven)
        }
    };
    for (name, op, reference) in operations {
        check_moded(session, name, op, mode, [&a, &b, &c], |values| {
            let values = values.map(flush);
            let exact = reference(values);
            let cancels = exact.near == 0.0 && exact.rest == 0.0 && adds(name);
            if cancels { zero_sum(name, values, Round::NearestEven) } else { flushed(exact) }
        })?;
    }
    let functions: [(&str, Moded<f32>, fn([f64; 3]) -> f64, f64); 4] = [
        ("rsqrt", |a, _, _, mode| a.rsqrt_with(mode), |[a, _, _]| reciprocal_root(a), 2.0),
        ("exp2", |a, _, _, mode| a.exp2_with(mode), |[a, _, _]| a.exp2(), 2.5),
        ("max", |a, b, _, mode| a.max_with(b, mode), |[a, b, _]| a.max(b), 2.0),
        ("min", |a, b, _, mode| a.min_with(b, mode), |[a, b, _]| a.min(b), 2.0),
    ];
    for (name, op, reference, ulps) in functions {
        check_moded(session, name, op, mode, [&a, &b, &c], |values| {
            let value = reference(values.map(flush));
            if is_subnormal(value) || value == 0.0 { Want::AnyZero } else { Want::Near { value, ulps } }
        })?;
    }
    Ok(())
}

/// Logarithms, sine and cosine of the hardware: as methods, and in a scope.
fn fast_functions(session: Session) -> Result<()> {
    fn scoped(body: impl FnOnce() -> Tile<f32, 2>) -> Tile<f32, 2> {
        cutlet::with_mode(FloatMode::new().approx(), body)
    }
    let positive = random::<f32>(65, COUNT, Spread::Between(1e-30, 8.0));
    let angles = random::<f32>(66, COUNT, Spread::Between(-6.25, 6.25));
    type Case<'a> = (&'static str, fn(Tile<f32, 2>) -> Tile<f32, 2>, &'a [f32], fn(f64) -> f64, f64);
    let cases: [Case; 8] = [
        ("log_approx", |x| x.log_approx(), &positive, f64::ln, 2f64.powi(-21)),
        ("log2_approx", |x| x.log2_approx(), &positive, f64::log2, 2f64.powi(-21)),
        ("sin_approx", |x| x.sin_approx(), &angles, f64::sin, 2f64.powi(-20)),
        ("cos_approx", |x| x.cos_approx(), &angles, f64::cos, 2f64.powi(-20)),
        ("log in a scope", |x| scoped(|| x.log()), &positive, f64::ln, 2f64.powi(-21)),
        ("log2 in a scope", |x| scoped(|| x.log2()), &positive, f64::log2, 2f64.powi(-21)),
        ("sin in a scope", |x| scoped(|| x.sin()), &angles, f64::sin, 2f64.powi(-20)),
        ("cos in a scope", |x| scoped(|| x.cos()), &angles, f64::cos, 2f64.powi(-20)),
    ];
    for (name, op, operands, reference, error) in cases {
        check_unary(session, name, op, operands, |x| {
            let value = reference(f64::from(x));
            Want::Within { value, error: error * value.abs().max(1.0) }
        })?;
    }
    Ok(())
}

/// The forms that trade exactness for speed, on f32 only.
fn approximate(session: Session) -> Result<()> {
    let moderate = |seed| random::<f32>(seed, COUNT, Spread::Moderate);
    let positive = random::<f32>(61, COUNT, Spread::Between(0.0, 1000.0));
    let (a, b) = (moderate(62), moderate(63));
    for mode in [Rounding::Approx, Rounding::Full] {
        let divide: Moded<f32> = |a, b, _, mode| a.div_with(b, mode);
        let want = |[a, b, _]: [f64; 3]| Want::Near { value: a / b, ulps: 2.0 };
        check_moded(session, "div", divide, mode.into(), [&a, &b, &a], want)?;
    }
    let root: Moded<f32> = |a, _, _, mode| a.sqrt_with(mode);
    let want = |[a, _, _]: [f64; 3]| Want::Near { value: a.sqrt(), ulps: 2.0 };
    check_moded(session, "sqrt", root, Rounding::Approx.into(), [&positive, &a, &a], want)?;
    // 2^(x log2 e): the rounded exponent loses |x| / 2 units in addition to the error of the
    // instruction.
    let exponents = random::<f32>(64, COUNT, Spread::Between(-80.0, 80.0));
    check_unary(
        session,
        "exp_approx",
        |x: Tile<f32, 2>| x.exp_approx(),
        &exponents,
        |x| {
            let x = f64::from(x);
            Want::Near { value: x.exp(), ulps: 3.0 + 1.5 * x.abs() }
        },
    )?;
    check_unary(
        session,
        "tanh_approx",
        |x: Tile<f32, 2>| x.tanh_approx(),
        &a,
        |x| {
            let value = f64::from(x).tanh();
            Want::Within { value, error: value.abs() * 2f64.powi(-10) }
        },
    )?;
    fast_functions(session)
}
