//! Rounding and flush-to-zero of float operations, and the modes of each operation.

use super::operand::{BroadcastOperand, arg_of, elementwise, methods, uniform, value};
use super::reassociate::{self, ScopedAttrs};
use crate::dtype::DType;
use crate::element::{Element, Float};
use crate::ir::{Attr, ConstData, Flag, Module, Op, Opcode, Rounding, Value};
use crate::tile::{Arg, Place, Scalar, ScopedMode, Tile, TileLike, Trace, caller_location, is_part, record};
use crate::util::collect::CollectVec as _;

/// The rounding of a float operation, and its treatment of subnormal numbers.
///
/// A [`Rounding`] converts into it, so `a.add_with(b, Rounding::Zero)` works.
///
/// | operation | rounding | flush to zero |
/// |---|---|---|
/// | `add_with`, `sub_with`, `mul_with`, `fma_with` | `NearestEven`, `Zero`, `NegInf`, `PosInf` | f32 |
/// | `div_with` | those four; on f32 also `Approx`, `Full` | f32 |
/// | `sqrt_with` | those four; on f32 also `Approx` | f32 |
/// | `rsqrt_with`, `exp2_with`, `max_with`, `min_with` | none | f32 |
///
/// [`FloatMode::contract`] concerns additions and subtractions.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let mode = ct::FloatMode::new().rounding(Rounding::Zero).flush_to_zero();
/// ct::assert!(ct::astile([1e-39f32, 1.0]).add_with(ct::astile([0.0, 1e-9]), mode).eq(ct::astile([0.0, 1.0])));
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FloatMode {
    rounding: Option<Rounding>,
    flush_to_zero: bool,
    contract: bool,
    reassociate: bool,
}

impl FloatMode {
    /// Nearest even, subnormal numbers kept.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1.0f32).add_with(1e-9, ct::FloatMode::new()).eq(1.0));
    /// # });
    /// ```
    #[must_use]
    pub fn new() -> FloatMode {
        FloatMode::default()
    }

    /// Sets the rounding.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let up = ct::FloatMode::new().rounding(Rounding::PosInf);
    /// ct::assert!(ct::scalar(1.0f32).add_with(1e-9, up).gt(1.0));
    /// # });
    /// ```
    #[must_use]
    pub fn rounding(self, rounding: Rounding) -> FloatMode {
        FloatMode { rounding: Some(rounding), ..self }
    }

    /// The hardware's fast forms of `/`, `sqrt`, `exp`, `tanh`, also of `log`, `log2`, `sin`, `cos`
    /// and random numbers in [`with_mode`] (f32 only): [`Rounding::Approx`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let fast = ct::scalar(1.0f32).div_with(3.0, ct::FloatMode::new().approx());
    /// ct::assert!((fast - 1.0 / 3.0).abs().lt(1e-6));
    /// # });
    /// ```
    #[must_use]
    pub fn approx(self) -> FloatMode {
        self.rounding(Rounding::Approx)
    }

    /// Subnormal operands and results become zero of the same sign (f32 only).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1e-39f32).mul_with(1.0, ct::FloatMode::new().flush_to_zero()).eq(0.0));
    /// # });
    /// ```
    #[must_use]
    pub fn flush_to_zero(self) -> FloatMode {
        FloatMode { flush_to_zero: true, ..self }
    }

    /// A product that is added or subtracted becomes a fused multiply-add: `a * b + c`, `a * b - c`
    /// and `c - a * b` round once. Applies to `+`, `-`, `add_with` and `sub_with` with this mode,
    /// if the operand is the result of `*` or `mul_with` with the same rounding. If both operands
    /// are products, the left one is fused. `acc + ct::matmul(a, b)` becomes `ct::mma(a, b, acc)`.
    /// All back ends compute the same.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::scalar(1.0f32 + 1.0 / 4096.0);
    /// let fused = ct::with_mode(ct::FloatMode::new().contract(), || x * x - 1.0);
    /// ct::assert!(fused.eq(x.fma(x, -1.0)));
    /// # });
    /// ```
    #[must_use]
    pub fn contract(self) -> FloatMode {
        FloatMode { contract: true, ..self }
    }

    /// Exponents and masks in forms with fewer operations for each element, as LLVM's `reassoc` and
    /// `nsz` permit. All back ends compute the same. Below, `m` and `c` are scalars, constants, or
    /// repeated along an axis, as the maximum and the scale of attention are.
    ///
    /// | expression | computed as |
    /// |---|---|
    /// | `(x - m).exp()`, `((x - m) * c).exp()` | `exp2` of `x * c' - m * c'`, one fused multiply-add, with `c' = c * log2(e)` |
    /// | `(x * c - m).exp()` with [`contract`](FloatMode::contract), `(x * c).exp()` | likewise |
    /// | `((x - m) * c).exp2()` | `exp2` of `x * c - m * c` |
    /// | `x + select(p, 0.0, f32::NEG_INFINITY)` | `select(p, x, f32::NEG_INFINITY)` |
    ///
    /// The first four rows concern exponents of f32. The error of the exponent is about
    /// `|m * c| * 2^-23`, and so is the relative error of the result: 1e-5 for a maximum of 80. A
    /// power of `x <= m` is at most 1. If `m` is a large number of a mask (`-1e9`), that bound
    /// is useless: powers of `x == m` are between 0 and 1, and the sum of a row with masked numbers
    /// alone may be 0. Write masks as `f32::NEG_INFINITY`.
    ///
    /// In the last row, `x` may be infinity or NaN, and the result is still negative infinity. A
    /// zero keeps its sign.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (x, max) = (ct::astile([[1.0f32, 2.5], [4.0, 4.0]]), ct::astile([[2.5f32], [4.0]]));
    /// let power = || ((x - max) * 0.125).exp();
    /// let reassociated = ct::with_mode(ct::FloatMode::new().reassociate(), power);
    /// ct::assert!((reassociated - power()).abs().lt(1e-6));
    /// # });
    /// ```
    #[must_use]
    pub fn reassociate(self) -> FloatMode {
        FloatMode { reassociate: true, ..self }
    }

    /// The mode of `nvcc -use_fast_math`: [`approx`](FloatMode::approx),
    /// [`flush_to_zero`](FloatMode::flush_to_zero) and [`contract`](FloatMode::contract); and
    /// [`reassociate`](FloatMode::reassociate).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::astile([1.0f32, 2.0]);
    /// let y = ct::with_mode(ct::FloatMode::fast(), || (x * 0.5 - 1.0).exp2() / 3.0);
    /// ct::assert!((y - (x * 0.5 - 1.0).exp2() / 3.0).abs().lt(1e-6));
    /// # });
    /// ```
    #[must_use]
    pub fn fast() -> FloatMode {
        FloatMode::new().approx().flush_to_zero().contract().reassociate()
    }
}

impl From<Rounding> for FloatMode {
    fn from(rounding: Rounding) -> FloatMode {
        FloatMode::new().rounding(rounding)
    }
}

/// Sets the mode of float operations without a mode of their own in a part of a kernel: `+ - * /`,
/// `fma`, `sqrt`, `rsqrt`, `exp`, `exp2`, `tanh`, `log`, `log2`, `sin`, `cos`, `max` and `min`,
/// also those of closures. An operation ignores properties that it, or its type, does not have: a
/// scope that flushes to zero changes nothing for f64. The innermost of nested scopes applies.
/// Functions of several operations with error bounds of their own (`erf`, `sort`) do not change.
/// [`Philox`](crate::random::Philox) describes the effect on random numbers.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     let x = x.load(0, [2]);
///     let fast = ct::with_mode(ct::FloatMode::new().flush_to_zero().approx(), || (x * 0.5).exp() / 3.0);
///     let down = ct::with_mode(Rounding::NegInf, || x / 3.0);
///     y.store(0, ct::cat([fast, down], 0));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.array(&[f32::MIN_POSITIVE, 2.0], [2])?, device.zeros([4])?);
/// ct::launch(kernel, 1, (&x, &mut y))?;
/// let y = y.to_vec()?;
/// assert!((y[1] / (1f32.exp() / 3.0) - 1.0).abs() < 1e-6);
/// assert_eq!(y[3], 0.666_666_6);
/// # Ok::<(), ct::Error>(())
/// ```
pub fn with_mode<S>(mode: impl Into<FloatMode>, body: impl FnOnce() -> S) -> S {
    struct Restored(Option<ScopedMode>);
    impl Drop for Restored {
        fn drop(&mut self) {
            // A panic leaves the trace as well.
            if !std::thread::panicking() {
                record(|t| t.float_mode = self.0);
            }
        }
    }
    let FloatMode { rounding, flush_to_zero, contract, reassociate } = mode.into();
    let scoped = ScopedMode { rounding, flush_to_zero, contract, reassociate };
    let _restored = Restored(record(|t| t.float_mode.replace(scoped)));
    body()
}

/// Returns true if the scope has the mode of the hardware's fast forms.
pub(crate) fn is_approx() -> bool {
    record(|t| t.float_mode.is_some_and(|mode| mode.rounding == Some(Rounding::Approx)))
}

/// Returns the attributes of an op without a mode of its own, in its scope.
pub(crate) fn scoped(code: Opcode, dtype: DType, mut attrs: Vec<Attr>) -> Vec<Attr> {
    if !dtype.is_float() || is_part() {
        return attrs;
    }
    let Some(ScopedMode { rounding, flush_to_zero, .. }) = record(|t| t.float_mode) else { return attrs };
    let (roundings, flushes): (&Roundings, bool) = match code {
        Opcode::AddF | Opcode::SubF | Opcode::MulF | Opcode::Fma => (&ARITHMETIC, true),
        Opcode::DivF => (&DIVISION, true),
        Opcode::Sqrt => (&ROOT, true),
        Opcode::Exp | Opcode::Tanh | Opcode::Log | Opcode::Log2 | Opcode::Sin | Opcode::Cos => (&FAST, false),
        Opcode::Rsqrt | Opcode::Exp2 | Opcode::MaxF | Opcode::MinF => (&NONE, true),
        _ => return attrs,
    };
    let on_f32 = dtype == DType::F32;
    let exists = |r: &Rounding| roundings.all.contains(r) || on_f32 && roundings.f32.contains(r);
    if let Some(rounding) = rounding.filter(exists) {
        attrs.retain(|attr| !matches!(attr, Attr::Rounding(_)));
        attrs.insert(0, Attr::Rounding(rounding));
    }
    attrs.extend((flush_to_zero && flushes && on_f32).then_some(Attr::Flag(Flag::FlushToZero)));
    attrs
}

/// Permitted rewriting of a sum.
#[derive(Clone, Copy, Default)]
pub(crate) struct SumForms {
    contract: bool,
    reassociate: bool,
}

impl From<FloatMode> for SumForms {
    fn from(mode: FloatMode) -> SumForms {
        SumForms { contract: mode.contract, reassociate: mode.reassociate }
    }
}

/// Returns the permitted rewriting of sums in the scope.
pub(crate) fn scoped_forms() -> SumForms {
    let mode = if is_part() { None } else { record(|t| t.float_mode) };
    mode.map_or(SumForms::default(), |mode| SumForms { contract: mode.contract, reassociate: mode.reassociate })
}

/// Records an addition or a subtraction. With `contract`, it is fused with an operand that is a
/// product with the same attributes. An addition to nearest even is also fused with a matrix
/// product that begins at zero. With `reassociate`, an added mask is a selection.
#[track_caller]
pub(crate) fn sum<X: TileLike>(
    place: Place,
    name: &str,
    (code, attrs): (Opcode, Vec<Attr>),
    operands: &[Arg],
    forms: SumForms,
) -> X {
    let SumForms { contract, reassociate } = forms;
    if !contract && !reassociate {
        return uniform(place, name, code, attrs, operands);
    }
    elementwise(place, name, operands, |t, values, shape| {
        let dtype = X::Elem::DTYPE;
        let is_masked = reassociate && code == Opcode::AddF;
        let masked = if is_masked { reassociate::masked(t, [values[0], values[1]], dtype, shape) } else { None };
        masked.unwrap_or_else(|| match contract {
            true => contracted(t, (code, attrs), values, dtype, shape),
            false => t.put(code, values, attrs, dtype, shape),
        })
    })
}

/// Records a function of one operand. In a scope with `reassociate`, an exponential may have
/// another form.
#[track_caller]
pub(crate) fn function<X: TileLike>(place: Place, name: &str, code: Opcode, attrs: Vec<Attr>, x: X) -> X {
    let is_exponential = matches!(code, Opcode::Exp | Opcode::Exp2);
    if !is_exponential || !scoped_forms().reassociate {
        return uniform(place, name, code, attrs, &[value(x)]);
    }
    let dtype = X::Elem::DTYPE;
    let of_ops = ScopedAttrs {
        arithmetic: scoped(Opcode::MulF, dtype, vec![Attr::Rounding(Rounding::NearestEven)]),
        exp2: scoped(Opcode::Exp2, dtype, vec![]),
    };
    elementwise(place, name, &[value(x)], |t, values, shape| {
        reassociate::exponential(t, code, values[0], shape, of_ops)
            .unwrap_or_else(|| t.put(code, values, attrs, dtype, shape))
    })
}

/// Emits a sum, as a fused multiply-add or a matrix product where an operand is a product.
fn contracted(
    t: &mut Trace,
    (code, attrs): (Opcode, Vec<Attr>),
    values: &[Value],
    dtype: DType,
    shape: &[i64],
) -> Value {
    let factors = |t: &Trace, value: Value| {
        let module = &t.builder.module;
        let op = module.op(module.defining_op(value)?);
        (op.code == Opcode::MulF && op.attrs == attrs).then(|| [op.operands[0], op.operands[1]])
    };
    let is_rounded_to_nearest = attrs.contains(&Attr::Rounding(Rounding::NearestEven));
    for (product, other) in [(values[0], values[1]), (values[1], values[0])] {
        if code == Opcode::AddF
            && is_rounded_to_nearest
            && let Some((a, b, attrs)) = matrix_factors(&t.builder.module, product)
        {
            return t.put(Opcode::MmaF, &[a, b, other], attrs, dtype, shape);
        }
    }
    let negated = |t: &mut Trace, value: Value| t.put(Opcode::NegF, &[value], vec![], dtype, shape);
    let subtracts = code == Opcode::SubF;
    if let Some([a, b]) = factors(t, values[0]) {
        let addend = if subtracts { negated(t, values[1]) } else { values[1] };
        return t.put(Opcode::Fma, &[a, b, addend], attrs, dtype, shape);
    }
    if let Some([a, b]) = factors(t, values[1]) {
        let a = if subtracts { negated(t, a) } else { a };
        return t.put(Opcode::Fma, &[a, b, values[0]], attrs, dtype, shape);
    }
    t.put(code, values, attrs, dtype, shape)
}

/// Returns the operands and attributes of a matrix product that is added to zeros.
fn matrix_factors(module: &Module, value: Value) -> Option<(Value, Value, Vec<Attr>)> {
    let op = module.op(module.defining_op(value)?);
    let &[a, b, acc] = &op.operands[..] else { return None };
    let is_zero = || {
        let start = module.defining_op(acc).map(|id| module.op(id));
        matches!(start.and_then(Op::const_data), Some(ConstData::Splat(0)))
    };
    (op.code == Opcode::MmaF && is_zero()).then(|| (a, b, op.attrs.clone()))
}

/// The roundings that an operation has: for every float type, and for f32 in addition.
struct Roundings {
    all: &'static [Rounding],
    f32: &'static [Rounding],
}

const DIRECTED: &[Rounding] = &[Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf];
const ARITHMETIC: Roundings = Roundings { all: DIRECTED, f32: &[] };
const DIVISION: Roundings = Roundings { all: DIRECTED, f32: &[Rounding::Approx, Rounding::Full] };
const ROOT: Roundings = Roundings { all: DIRECTED, f32: &[Rounding::Approx] };
const FAST: Roundings = Roundings { all: &[], f32: &[Rounding::Approx] };
const NONE: Roundings = Roundings { all: &[], f32: &[] };

impl FloatMode {
    /// The attributes of an addition.
    #[track_caller]
    pub(crate) fn of_addition<T: Element>(self, place: Place, name: &str) -> Vec<Attr> {
        self.attrs::<T>(place, name, &ARITHMETIC)
    }

    /// The attributes; reports what does not exist.
    #[track_caller]
    fn attrs<T: Element>(self, place: Place, name: &str, roundings: &Roundings) -> Vec<Attr> {
        record(|t| self.check(t, place, name, roundings, T::DTYPE, T::NAME));
        let rounding = (!roundings.all.is_empty()).then(|| self.rounding.unwrap_or(Rounding::NearestEven));
        let mut attrs: Vec<Attr> = rounding.map(Attr::Rounding).into_iter().collect_vec();
        attrs.extend(self.flush_to_zero.then_some(Attr::Flag(Flag::FlushToZero)));
        attrs
    }

    fn check(self, t: &mut Trace, place: Place, name: &str, roundings: &Roundings, dtype: DType, elem: &str) {
        let on_f32 = dtype == DType::F32;
        if self.flush_to_zero && !on_f32 {
            t.report(
                place,
                format!("`{name}`: flush to zero exists for f32 only, and this tile is {elem}"),
                &["leave it out, or `.cast::<f32>()` first"],
            );
        }
        let Some(rounding) = self.rounding else { return };
        if roundings.all.contains(&rounding) || (on_f32 && roundings.f32.contains(&rounding)) {
            return;
        }
        let extra = if on_f32 { roundings.f32 } else { &[] };
        let names: Vec<String> = roundings.all.iter().chain(extra).map(|r| format!("`{r:?}`")).collect_vec();
        let way_out = match names.is_empty() {
            true => "this operation takes no rounding".to_string(),
            false => format!("on {elem} it takes {}", names.join(", ")),
        };
        t.report(place, format!("`{name}` of {elem} with rounding `{rounding:?}` does not exist"), &[&way_out]);
    }
}

methods! { [Float]
    /// `self + rhs`, rounded as stated.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1.0f32).add_with(1e-9, Rounding::PosInf).gt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn add_with(self, rhs: impl BroadcastOperand<Self>, mode: impl Into<FloatMode>) -> Self {
        let mode = mode.into();
        let selected = (Opcode::AddF, mode.attrs::<T>(caller_location(), "add_with", &ARITHMETIC));
        sum(caller_location(), "add_with", selected, &[value(self), arg_of::<Self>(rhs)], mode.into())
    }

    /// `self - rhs`, rounded as stated.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1.0f32).sub_with(1e-9, Rounding::Zero).lt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sub_with(self, rhs: impl BroadcastOperand<Self>, mode: impl Into<FloatMode>) -> Self {
        let mode = mode.into();
        let selected = (Opcode::SubF, mode.attrs::<T>(caller_location(), "sub_with", &ARITHMETIC));
        sum(caller_location(), "sub_with", selected, &[value(self), arg_of::<Self>(rhs)], mode.into())
    }

    /// `self * rhs`, rounded as stated.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let (down, up) = (ct::scalar(0.1f32).mul_with(0.1, Rounding::NegInf), ct::scalar(0.1f32).mul_with(0.1, Rounding::PosInf));
    /// ct::assert!(down.lt(up));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn mul_with(self, rhs: impl BroadcastOperand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(caller_location(), "mul_with", &ARITHMETIC);
        uniform(caller_location(), "mul_with", Opcode::MulF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }

    /// `self / rhs`, rounded as stated; on f32 also `Approx` (at most 2 ulp for moderate divisors)
    /// and `Full` (at most 2 ulp).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, -1.0]).div_with(3.0, Rounding::Zero).abs().lt(0.33333334));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn div_with(self, rhs: impl BroadcastOperand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(caller_location(), "div_with", &DIVISION);
        uniform(caller_location(), "div_with", Opcode::DivF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }

    /// `self * factor + addend` with one rounding, to nearest even.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::scalar(1.0f32 + 1.0 / 4096.0);
    /// ct::assert!((x * x - 1.0).ne(x.fma(x, -1.0))); // the product is not rounded
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn fma(self, factor: impl BroadcastOperand<Self>, addend: impl BroadcastOperand<Self>) -> Self {
        let attrs = scoped(Opcode::Fma, T::DTYPE, vec![Attr::Rounding(Rounding::NearestEven)]);
        uniform(caller_location(), "fma", Opcode::Fma, attrs, &[value(self), arg_of::<Self>(factor), arg_of::<Self>(addend)])
    }

    /// `self * factor + addend` with one rounding, as [`fma`](Tile::fma): the name in `std`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, 2.0]).mul_add(3.0, 0.5).eq(ct::astile([3.5, 6.5])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn mul_add(self, factor: impl BroadcastOperand<Self>, addend: impl BroadcastOperand<Self>) -> Self {
        self.fma(factor, addend)
    }

    /// `self * factor + addend` with one rounding, as stated.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1.0f32).fma_with(1.0, 1e-9, Rounding::PosInf).gt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn fma_with(
        self,
        factor: impl BroadcastOperand<Self>,
        addend: impl BroadcastOperand<Self>,
        mode: impl Into<FloatMode>,
    ) -> Self {
        let attrs = mode.into().attrs::<T>(caller_location(), "fma", &ARITHMETIC);
        uniform(caller_location(), "fma", Opcode::Fma, attrs, &[value(self), arg_of::<Self>(factor), arg_of::<Self>(addend)])
    }

    /// Square root, rounded as stated; on f32 also `Approx`.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(2.0f32).sqrt_with(Rounding::NegInf).lt(ct::scalar(2.0f32).sqrt_with(Rounding::PosInf)));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn sqrt_with(self, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(caller_location(), "sqrt_with", &ROOT);
        uniform(caller_location(), "sqrt_with", Opcode::Sqrt, attrs, &[value(self)])
    }

    /// `1 / sqrt(self)`; the mode may flush to zero (f32).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1e-39f32).rsqrt_with(ct::FloatMode::new().flush_to_zero()).eq(f32::INFINITY));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn rsqrt_with(self, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(caller_location(), "rsqrt_with", &NONE);
        uniform(caller_location(), "rsqrt_with", Opcode::Rsqrt, attrs, &[value(self)])
    }

    /// 2 to the power of `self`; the mode may flush to zero (f32).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(-130.0f32).exp2_with(ct::FloatMode::new().flush_to_zero()).eq(0.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn exp2_with(self, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(caller_location(), "exp2_with", &NONE);
        uniform(caller_location(), "exp2_with", Opcode::Exp2, attrs, &[value(self)])
    }

    /// The larger operand, ignoring a NaN; the mode may flush to zero (f32).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1e-39f32).max_with(-1.0, ct::FloatMode::new().flush_to_zero()).eq(0.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn max_with(self, rhs: impl BroadcastOperand<Self>, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(caller_location(), "max_with", &NONE);
        uniform(caller_location(), "max_with", Opcode::MaxF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }

    /// The smaller operand, ignoring a NaN; the mode may flush to zero (f32).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::scalar(1e-39f32).min_with(1.0, ct::FloatMode::new().flush_to_zero()).eq(0.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn min_with(self, rhs: impl BroadcastOperand<Self>, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(caller_location(), "min_with", &NONE);
        uniform(caller_location(), "min_with", Opcode::MinF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }

    /// The larger operand; NaN if either is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).max_nan(2.0).isnan().eq(ct::astile([false, true])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn max_nan(self, rhs: impl BroadcastOperand<Self>) -> Self {
        let attrs = vec![Attr::Flag(Flag::PropagateNan)];
        uniform(caller_location(), "max_nan", Opcode::MaxF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }

    /// The smaller operand; NaN if either is NaN.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// ct::assert!(ct::astile([1.0f32, f32::NAN]).min_nan(2.0).isnan().eq(ct::astile([false, true])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn min_nan(self, rhs: impl BroadcastOperand<Self>) -> Self {
        let attrs = vec![Attr::Flag(Flag::PropagateNan)];
        uniform(caller_location(), "min_nan", Opcode::MinF, attrs, &[value(self), arg_of::<Self>(rhs)])
    }
}
