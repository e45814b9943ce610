//! Functions of f32 over a dense sample of all their arguments: on a GPU every 61st of the 2^32 bit patterns
//! (`CUTLET_SWEEP_STRIDE` is another distance, 1 for all), elsewhere some thousands. Bounds are those of
//! docs/kernels.md; the largest errors that a GPU made are printed at the end.

use std::sync::Mutex;

use anyhow::{Result, bail};
use cutlet as ct;
use cutlet::FloatMode;
use cutlet::prelude::*;
use rayon::prelude::*;

use crate::elementwise::{Named, Unary};
use crate::float::functions;
use crate::format::Format;
use crate::harness::{Session, Suite, Want};

/// Columns of the array of results; a row is a tile.
const WIDTH: usize = 1024;

/// A function and what its results should be.
struct Swept {
    function: Named<Unary<f32, f32>>,
    want: Box<dyn Fn(f64) -> Want + Send + Sync>,
}

fn swept(name: &'static str, op: Unary<f32, f32>, want: impl Fn(f64) -> Want + Send + Sync + 'static) -> Swept {
    Swept { function: Named { name, op }, want: Box::new(want) }
}

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for function in functions::<f32>().into_iter().filter(|function| function.ulps[0] > 0.0) {
        let (reference, ulps) = (function.reference, function.ulps[0]);
        let want = move |x| Want::Near { value: reference(x), ulps };
        add(suite, swept(function.name, function.op, want));
    }
    let smallest = Format::F32.smallest_normal();
    let subnormal = move |x: f64| x != 0.0 && x.abs() < smallest;
    add(suite, swept("sqrt_approx", |x| x.sqrt_with(Rounding::Approx), |x| Want::Near { value: x.sqrt(), ulps: 2.0 }));
    let quotient = move |x: f64| {
        // Outside of these the fast form is not defined.
        let moderate = x.is_nan() || (smallest..=1.0 / smallest).contains(&x.abs());
        if moderate { Want::Near { value: 1.0 / x, ulps: 2.0 } } else { Want::Open }
    };
    add(suite, swept("reciprocal_approx", |x| one().div_with(x, Rounding::Approx), quotient));
    let want = |x: f64| Want::Near { value: 1.0 / x, ulps: 2.0 };
    add(suite, swept("reciprocal_full", |x| one().div_with(x, Rounding::Full), want));
    let flushed = move |reference: fn(f64) -> f64| {
        move |x: f64| {
            let value = reference(if subnormal(x) { 0f64.copysign(x) } else { x });
            if subnormal(value) || value == 0.0 { Want::AnyZero } else { Want::Near { value, ulps: 2.0 } }
        }
    };
    add(suite, swept("exp2_flushed", |x| x.exp2_with(flush()), flushed(f64::exp2)));
    add(suite, swept("rsqrt_flushed", |x| x.rsqrt_with(flush()), flushed(|x| 1.0 / x.sqrt())));
    // The rounded exponent loses |x| / 2 units beside what the instruction does, which flushes to zero.
    let want = move |x: f64| match x.exp() {
        value if value < smallest * 1.001 => Want::Within { value, error: smallest * 1.001 },
        value => Want::Near { value, ulps: 3.0 + 1.5 * x.abs() },
    };
    add(suite, swept("exp_approx", |x| x.exp_approx(), want));
    let want = |x: f64| Want::Within { value: x.tanh(), error: x.tanh().abs() * 2f64.powi(-10) + 2f64.powi(-149) };
    add(suite, swept("tanh_approx", |x| x.tanh_approx(), want));
}

fn flush() -> FloatMode {
    FloatMode::new().flush_to_zero()
}

fn one() -> Tile<f32, 2> {
    ct::full([1, WIDTH], 1f32)
}

fn add(suite: &mut Suite, swept: Swept) {
    suite.test(format!("sweep/{}", swept.function.name), move |session| sweep(session, &swept));
}

/// Results for the bit patterns `first`, `first` + `stride` and so on.
fn kernel(y: ArrayMut<f32, 2>, first: Scalar<u32>, stride: Scalar<u32>, function: Named<Unary<f32, f32>>) {
    let row = ct::bid(0);
    let position = row.cast::<u32>() * WIDTH as u32 + ct::arange(WIDTH, 0u32, 1);
    let bits = position * stride + first;
    y.store((row, 0), (function.op)(bits.bitcast::<f32>().unsqueeze(0)));
}

fn stride(dense: bool) -> u32 {
    let wish = || std::env::var("CUTLET_SWEEP_STRIDE").ok()?.parse().ok();
    match (dense, cfg!(debug_assertions)) {
        (false, _) => wish().unwrap_or(262_147),
        (true, false) => wish().unwrap_or(61),
        (true, true) => wish().unwrap_or(4001),
    }
}

/// Of results: how many are wrong, the first of them, and the largest error that is not.
#[derive(Default)]
struct Findings {
    wrong: u64,
    example: Option<String>,
    /// In units in the last place, with the argument's bits.
    worst: (f64, u32),
}

impl Findings {
    fn of(bits: u32, got: f32, want: Want) -> Findings {
        if !want.accepts(got) {
            let x = f32::from_bits(bits);
            let example = format!("of {x:e} (bits {bits:#x}): {got:e} instead of {want}");
            return Findings { wrong: 1, example: Some(example), ..Findings::default() };
        }
        let error = match want {
            Want::Near { value, .. } => (f64::from(got) - value).abs() / Format::F32.ulp(value),
            _ => 0.0,
        };
        Findings { worst: (if error.is_finite() { error } else { 0.0 }, bits), ..Findings::default() }
    }

    fn and(self, other: Findings) -> Findings {
        let worst = if other.worst.0 > self.worst.0 { other.worst } else { self.worst };
        Findings { wrong: self.wrong + other.wrong, example: self.example.or(other.example), worst }
    }
}

fn sweep(session: Session, swept: &Swept) -> Result<()> {
    match session {
        // Other tests assemble these functions.
        Session::Assemble(..) => return Ok(()),
        Session::AssembleTileIr(target) if target.arch != 90 => return Ok(()),
        _ => {}
    }
    let dense = match session {
        Session::Run(device) | Session::RunTileIr(device) => device.backend() != ct::Backend::Cpu,
        _ => false,
    };
    let stride = stride(dense);
    let (count, rows) = ((1u64 << 32).div_ceil(stride.into()), if dense { 4096 } else { 16 });
    let mut y = session.unwritten::<f32, 2>([rows, WIDTH])?;
    let mut findings = Findings::default();
    for start in (0..count).step_by(rows * WIDTH) {
        // The last ones may be beyond the end and come again.
        let first = (start as u32).wrapping_mul(stride);
        session.launch(kernel, [rows], (&mut y, first, stride, ct::Constant(swept.function)))?;
        if session.only_compiles() {
            return Ok(());
        }
        let look = |(i, &got): (usize, &f32)| {
            let bits = (i as u32).wrapping_mul(stride).wrapping_add(first);
            Findings::of(bits, got, (swept.want)(f32::from_bits(bits).into()))
        };
        let results = y.to_vec()?;
        let found = results.par_iter().enumerate().map(look).reduce(Findings::default, Findings::and);
        findings = findings.and(found);
    }
    let (name, Findings { wrong, example, worst: (ulps, bits) }) = (swept.function.name, findings);
    if let Some(example) = example {
        bail!("{name}: {wrong} results are wrong, one {example}");
    }
    if dense {
        let x = f32::from_bits(bits);
        let line = format!("{session:?} {name}: at most {ulps:.3} units in the last place, at {x:e} (bits {bits:#x})");
        LARGEST.lock().unwrap().push(line);
    }
    Ok(())
}

static LARGEST: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints the largest errors.
pub fn report() {
    let mut lines = LARGEST.lock().unwrap();
    lines.sort();
    lines.iter().for_each(|line| println!("sweep: {line}"));
}
