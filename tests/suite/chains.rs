//! Every operation on the result of every operation, on extreme values of all types. An assembler
//! knows properties of results (a magnitude is not negative, a power is positive) and simplifies
//! the next operation by them. The properties must hold for the smallest integers, NaN and zeros of
//! either sign. The reference is the cpu back end, which runs the two operations in kernels of
//! their own.
//!
//! On a GPU `CUTLET_CHAINS=k` takes every k-th operation as the inner one (6, since the driver's
//! assembler needs two minutes for all: 1).

#![allow(clippy::eq_op, reason = "an assembler may know what x - x is")]

use std::hash::{Hash, Hasher};

use anyhow::{Result, bail};
use cutlet as ct;
use cutlet::FloatMode;
use cutlet::prelude::*;

use crate::harness::{Session, Suite};
use crate::test_sample::one_in;

/// An operation on two tiles, under its name. Equal names are equal operations of one type.
pub struct Operation<T, U = T> {
    pub name: &'static str,
    pub op: fn(Tile<T, 1>, Tile<T, 1>) -> Tile<U, 1>,
}

impl<T, U> Clone for Operation<T, U> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, U> Copy for Operation<T, U> {}
impl<T, U> PartialEq for Operation<T, U> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl<T, U> Eq for Operation<T, U> {}
impl<T, U> Hash for Operation<T, U> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

macro_rules! operations {
    ($($name:literal: |$x:ident, $y:ident| $body:expr;)+) => {
        vec![$($crate::chains::Operation { name: $name, op: |$x, $y| $body }),+]
    };
}
pub(crate) use operations;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($list:ident: $($name:ident)+) => {$(
            suite.test(concat!("chains/", stringify!($name)), |session| {
                let operations = $list::<$name>();
                chains(session, &extremes::<$name>(), &operations, &operations)
            });
        )+};
    }
    each!(signed: i8 i16 i32 i64);
    each!(integers: u8 u16 u32 u64);
    each!(floats: f16 bf16 f32 f64);
    suite.test("chains/ranges/f32", |session| chains(session, &extremes::<f32>(), &ranges(), &comparisons::<f32>()));
    suite.test("chains/ranges/f64", |session| {
        chains(session, &extremes::<f64>(), &magnitudes::<f64>(), &comparisons::<f64>())
    });
    suite.test("chains/ranges/f16", |session| {
        chains(session, &extremes::<f16>(), &magnitudes::<f16>(), &comparisons::<f16>())
    });
    suite.test("chains/ranges/bf16", |session| {
        chains(session, &extremes::<bf16>(), &magnitudes::<bf16>(), &comparisons::<bf16>())
    });
}

/// A number of `T`, as a tile.
pub fn number<T: Element>(value: f64) -> Tile<T, 1> {
    ct::full([TILE], T::from_f64(value))
}

/// From 1 to 8: a divisor with which no quotient is out of range.
pub fn divisor<T: Int>(y: Tile<T, 1>) -> Tile<T, 1> {
    (y & number(7.0)) + number(1.0)
}

fn integers<T: Int + Comparable + ByteSized>() -> Vec<Operation<T>> {
    operations! {
        "x": |x, _y| x;
        "abs": |x, _y| x.abs();
        "not": |x, _y| !x;
        "x + 1": |x, _y| x + number(1.0);
        "x - 1": |x, _y| x - number(1.0);
        "x + y": |x, y| x + y;
        "x - y": |x, y| x - y;
        "y - x": |x, y| y - x;
        "0 - x": |x, _y| number(0.0) - x;
        "x * y": |x, y| x * y;
        "x * 3": |x, _y| x * number(3.0);
        "x * x": |x, _y| x * x;
        "x & y": |x, y| x & y;
        "x & 15": |x, _y| x & number(15.0);
        "x | y": |x, y| x | y;
        "x ^ y": |x, y| x ^ y;
        "x << 1": |x, _y| x << number(1.0);
        "x << y": |x, y| x << y;
        "x >> 1": |x, _y| x >> number(1.0);
        "x >> 4": |x, _y| x >> number(4.0);
        "x >> y": |x, y| x >> y;
        "min": |x, y| x.min(y);
        "max": |x, y| x.max(y);
        "max 0": |x, _y| x.max(number(0.0));
        "min 0": |x, _y| x.min(number(0.0));
        "clamp": |x, _y| x.clamp(number(1.0), number(100.0));
        "mul_hi": |x, y| x.mul_hi(y);
        "x / 3": |x, _y| x / number(3.0);
        "x / 8": |x, _y| x / number(8.0);
        "x % 3": |x, _y| x % number(3.0);
        "x % 8": |x, _y| x % number(8.0);
        "floor_div 3": |x, _y| x.floor_div(number(3.0));
        "ceil_div 8": |x, _y| x.ceil_div(number(8.0));
        "modulo 3": |x, _y| x.modulo(number(3.0));
        "x / y": |x, y| x / divisor(y);
        "x % y": |x, y| x % divisor(y);
        "x < 0": |x, _y| x.lt(number(0.0)).cast();
        "x >= 0": |x, _y| x.ge(number(0.0)).cast();
        "x < y": |x, y| x.lt(y).cast();
        "x == y": |x, y| x.eq(y).cast();
        "x < x + 1": |x, _y| x.lt(x + number(1.0)).cast();
        "select": |x, y| x.gt(y).select(x, number(0.0));
        "i8": |x, _y| x.cast::<i8>().cast();
        "u8": |x, _y| x.cast::<u8>().cast();
        "i16": |x, _y| x.cast::<i16>().cast();
        "u16": |x, _y| x.cast::<u16>().cast();
        "i32": |x, _y| x.cast::<i32>().cast();
        "u32": |x, _y| x.cast::<u32>().cast();
        "i64": |x, _y| x.cast::<i64>().cast();
        "u64": |x, _y| x.cast::<u64>().cast();
        "bool": |x, _y| x.cast::<bool>().cast();
        "f16": |x, _y| x.cast::<f16>().cast();
        "f32": |x, _y| x.cast::<f32>().cast();
        "f64": |x, _y| x.cast::<f64>().cast();
    }
}

fn signed<T: Int + Signed + Comparable + ByteSized>() -> Vec<Operation<T>> {
    let more = operations! {
        "neg": |x, _y| -x;
        "-|x|": |x, _y| -x.abs();
        "select abs": |x, _y| x.lt(number(0.0)).select(-x, x);
        "max of neg": |x, y| (-x).max(-y);
        "x / -3": |x, _y| x / number(-3.0);
        "x % -8": |x, _y| x % number(-8.0);
        "max -1": |x, _y| x.max(number(-1.0));
        "x > -1": |x, _y| x.gt(number(-1.0)).cast();
    };
    integers().into_iter().chain(more).collect()
}

/// Operations whose results are the same to the last bit everywhere.
#[allow(clippy::eq_op, reason = "a difference and a quotient of equals are what an assembler may misjudge")]
fn floats<T: Float>() -> Vec<Operation<T>> {
    let arithmetic = operations! {
        "x": |x, _y| x;
        "neg": |x, _y| -x;
        "abs": |x, _y| x.abs();
        "-|x|": |x, _y| -x.abs();
        "x + y": |x, y| x + y;
        "x - y": |x, y| x - y;
        "y - x": |x, y| y - x;
        "-(x - y)": |x, y| -(x - y);
        "x * y": |x, y| x * y;
        "-(x * y)": |x, y| -(x * y);
        "x / y": |x, y| x / y;
        "x % y": |x, y| x % y;
        "1 / x": |x, _y| number(1.0) / x;
        "x * x": |x, _y| x * x;
        "x + x": |x, _y| x + x;
        "x - x": |x, _y| x - x;
        "x / x": |x, _y| x / x;
        "x + 0": |x, _y| x + number(0.0);
        "x + -0": |x, _y| x + number(-0.0);
        "x - 0": |x, _y| x - number(0.0);
        "0 - x": |x, _y| number(0.0) - x;
        "-0 - x": |x, _y| number(-0.0) - x;
        "x * 1": |x, _y| x * number(1.0);
        "x * -1": |x, _y| x * number(-1.0);
        "x * 0": |x, _y| x * number(0.0);
        "x * 2": |x, _y| x * number(2.0);
        "x * 2 / 2": |x, _y| x * number(2.0) * number(0.5);
        "x + y - y": |x, y| (x + y) - y;
        "sqrt": |x, _y| x.sqrt();
        "floor": |x, _y| x.floor();
        "ceil": |x, _y| x.ceil();
        "fma(x, y, x)": |x, y| x.fma(y, x);
        "fma(x, y, 0)": |x, y| x.fma(y, number(0.0));
        "fma(x, y, -0)": |x, y| x.fma(y, number(-0.0));
        "fma(x, 1, y)": |x, y| x.fma(number(1.0), y);
        "fma(x, 0, y)": |x, y| x.fma(number(0.0), y);
        "fma(-x, y, -x)": |x, y| (-x).fma(y, -x);
    };
    let choices = operations! {
        "min": |x, y| x.min(y);
        "max": |x, y| x.max(y);
        "min_nan": |x, y| x.min_nan(y);
        "max_nan": |x, y| x.max_nan(y);
        "max x": |x, _y| x.max(x);
        "max 0": |x, _y| x.max(number(0.0));
        "max -0": |x, _y| x.max(number(-0.0));
        "min 0": |x, _y| x.min(number(0.0));
        "min -0": |x, _y| x.min(number(-0.0));
        "clamp": |x, _y| x.clamp(number(0.0), number(1.0));
        "max of neg": |x, y| (-x).max(-y);
        "x > 0 ? x : 0": |x, _y| x.gt(number(0.0)).select(x, number(0.0));
        "x > 0 ? x : -0": |x, _y| x.gt(number(0.0)).select(x, number(-0.0));
        "x < 0 ? -x : x": |x, _y| x.lt(number(0.0)).select(-x, x);
        "x >= y ? x : y": |x, y| x.ge(y).select(x, y);
        "x < y ? x : y": |x, y| x.lt(y).select(x, y);
        "x > y ? 1 : 0": |x, y| x.gt(y).cast();
        "x < 0": |x, _y| x.lt(number(0.0)).cast();
        "x <= 0": |x, _y| x.le(number(0.0)).cast();
        "x > 0": |x, _y| x.gt(number(0.0)).cast();
        "x >= 0": |x, _y| x.ge(number(0.0)).cast();
        "x != 0": |x, _y| x.ne(number(0.0)).cast();
        "x == x": |x, _y| x.eq(x).cast();
        "isnan": |x, _y| x.isnan().cast();
        "f16": |x, _y| x.cast::<f16>().cast();
        "bf16": |x, _y| x.cast::<bf16>().cast();
        "f32": |x, _y| x.cast::<f32>().cast();
        "f64": |x, _y| x.cast::<f64>().cast();
        "i8": |x, _y| x.cast::<i8>().cast();
        "u8": |x, _y| x.cast::<u8>().cast();
        "i32": |x, _y| x.cast::<i32>().cast();
        "u32": |x, _y| x.cast::<u32>().cast();
        "i64": |x, _y| x.cast::<i64>().cast();
    };
    arithmetic.into_iter().chain(choices).collect()
}

/// Operations whose results are known not to be negative, or not to be large.
fn magnitudes<T: Float>() -> Vec<Operation<T>> {
    operations! {
        "exp2": |x, _y| x.exp2();
        "exp": |x, _y| x.exp();
        "rsqrt": |x, _y| x.rsqrt();
        "sin": |x, _y| x.sin();
        "cosh": |x, _y| x.cosh();
        "tanh": |x, _y| x.tanh();
        "sqrt": |x, _y| x.sqrt();
        "abs": |x, _y| x.abs();
        "-|x|": |x, _y| -x.abs();
        "|x| + 1": |x, _y| x.abs() + number(1.0);
        "x * x": |x, _y| x * x;
        "x * x + y * y": |x, y| x * x + y * y;
        "max 0": |x, _y| x.max(number(0.0));
        "max_nan 0": |x, _y| x.max_nan(number(0.0));
        "clamp to 1": |x, _y| x.clamp(number(-1.0), number(1.0));
        "1 / |x|": |x, _y| number(1.0) / x.abs();
        "-exp2": |x, _y| -x.exp2();
        "exp2 + exp2": |x, y| x.exp2() + y.exp2();
        "max of exp2": |x, y| x.exp2().max(y.exp2());
        "max_nan of exp2": |x, y| x.exp2().max_nan(y.exp2());
        "exp2 or 0": |x, y| x.gt(y).select(x.exp2(), number(0.0));
    }
}

/// The same, and the fast forms of f32.
fn ranges() -> Vec<Operation<f32>> {
    let fast = operations! {
        "exp2_flushed": |x, _y| x.exp2_with(FloatMode::new().flush_to_zero());
        "exp_approx": |x, _y| x.exp_approx();
        "tanh_approx": |x, _y| x.tanh_approx();
        "sqrt_approx": |x, _y| x.sqrt_with(Rounding::Approx);
        "exp2 of flushed sum": |x, y| {
            x.exp2_with(FloatMode::new().flush_to_zero()) + y.exp2_with(FloatMode::new().flush_to_zero())
        };
    };
    magnitudes().into_iter().chain(fast).collect()
}

/// Comparisons with numbers that no inexact result of [`extremes`] comes near.
fn comparisons<T: Float>() -> Vec<Operation<T>> {
    operations! {
        "x < 0": |x, _y| x.lt(number(0.0)).cast();
        "x <= -0": |x, _y| x.le(number(-0.0)).cast();
        "x > 0": |x, _y| x.gt(number(0.0)).cast();
        "x >= 0": |x, _y| x.ge(number(0.0)).cast();
        "x >= -0": |x, _y| x.ge(number(-0.0)).cast();
        "x == 0": |x, _y| x.eq(number(0.0)).cast();
        "x != 0": |x, _y| x.ne(number(0.0)).cast();
        "x > -1.25": |x, _y| x.gt(number(-1.25)).cast();
        "x >= -1.25": |x, _y| x.ge(number(-1.25)).cast();
        "x < -1.25": |x, _y| x.lt(number(-1.25)).cast();
        "x <= -1.25": |x, _y| x.le(number(-1.25)).cast();
        "x != -1.25": |x, _y| x.ne(number(-1.25)).cast();
        "x < 1.25": |x, _y| x.lt(number(1.25)).cast();
        "x <= 1.25": |x, _y| x.le(number(1.25)).cast();
        "x > 1.25": |x, _y| x.gt(number(1.25)).cast();
        "x >= 1.25": |x, _y| x.ge(number(1.25)).cast();
        "x <= inf": |x, _y| x.le(number(f64::INFINITY)).cast();
        "x < inf": |x, _y| x.lt(number(f64::INFINITY)).cast();
        "x >= -inf": |x, _y| x.ge(number(f64::NEG_INFINITY)).cast();
        "not x < 0": |x, _y| (!x.lt(number(0.0))).cast();
        "not x >= 0": |x, _y| (!x.ge(number(0.0))).cast();
        "x == x": |x, _y| x.eq(x).cast();
        "isnan": |x, _y| x.isnan().cast();
        "both": |x, y| (x.ge(number(0.0)) & y.lt(number(1.0))).cast();
        "either": |x, y| (x.ge(number(0.0)) | y.lt(number(1.0))).cast();
        "select": |x, _y| x.ge(number(0.0)).select(number(1.0), number(2.0));
    }
}

/// The ends of a type, adjacent numbers, and the numbers at which widths and signs change.
pub fn extremes<T: Element>() -> Vec<T> {
    if T::DTYPE.is_float() {
        let (tiny, huge): (f64, f64) = match T::DTYPE.bits() {
            64 => (f64::MIN_POSITIVE, f64::MAX),
            32 => (f32::MIN_POSITIVE.into(), f32::MAX.into()),
            _ if T::NAME == "f16" => (f16::MIN_POSITIVE.to_f64(), f16::MAX.to_f64()),
            _ => (bf16::MIN_POSITIVE.to_f64(), bf16::MAX.to_f64()),
        };
        let magnitudes = [0.0, 1.0, 0.5, 1.5, 3.0, 60.0, 3e4, tiny, tiny * 0.25, huge, huge * 0.5, f64::INFINITY];
        return magnitudes.iter().flat_map(|&x| [x, -x]).chain([f64::NAN]).map(T::from_f64).collect();
    }
    let width = T::DTYPE.bits();
    let mask = u64::MAX >> (64 - width);
    let top = 1u64 << (width - 1);
    let small = [0, 1, 2, 3, 7, 8, 31, 100];
    let all = small.iter().flat_map(|&x: &u64| [x, x.wrapping_neg(), top.wrapping_add(x), top.wrapping_sub(x)]);
    let mut bits: Vec<u64> =
        all.map(|bits| bits & mask).chain([mask / 3, width.into(), u64::from(width) - 1]).collect();
    bits.sort_unstable();
    bits.dedup();
    bits.into_iter().map(T::from_bits).collect()
}

/// Elements of a tile; arrays do not end where tiles do.
pub const TILE: usize = 256;

/// `second` of `first`, each of `second` in a row of its own. Without `first`: of x itself.
fn kernel<T: Element, U: Element>(
    x: Array<T, 1>,
    y: Array<T, 1>,
    results: ArrayMut<U, 2>,
    (first, second): (Option<Operation<T>>, Vec<Operation<T, U>>),
) {
    let block = ct::bid(0);
    let (x, y) = (x.load([block], [TILE]), y.load([block], [TILE]));
    let x = first.map_or(x, |first| (first.op)(x, y));
    for (row, second) in second.iter().enumerate() {
        results.store((ct::scalar(row as i32), block), (second.op)(x, y).unsqueeze(0));
    }
}

/// Each op of `second` on the result of each op of `first`, for all pairs of `values`.
fn chains<T: Element>(session: Session, values: &[T], first: &[Operation<T>], second: &[Operation<T>]) -> Result<()> {
    let pairs = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y)));
    let (x, y): (Vec<T>, Vec<T>) = pairs.unzip();
    let count = x.len();
    let grid = [count.div_ceil(TILE)];
    // Without a check of values, pairs of operations are no new input of the assembler.
    let first = if session.only_compiles() { &first[..1] } else { first };
    let asked = std::env::var("CUTLET_CHAINS").ok().and_then(|text| text.parse().ok());
    let every = if session.device() == ct::Device::cpu() { one_in(8) } else { asked.unwrap_or(6) };
    let reference = Session::Run(ct::Device::cpu());
    let mut problems = Vec::new();
    for &inner in first.iter().step_by(every.max(1)) {
        let run = |session: Session, x: &[T], inner: Option<Operation<T>>, outer: &[Operation<T>]| -> Result<Vec<T>> {
            let (x, y) = (session.array(x, [count])?, session.array(&y, [count])?);
            let mut results = session.unwritten::<T, 2>([outer.len(), count])?;
            session.launch(kernel, grid, (&x, &y, &mut results, ct::Constant((inner, outer.to_vec()))))?;
            Ok(results.to_vec()?)
        };
        let got = run(session, &x, Some(inner), second)?;
        if session.only_compiles() {
            return Ok(());
        }
        let between = run(reference, &x, None, &[inner])?;
        let want = run(reference, &between, None, second)?;
        for (row, outer) in second.iter().enumerate() {
            let of_row = row * count..(row + 1) * count;
            let differ = |i: &usize| !same(got[of_row.start + i], want[of_row.start + i]);
            let wrong: Vec<usize> = (0..count).filter(differ).collect();
            if let Some(&i) = wrong.first() {
                let (got, want) = (got[of_row.start + i], want[of_row.start + i]);
                problems.push(format!(
                    "`{}` of `{}`: {} of {count} are wrong; of ({:?}, {:?}): {got:?} instead of {want:?}, through {:?}",
                    outer.name,
                    inner.name,
                    wrong.len(),
                    x[i],
                    y[i],
                    between[i],
                ));
            }
        }
    }
    match problems.len() {
        0 => Ok(()),
        n => bail!("{n} chains of {} are wrong:\n{}", T::NAME, problems.join("\n")),
    }
}

/// Equal to the bit; any NaN for a NaN.
pub fn same<T: Element>(a: T, b: T) -> bool {
    a.to_bits() == b.to_bits() || (T::DTYPE.is_float() && a.to_f64().is_nan() && b.to_f64().is_nan())
}
