//! Logarithm of the gamma function, by three formulas:
//!
//! * y from 1/2 to 5: (y - 1) (y - 2), which has the two zeros, times a polynomial in (y - 3/2) /
//!   (y + 3/2);
//! * larger y: Stirling's series, (y - 1/2) (log y - 1) + (log 2π - 1) / 2 + m(1/y²) / y;
//! * smaller x: log |Γ(x)| = log |Γ(1 + x)| - log |x|, and below -1/2 log (π / |x sin πx|) - log
//!   |Γ(-x)|.
//!
//! The coefficients interpolate at Chebyshev points, computed with 60 digits.

use super::sincospi::turned;
use crate::dtype::DType;
use crate::element::Float;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, functions};
use crate::ops::support::operand::{methods, value};
use crate::tile::{Scalar, Tile, caller_location};

functions! {
    /// The logarithm of the magnitude of the gamma function; at n + 1 that of the factorial of n.
    /// The result is infinite at 0 and the negative whole numbers. Near the zeros between these,
    /// the difference of two terms loses digits of the larger one.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f64, 1>, y: ArrayMut<f64, 1>) {
    ///     y.store(0, x.load(0, [4]).lgamma().exp());
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[0.5, 2.0, 5.0, 11.0], [4])?, device.zeros([4])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// for (y, value) in y.to_vec()?.into_iter().zip([std::f64::consts::PI.sqrt(), 1.0, 24.0, 3628800.0]) {
    ///     assert!((y / value - 1.0).abs() < 1e-13);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    lgamma = lgamma;
}

/// log Γ(y) / ((y - 1) (y - 2)) as a polynomial in (y - 3/2) / (y + 3/2), for y from 1/2 to 5;
/// relative error 6e-10.
const NEAR_SINGLE: [f64; 15] = [
    0.4831289506558244,
    -0.43787969318437475,
    0.12832287864944217,
    -0.1508028514985148,
    0.08530819214826964,
    -0.09324266981771438,
    0.06377567925266858,
    -0.06711479676702688,
    0.05135626079707547,
    -0.05849067715642099,
    0.04127357755881755,
    -0.018725691018419165,
    0.031075898918672865,
    -0.0930299286127399,
    0.060882909169066336,
];

/// The polynomial of [`NEAR_SINGLE`] for f64; relative error 9e-19.
const NEAR_DOUBLE: [f64; 30] = [
    0.4831289505409809,
    -0.43787968774291824,
    0.1283229219281659,
    -0.15080363092805618,
    0.08530564281466653,
    -0.09321052269439285,
    0.06382812037722092,
    -0.06769490465425891,
    0.05091575363378853,
    -0.053194680579555585,
    0.0423268087543903,
    -0.04382679712511917,
    0.03621053449444438,
    -0.037268820261888665,
    0.03162555973725574,
    -0.03245021474873536,
    0.028192949231119875,
    -0.0284932240655751,
    0.02435428887209087,
    -0.026813656253929927,
    0.02822734102235743,
    -0.019743939311785634,
    -0.0009366120852423917,
    -0.02702187810492416,
    0.08098308723069997,
    -0.0247495464253466,
    -0.09015993590527598,
    0.0216482734081019,
    0.11430217321223879,
    -0.07774009699205857,
];

/// The correction m of Stirling's formula as a polynomial in 1/y², for y of at least 5; error 1e-8
/// of its largest value.
const FAR_SINGLE: [f64; 3] = [0.08333333222177904, -0.0027772780772238655, 0.0007598946410106598];

/// The polynomial of [`FAR_SINGLE`] for f64; error 9e-18 of its largest value.
const FAR_DOUBLE: [f64; 9] = [
    0.08333333333333333,
    -0.0027777777777747356,
    0.0007936507916117051,
    -0.0005952375644326341,
    0.0008416808181949977,
    -0.0019122454963176852,
    0.006168999286767276,
    -0.02272322043962773,
    0.05904517686956317,
];

fn lgamma(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (one, zero, infinity) = (c.number(1.0), c.number(0.0), c.number(f64::INFINITY));
    let magnitude = c.abs(x);
    let small = c.is_number(CmpPred::Lt, magnitude, 0.5);
    let next = c.add(x, one);
    let y = c.select(small, next, magnitude);
    let (near, far) = (near(c, y), far(c, y));
    let is_near = c.is_number(CmpPred::Lt, y, 5.0);
    let at = c.select(is_near, near, far);
    let shifted = {
        let log = c.log(magnitude);
        c.sub(at, log)
    };
    let mirrored = {
        let sine = turned(c, magnitude)[0];
        let product = c.mul(magnitude, sine);
        let product = c.abs(product);
        let pi = c.number(std::f64::consts::PI);
        let ratio = c.div(pi, product);
        let log = c.log(ratio);
        let difference = c.sub(log, at);
        let pole = c.is(CmpPred::Eq, sine, zero);
        c.select(pole, infinity, difference)
    };
    let negative = c.is_number(CmpPred::Lt, x, 0.0);
    let large = c.select(negative, mirrored, at);
    let value = c.select(small, shifted, large);
    let infinite = c.is(CmpPred::Eq, magnitude, infinity);
    c.select(infinite, infinity, value)
}

fn near(c: &mut ExprBuilder<'_>, y: Value) -> Value {
    let terms: &[f64] = if c.dtype == DType::F64 { &NEAR_DOUBLE } else { &NEAR_SINGLE };
    let (one, two, center) = (c.number(1.0), c.number(2.0), c.number(1.5));
    let (less, more) = (c.sub(y, center), c.add(y, center));
    let at = c.div(less, more);
    let factor = c.polynomial(at, terms);
    let (first, second) = (c.sub(y, one), c.sub(y, two));
    let zeros = c.mul(first, second);
    c.mul(zeros, factor)
}

fn far(c: &mut ExprBuilder<'_>, y: Value) -> Value {
    let terms: &[f64] = if c.dtype == DType::F64 { &FAR_DOUBLE } else { &FAR_SINGLE };
    let (one, half, rest) = (c.number(1.0), c.number(0.5), c.number(0.418_938_533_204_672_7));
    let inverse = c.div(one, y);
    let square = c.mul(inverse, inverse);
    let terms = c.polynomial(square, terms);
    let rest = c.fma(terms, inverse, rest);
    let (log, less) = (c.log(y), c.sub(y, half));
    let log = c.sub(log, one);
    c.fma(less, log, rest)
}
