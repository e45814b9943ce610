//! Inverse error function (M. Giles, *Approximating the erfinv function*, GPU Computing Gems 2,
//! 2011).
//!
//! The result is x times a polynomial in w = -log(1 - x²), or in √w for larger w. The coefficients
//! interpolate at Chebyshev points, computed with 60 digits.

use crate::dtype::DType;
use crate::element::Float;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, functions};
use crate::ops::support::operand::{methods, value};
use crate::tile::{Scalar, Tile, caller_location};

functions! {
    /// The inverse of [`erf`](Tile::erf): infinite at -1 and 1, NaN outside.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [4]).erfinv());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0.0, 0.5, -1.0, 2.0], [4])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// let y = y.to_vec()?;
    /// assert!((y[1] - 0.476_936_28).abs() < 1e-6);
    /// assert_eq!((y[0], y[2], y[3].is_nan()), (0.0, f32::NEG_INFINITY, true));
    /// # Ok::<(), ct::Error>(())
    /// ```
    erfinv = erfinv;
}

/// y / x as a polynomial in w - 5/2, for w from 0 to 5; relative error 6e-10.
const NEAR_SINGLE: [f64; 12] = [
    1.5014093517481764,
    0.24664027674858424,
    -0.004177325080457763,
    -0.0012527079573557702,
    0.0002182641252155226,
    -4.996000110143956e-06,
    -3.426266209734268e-06,
    4.786897084558858e-07,
    1.650364404121373e-08,
    -1.0861761271594343e-08,
    4.340626803853993e-10,
    1.2346577114502573e-10,
];

/// y / x as a polynomial in √w - 13/4, for w from 5 to 17; relative error 1.5e-9.
const FAR_SINGLE: [f64; 12] = [
    3.083885609141891,
    1.005258989780208,
    0.005371015239024617,
    -0.003751825595587112,
    0.0024901963613133604,
    -0.0016834608666084325,
    0.0009590555449782472,
    -0.00037070546783197827,
    1.181299423544166e-05,
    9.215299771276319e-05,
    -3.5720858671106444e-05,
    -4.005872318987535e-06,
];

/// y / x as a polynomial in w - 25/8, for w from 0 to 25/4; relative error 8e-18.
const NEAR_DOUBLE: [f64; 25] = [
    1.6536545626831027,
    0.24015818242558834,
    -0.006033670871426851,
    -0.0007407025341546431,
    0.00018673420801981186,
    -1.3882523393957483e-05,
    -1.3654691758785656e-06,
    4.23478816822246e-07,
    -2.907039127564132e-08,
    -4.1126604371632185e-09,
    1.051223377050429e-09,
    -5.414303283919504e-11,
    -1.2978805369932565e-11,
    2.6305268312595183e-12,
    -8.07192593899004e-14,
    -4.0020031087558496e-14,
    6.521333511502239e-15,
    -3.94018812230432e-17,
    -1.2215637192404172e-16,
    1.5510787009902526e-17,
    6.075050702072414e-19,
    -3.4734793888538036e-19,
    1.999259988861535e-20,
    3.194015548136271e-21,
    -3.5932028927020693e-22,
];

/// y / x as a polynomial in √w - 13/4, for w from 25/4 to 16; relative error 1.1e-18.
const FAR_DOUBLE: [f64; 21] = [
    3.0838856104922208,
    1.0052589676941655,
    0.005370914553555034,
    -0.0037512085082250035,
    0.002491442097956848,
    -0.0016882755354397463,
    0.0009532893415832701,
    -0.00035503781392441327,
    2.4031512806061508e-05,
    6.828711853849998e-05,
    -4.732068016830873e-05,
    1.2465022704988036e-05,
    2.9325760376409468e-06,
    -3.985689940977412e-06,
    1.4816048583639514e-06,
    -2.7644650237482827e-08,
    -2.4551042556688563e-07,
    1.3161237735555806e-07,
    -2.0902998564824387e-08,
    -1.5315519603406967e-08,
    7.675637645381078e-09,
];

/// y / x as a polynomial in √w - 5, for w from 16 to 38; relative error 2e-18.
const END_DOUBLE: [f64; 20] = [
    4.849906401408584,
    1.010300464864545,
    -0.0001387193183798165,
    -0.00021503011980803893,
    7.599527808696698e-05,
    -1.968177104900237e-05,
    4.5260526342341e-06,
    -9.930266080352417e-07,
    2.2905223774648401e-07,
    -6.756814800996059e-08,
    2.9020358438844854e-08,
    -1.5224831270633725e-08,
    7.818520425219914e-09,
    -3.517648744160545e-09,
    1.3188661894689128e-09,
    -3.953074437245834e-10,
    6.804680201272995e-11,
    2.175355160968926e-11,
    -2.0055934512680888e-11,
    4.447708095706375e-12,
];

fn erfinv(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (near_center, near_end, near): (_, _, &[f64]) = match c.dtype {
        DType::F64 => (3.125, 6.25, &NEAR_DOUBLE),
        _ => (2.5, 5.0, &NEAR_SINGLE),
    };
    let one = c.number(1.0);
    let (less, more) = (c.sub(one, x), c.add(one, x));
    let product = c.mul(less, more);
    let log = c.log(product);
    let w = c.neg(log);
    let root = c.sqrt(w);
    let factor = |c: &mut ExprBuilder<'_>, at, center, terms: &[f64]| {
        let center = c.number(center);
        let at = c.sub(at, center);
        c.polynomial(at, terms)
    };
    let near = factor(c, w, near_center, near);
    let far = if c.dtype == DType::F64 {
        let (far, end) = (factor(c, root, 3.25, &FAR_DOUBLE), factor(c, root, 5.0, &END_DOUBLE));
        let is_far = c.is_number(CmpPred::Lt, w, 16.0);
        c.select(is_far, far, end)
    } else {
        factor(c, root, 3.25, &FAR_SINGLE)
    };
    let is_near = c.is_number(CmpPred::Lt, w, near_end);
    let factor = c.select(is_near, near, far);
    let infinity = c.number(f64::INFINITY);
    let is_end = c.is(CmpPred::Eq, w, infinity);
    let factor = c.select(is_end, infinity, factor);
    c.mul(x, factor)
}
