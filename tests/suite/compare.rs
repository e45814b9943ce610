//! Comparison and selection.

use std::cmp::Ordering;

use anyhow::Result;
use cutlet as ct;
use cutlet::element::ByteSized;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::elementwise::{Binary, COUNT, check_binary, check_unary, with_special_pairs};
use crate::harness::{Session, Suite, Want};
use crate::integer::value;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("compare/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(order: f64 f32 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(is_nan: f64 f32 f16 bf16);
    each!(choice: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);
}

/// Returns the order of two elements; `None` with a NaN.
fn ordering<T: Element>(a: T, b: T) -> Option<Ordering> {
    match T::DTYPE.is_float() {
        true => a.to_f64().partial_cmp(&b.to_f64()),
        false => Some(value(a).cmp(&value(b))),
    }
}

fn order<T: Comparable>(session: Session) -> Result<()> {
    use Ordering::{Equal, Greater, Less};
    let (mut a, mut b) = with_special_pairs::<T, T>(random(1, COUNT, Spread::Moderate), random(2, COUNT, Spread::Any));
    // Equal pairs do not happen by chance in wide types.
    for (a, b) in a.iter_mut().zip(&mut b).rev().step_by(5) {
        *a = *b;
    }
    type Row<T> = (&'static str, Binary<T, T, bool>, fn(Option<Ordering>) -> bool);
    let rows: [Row<T>; 6] = [
        ("eq", |a, b| a.eq(b), |o| o == Some(Equal)),
        ("ne", |a, b| a.ne(b), |o| o != Some(Equal)),
        ("lt", |a, b| a.lt(b), |o| o == Some(Less)),
        ("le", |a, b| a.le(b), |o| matches!(o, Some(Less | Equal))),
        ("gt", |a, b| a.gt(b), |o| o == Some(Greater)),
        ("ge", |a, b| a.ge(b), |o| matches!(o, Some(Greater | Equal))),
    ];
    for (name, op, reference) in rows {
        check_binary(session, name, op, &a, &b, |a, b| Want::exactly(reference(ordering(a, b))))?;
    }
    Ok(())
}

fn is_nan<T: Float>(session: Session) -> Result<()> {
    let a = random::<T>(3, COUNT, Spread::Any);
    check_unary(session, "isnan", |a| a.isnan(), &a, |a| Want::exactly(a.to_f64().is_nan()))
}

fn choice<T: ByteSized>(session: Session) -> Result<()> {
    let condition = random::<bool>(4, COUNT, Spread::Any);
    let a = random::<T>(5, COUNT, Spread::Any);
    let constant = Element::from_f64(1.0);
    let pick: Binary<bool, T, T> = |condition, a| ct::select(condition, a, <T as Element>::from_f64(1.0));
    check_binary(session, "select", pick, &condition, &a, |condition, a| {
        Want::exactly::<T>(if condition { a } else { constant })
    })
}
