//! Stochastic rounding, against its definition in f64, bit for bit.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::element::CastTo;
use cutlet::packed::{NarrowFormat, f5e2m2, f6e3m2, i4, u3};
use cutlet::prelude::*;
use cutlet::random::StochasticFloat;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("stochastic/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(cast: f16 bf16 tf32 f8e4m3fn f8e5m2);
    each!(narrow: f5e2m2 f6e3m2 i4 u3 f8e4m3fn);
    each!(mean: f16 bf16 f8e4m3fn);
}

/// Mantissa bits, and the exponent of the smallest normal number.
fn fields(dtype: DType) -> [i32; 2] {
    match dtype {
        DType::F16 => [10, -14],
        DType::BF16 => [7, -126],
        DType::TF32 => [10, -126],
        DType::F8E4M3FN => [3, -6],
        _ => [2, -14],
    }
}

/// The result by its definition, before the type's own treatment of large numbers.
fn rounded(x: f32, bits: u32, [mantissa, least]: [i32; 2]) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x.into();
    }
    let size = f64::from(x).abs();
    // The exponent of f64, which has a normal number for each f32.
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(least);
    let distance = 2f64.powi(exponent - mantissa);
    let below = (size / distance).floor();
    let fraction = ((size / distance - below) * 2f64.powi(32)).floor();
    let is_above = fraction + f64::from(bits) >= 2f64.powi(32);
    ((below + f64::from(u8::from(is_above))) * distance).copysign(x.into())
}

/// Numbers, among them those next to a change of the spacing, and random bits.
fn inputs() -> (Vec<f32>, Vec<u32>) {
    let mut x = random::<f32>(1, 4096, Spread::Any);
    x.extend(random::<f32>(2, 2048, Spread::Moderate));
    let edges = (-30..20).flat_map(|e| [0.75f32, 0.999_999_94, 1.0, 1.000_000_1, 1.4].map(|m| m * 2f32.powi(e)));
    x.extend(edges.chain([448.0, 449.0, 479.9, 57_344.0, 60_000.0, 65_504.0, 65_519.0, f32::MAX]));
    x.resize(8192, 0.3);
    let mut bits = random::<u32>(3, x.len(), Spread::Any);
    bits.iter_mut().step_by(5).for_each(|bits| *bits = u32::MAX);
    bits.iter_mut().skip(1).step_by(7).for_each(|bits| *bits = 0);
    (x, bits)
}

fn cast<U: StochasticFloat>(session: Session) -> Result<()>
where
    f32: CastTo<U>,
{
    fn kernel<U: StochasticFloat>(x: Array<f32, 1>, bits: Array<u32, 1>, y: ArrayMut<U, 1>)
    where
        f32: CastTo<U>,
    {
        let i = ct::bid(0);
        y.store(i, x.load(i, [1024]).cast_stochastic::<U>(bits.load(i, [1024])));
    }
    let (x, bits) = inputs();
    let (dx, dbits) = (session.array(&x, [x.len()])?, session.array(&bits, [x.len()])?);
    let mut y = session.unwritten::<U, 1>([x.len()])?;
    session.launch(kernel::<U>, [x.len() / 1024], (&dx, &dbits, &mut y))?;
    session.check_results(
        "stochastic",
        &y,
        &|[at]| Want::exactly(U::from_f64(rounded(x[at], bits[at], fields(U::DTYPE)))),
        &|[at]| format!("from {:e} and {:#x}", x[at], bits[at]),
    )
}

fn narrow<F: ct::packed::Narrow>(session: Session) -> Result<()> {
    fn kernel<F: ct::packed::Narrow>(x: Array<f32, 1>, bits: Array<u32, 1>, y: ArrayMut<u8, 1>) {
        let i = ct::bid(0);
        y.store(i, x.load(i, [1024]).cast_narrow_stochastic::<F>(bits.load(i, [1024])).codes());
    }
    let (x, bits) = inputs();
    let (dx, dbits) = (session.array(&x, [x.len()])?, session.array(&bits, [x.len()])?);
    let mut y = session.unwritten::<u8, 1>([x.len()])?;
    session.launch(kernel::<F>, [x.len() / 1024], (&dx, &dbits, &mut y))?;
    let want = |x: f32, bits: u32| match F::FORMAT {
        NarrowFormat::Int(_) | NarrowFormat::UInt(_) => {
            let size = f64::from(x).abs();
            let below = size.floor();
            let fraction = ((size - below) * 2f64.powi(32)).floor();
            let is_above = fraction + f64::from(bits) >= 2f64.powi(32);
            (below + f64::from(u8::from(is_above))).copysign(x.into())
        }
        NarrowFormat::Float { exponent, mantissa } => rounded(x, bits, [mantissa as i32, 2 - (1 << (exponent - 1))]),
        NarrowFormat::Element(dtype) => rounded(x, bits, fields(dtype)),
    };
    session.check_results("narrow", &y, &|[at]| Want::exactly(F::from_value(want(x[at], bits[at])).code()), &|[at]| {
        format!("from {:e} and {:#x}", x[at], bits[at])
    })
}

/// The mean of many results with Philox bits: within five deviations.
fn mean<U: StochasticFloat>(session: Session) -> Result<()>
where
    f32: CastTo<U>,
{
    fn kernel<U: StochasticFloat>(x: Array<f32, 1>, y: ArrayMut<U, 1>, seed: Scalar<u64>)
    where
        f32: CastTo<U>,
    {
        let i = ct::bid(0);
        let bits = ct::random::Philox::new(seed, 0).bits(i, [1024]);
        y.store(i, x.load(i, [1024]).cast_stochastic::<U>(bits));
    }
    let [mantissa, least] = fields(U::DTYPE);
    for (x, distance) in
        [(1.1f32, 2f64.powi(-mantissa)), (-2.7 * 2f32.powi(least - mantissa), 2f64.powi(least - mantissa))]
    {
        let count = 16 * 1024;
        let dx = session.array(&vec![x; count], [count])?;
        let mut y = session.unwritten::<U, 1>([count])?;
        session.launch(kernel::<U>, [count / 1024], (&dx, &mut y, 42u64))?;
        if session.only_compiles() {
            return Ok(());
        }
        let mean = y.to_vec()?.iter().map(|y| y.to_f64()).sum::<f64>() / count as f64;
        let deviation = distance / 2.0 / (count as f64).sqrt();
        ensure!((mean - f64::from(x)).abs() < 5.0 * deviation, "mean {mean} of {x}, deviation {deviation}");
    }
    Ok(())
}
