//! Functions of f32 over all their arguments: on a GPU every one of the 2^32 bit patterns,
//! elsewhere some thousands (`CUTLET_SUITE_SWEEP=n`: 2^n of them, and a table). The kernel that
//! applies a function also computes it in f64, with errors below the resolution of this test. It
//! keeps the largest error and its argument. Bounds are those of docs/kernels.md. At the end a
//! table has the errors on a GPU, also those beyond the bounds.

use std::hash::{Hash, Hasher};
use std::sync::Mutex;

use anyhow::{Result, bail};
use cutlet as ct;
use cutlet::FloatMode;
use cutlet::prelude::*;

use crate::elementwise::Unary;
use crate::float::functions;
use crate::harness::{Session, Suite};

/// Arguments of a block in one iteration.
const WIDTH: usize = 512;

/// Reference of the results of a function, computed in f64.
#[derive(Clone, Copy)]
enum Reference {
    /// The same function of f64.
    Wide(Unary<f64, f64>),
    /// Something else of the f32 argument.
    Of(Unary<f32, f64>),
}

/// Unit of errors.
#[derive(Clone, Copy)]
enum Unit {
    /// Units in the last place.
    Ulp,
    /// None is allowed: results have the bits of the rounded reference.
    Exact,
    /// A named bound in units in the last place, computed from argument and reference. Infinity: no
    /// bound.
    Ulps(&'static str, fn(Tile<f32, 2>, Tile<f64, 2>) -> Tile<f64, 2>),
}

/// A function and its reference. Equal names are equal functions.
#[derive(Clone, Copy)]
struct Swept {
    name: &'static str,
    op: Unary<f32, f32>,
    reference: Reference,
    unit: Unit,
    /// Largest error allowed.
    bound: f64,
}

impl PartialEq for Swept {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl Eq for Swept {}
impl Hash for Swept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for (single, double) in functions::<f32>().into_iter().zip(functions::<f64>()) {
        let (unit, bound) = if single.ulps[0] > 0.0 { (Unit::Ulp, single.ulps[0]) } else { (Unit::Exact, 0.0) };
        add(suite, Swept { name: single.name, op: single.op, reference: Reference::Wide(double.op), unit, bound });
    }
    let exact =
        |name, op, reference| Swept { name, op, reference: Reference::Of(reference), unit: Unit::Exact, bound: 0.0 };
    add(suite, exact("add", |x| x + any(x), |x| wide(x) + wide(any(x))));
    add(suite, exact("mul", |x| x * any(x), |x| wide(x) * wide(any(x))));
    add(suite, exact("div", |x| x / any(x), |x| wide(x) / wide(any(x))));
    add(suite, exact("rem", |x| x % any(x), |x| wide(x) % wide(any(x))));
    let near =
        |name, op, reference, bound| Swept { name, op, reference: Reference::Of(reference), unit: Unit::Ulp, bound };
    add(suite, near("pow", |x| x.pow(exponent(x)), |x| wide(x).pow(wide(exponent(x))), 4.0));
    add(suite, near("atan2", |x| x.atan2(comparable(x)), |x| wide(x).atan2(wide(comparable(x))), 3.0));
    add(suite, near("sqrt_approx", |x| x.sqrt_with(Rounding::Approx), |x| wide(x).sqrt(), 1.0));
    add(suite, near("reciprocal_full", |x| one().div_with(x, Rounding::Full), |x| 1.0 / wide(x), 1.0));
    add(suite, near("exp2_flushed", |x| x.exp2_with(flush()), |x| flushed(wide(flushed_argument(x)).exp2()), 2.5));
    add(suite, near("rsqrt_flushed", |x| x.rsqrt_with(flush()), |x| flushed(wide(flushed_argument(x)).rsqrt()), 2.0));
    // Outside of these the fast form is not defined.
    let moderate = Unit::Ulps("ulp", |x, _| {
        let magnitude = x.abs();
        let defined = !magnitude.lt(f32::MIN_POSITIVE) & !magnitude.gt(1.0 / f32::MIN_POSITIVE);
        defined.select(tile(1.0), tile(f64::INFINITY))
    });
    let op: Unary<f32, f32> = |x| one().div_with(x, Rounding::Approx);
    let reference = Reference::Of(|x| 1.0 / wide(x));
    add(suite, Swept { name: "reciprocal_approx", op, reference, unit: moderate, bound: 2.0 });
    // The rounded exponent loses |x| / 2 units in addition to the error of the instruction, which
    // flushes to zero.
    let growing = Unit::Ulps("ulp (1 + |x| / 2)", |x, want| {
        let flushes = want.lt(f64::from(f32::MIN_POSITIVE) * 1.001);
        flushes.select(tile(2f64.powi(23) * 1.001 / 3.0), wide(x.abs()) * 0.5 + 1.0)
    });
    let reference = Reference::Of(|x| wide(x).exp());
    add(suite, Swept { name: "exp_approx", op: |x| x.exp_approx(), reference, unit: growing, bound: 3.0 });
    let relative = Unit::Ulps("|y| / 1024", |_, want| (want.abs() * 2f64.powi(-10) + 2f64.powi(-149)) * per_ulp(want));
    add(suite, lgamma());
    let reference = Reference::Of(|x| wide(x).tanh());
    add(suite, Swept { name: "tanh_approx", op: |x| x.tanh_approx(), reference, unit: relative, bound: 1.0 });
}

/// log |Γ(x)|, whose zeros between the negative whole numbers have the digits of the operands of a
/// subtraction.
fn lgamma() -> Swept {
    let unit = Unit::Ulps("ulp, below -1/2 of the larger term", |x, want| {
        let other = wide(-x).lgamma().max(want.abs()).max(1.0);
        let digits = other.isfinite().select(per_ulp(want) / per_ulp(other), tile(1.0));
        x.lt(-0.5).select(digits, tile(1.0))
    });
    let reference = Reference::Of(|x| wide(x).lgamma());
    Swept { name: "lgamma", op: |x| x.lgamma(), reference, unit, bound: 6.0 }
}

fn add(suite: &mut Suite, swept: Swept) {
    suite.test(format!("sweep/{}", swept.name), move |session| sweep(session, swept));
}

fn flush() -> FloatMode {
    FloatMode::new().flush_to_zero()
}

fn one() -> Tile<f32, 2> {
    ct::full([1, WIDTH], 1f32)
}

fn tile(value: f64) -> Tile<f64, 2> {
    ct::full([1, WIDTH], value)
}

fn wide(x: Tile<f32, 2>) -> Tile<f64, 2> {
    x.cast()
}

/// Zeros of the same sign for subnormal numbers.
fn flushed_argument(x: Tile<f32, 2>) -> Tile<f32, 2> {
    let zero = (x.bitcast::<u32>() & 0x8000_0000).bitcast::<f32>();
    x.abs().lt(f32::MIN_POSITIVE).select(zero, x)
}

fn flushed(want: Tile<f64, 2>) -> Tile<f64, 2> {
    want.abs().lt(f64::from(f32::MIN_POSITIVE)).select(tile(0.0), want)
}

/// Bits without order, from those of `x`.
fn scrambled(x: Tile<f32, 2>) -> Tile<u32, 2> {
    let bits = x.bitcast::<u32>();
    let bits = (bits ^ (bits >> 16)) * 0x7feb_352d;
    let bits = (bits ^ (bits >> 15)) * 0x846c_a68b;
    bits ^ (bits >> 16)
}

/// Another operand: any number.
fn any(x: Tile<f32, 2>) -> Tile<f32, 2> {
    scrambled(x).bitcast()
}

/// An exponent with which the power of `x` is mostly a number of f32; whole for negative `x`.
fn exponent(x: Tile<f32, 2>) -> Tile<f32, 2> {
    let log = (scrambled(x) >> 8).cast::<f32>() * (280.0 / 16_777_216.0) - 151.0;
    let exponent = log / x.abs().log2();
    x.lt(0.0).select(exponent.floor(), exponent)
}

/// A number of either sign, at most 2^25 times as large or as small as `x`.
fn comparable(x: Tile<f32, 2>) -> Tile<f32, 2> {
    let bits = scrambled(x);
    let power = (bits >> 23) % 49 + 103;
    x * ((bits & 0x807f_ffff) | (power << 23)).bitcast::<f32>()
}

/// One over the unit in the last place of f32 at `want`.
fn per_ulp(want: Tile<f64, 2>) -> Tile<f64, 2> {
    let magnitude = want.abs().clamp(f64::from(f32::MIN_POSITIVE), 2f64.powi(127));
    let field = magnitude.bitcast::<i64>() >> 52;
    // 2^(23 - e), where the field is e + 1023.
    ((2 * 1023 + 23 - field) << 52).bitcast()
}

/// The error of `got` in units in the last place. Infinity counts as the number that overflows.
fn error(got: Tile<f32, 2>, want: Tile<f64, 2>) -> Tile<f64, 2> {
    let got = wide(got);
    let limited = |value: Tile<f64, 2>| value.clamp(-2f64.powi(128), 2f64.powi(128));
    let distance = (limited(got) - limited(want)).abs() * per_ulp(want);
    let differ = got.isnan() ^ want.isnan();
    let error = got.isnan().select(tile(0.0), distance);
    differ.select(tile(f64::INFINITY), error)
}

/// Returns 0 if `got` is the number nearest to `want`, with the sign of a zero; else the error, at
/// least 1.
fn rounding_error(got: Tile<f32, 2>, want: Tile<f64, 2>) -> Tile<f64, 2> {
    let want_bits = want.cast::<f32>().bitcast::<u32>();
    let right = got.bitcast::<u32>().eq(want_bits) | (got.isnan() & want.isnan());
    right.select(tile(0.0), error(got, want).max(1.0))
}

impl Swept {
    /// The error for each argument, in the function's unit.
    fn errors(self, x: Tile<f32, 2>) -> Tile<f64, 2> {
        let got = (self.op)(x);
        let want = match self.reference {
            Reference::Wide(function) => function(wide(x)),
            Reference::Of(function) => function(x),
        };
        match self.unit {
            Unit::Ulp => error(got, want),
            Unit::Exact => rounding_error(got, want),
            Unit::Ulps(_, unit) => {
                let unit = unit(x, want);
                unit.eq(f64::INFINITY).select(tile(0.0), error(got, want) / unit)
            }
        }
    }
}

/// Computes for `rounds` times `WIDTH` arguments of each block the largest error, the bits of its
/// argument, and the number of errors beyond the bound. The first argument of all is `first`, and
/// the distance of their bits is `stride`.
fn kernel(
    (worst, place, beyond): (ArrayMut<f64, 2>, ArrayMut<u32, 2>, ArrayMut<i32, 2>),
    (rounds, stride): (Scalar<i32>, Scalar<u32>),
    swept: Swept,
) {
    let block = ct::bid(0);
    let lanes = ct::arange_from(WIDTH, 0u32, 1).unsqueeze(0);
    let none = (tile(-1.0), ct::zeros::<u32, 2>([1, WIDTH]), ct::zeros::<i32, 2>([1, WIDTH]));
    let (errors, places, counts) = ct::fold(..rounds, none, |(errors, places, counts), round| {
        let position = (block * rounds + round).cast::<u32>() * WIDTH as u32;
        let bits = (lanes + position) * stride;
        let error = swept.errors(bits.bitcast());
        let larger = error.gt(errors);
        let counts = counts + error.gt(swept.bound).cast::<i32>();
        (larger.select(error, errors), larger.select(bits, places), counts)
    });
    let largest = errors.reduce_max(1);
    let candidates = errors.eq(largest).select(places, ct::full([1, WIDTH], u32::MAX));
    worst.store((block, 0), largest);
    place.store((block, 0), candidates.reduce_min(1));
    beyond.store((block, 0), counts.sum(1));
}

fn sweep(session: Session, swept: Swept) -> Result<()> {
    let dense = match session {
        Session::Run(device) | Session::RunTileIr(device) => device.backend() != ct::Backend::Cpu,
        _ => false,
    };
    let wish: Option<u32> = std::env::var("CUTLET_SUITE_SWEEP").ok().and_then(|text| text.parse().ok());
    let sampled = wish.unwrap_or(14).clamp(13, 31);
    // 2^13 blocks of 2^10 iterations of 2^9 lanes: all patterns. Else a part of them, at an odd
    // distance.
    let (blocks, rounds, stride) =
        if dense { (8192, 1024, 1) } else { (16, 1 << (sampled - 13), (1u32 << (32 - sampled)) + 3) };
    let mut worst = session.unwritten::<f64, 2>([blocks, 1])?;
    let mut place = session.unwritten::<u32, 2>([blocks, 1])?;
    let mut beyond = session.unwritten::<i32, 2>([blocks, 1])?;
    let arrays = (&mut worst, &mut place, &mut beyond);
    session.launch(kernel, [blocks], (arrays, (rounds, stride), ct::Constant(swept)))?;
    if session.only_compiles() {
        return Ok(());
    }
    let (worst, place) = (worst.to_vec()?, place.to_vec()?);
    let beyond: i64 = beyond.to_vec()?.into_iter().map(i64::from).sum();
    let block = (0..blocks).max_by(|&i, &j| worst[i].total_cmp(&worst[j])).expect("a block");
    let (error, bits) = (worst[block], place[block]);
    let Swept { name, bound, .. } = swept;
    let unit = match swept.unit {
        Unit::Ulp => "ulp",
        Unit::Exact => "ulp, where not exact",
        Unit::Ulps(name, _) => name,
    };
    let x = f32::from_bits(bits);
    if dense || wish.is_some() && matches!(session, Session::Run(_)) {
        let session = format!("{session:?}");
        let line = format!("| `{name}` | {error:.3} | {bound} | {unit} | {x:e} ({bits:#010x}) | {session} |");
        TABLE.lock().unwrap().push(line);
    }
    if beyond > 0 {
        bail!(
            "{name}: {beyond} results are beyond {bound} {unit}; the worst, of {x:e} (bits {bits:#x}), by {error:.3}"
        );
    }
    Ok(())
}

static TABLE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints the largest errors.
pub fn report() {
    let mut lines = TABLE.lock().unwrap();
    lines.sort();
    if !lines.is_empty() {
        println!("| function | largest error | bound | in | at | on |\n|---|---|---|---|---|---|");
        lines.iter().for_each(|line| println!("{line}"));
    }
}
