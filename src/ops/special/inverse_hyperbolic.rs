//! Inverse hyperbolic functions, by `log1p` of an argument that is small if the result is small.

use super::special_functions::log1p;
use crate::element::Float;
use crate::ir::{CmpPred, Value};
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, functions};
use crate::ops::support::operand::{methods, value};
use crate::tile::{Scalar, Tile, caller_location};

/// Limit above which 1 is negligible in x² + 1 and x² - 1. Much larger squares would overflow.
const LARGE: f64 = 1e9;

functions! {
    /// The inverse of the hyperbolic sine.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f64, 1>, y: ArrayMut<f64, 2>) {
    ///     let x = x.load(0, [2]);
    ///     y.store((0, 0), ct::stack([x.asinh().sinh(), (x + 1.0).acosh().cosh(), x.atanh().tanh(), x], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[1e-10, 0.5], [2])?, device.zeros([4, 2])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// let y = y.to_vec()?;
    /// for (y, value) in y.iter().zip([1e-10, 0.5, 1.0 + 1e-10, 1.5, 1e-10, 0.5]) {
    ///     assert!((y / value - 1.0).abs() < 1e-14);
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    asinh = |c: &mut ExprBuilder<'_>, x| {
        let (a, one) = (c.abs(x), c.number(1.0));
        let square = c.mul(a, a);
        let sum = c.add(square, one);
        let root = c.sqrt(sum);
        let divisor = c.add(root, one);
        let rest = c.div(square, divisor);
        let less = c.add(a, rest);
        let near = log1p(c, less);
        let value = log_if_large(c, a, near);
        c.with_sign_of(value, x)
    };
    /// The inverse of the hyperbolic cosine, which is not negative; NaN below 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([1.0f32, 1.5430806]).acosh() - ct::astile([0.0, 1.0])).abs().lt(1e-6));
    /// # });
    /// ```
    acosh = |c: &mut ExprBuilder<'_>, x| {
        let (one, two) = (c.number(1.0), c.number(2.0));
        let less = c.sub(x, one);
        let sum = c.add(less, two);
        let product = c.mul(less, sum);
        let root = c.sqrt(product);
        let sum = c.add(less, root);
        let near = log1p(c, sum);
        let value = log_if_large(c, x, near);
        let nan = c.number(f64::NAN);
        let outside = c.is(CmpPred::Lt, x, one);
        c.select(outside, nan, value)
    };
    /// The inverse of the hyperbolic tangent: infinite at -1 and 1, NaN outside.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 0.7615942]).atanh() - ct::astile([0.0, 1.0])).abs().lt(1e-5));
    /// # });
    /// ```
    atanh = |c: &mut ExprBuilder<'_>, x| {
        let (a, one, half) = (c.abs(x), c.number(1.0), c.number(0.5));
        let (twice, less) = (c.add(a, a), c.sub(one, a));
        let ratio = c.div(twice, less);
        let log = log1p(c, ratio);
        let value = c.mul(log, half);
        c.with_sign_of(value, x)
    };
}

/// log 2a if `a` exceeds [`LARGE`], else `near`.
fn log_if_large(c: &mut ExprBuilder<'_>, a: Value, near: Value) -> Value {
    let (log, ln2) = (c.log(a), c.number(std::f64::consts::LN_2));
    let log = c.add(log, ln2);
    let large = c.is_number(CmpPred::Gt, a, LARGE);
    c.select(large, log, near)
}
