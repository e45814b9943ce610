//! Expressions over recorded values, for functions without an op in the IR.

use super::operand::elementwise;
use crate::dtype::DType;
use crate::element::Element;
use crate::ir::{Attr, CmpOrder, CmpPred, Flag, Opcode, Overflow, Rounding, Sign, Value};
use crate::ops::elementwise::compare::mask;
use crate::tile::{Arg, Place, TileLike, Trace};
use crate::types::float_codec;
use crate::util::collect::CollectVec as _;

/// Builder of expressions over values of one element type and shape.
pub(crate) struct ExprBuilder<'t> {
    t: &'t mut Trace,
    pub dtype: DType,
    signed: bool,
    shape: &'t [i64],
}

/// Records one op on these operands.
macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident($($operand:ident),+) = $code:ident $([$($attr:expr),+])?;)+) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $($operand: Value),+) -> Value {
            self.put(Opcode::$code, &[$($operand),+], vec![$($($attr),+)?])
        }
    )+};
}

const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);
const WRAP: Attr = Attr::Overflow(Overflow::None);
const UNSIGNED: Attr = Attr::Sign(Sign::Unsigned);

impl<'t> ExprBuilder<'t> {
    pub fn new(t: &'t mut Trace, dtype: DType, signed: bool, shape: &'t [i64]) -> ExprBuilder<'t> {
        ExprBuilder { t, dtype, signed, shape }
    }

    fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>) -> Value {
        self.t.put(code, operands, attrs, self.dtype, self.shape)
    }

    fn sign(&self) -> Attr {
        Attr::Sign(if self.signed { Sign::Signed } else { Sign::Unsigned })
    }

    // Floats.
    ops! {
        add(a, b) = AddF [NEAREST];
        sub(a, b) = SubF [NEAREST];
        mul(a, b) = MulF [NEAREST];
        div(a, b) = DivF [NEAREST];
        /// `a * b + c`, rounded once.
        fma(a, b, c) = Fma [NEAREST];
        neg(a) = NegF;
        abs(a) = AbsF;
        sqrt(a) = Sqrt [NEAREST];
        exp(a) = Exp [Attr::Rounding(Rounding::Full)];
        exp2(a) = Exp2;
        log(a) = Log;
        log2(a) = Log2;
        tanh(a) = Tanh [Attr::Rounding(Rounding::Full)];
        floor(a) = Floor;
        ceil(a) = Ceil;
        atan2(y, x) = Atan2;
        /// Propagates NaN.
        larger(a, b) = MaxF [Attr::Flag(Flag::PropagateNan)];
        /// Propagates NaN.
        smaller(a, b) = MinF [Attr::Flag(Flag::PropagateNan)];
    }

    // Integers.
    ops! {
        addi(a, b) = AddI [WRAP];
        subi(a, b) = SubI [WRAP];
        muli(a, b) = MulI [WRAP];
        and(a, b) = AndI;
        or(a, b) = OrI;
        xor(a, b) = XorI;
        shl(a, n) = ShlI [WRAP];
        /// Fills with zeros.
        shr(a, n) = ShrI [UNSIGNED];
        /// Fills with the sign.
        sar(a, n) = ShrI [Attr::Sign(Sign::Signed)];
    }

    pub fn divi(&mut self, a: Value, b: Value) -> Value {
        let attrs = vec![self.sign(), Attr::Rounding(Rounding::Zero)];
        self.put(Opcode::DivI, &[a, b], attrs)
    }

    /// The number nearest to `x`.
    pub fn number(&mut self, x: f64) -> Value {
        let bits = match self.dtype.is_float() {
            true => float_codec::encode(self.dtype, x, Rounding::NearestEven),
            false => x as i64 as u64,
        };
        self.bits(bits)
    }

    /// The value with these bits in the low ones.
    pub fn bits(&mut self, bits: u64) -> Value {
        self.t.splat(self.dtype, bits & (u64::MAX >> (64 - self.dtype.bits())), self.shape)
    }

    /// Compares; floats with NaN never hold.
    pub fn is(&mut self, pred: CmpPred, a: Value, b: Value) -> Value {
        mask(self.t, pred, CmpOrder::Ordered, self.dtype, self.signed, a, b, self.shape)
    }

    pub fn is_number(&mut self, pred: CmpPred, a: Value, b: f64) -> Value {
        let b = self.number(b);
        self.is(pred, a, b)
    }

    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.put(Opcode::Select, &[condition, a, b], vec![])
    }

    /// c0 + c1 x + c2 x² + …, from the last one on.
    pub fn polynomial(&mut self, x: Value, coefficients: &[f64]) -> Value {
        let (last, rest) = coefficients.split_last().expect("a polynomial has a term");
        let mut sum = self.number(*last);
        for &coefficient in rest.iter().rev() {
            let coefficient = self.number(coefficient);
            sum = self.fma(sum, x, coefficient);
        }
        sum
    }

    /// The magnitude of `a` with the sign of `b`: bits, so of zeros and NaNs, too.
    pub fn with_sign_of(&mut self, a: Value, b: Value) -> Value {
        let float = self.dtype;
        let int = match float.bits() {
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        };
        let (top, shape) = (1u64 << (float.bits() - 1), self.shape);
        let [a, b] = [a, b].map(|v| self.t.put(Opcode::Bitcast, &[v], vec![], int, shape));
        let mut ints = ExprBuilder::new(self.t, int, false, shape);
        let (low, high) = (ints.bits(top - 1), ints.bits(top));
        let (magnitude, sign) = (ints.and(a, low), ints.and(b, high));
        let joined = ints.or(magnitude, sign);
        self.t.put(Opcode::Bitcast, &[joined], vec![], float, shape)
    }
}

/// A function of floats by a formula: f16 and bf16 are computed in f32 and rounded.
#[track_caller]
pub(crate) fn float_formula<X: TileLike>(
    place: Place,
    name: &str,
    operands: &[Arg],
    formula: impl FnOnce(&mut ExprBuilder<'_>, &[Value]) -> Value,
) -> X {
    elementwise(place, name, operands, |t, v, shape| {
        let (own, wide) = (X::Elem::DTYPE, wide::<X>());
        let rounded = |t: &mut Trace, v: Value, to: DType| match t.builder.module.dtype(v) == to {
            true => v,
            false => t.put(Opcode::FToF, &[v], vec![NEAREST], to, shape),
        };
        let v: Vec<Value> = v.iter().map(|&v| rounded(t, v, wide)).collect_vec();
        let result = formula(&mut ExprBuilder::new(t, wide, true, shape), &v);
        rounded(t, result, own)
    })
}

fn wide<X: TileLike>() -> DType {
    if X::Elem::DTYPE == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A formula in the element type itself.
#[track_caller]
pub(crate) fn formula<X: TileLike>(
    place: Place,
    name: &str,
    operands: &[Arg],
    formula: impl FnOnce(&mut ExprBuilder<'_>, &[Value]) -> Value,
) -> X {
    elementwise(place, name, operands, |t, v, shape| {
        formula(&mut ExprBuilder::new(t, X::Elem::DTYPE, X::Elem::SIGNED, shape), v)
    })
}

/// Methods of tiles and scalars of floats that are formulas of one number.
macro_rules! functions {
    ($($(#[$doc:meta])+ $name:ident = $formula:expr;)+) => {
        methods! { [Float] $(
            $(#[$doc])+
            #[track_caller]
            #[must_use]
            pub fn $name(self) -> Self {
                float_formula(caller_location(), stringify!($name), &[value(self)], |c, v| $formula(c, v[0]))
            }
        )+ }
    };
}
pub(crate) use functions;
