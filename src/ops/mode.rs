//! Rounding and flush-to-zero of float operations, and which operation takes what.

use super::operand::{Operand, methods, operand, uniform, value};
use crate::dtype::DType;
use crate::element::{Element, Float};
use crate::ir::{Attr, Flag, Opcode, Rounding};
use crate::tile::{Place, Scalar, Tile, Trace, here, record};

/// How a float operation rounds, and what it does with subnormal numbers.
///
/// A [`Rounding`] converts into it, so `a.add_with(b, Rounding::Zero)` works.
///
/// | operation | rounding | flush to zero |
/// |---|---|---|
/// | `add_with`, `sub_with`, `mul_with`, `fma_with` | `NearestEven`, `Zero`, `NegInf`, `PosInf` | f32 |
/// | `div_with` | those four; on f32 also `Approx`, `Full` | f32 |
/// | `sqrt_with` | those four; on f32 also `Approx` | f32 |
/// | `rsqrt_with`, `exp2_with`, `max_with`, `min_with` | none | f32 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FloatMode {
    rounding: Option<Rounding>,
    flush_to_zero: bool,
}

impl FloatMode {
    /// Nearest even, subnormal numbers kept.
    #[must_use]
    pub fn new() -> FloatMode {
        FloatMode::default()
    }

    /// Rounds this way.
    #[must_use]
    pub fn rounding(self, rounding: Rounding) -> FloatMode {
        FloatMode { rounding: Some(rounding), ..self }
    }

    /// Subnormal operands and results become zero of the same sign (f32 only).
    #[must_use]
    pub fn flush_to_zero(self) -> FloatMode {
        FloatMode { flush_to_zero: true, ..self }
    }
}

impl From<Rounding> for FloatMode {
    fn from(rounding: Rounding) -> FloatMode {
        FloatMode::new().rounding(rounding)
    }
}

/// Which roundings an operation takes: on every float type, and on f32 in addition.
struct Roundings {
    all: &'static [Rounding],
    f32: &'static [Rounding],
}

const DIRECTED: &[Rounding] = &[Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf];
const ARITHMETIC: Roundings = Roundings { all: DIRECTED, f32: &[] };
const DIVISION: Roundings = Roundings { all: DIRECTED, f32: &[Rounding::Approx, Rounding::Full] };
const ROOT: Roundings = Roundings { all: DIRECTED, f32: &[Rounding::Approx] };
const NONE: Roundings = Roundings { all: &[], f32: &[] };

impl FloatMode {
    /// The attributes of an addition.
    #[track_caller]
    pub(super) fn of_addition<T: Element>(self, place: Place, name: &str) -> Vec<Attr> {
        self.attrs::<T>(place, name, &ARITHMETIC)
    }

    /// The attributes; reports what does not exist.
    #[track_caller]
    fn attrs<T: Element>(self, place: Place, name: &str, roundings: &Roundings) -> Vec<Attr> {
        record(|t| self.check(t, place, name, roundings, T::DTYPE, T::NAME));
        let rounding = (!roundings.all.is_empty()).then(|| self.rounding.unwrap_or(Rounding::NearestEven));
        let mut attrs: Vec<Attr> = rounding.map(Attr::Rounding).into_iter().collect();
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
        let names: Vec<String> = roundings.all.iter().chain(extra).map(|r| format!("`{r:?}`")).collect();
        let way_out = match names.is_empty() {
            true => "this operation takes no rounding".to_string(),
            false => format!("on {elem} it takes {}", names.join(", ")),
        };
        t.report(place, format!("`{name}` of {elem} with rounding `{rounding:?}` does not exist"), &[&way_out]);
    }
}

methods! { [Float]
    /// `self + rhs`, rounded as stated.
    #[track_caller]
    #[must_use]
    pub fn add_with(self, rhs: impl Operand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "add_with", &ARITHMETIC);
        uniform(here(), "add_with", Opcode::AddF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// `self - rhs`, rounded as stated.
    #[track_caller]
    #[must_use]
    pub fn sub_with(self, rhs: impl Operand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "sub_with", &ARITHMETIC);
        uniform(here(), "sub_with", Opcode::SubF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// `self * rhs`, rounded as stated.
    #[track_caller]
    #[must_use]
    pub fn mul_with(self, rhs: impl Operand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "mul_with", &ARITHMETIC);
        uniform(here(), "mul_with", Opcode::MulF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// `self / rhs`, rounded as stated; on f32 also `Approx` (at most 2 ulp for moderate divisors) and
    /// `Full` (at most 2 ulp).
    #[track_caller]
    #[must_use]
    pub fn div_with(self, rhs: impl Operand<Self>, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "div_with", &DIVISION);
        uniform(here(), "div_with", Opcode::DivF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// `self * factor + addend` with one rounding, to nearest even.
    #[track_caller]
    #[must_use]
    pub fn fma(self, factor: impl Operand<Self>, addend: impl Operand<Self>) -> Self {
        self.fma_with(factor, addend, FloatMode::new())
    }

    /// `self * factor + addend` with one rounding, as stated.
    #[track_caller]
    #[must_use]
    pub fn fma_with(
        self,
        factor: impl Operand<Self>,
        addend: impl Operand<Self>,
        mode: impl Into<FloatMode>,
    ) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "fma", &ARITHMETIC);
        uniform(here(), "fma", Opcode::Fma, attrs, &[value(self), operand::<Self>(factor), operand::<Self>(addend)])
    }

    /// Square root, rounded as stated; on f32 also `Approx`.
    #[track_caller]
    #[must_use]
    pub fn sqrt_with(self, mode: impl Into<FloatMode>) -> Self {
        let attrs = mode.into().attrs::<T>(here(), "sqrt_with", &ROOT);
        uniform(here(), "sqrt_with", Opcode::Sqrt, attrs, &[value(self)])
    }

    /// `1 / sqrt(self)`; the mode may flush to zero (f32).
    #[track_caller]
    #[must_use]
    pub fn rsqrt_with(self, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(here(), "rsqrt_with", &NONE);
        uniform(here(), "rsqrt_with", Opcode::Rsqrt, attrs, &[value(self)])
    }

    /// 2 to the power of `self`; the mode may flush to zero (f32).
    #[track_caller]
    #[must_use]
    pub fn exp2_with(self, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(here(), "exp2_with", &NONE);
        uniform(here(), "exp2_with", Opcode::Exp2, attrs, &[value(self)])
    }

    /// The larger operand, ignoring a NaN; the mode may flush to zero (f32).
    #[track_caller]
    #[must_use]
    pub fn max_with(self, rhs: impl Operand<Self>, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(here(), "max_with", &NONE);
        uniform(here(), "max_with", Opcode::MaxF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// The smaller operand, ignoring a NaN; the mode may flush to zero (f32).
    #[track_caller]
    #[must_use]
    pub fn min_with(self, rhs: impl Operand<Self>, mode: FloatMode) -> Self {
        let attrs = mode.attrs::<T>(here(), "min_with", &NONE);
        uniform(here(), "min_with", Opcode::MinF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// The larger operand; NaN if either is NaN.
    #[track_caller]
    #[must_use]
    pub fn max_nan(self, rhs: impl Operand<Self>) -> Self {
        let attrs = vec![Attr::Flag(Flag::PropagateNan)];
        uniform(here(), "max_nan", Opcode::MaxF, attrs, &[value(self), operand::<Self>(rhs)])
    }

    /// The smaller operand; NaN if either is NaN.
    #[track_caller]
    #[must_use]
    pub fn min_nan(self, rhs: impl Operand<Self>) -> Self {
        let attrs = vec![Attr::Flag(Flag::PropagateNan)];
        uniform(here(), "min_nan", Opcode::MinF, attrs, &[value(self), operand::<Self>(rhs)])
    }
}
