//! Integer operations element by element, against 128-bit references.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::elementwise::{Binary, COUNT, Unary, check_binary, check_unary, with_special_pairs};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($name:ident)+) => { $(register_for::<$name>(suite);)+ };
    }
    each!(i8 i16 i32 i64 u8 u16 u32 u64);
    macro_rules! signed {
        ($($name:ident)+) => {$(
            suite.test(concat!("integer/negate/", stringify!($name)), |session| {
                check_unary(session, "neg", |a: Tile<$name, 2>| -a, &any::<$name>(5), |a| wrapped::<$name>(-value(a)))
            });
        )+};
    }
    signed!(i8 i16 i32 i64);
    suite.test("integer/bool", bits_of_bool);
}

fn register_for<T: Int>(suite: &mut Suite) {
    suite.test(format!("integer/arithmetic/{}", T::NAME), arithmetic::<T>);
    suite.test(format!("integer/division/{}", T::NAME), division::<T>);
    suite.test(format!("integer/shifts/{}", T::NAME), shifts::<T>);
    suite.test(format!("integer/unchecked/{}", T::NAME), unchecked::<T>);
}

/// Returns the number of an integer element.
pub fn value<T: Element>(x: T) -> i128 {
    let (bits, width) = (i128::from(x.to_bits()), T::DTYPE.bits());
    if T::SIGNED && bits >> (width - 1) & 1 == 1 { bits - (1 << width) } else { bits }
}

/// The element with the low bits of a number.
pub fn wrapped<T: Element>(number: i128) -> Want {
    Want::Bits(number as u64 & (u64::MAX >> (64 - T::DTYPE.bits())))
}

fn any<T: Element>(seed: u64) -> Vec<T> {
    random(seed, COUNT, Spread::Any)
}

type Row<T> = (&'static str, Binary<T, T, T>, fn(i128, i128) -> i128);

fn check<T: Int>(session: Session, rows: &[Row<T>], a: &[T], b: &[T]) -> Result<()> {
    for &(name, op, reference) in rows {
        check_binary(session, name, op, a, b, |a, b| wrapped::<T>(reference(value(a), value(b))))?;
    }
    Ok(())
}

fn arithmetic<T: Int>(session: Session) -> Result<()> {
    let (a, b) = with_special_pairs::<T, T>(any(1), any(2));
    let rows: [Row<T>; 8] = [
        ("+", |a, b| a + b, |a, b| a + b),
        ("-", |a, b| a - b, |a, b| a - b),
        ("*", |a, b| a * b, i128::wrapping_mul),
        ("&", |a, b| a & b, |a, b| a & b),
        ("|", |a, b| a | b, |a, b| a | b),
        ("^", |a, b| a ^ b, |a, b| a ^ b),
        ("max", |a, b| a.max(b), |a, b| a.max(b)),
        ("min", |a, b| a.min(b), |a, b| a.min(b)),
    ];
    check(session, &rows, &a, &b)?;
    let high = |a: T, b: T| wrapped::<T>(value(a).wrapping_mul(value(b)) >> T::DTYPE.bits());
    check_binary(session, "mul_hi", |a, b| a.mul_hi(b), &a, &b, high)?;
    check_unary(session, "not", |a| !a, &a, |a| wrapped::<T>(!value(a)))?;
    check_unary(session, "abs", |a| a.abs(), &a, |a| wrapped::<T>(value(a).abs()))?;
    // One operand stretched along each axis.
    let spread: Binary<T, T, T> = |a, b| {
        let shape = a.shape();
        ct::full([shape[0], 1], T::from_f64(3.0)) * a + ct::full([1, shape[1]], T::from_f64(5.0)) - b
    };
    check_binary(session, "stretched", spread, &a, &b, |a, b| wrapped::<T>(3 * value(a) + 5 - value(b)))
}

/// Promises that are kept, up to the ends of the type, change nothing.
fn unchecked<T: Int>(session: Session) -> Result<()> {
    let width = T::DTYPE.bits();
    let (least, most) =
        if T::SIGNED { (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1) } else { (0, (1i128 << width) - 1) };
    // SAFETY: the operands below are chosen so that the results fit.
    let rows: [Row<T>; 4] = unsafe {
        [
            ("unchecked_add", |a, b| a.unchecked_add(b), |a, b| a + b),
            ("unchecked_sub", |a, b| a.unchecked_sub(b), |a, b| a - b),
            ("unchecked_mul", |a, b| a.unchecked_mul(b), |a, b| a.checked_mul(b).unwrap_or(i128::MAX)),
            ("unchecked_shl", |a, b| a.unchecked_shl(b), |a, b| if (0..64).contains(&b) { a << b } else { i128::MAX }),
        ]
    };
    let (a, b) = with_special_pairs::<T, T>(any(6), any(7));
    for (i, row) in rows.iter().enumerate() {
        let fits = |a: T, b: T| {
            let amount = i < 3 || (0..i128::from(width)).contains(&value(b));
            amount && (least..=most).contains(&row.2(value(a), value(b)))
        };
        let small = |n: usize| (T::from_f64(5.0), T::from_f64((n % 3) as f64));
        let pairs = a.iter().zip(&b).enumerate();
        let (a, b): (Vec<T>, Vec<T>) = pairs.map(|(n, (&a, &b))| if fits(a, b) { (a, b) } else { small(n) }).unzip();
        check(session, &rows[i..=i], &a, &b)?;
    }
    Ok(())
}

/// A quotient by zero is 0, a remainder the dividend. A quotient that does not fit its type is not
/// defined.
fn division<T: Int>(session: Session) -> Result<()> {
    let (a, mut b) = with_special_pairs::<T, T>(any(3), any(4));
    for (i, (a, b)) in a.iter().zip(&mut b).enumerate() {
        let overflows = T::SIGNED && value(*b) == -1 && value(*a) == -1i128 << (T::DTYPE.bits() - 1);
        if overflows || i % 50 == 49 {
            *b = T::from_f64(if i % 2 == 0 { 3.0 } else { 0.0 });
        }
    }
    fn quotient(a: i128, b: i128) -> i128 {
        if b == 0 { 0 } else { a / b }
    }
    fn remainder(a: i128, b: i128) -> i128 {
        a - b * quotient(a, b)
    }
    let rows: [Row<T>; 6] = [
        ("/", |a, b| a / b, quotient),
        ("%", |a, b| a % b, remainder),
        ("trunc_div", |a, b| a.trunc_div(b), quotient),
        (
            "floor_div",
            |a, b| a.floor_div(b),
            |a, b| quotient(a, b) - i128::from(b != 0 && remainder(a, b) != 0 && (a < 0) != (b < 0)),
        ),
        (
            "ceil_div",
            |a, b| a.ceil_div(b),
            |a, b| quotient(a, b) + i128::from(b != 0 && remainder(a, b) != 0 && (a < 0) == (b < 0)),
        ),
        ("modulo", |a, b| a.modulo(b), |a, b| if b == 0 { a } else { (a % b + b) % b }),
    ];
    check(session, &rows, &a, &b)?;
    // The same with divisors that are known while the kernel is traced.
    let known: [(&str, Unary<T, T>, fn(i128) -> i128); 6] = [
        ("/ 0", |a| a / ct::scalar(T::from_f64(0.0)), |_| 0),
        ("% 0", |a| a % ct::scalar(T::from_f64(0.0)), |a| a),
        ("/ 7", |a| a / T::from_f64(7.0), |a| a / 7),
        ("% 7", |a| a % T::from_f64(7.0), |a| a % 7),
        ("/ 64", |a| a / T::from_f64(64.0), |a| a / 64),
        ("% 64", |a| a % T::from_f64(64.0), |a| a % 64),
    ];
    for (name, op, reference) in known {
        check_unary(session, name, op, &a, |a| wrapped::<T>(reference(value(a))))?;
    }
    Ok(())
}

/// Amounts are unsigned; a shift by at least the width returns 0, or the sign.
fn shifts<T: Int>(session: Session) -> Result<()> {
    let a = any::<T>(6);
    let amounts = random::<T>(7, COUNT, Spread::Between(0.0, 1.25 * f64::from(T::DTYPE.bits())));
    let (a, amounts) = with_special_pairs(a, amounts);
    let amount = |b: T| b.to_bits().min(u64::from(T::DTYPE.bits())) as u32;
    let left = |a: T, b: T| wrapped::<T>(value(a) << amount(b));
    check_binary(session, "<<", |a, b| a << b, &a, &amounts, left)?;
    check_binary(session, ">>", |a, b| a >> b, &a, &amounts, |a, b| wrapped::<T>(value(a) >> amount(b)))
}

fn bits_of_bool(session: Session) -> Result<()> {
    let (a, b) = (any::<bool>(8), any::<bool>(9));
    check_binary(session, "&", |a, b| a & b, &a, &b, |a, b| Want::exactly(a & b))?;
    check_binary(session, "|", |a, b| a | b, &a, &b, |a, b| Want::exactly(a | b))?;
    check_binary(session, "^", |a, b| a ^ b, &a, &b, |a, b| Want::exactly(a ^ b))?;
    check_unary(session, "!", |a: Tile<bool, 2>| !a, &a, |a| Want::exactly(!a))
}
