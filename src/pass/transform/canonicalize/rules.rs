//! Rules for single ops without regions: constants, identities, chains of shape ops.

use super::{float, int};
use crate::dtype::DType;
use crate::ir::op_table::Class;
use crate::ir::{Attr, ConstData, Elem, Flag, Module, Op, OpId, Opcode, Rounding, Type, Value};
use crate::util::collect::CollectVec as _;

/// Result of a rule.
pub(super) enum Step {
    /// No rule applies.
    Keep,
    /// The value replaces the only result.
    Use(Value),
    /// The result is a constant with these bits in each element.
    Splat(u64),
    /// The op gets other operands and attributes.
    Change(Vec<Value>, Vec<Attr>),
}

/// Returns the bits of a constant whose elements are all equal.
pub(super) fn splat(module: &Module, value: Value) -> Option<u64> {
    let op = module.op(module.defining_op(value)?);
    match op.const_data()? {
        ConstData::Splat(bits) => Some(*bits),
        ConstData::Dense(all) => all.first().filter(|first| all.iter().all(|b| b == *first)).copied(),
    }
}

/// Applies a rule to an op whose operands are already simplified.
pub(super) fn step(module: &Module, id: OpId) -> Step {
    let op = module.op(id);
    let Some(&result) = op.results.first() else { return Step::Keep };
    let folded = match op.code.spec().class {
        Class::FloatUnary | Class::FloatBinary | Class::IntUnary | Class::IntBinary | Class::CmpF | Class::CmpI => {
            arithmetic(module, op)
        }
        Class::Cast => cast(module, op, result),
        Class::FloatTernary => None,
        Class::Own => match op.code {
            Opcode::Select => select(module, op),
            code if code.is_shape_alias() => shape(module, op, result),
            Opcode::Extract if module.ty_id(op.operands[0]) == module.ty_id(result) => {
                op.operands[1..].iter().all(|&i| splat(module, i) == Some(0)).then(|| Step::Use(op.operands[0]))
            }
            Opcode::Extract => splat(module, op.operands[0]).map(Step::Splat),
            Opcode::Cat => match (splat(module, op.operands[0]), splat(module, op.operands[1])) {
                (Some(a), Some(b)) if a == b => Some(Step::Splat(a)),
                _ => None,
            },
            Opcode::Offset if splat(module, op.operands[1]) == Some(0) => Some(Step::Use(op.operands[0])),
            _ => None,
        },
    };
    folded.unwrap_or(Step::Keep)
}

fn producer(module: &Module, value: Value, code: Opcode) -> Option<&Op> {
    module.defining_op(value).map(|id| module.op(id)).filter(|op| op.code == code)
}

fn arithmetic(module: &Module, op: &Op) -> Option<Step> {
    let dtype = module.dtype(op.operands[0]);
    match *op.operands.as_slice() {
        [a] => unary(module, op, dtype, a),
        [a, b] => {
            let (x, y) = (splat(module, a), splat(module, b));
            if let (Some(x), Some(y)) = (x, y) {
                let bits = if dtype.is_int() { int::binary(op, dtype, x, y) } else { float::binary(op, dtype, x, y) };
                return bits.map(Step::Splat);
            }
            if dtype.is_int() {
                int_identity(op, dtype, (a, x), (b, y))
            } else {
                float_identity(op, dtype, (a, x), (b, y))
            }
        }
        _ => None,
    }
}

fn unary(module: &Module, op: &Op, dtype: DType, a: Value) -> Option<Step> {
    if let Some(bits) = splat(module, a) {
        let bits = if dtype.is_int() { int::unary(op, dtype, dtype, bits) } else { float::unary(op, dtype, bits) };
        return bits.map(Step::Splat);
    }
    let inner = module.defining_op(a).map(|id| module.op(id))?;
    match (op.code, inner.code) {
        (Opcode::NegF, Opcode::NegF) | (Opcode::NegI, Opcode::NegI) => Some(Step::Use(inner.operands[0])),
        (Opcode::AbsF, Opcode::AbsF) | (Opcode::AbsI, Opcode::AbsI) => Some(Step::Use(a)),
        (Opcode::Floor | Opcode::Ceil, Opcode::Floor | Opcode::Ceil) => Some(Step::Use(a)),
        (Opcode::AbsF, Opcode::NegF) => Some(Step::Change(vec![inner.operands[0]], op.attrs.clone())),
        _ => None,
    }
}

type Operand = (Value, Option<u64>);

fn int_identity(op: &Op, dtype: DType, (a, x): Operand, (b, y): Operand) -> Option<Step> {
    let ones = u64::MAX >> (64 - dtype.bits());
    let is = |constant: Option<u64>, bits: u64| constant.is_some_and(|c| c & ones == bits);
    // The constant of a commutative op may be either operand.
    let (other, constant) = if op.code.spec().commutative && x.is_some() { (b, x) } else { (a, y) };
    match op.code {
        Opcode::AddI | Opcode::SubI | Opcode::OrI | Opcode::XorI | Opcode::ShlI | Opcode::ShrI if is(constant, 0) => {
            Some(Step::Use(other))
        }
        Opcode::MulI | Opcode::DivI if is(constant, 1) && dtype != DType::I1 => Some(Step::Use(other)),
        Opcode::MulI | Opcode::AndI if is(constant, 0) => Some(Step::Splat(0)),
        Opcode::RemI if is(constant, 1) && dtype != DType::I1 => Some(Step::Splat(0)),
        Opcode::AndI if is(constant, ones) => Some(Step::Use(other)),
        Opcode::OrI if is(constant, ones) => Some(Step::Splat(ones)),
        Opcode::SubI | Opcode::XorI if a == b => Some(Step::Splat(0)),
        Opcode::AndI | Opcode::OrI | Opcode::MaxI | Opcode::MinI if a == b => Some(Step::Use(a)),
        // The result of comparing a number with itself is that for two zeros.
        Opcode::CmpI if a == b => int::binary(op, dtype, 0, 0).map(Step::Splat),
        _ => None,
    }
}

/// Applies identities that hold for all floats, including signed zeros. A NaN remains a NaN.
fn float_identity(op: &Op, dtype: DType, (a, x): Operand, (b, y): Operand) -> Option<Step> {
    if op.flag(Flag::FlushToZero) {
        return None;
    }
    let is = |constant: Option<u64>, value: f64| constant.is_some_and(|c| float::has_value(dtype, c, value));
    let nearest = op.rounding() == Rounding::NearestEven;
    match op.code {
        Opcode::AddF if nearest && is(y, -0.0) => Some(Step::Use(a)),
        Opcode::AddF if nearest && is(x, -0.0) => Some(Step::Use(b)),
        Opcode::SubF if nearest && is(y, 0.0) => Some(Step::Use(a)),
        Opcode::MulF if is(y, 1.0) => Some(Step::Use(a)),
        Opcode::MulF if is(x, 1.0) => Some(Step::Use(b)),
        Opcode::DivF if is(y, 1.0) && !matches!(op.rounding(), Rounding::Approx | Rounding::Full) => Some(Step::Use(a)),
        Opcode::MaxF | Opcode::MinF if a == b => Some(Step::Use(a)),
        _ => None,
    }
}

fn select(module: &Module, op: &Op) -> Option<Step> {
    let [cond, yes, no] = [op.operands[0], op.operands[1], op.operands[2]];
    match splat(module, cond) {
        Some(bits) => Some(Step::Use(if bits & 1 == 1 { yes } else { no })),
        None if yes == no => Some(Step::Use(yes)),
        None => {
            let boolean = module.ty(yes).as_tile().is_some_and(|(elem, _)| elem == Elem::Num(DType::I1));
            let identity = boolean && splat(module, yes) == Some(1) && splat(module, no) == Some(0);
            identity.then_some(Step::Use(cond))
        }
    }
}

fn number(module: &Module, value: Value) -> Option<DType> {
    module.ty(value).as_tile().and_then(|(elem, _)| elem.dtype())
}

fn cast(module: &Module, op: &Op, result: Value) -> Option<Step> {
    let source = op.operands[0];
    if let (Some(bits), Some(from), Some(to)) = (splat(module, source), number(module, source), number(module, result))
    {
        let bits = match op.code {
            Opcode::ExtI | Opcode::TruncI => int::unary(op, from, to, bits),
            // i4 has no constants.
            Opcode::Bitcast => Some(bits),
            _ => float::cast(op, from, to, bits),
        };
        return bits.filter(|_| to != DType::I4).map(Step::Splat);
    }
    let inner = module.defining_op(source).map(|id| module.op(id))?;
    let before = *inner.operands.first()?;
    let round_trip = module.ty_id(before) == module.ty_id(result);
    match (op.code, inner.code) {
        (Opcode::TruncI, Opcode::ExtI)
        | (Opcode::Bitcast, Opcode::Bitcast)
        | (Opcode::IntToPtr, Opcode::PtrToInt)
        | (Opcode::PtrToInt, Opcode::IntToPtr)
        | (Opcode::PtrToPtr, Opcode::PtrToPtr)
            if round_trip =>
        {
            Some(Step::Use(before))
        }
        (Opcode::Bitcast, Opcode::Bitcast) | (Opcode::PtrToPtr, Opcode::PtrToPtr) => {
            Some(Step::Change(vec![before], op.attrs.clone()))
        }
        (Opcode::ExtI, Opcode::ExtI) if op.sign() == inner.sign() => Some(Step::Change(vec![before], op.attrs.clone())),
        _ if op.code == Opcode::PtrToPtr && module.ty_id(source) == module.ty_id(result) => Some(Step::Use(source)),
        _ => None,
    }
}

fn shape(module: &Module, op: &Op, result: Value) -> Option<Step> {
    let source = op.operands[0];
    if let (Some(bits), Type::Tile { elem: Elem::Num(_), .. }) = (splat(module, source), module.ty(result)) {
        return Some(Step::Splat(bits));
    }
    let order = op.permutation();
    let identity = order.iter().enumerate().all(|(i, &d)| d == i as i32);
    if module.ty_id(source) == module.ty_id(result) && identity {
        return Some(Step::Use(source));
    }
    let inner = producer(module, source, op.code)?;
    let before = vec![inner.operands[0]];
    if op.code == Opcode::Permute {
        // Dimension i of the result is dimension order[i] of the intermediate tile, which is
        // dimension inner[order[i]] of the source.
        let joined = order.iter().map(|&d| inner.permutation()[d as usize]).collect_vec();
        return Some(Step::Change(before, vec![Attr::Permutation(joined)]));
    }
    Some(Step::Change(before, op.attrs.clone()))
}
