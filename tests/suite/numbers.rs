//! Bits, ends and parts of numbers: functions without an op in the IR.

use anyhow::Result;
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::prelude::*;

use crate::data::{Spread, format_of, random, specials};
use crate::elementwise::{Binary, COUNT, Unary, check_binary, check_unary, with_special_pairs};
use crate::format::Format;
use crate::harness::{Session, Suite, Want, ravel};
use crate::integer::{value, wrapped};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("numbers/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(bits: i8 i16 i32 i64 u8 u16 u32 u64);
    each!(ends: i8 i16 i32 i64 u8 u16 u32 u64);
    each!(signs: i8 i16 i32 i64);
    each!(kinds: f64 f32 f16 bf16);
    each!(unordered: f64 f32 f16 bf16);
    each!(lengths: f64 f32 f16 bf16);
    each!(softmax: f64 f32 f16 bf16);
    each!(gelu: f64 f32 f16 bf16);
    each!(divisor: i32 u32);
    each!(bit_order: i8 i16 i32 i64 u8 u16 u32 u64);
    each!(powers: i8 i32 u16 u64);
    each!(next_after: f64 f32 f16 bf16);
    each!(gamma: f64 f32 f16);
}

fn bits<T: Int>(session: Session) -> Result<()> {
    let mut a = random::<T>(1, COUNT, Spread::Any);
    a.extend(specials::<T>());
    // Few bits, at any place.
    let width = T::DTYPE.bits();
    a.extend((0..width).flat_map(|n| [1u64 << n, (1 << n) - 1, u64::MAX << n]).map(T::from_bits));
    let pattern = |x: T| x.to_bits();
    let rows: [(&'static str, Unary<T, i32>, fn(u64, u32) -> u32); 3] = [
        ("count_ones", |x| x.count_ones(), |x, _| x.count_ones()),
        ("leading_zeros", |x| x.leading_zeros(), |x, width| x.leading_zeros() + width - 64),
        ("trailing_zeros", |x| x.trailing_zeros(), |x, width| x.trailing_zeros().min(width)),
    ];
    for (name, op, reference) in rows {
        check_unary(session, name, op, &a, |x| Want::exactly(reference(pattern(x), width) as i32))?;
    }
    let (a, n) = with_special_pairs::<T, T>(random(2, COUNT, Spread::Any), random(3, COUNT, Spread::Any));
    let rotated = move |x: T, n: u64| {
        let (x, n) = (u128::from(x.to_bits()), n % u64::from(width));
        let twice = x | x << width;
        Want::Bits((twice >> (u64::from(width) - n)) as u64 & (u64::MAX >> (64 - width)))
    };
    check_binary(session, "rotate_left", |x, n| x.rotate_left(n), &a, &n, |x, n| rotated(x, n.to_bits()))?;
    let back = |n: T| u64::from(width) - n.to_bits() % u64::from(width);
    check_binary(session, "rotate_right", |x, n| x.rotate_right(n), &a, &n, |x, n| rotated(x, back(n)))
}

fn ends<T: Int>(session: Session) -> Result<()> {
    let (a, mut b) = with_special_pairs::<T, T>(random(4, COUNT, Spread::Any), random(5, COUNT, Spread::Any));
    let width = T::DTYPE.bits();
    let (least, most) =
        if T::SIGNED { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) };
    let rows: [(&'static str, Binary<T, T, T>, fn(i128, i128) -> i128); 2] = [
        ("saturating_add", |a, b| a.saturating_add(b), |a, b| a + b),
        ("saturating_sub", |a, b| a.saturating_sub(b), |a, b| a - b),
    ];
    for (name, op, reference) in rows {
        let want = |a: T, b: T| wrapped::<T>(reference(value(a), value(b)).clamp(least, most));
        check_binary(session, name, op, &a, &b, want)?;
    }
    for (i, (a, b)) in a.iter().zip(&mut b).enumerate() {
        if T::SIGNED && value(*b) == -1 && value(*a) == least || i % 50 == 49 {
            *b = T::from_f64(if i % 2 == 0 { 3.0 } else { 0.0 });
        }
    }
    let quotient = |a: i128, b: i128| if b == 0 { 0 } else { a / b };
    check_binary(
        session,
        "quotient",
        |a, b| a.div_rem(b).0,
        &a,
        &b,
        |a, b| wrapped::<T>(quotient(value(a), value(b))),
    )?;
    check_binary(
        session,
        "remainder",
        |a, b| a.div_rem(b).1,
        &a,
        &b,
        |a, b| wrapped::<T>(value(a) - value(b) * quotient(value(a), value(b))),
    )?;
    check_unary(session, "relu", |a| a.relu(), &a, |a| wrapped::<T>(value(a).max(0)))?;
    check_unary(session, "square", |a| a.square(), &a, |a| wrapped::<T>(value(a).wrapping_mul(value(a))))
}

fn signs<T: Int + Signed>(session: Session) -> Result<()> {
    let mut a = random::<T>(6, COUNT, Spread::Any);
    a.extend(specials::<T>());
    check_unary(session, "signum", |a| a.signum(), &a, |a| wrapped::<T>(value(a).signum()))
}

fn kinds<T: Float>(session: Session) -> Result<()> {
    let mut a = random::<T>(7, COUNT, Spread::Any);
    a.extend(specials::<T>());
    check_unary(session, "isinf", |a| a.isinf(), &a, |a| Want::exactly(a.to_f64().is_infinite()))?;
    check_unary(session, "isfinite", |a| a.isfinite(), &a, |a| Want::exactly(a.to_f64().is_finite()))?;
    // Halves and adjacent numbers, where rounding decides.
    let step = T::from_f64(0.5).to_bits();
    let halves = (-40..40).flat_map(|n| {
        let bits = T::from_f64(f64::from(n) / 4.0).to_bits();
        [bits, bits.wrapping_add(1), bits.saturating_sub(1)]
    });
    let beyond = (0..12).map(|n| T::from_f64(2f64.powi(53 - n) + 0.5).to_bits());
    let near: Vec<T> = halves.chain(beyond).chain([step - 1]).map(T::from_bits).collect();
    let rows: [(&'static str, Unary<T, T>, fn(f64) -> f64); 4] = [
        ("round", |x| x.round(), f64::round),
        ("round_ties_even", |x| x.round_ties_even(), f64::round_ties_even),
        ("trunc", |x| x.trunc(), f64::trunc),
        ("fract", |x| x.fract(), f64::fract),
    ];
    for (name, op, reference) in rows {
        check_unary(session, name, op, &near, |x| Want::nearest(reference(x.to_f64())))?;
    }
    let (a, b) = with_special_pairs::<T, T>(random(8, COUNT, Spread::Any), random(9, COUNT, Spread::Any));
    let top = 1u64 << (T::DTYPE.bits() - 1);
    check_binary(
        session,
        "copysign",
        |a, b| a.copysign(b),
        &a,
        &b,
        |a, b| Want::Bits(a.to_bits() & (top - 1) | b.to_bits() & top),
    )
}

fn unordered<T: Float>(session: Session) -> Result<()> {
    let (mut a, mut b) = with_special_pairs::<T, T>(random(10, COUNT, Spread::Any), random(11, COUNT, Spread::Any));
    for (a, b) in a.iter_mut().zip(&mut b).rev().step_by(5) {
        *a = *b;
    }
    let rows: [(&'static str, Binary<T, T, bool>, fn(f64, f64) -> bool); 6] = [
        ("eq_unordered", |a, b| a.eq_unordered(b), |a, b| a == b || a.is_nan() || b.is_nan()),
        ("ne_ordered", |a, b| a.ne_ordered(b), |a, b| a.partial_cmp(&b).is_some_and(|o| o.is_ne())),
        ("lt_unordered", |a, b| a.lt_unordered(b), |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_lt())),
        ("le_unordered", |a, b| a.le_unordered(b), |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_le())),
        ("gt_unordered", |a, b| a.gt_unordered(b), |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_gt())),
        ("ge_unordered", |a, b| a.ge_unordered(b), |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_ge())),
    ];
    for (name, op, reference) in rows {
        check_binary(session, name, op, &a, &b, |a, b| Want::exactly(reference(a.to_f64(), b.to_f64())))?;
    }
    Ok(())
}

/// Returns the tolerance around a value computed in f64.
fn near<T: Float>(value: f64, ulps: f64) -> Want {
    Want::Near { value, ulps: if T::DTYPE.bits() == 16 { 0.51 } else { ulps } }
}

fn lengths<T: Float>(session: Session) -> Result<()> {
    let (a, b) = with_special_pairs::<T, T>(random(12, COUNT, Spread::Moderate), random(13, COUNT, Spread::Moderate));
    check_binary(session, "hypot", |a, b| a.hypot(b), &a, &b, |a, b| near::<T>(a.to_f64().hypot(b.to_f64()), 2.0))
}

fn softmax<T: Float>(session: Session) -> Result<()> {
    fn kernel<T: Float>(x: Array<T, 2>, y: ArrayMut<T, 2>, logs: ArrayMut<T, 2>) {
        let at = (ct::bid(0), 0);
        let x = x.load_with(at, [4, 64], ct::LoadOptions::new().padding(Padding::NegInf));
        y.store(at, x.softmax(1));
        logs.store(at, x.log_softmax(1));
    }
    let shape = [13, 50];
    let data = random::<T>(14, 650, Spread::Between(-9.0, 30.0));
    let x = session.array(&data, shape)?;
    let (mut y, mut logs) = (session.unwritten::<T, 2>(shape)?, session.unwritten::<T, 2>(shape)?);
    session.launch(kernel::<T>, [4], (&x, &mut y, &mut logs))?;
    let at = |i, j| data[ravel([i, j], shape)].to_f64();
    let sum = |i: usize| (0..50).map(|j| (at(i, j) - at(i, 0)).exp()).sum::<f64>();
    session.check("softmax", &y, &|[i, j]| near::<T>((at(i, j) - at(i, 0)).exp() / sum(i), 150.0))?;
    session.check("log_softmax", &logs, &|[i, j]| {
        let value = at(i, j) - at(i, 0) - sum(i).ln();
        let unit = match T::DTYPE {
            DType::F64 => 2f64.powi(-50),
            DType::F32 => 2f64.powi(-21),
            _ => return Want::Near { value, ulps: 0.6 },
        };
        Want::Within { value, error: 40.0 * unit }
    })
}

/// With a tolerance relative to the operands.
fn gelu<T: Float>(session: Session) -> Result<()> {
    let mut a = random::<T>(15, COUNT, Spread::Between(-12.0, 12.0));
    a.extend(random::<T>(16, COUNT, Spread::Between(-110.0, 90.0)));
    a.extend([0.0, -0.0, 1e3, -1e3, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(T::from_f64));
    let unit = match T::DTYPE {
        DType::F64 => 2f64.powi(-50),
        DType::F32 => 2f64.powi(-21),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    };
    unsafe extern "C" {
        safe fn erf(x: f64) -> f64;
    }
    fn product(x: f64, y: f64) -> f64 {
        if y == -1.0 { 0.0 } else { x * (1.0 + y) / 2.0 }
    }
    let exact = |x: f64| product(x, erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let close = |x: f64| product(x, (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh());
    // A subnormal exponential has few digits, which are multiplied.
    let tiny = 256.0 * T::from_bits(1).to_f64();
    check_unary(
        session,
        "silu",
        |a| a.silu(),
        &a,
        |x| {
            let x = x.to_f64();
            let value = if x == f64::NEG_INFINITY { f64::NAN } else { x / (1.0 + (-x).exp()) };
            Want::Within { value, error: unit * value.abs() + tiny }
        },
    )?;
    let within = |x: T, value: f64| Want::Within { value, error: unit * x.to_f64().abs().min(1e4) };
    check_unary(session, "gelu", |a| a.gelu(), &a, |x| within(x, exact(x.to_f64())))?;
    check_unary(session, "gelu_tanh", |a| a.gelu_tanh(), &a, |x| within(x, close(x.to_f64())))
}

fn divisor<T: ct::math::Divides>(session: Session) -> Result<()> {
    fn kernel<T: ct::math::Divides>(x: Array<T, 1>, q: ArrayMut<T, 1>, r: ArrayMut<T, 1>, y: Array<T, 1>) {
        let i = ct::bid(0);
        let divisor = ct::math::Divisor::new(y.load_scalar(ct::bid(1)));
        let x = x.load(i, [256]);
        let at = ct::bid(1) * ct::num_blocks(0) + i;
        q.store(at, x / divisor);
        r.store(at, (x % divisor) + (divisor.get() - divisor.get()));
    }
    let mut x = random::<T>(16, 512 - 40, Spread::Any);
    x.extend(specials::<T>());
    x.resize_with(512, || T::from_f64(7.0));
    let mut y = random::<T>(17, 20, Spread::Any);
    y.extend(specials::<T>());
    y.extend([0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 641.0, 65536.0, 1e9].map(T::from_f64));
    y.extend(
        [u64::MAX, 1 << 31, (1 << 31) - 1, (1 << 31) + 1, 0xaaaa_aaab].map(|bits| T::from_bits(bits & 0xffff_ffff)),
    );
    let (dx, dy) = (session.array(&x, [512])?, session.array(&y, [y.len()])?);
    let (mut q, mut r) = (session.unwritten::<T, 1>([512 * y.len()])?, session.unwritten::<T, 1>([512 * y.len()])?);
    session.launch(kernel::<T>, [2, y.len()], (&dx, &mut q, &mut r, &dy))?;
    let pair = |at: usize| (value(x[at % 512]), value(y[at / 512]));
    let overflows = |(a, b): (i128, i128)| T::SIGNED && a == -1 << 31 && b == -1;
    let quotient = |(a, b): (i128, i128)| if b == 0 { 0 } else { a / b };
    session.check_results(
        "quotients",
        &q,
        &|[at]| if overflows(pair(at)) { Want::Open } else { wrapped::<T>(quotient(pair(at))) },
        &|[at]| format!("from {:?}", pair(at)),
    )?;
    session.check_results(
        "remainders",
        &r,
        &|[at]| {
            let (a, b) = pair(at);
            if overflows((a, b)) { Want::Open } else { wrapped::<T>(a - b * quotient((a, b))) }
        },
        &|[at]| format!("from {:?}", pair(at)),
    )
}

fn bit_order<T: Int>(session: Session) -> Result<()> {
    let width = T::DTYPE.bits();
    let all = u64::MAX >> (64 - width);
    let mut a = random::<T>(18, COUNT, Spread::Any);
    a.extend(specials::<T>());
    check_unary(
        session,
        "reverse_bits",
        |x| x.reverse_bits(),
        &a,
        |x| Want::Bits(x.to_bits().reverse_bits() >> (64 - width)),
    )?;
    // The lower half depends on the amount, too: every pair of bits is in some place.
    let (a, n) = with_special_pairs::<T, T>(random(19, COUNT, Spread::Any), random(20, COUNT, Spread::Any));
    let both = move |x: T, n: T| u128::from(x.to_bits()) << width | u128::from(!n.to_bits() & all);
    let amount = move |n: T| (n.to_bits() % u64::from(width)) as u32;
    let up = |x, n| Want::Bits((both(x, n) << amount(n) >> width) as u64 & all);
    check_binary(session, "funnel_shl", |x, n| x.funnel_shl(!n, n), &a, &n, up)?;
    let down = |x, n| Want::Bits((both(x, n) >> amount(n)) as u64 & all);
    check_binary(session, "funnel_shr", |x, n| x.funnel_shr(!n, n), &a, &n, down)
}

fn powers<T: Int>(session: Session) -> Result<()> {
    fn power<T: Int>(x: T, n: i32) -> Want {
        let x = value(x);
        let wanted = match (n < 0, x) {
            (true, 1) => 1,
            (true, -1) => 1 - 2 * i128::from(n % 2 != 0),
            (true, _) => 0,
            // One product after another: of even numbers no more than the width are not 0.
            _ if x % 2 == 0 => (0..n.min(64)).fold(1, |product: i128, _| product.wrapping_mul(x)),
            _ => (0..31).rev().fold(1, |product: i128, digit| {
                let square = product.wrapping_mul(product);
                if n >> digit & 1 == 1 { square.wrapping_mul(x) } else { square }
            }),
        };
        wrapped::<T>(wanted)
    }
    let a = random::<T>(21, COUNT, Spread::Any);
    let (mut a, mut n) = with_special_pairs::<T, i32>(a, random(22, COUNT, Spread::Any));
    for i in COUNT / 2..COUNT {
        a[i] = T::from_f64((i % 7) as f64);
        n[i] = (i / 7 % 70) as i32 - 4;
    }
    check_binary(session, "powi", |x, n| x.powi(n), &a, &n, |x, n| power(x, n))?;
    check_unary(session, "powi 13", |x| x.powi(13), &a, |x| power(x, 13))?;
    check_unary(session, "powi 0", |x| x.powi(0), &a, |x| power(x, 0))?;
    check_unary(session, "powi -3", |x| x.powi(-3), &a, |x| power(x, -3))
}

/// In the order of the numbers, which are counted.
fn next_after<T: Float>(session: Session) -> Result<()> {
    let top = 1i128 << (T::DTYPE.bits() - 1);
    let number = |x: T| {
        let bits = i128::from(x.to_bits());
        if bits >= top { top - bits } else { bits }
    };
    let (mut a, mut b) = with_special_pairs::<T, T>(random(23, COUNT, Spread::Any), random(24, COUNT, Spread::Any));
    for (a, b) in a.iter_mut().zip(&mut b).rev().step_by(9) {
        *b = *a;
    }
    check_binary(
        session,
        "nextafter",
        |a, b| a.nextafter(b),
        &a,
        &b,
        |a, b| {
            let (from, to) = (a.to_f64(), b.to_f64());
            if from.is_nan() || to.is_nan() {
                return Want::nearest(f64::NAN);
            }
            let next = match from.partial_cmp(&to) {
                Some(std::cmp::Ordering::Less) => number(a) + 1,
                Some(std::cmp::Ordering::Greater) => number(a) - 1,
                _ => return Want::SameBits(b.to_bits()),
            };
            let sign = next < 0 || next == 0 && from < 0.0;
            Want::SameBits((next.abs() + if sign { top } else { 0 }) as u64)
        },
    )
}

fn gamma<T: Float>(session: Session) -> Result<()> {
    unsafe extern "C" {
        fn lgamma_r(x: f64, sign: *mut i32) -> f64;
    }
    // SAFETY: the sign has a place.
    let lgamma = |x: f64| unsafe { lgamma_r(x, &mut 0) };
    let mut a = random::<T>(25, COUNT, Spread::Between(-12.0, 12.0));
    a.extend(random::<T>(26, COUNT, Spread::Any));
    a.extend(random::<T>(27, COUNT, Spread::Between(0.4, 2.6)));
    a.extend(specials::<T>());
    a.extend((-60..60).map(|n| T::from_f64(f64::from(n) / 4.0)));
    let wants = |x: T| {
        let (x, ulps) = (x.to_f64(), if T::DTYPE == DType::F64 { 10.0 } else { 6.0 });
        let value = lgamma(x);
        match (format_of(T::DTYPE), x < -0.5 && value.is_finite()) {
            // The operands of the subtraction have these digits.
            (Some(format), true) => {
                let largest = value.abs().max(lgamma(-x)).max(1.0);
                let error = match T::DTYPE.bits() {
                    16 => 0.51 * format.ulp(value) + 6.0 * Format::F32.ulp(largest),
                    _ => ulps * format.ulp(largest),
                };
                Want::Within { value, error }
            }
            _ => near::<T>(value, ulps),
        }
    };
    check_unary(session, "lgamma", |x| x.lgamma(), &a, wants)
}
