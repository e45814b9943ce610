//! Rewriting of float expressions that changes their rounding: LLVM's `reassoc`, for exponentials
//! and masks.
//!
//! * **Exponents.** `exp(x - m)`, `exp((x - m) * c)`, `exp(x * c - m)` and `exp(x * c)` become
//!   `exp2` of one fused multiply-add or product for each element, if `m` and `c` are repeated
//!   along an axis: their products with log₂ e have fewer elements. `exp2((x - m) * c)` likewise.
//! * **Masks.** `x + select(p, 0, -∞)` becomes `select(p, x, -∞)`.
//!
//! The product of `m` is rounded up, so the exponent of `x <= m` is never positive, however large
//! `m` is. The relative error of the result is about `|m · c| · 2⁻²³`.
//!
//! The ops are recorded in this form, so all back ends compute the same. The original ops remain
//! for other uses.

use crate::dtype::DType;
use crate::ir::{Attr, ConstData, Module, Op, Opcode, Rounding, Value};
use crate::tile::Trace;
use crate::types::float_codec;
use crate::util::collect::CollectVec as _;

const NEAREST: Attr = Attr::Rounding(Rounding::NearestEven);

/// Exponent of an exponential. All values except `x` are repeated along an axis; they are stored
/// before their repetition.
enum Exponent {
    /// `(x - m) * c`
    Difference { x: Value, m: Value, c: Option<Value> },
    /// `x * c + d`, or `x * c - d`.
    Fused { x: Value, c: Value, d: Value, subtracts: bool },
    /// `x * c`
    Product { x: Value, c: Value },
}

/// Attributes of the ops in a scope.
pub(super) struct ScopedAttrs {
    /// Attributes of sums and products.
    pub arithmetic: Vec<Attr>,
    pub exp2: Vec<Attr>,
}

/// Emits `exp` or `exp2` of a value of this shape as `exp2` with fewer ops for each element.
/// Returns `None` if the exponent has none of the forms.
pub(super) fn exponential(
    t: &mut Trace,
    code: Opcode,
    exponent: Value,
    shape: &[i64],
    attrs: ScopedAttrs,
) -> Option<Value> {
    if t.builder.module.dtype(exponent) != DType::F32 || !attrs.arithmetic.contains(&NEAREST) {
        return None;
    }
    let exponent = Exponent::find(t, exponent, &attrs.arithmetic)?;
    let is_natural = code == Opcode::Exp;
    let mut writer = Writer { t, attrs: attrs.arithmetic, shape };
    let exponent = match exponent {
        Exponent::Difference { c: None, .. } | Exponent::Fused { .. } | Exponent::Product { .. } if !is_natural => {
            return None;
        }
        Exponent::Difference { x, m, c } => {
            let factor = match c {
                Some(c) if is_natural => writer.times_log2_e(c, Rounding::NearestEven),
                Some(c) => c,
                None => writer.log2_e(),
            };
            let shift = writer.product(m, factor, Rounding::PosInf);
            writer.fused(x, factor, shift, true)
        }
        Exponent::Fused { x, c, d, subtracts } => {
            let factor = writer.times_log2_e(c, Rounding::NearestEven);
            let shift = writer.times_log2_e(d, if subtracts { Rounding::PosInf } else { Rounding::NegInf });
            writer.fused(x, factor, shift, subtracts)
        }
        Exponent::Product { x, c } => {
            let factor = writer.times_log2_e(c, Rounding::NearestEven);
            let factor = writer.t.stretch(factor, shape);
            writer.put(Opcode::MulF, &[x, factor], shape)
        }
    };
    Some(t.put(Opcode::Exp2, &[exponent], attrs.exp2, DType::F32, shape))
}

impl Exponent {
    /// Finds the form of an exponent whose ops have these attributes.
    fn find(t: &mut Trace, exponent: Value, attrs: &[Attr]) -> Option<Exponent> {
        let op = defining(&t.builder.module, exponent)?.clone();
        if op.attrs != attrs {
            return None;
        }
        match (op.code, &op.operands[..]) {
            (Opcode::SubF, _) => Exponent::difference(t, &op, None),
            (Opcode::MulF, &[a, b]) => {
                let (x, c) = with_repeated(t, a, b)?;
                let inner = defining(&t.builder.module, x).filter(|inner| inner.attrs == attrs).cloned();
                let difference = inner.and_then(|inner| Exponent::difference(t, &inner, Some(c)));
                Some(difference.unwrap_or(Exponent::Product { x, c }))
            }
            (Opcode::Fma, &[a, b, d]) => {
                let (x, c) = with_repeated(t, a, b)?;
                let negated = defining(&t.builder.module, d).filter(|op| op.code == Opcode::NegF);
                let (d, subtracts) = negated.map_or((d, false), |op| (op.operands[0], true));
                Some(Exponent::Fused { x, c, d: before_repetition(t, d)?, subtracts })
            }
            _ => None,
        }
    }

    fn difference(t: &mut Trace, op: &Op, c: Option<Value>) -> Option<Exponent> {
        let &[x, m] = &op.operands[..] else { return None };
        if op.code != Opcode::SubF || before_repetition(t, x).is_some() {
            return None;
        }
        Some(Exponent::Difference { x, m: before_repetition(t, m)?, c })
    }
}

/// Returns an operand with an element of its own at each position, and the other one before its
/// repetition.
fn with_repeated(t: &mut Trace, a: Value, b: Value) -> Option<(Value, Value)> {
    match (before_repetition(t, a), before_repetition(t, b)) {
        (None, Some(c)) => Some((a, c)),
        (Some(c), None) => Some((b, c)),
        _ => None,
    }
}

/// Returns the value that is repeated along an axis, of the same rank.
fn before_repetition(t: &mut Trace, value: Value) -> Option<Value> {
    let module = &t.builder.module;
    let (op, rank) = (defining(module, value)?, module.shape(value).len());
    if op.code == Opcode::Broadcast {
        return Some(op.operands[0]);
    }
    let is_repeated = module.shape(value).iter().any(|&extent| extent != 1);
    let &ConstData::Splat(bits) = op.const_data().filter(|_| is_repeated)? else { return None };
    let dtype = module.dtype(value);
    Some(t.splat(dtype, bits, &vec![1; rank]))
}

fn defining(module: &Module, value: Value) -> Option<&Op> {
    module.defining_op(value).map(|id| module.op(id))
}

/// Emits the ops of an exponent.
struct Writer<'a> {
    t: &'a mut Trace,
    attrs: Vec<Attr>,
    shape: &'a [i64],
}

impl Writer<'_> {
    fn put(&mut self, code: Opcode, operands: &[Value], shape: &[i64]) -> Value {
        self.t.put(code, operands, self.attrs.clone(), DType::F32, shape)
    }

    fn log2_e(&mut self) -> Value {
        let ones = vec![1; self.shape.len()];
        self.t.splat(DType::F32, std::f32::consts::LOG2_E.to_bits().into(), &ones)
    }

    fn times_log2_e(&mut self, value: Value, rounding: Rounding) -> Value {
        let log2_e = self.log2_e();
        self.product(value, log2_e, rounding)
    }

    /// Emits the product of repeated values before their repetition.
    fn product(&mut self, a: Value, b: Value, rounding: Rounding) -> Value {
        let module = &self.t.builder.module;
        let extents = module.shape(a).iter().zip(module.shape(b));
        let shape: Vec<i64> = extents.map(|(&a, &b)| a.max(b)).collect_vec();
        let operands = [a, b].map(|value| self.t.stretch(value, &shape));
        let attrs =
            self.attrs.iter().map(|attr| if *attr == NEAREST { Attr::Rounding(rounding) } else { attr.clone() });
        self.t.put(Opcode::MulF, &operands, attrs.collect_vec(), DType::F32, &shape)
    }

    /// Emits `x * factor + shift`, or `x * factor - shift`.
    fn fused(&mut self, x: Value, factor: Value, shift: Value, subtracts: bool) -> Value {
        let factor = self.t.stretch(factor, self.shape);
        let shift = self.t.stretch(shift, self.shape);
        let addend = match subtracts {
            true => self.t.put(Opcode::NegF, &[shift], vec![], DType::F32, self.shape),
            false => shift,
        };
        self.put(Opcode::Fma, &[x, factor, addend], self.shape)
    }
}

/// Emits a sum of which one operand is 0 or negative infinity, by a condition, as a selection.
/// Returns `None` for another sum.
pub(super) fn masked(t: &mut Trace, values: [Value; 2], dtype: DType, shape: &[i64]) -> Option<Value> {
    let [a, b] = values;
    [(a, b), (b, a)].into_iter().find_map(|(x, bias)| {
        let module = &t.builder.module;
        let outer = defining(module, bias)?;
        let select = if outer.code == Opcode::Broadcast { defining(module, outer.operands[0])? } else { outer };
        if select.code != Opcode::Select {
            return None;
        }
        let &[condition, if_true, if_false] = &select.operands[..] else { return None };
        let is_seen = match (number(module, if_true)?, number(module, if_false)?) {
            (0.0, f64::NEG_INFINITY) => true,
            (f64::NEG_INFINITY, 0.0) => false,
            _ => return None,
        };
        let condition = t.stretch(condition, shape);
        let infinite = t.splat(dtype, float_codec::encode(dtype, f64::NEG_INFINITY, Rounding::NearestEven), shape);
        let [if_true, if_false] = if is_seen { [x, infinite] } else { [infinite, x] };
        Some(t.put(Opcode::Select, &[condition, if_true, if_false], vec![], dtype, shape))
    })
}

/// Returns the number that all elements of a constant have.
fn number(module: &Module, value: Value) -> Option<f64> {
    let op = defining(module, value)?;
    if op.code.has_operand_elements() {
        return number(module, op.operands[0]);
    }
    let &ConstData::Splat(bits) = op.const_data()? else { return None };
    Some(float_codec::decode(module.dtype(value), bits))
}
