//! Exponents and masks in a scope with `reassociate`: against f64, with infinities and large
//! maxima. Factors of maxima that are arguments of a launch, also negative ones.

use anyhow::Result;
use cutlet as ct;
use cutlet::FloatMode;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    for form in Form::ALL {
        suite.test(format!("reassociate/{form:?}").to_lowercase(), move |session| exponents(session, form));
    }
    suite.test("reassociate/mask", mask);
}

/// Place of the factor of an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// `exp(x - m)`
    Difference,
    /// `exp((x - m) * c)`
    Scaled,
    /// `exp2((x - m) * c)`
    ScaledTwo,
    /// `exp(x * c - m)`, of a maximum of products.
    Fused,
    /// `exp(x * c)`
    Product,
}

impl Form {
    const ALL: [Form; 5] = [Form::Difference, Form::Scaled, Form::ScaledTwo, Form::Fused, Form::Product];

    fn of(self, x: Tile<f32, 2>, m: Tile<f32, 2>, c: Scalar<f32>) -> Tile<f32, 2> {
        match self {
            Form::Difference => (x - m).exp(),
            Form::Scaled => ((x - m) * c).exp(),
            Form::ScaledTwo => ((x - m) * c).exp2(),
            Form::Fused => (x * c - m * c).exp(),
            Form::Product => (x * c).exp(),
        }
    }

    /// Returns the exponent of e.
    fn exponent(self, x: f64, m: f64, c: f64) -> f64 {
        match self {
            Form::Difference => x - m,
            Form::Scaled | Form::Fused => (x - m) * c,
            Form::ScaledTwo => (x - m) * c * std::f64::consts::LN_2,
            Form::Product => x * c,
        }
    }
}

/// Numbers of a row.
const COLUMNS: usize = 32;
/// Numbers from which an exponent has no correct digit.
const LARGE: f64 = 1e6;

/// Maxima of the rows.
const MAXIMA: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -3.5,
    80.0,
    -80.0,
    1e3,
    -1e4,
    1e9,
    -1e9,
    -1e30,
    f32::MIN,
    f32::MAX,
    f32::NEG_INFINITY,
    f32::INFINITY,
    1e-30,
];

fn exponents(session: Session, form: Form) -> Result<()> {
    fn kernel(
        (x, m): (Array<f32, 2>, Array<f32, 2>),
        y: ArrayMut<f32, 2>,
        c: Scalar<f32>,
        (form, mode): (Form, FloatMode),
    ) {
        let (x, m) = (x.load((0, 0), [MAXIMA.len(), COLUMNS]), m.load((0, 0), [MAXIMA.len(), 1]));
        y.store((0, 0), ct::with_mode(mode, || form.of(x, m, c)));
    }
    // The largest number of each row is its maximum, and others are negative infinity.
    let offsets = random::<f32>(31, COLUMNS * MAXIMA.len(), Spread::Between(0.0, 20.0));
    let number = |at: usize| match at % COLUMNS {
        0 => MAXIMA[at / COLUMNS],
        1 => f32::NEG_INFINITY,
        _ => MAXIMA[at / COLUMNS] - offsets[at],
    };
    let numbers: Vec<f32> = (0..offsets.len()).map(number).collect();
    let (x, m) = (session.array(&numbers, [MAXIMA.len(), COLUMNS])?, session.array(&MAXIMA, [MAXIMA.len(), 1])?);
    for (mode, c) in [
        (FloatMode::new().contract().reassociate(), 1.0f32),
        (FloatMode::fast(), 0.125),
        (FloatMode::fast(), 0.088_388_35),
        (FloatMode::fast(), 3.0),
    ] {
        let mut y = session.unwritten::<f32, 2>([MAXIMA.len(), COLUMNS])?;
        session.launch(kernel, [1], ((&x, &m), &mut y, c, Constant((form, mode))))?;
        session.check("powers", &y, &|[i, j]| wanted(form, numbers[i * COLUMNS + j], MAXIMA[i], c))?;
    }
    Ok(())
}

fn wanted(form: Form, x: f32, m: f32, c: f32) -> Want {
    let is_infinite = form == Form::Fused && (m * c).is_infinite();
    let [x, m, c] = [x, m, if form == Form::Difference { 1.0 } else { c }].map(f64::from);
    let exponent = form.exponent(x, m, c);
    if !is_infinite && (exponent.is_nan() || x == f64::NEG_INFINITY && exponent == f64::NEG_INFINITY) {
        return Want::nearest(exponent.exp());
    }
    let largest = if form == Form::Product { (x * c).abs() } else { (x * c).abs().max((m * c).abs()) };
    match form {
        // The product of the maximum overflows, also without `reassociate`.
        _ if is_infinite => Want::Open,
        _ if largest < LARGE => {
            let value = exponent.exp();
            let error = (largest + 4.0) * 2f64.powi(-22);
            match f64::from(value as f32) {
                f64::INFINITY => Want::nearest(f64::INFINITY),
                _ => Want::Within { value, error: value * error.exp_m1() + f64::from(f32::MIN_POSITIVE) },
            }
        }
        // A fused difference of equal products is a large number of either sign.
        Form::Fused => Want::Open,
        Form::Product => Want::nearest(exponent.exp().min(f64::from(f32::MAX) * 2.0)),
        _ if x <= m => Want::Within { value: 0.5, error: 0.5 },
        _ => Want::Open,
    }
}

fn mask(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, (y, z): (ArrayMut<f32, 2>, ArrayMut<f32, 2>)) {
        let x = x.load((0, 0), [8, 8]);
        let column = ct::arange(0..8).unsqueeze(0);
        let seen = column.le(ct::arange(0..8).unsqueeze(1));
        let infinite = f32::NEG_INFINITY;
        let [added, row] = ct::with_mode(FloatMode::new().reassociate(), || {
            let bias = seen.select(ct::zeros::<f32, 2>([8, 8]), infinite);
            [x + bias, column.lt(3).select(ct::full::<f32, 2>([1, 8], infinite), 0.0) + x]
        });
        y.store((0, 0), added);
        z.store((0, 0), row);
    }
    let mut numbers = random::<f32>(32, 64, Spread::Moderate);
    numbers[..3].copy_from_slice(&[-0.0, f32::NAN, f32::INFINITY]);
    let x = session.array(&numbers, [8, 8])?;
    let (mut y, mut z) = (session.unwritten::<f32, 2>([8, 8])?, session.unwritten::<f32, 2>([8, 8])?);
    session.launch(kernel, [1], (&x, (&mut y, &mut z)))?;
    let number = |seen: bool, at: usize| Want::exactly(if seen { numbers[at] } else { f32::NEG_INFINITY });
    session.check("sums", &y, &|[i, j]| number(j <= i, i * 8 + j))?;
    session.check("sums with a row", &z, &|[i, j]| number(j >= 3, i * 8 + j))
}
