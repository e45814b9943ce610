//! Activation functions of neural networks. f16 and bf16 are computed in f32.

use crate::dtype::DType;
use crate::element::{Float, Number};
use crate::ir::{CmpPred, Value};
use crate::ops::support::axis::Axis;
use crate::ops::support::expr_builder::{ExprBuilder, float_formula, formula, functions};
use crate::ops::support::operand::{methods, value};
use crate::tile::{Scalar, Tile, caller_location};

methods! { [Number]
    /// max(`self`, 0). NaN is propagated.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 2>) {
    ///     let x = x.load(0, [2]);
    ///     y.store((0, 0), ct::stack([x.relu(), x.sigmoid(), x.silu(), x.softplus()], 0));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.array(&[-100.0, 0.0], [2])?, device.zeros([4, 2])?);
    /// ct::launch(kernel, 1, (&x, &mut y))?;
    /// let y = y.to_vec()?;
    /// assert_eq!((&y[..2], y[3], y[5], y[7]), (&[0.0, 0.0][..], 0.5, 0.0, 2f32.ln()));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn relu(self) -> Self {
        formula(caller_location(), "relu", &[value(self)], |c, v| {
            let zero = c.number(0.0);
            if T::DTYPE.is_float() {
                return c.larger(v[0], zero);
            }
            let positive = c.is(CmpPred::Gt, v[0], zero);
            c.select(positive, v[0], zero)
        })
    }
}

functions! {
    /// 1 / (1 + exp(-x)).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([0.0f32, 100.0]).sigmoid().eq(ct::astile([0.5, 1.0])));
    /// # });
    /// ```
    sigmoid = sigmoid;
    /// x / (1 + exp(-x)), the product of `self` and [`sigmoid`](Tile::sigmoid), also called swish.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).silu() - ct::astile([0.0, 0.7310586])).abs().lt(1e-6));
    /// # });
    /// ```
    silu = |c: &mut ExprBuilder<'_>, x| {
        let sigmoid = sigmoid(c, x);
        c.mul(x, sigmoid)
    };
    /// x (1 + erf(x / √2)) / 2. The error is relative to x if x is positive. Otherwise it is
    /// relative to the 1 that is added to the error function.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).gelu() - ct::astile([0.0, 0.8413447])).abs().lt(1e-6));
    /// # });
    /// ```
    gelu = |c: &mut ExprBuilder<'_>, x| {
        let root = c.number(std::f64::consts::FRAC_1_SQRT_2);
        let scaled = c.mul(x, root);
        let erf = super::special_functions::erf(c, scaled);
        halved_product(c, x, erf)
    };
    /// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, an approximation of [`gelu`](Tile::gelu).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 1.0]).gelu_tanh() - ct::astile([0.0, 0.841192])).abs().lt(1e-6));
    /// # });
    /// ```
    gelu_tanh = |c: &mut ExprBuilder<'_>, x| {
        let (cube, factor) = (c.number(0.044_715), c.number(0.797_884_560_802_865_4));
        let square = c.mul(x, x);
        let term = c.mul(square, cube);
        let inner = c.fma(term, x, x);
        let inner = c.mul(inner, factor);
        let tanh = c.tanh(inner);
        halved_product(c, x, tanh)
    };
    /// log(1 + exp(x)).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!((ct::astile([0.0f32, 100.0]).softplus() - ct::astile([0.6931472, 100.0])).abs().lt(1e-6));
    /// # });
    /// ```
    softplus = |c: &mut ExprBuilder<'_>, x| {
        let zero = c.number(0.0);
        let power = vanishing_power(c, x);
        let log = super::special_functions::log1p(c, power);
        let positive = c.larger(x, zero);
        c.add(positive, log)
    };
}

/// exp(-|x|).
fn vanishing_power(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let magnitude = c.abs(x);
    let minus = c.neg(magnitude);
    c.exp(minus)
}

fn sigmoid(c: &mut ExprBuilder<'_>, x: Value) -> Value {
    let (power, one) = (vanishing_power(c, x), c.number(1.0));
    let divisor = c.add(power, one);
    let negative = c.is_number(CmpPred::Lt, x, 0.0);
    let dividend = c.select(negative, power, one);
    c.div(dividend, divisor)
}

/// x (1 + y) / 2, which is 0 if y is -1.
fn halved_product(c: &mut ExprBuilder<'_>, x: Value, y: Value) -> Value {
    let (one, half) = (c.number(1.0), c.number(0.5));
    let sum = c.add(y, one);
    let share = c.mul(sum, half);
    let product = c.mul(x, share);
    // The product of -∞ and 0 is 0 here.
    let zero = c.number(0.0);
    let vanishes = c.is_number(CmpPred::Eq, share, 0.0);
    c.select(vanishes, zero, product)
}

impl<T: Float, const R: usize> Tile<T, R> {
    /// exp(x) of each element, divided by the sum of these along an axis. The largest element is
    /// subtracted first.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
    ///     let at = (ct::bid(0), 0);
    ///     // What the rows are padded with has no part in the sum.
    ///     let x = x.load_with(at, [1, 4], ct::LoadOptions::new().padding(Padding::NegInf));
    ///     y.store(at, x.softmax(1));
    /// }
    ///
    /// let device = ct::Device::cpu();
    /// let (x, mut y) = (device.full([2, 3], 1000.0)?, device.zeros([2, 3])?);
    /// ct::launch(kernel, 2, (&x, &mut y))?;
    /// assert_eq!(y.to_vec()?, [1.0 / 3.0; 6]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn softmax(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        if T::DTYPE == DType::F64 {
            let powers = (self - self.reduce_max_nan(axis)).exp();
            return powers / powers.sum(axis);
        }
        let x = self.cast::<f32>();
        let powers = (x - x.reduce_max_nan(axis)).exp();
        (powers / powers.sum(axis)).cast::<T>()
    }

    /// The logarithm of [`softmax`](Tile::softmax), without its underflow of small numbers.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::astile([[1000.0f32, 1000.0], [0.0, -1000.0]]);
    /// ct::assert!((x.log_softmax(1) - ct::astile([[-0.6931472, -0.6931472], [0.0, -1000.0]])).abs().lt(1e-6));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn log_softmax(self, axis: impl Axis) -> Self {
        let axis = axis.axis(R);
        if T::DTYPE == DType::F64 {
            let x = self - self.reduce_max_nan(axis);
            return x - x.exp().sum(axis).log();
        }
        let x = self.cast::<f32>();
        let x = x - x.reduce_max_nan(axis);
        (x - x.exp().sum(axis).log()).cast::<T>()
    }
}
