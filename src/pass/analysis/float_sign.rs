//! Sign analysis of floats, which bounds the results of exponentials.

use crate::dtype::DType;
use crate::ir::{ConstData, Module, Opcode, Value};

/// Possible signs of the elements of a value, besides zero and NaN.
#[derive(Clone, Copy)]
struct Signs {
    above: bool,
    below: bool,
}

const ANY: Signs = Signs { above: true, below: true };

/// Returns true if a value is at most one in magnitude, or NaN, for all arguments of the kernel. An
/// exponential is bounded if its exponent is never positive.
pub fn is_at_most_one(module: &Module, value: Value) -> bool {
    let Some(id) = module.defining_op(value) else { return false };
    let op = module.op(id);
    match op.code {
        code if code.has_operand_elements() => is_at_most_one(module, op.operands[0]),
        Opcode::Exp | Opcode::Exp2 => !signs(module, op.operands[0]).above,
        Opcode::Constant => constant(module, value).is_some_and(|number| number.abs() <= 1.0),
        _ => false,
    }
}

fn signs(module: &Module, value: Value) -> Signs {
    let Some(id) = module.defining_op(value) else { return ANY };
    let op = module.op(id);
    let of = |operand: usize| signs(module, op.operands[operand]);
    match op.code {
        code if code.has_operand_elements() => of(0),
        Opcode::Constant => {
            constant(module, value).map_or(ANY, |number| Signs { above: number > 0.0, below: number < 0.0 })
        }
        Opcode::AbsF | Opcode::Exp | Opcode::Exp2 => Signs { above: true, below: false },
        Opcode::NegF => Signs { above: of(0).below, below: of(0).above },
        Opcode::SubF => Signs { above: !is_largest_of(module, op.operands[1], op.operands[0]), below: true },
        // `maxf` of a NaN and a number returns the number, so one operand must be proved not to be
        // NaN.
        Opcode::MaxF => {
            let has_floor =
                op.operands.iter().any(|&operand| constant(module, operand).is_some_and(|least| least >= 0.0));
            Signs { above: true, below: !has_floor }
        }
        Opcode::MulF => {
            let (a, b) = (of(0), of(1));
            Signs { above: a.above && b.above || a.below && b.below, below: a.above && b.below || a.below && b.above }
        }
        _ => ANY,
    }
}

/// Returns the number of a splat constant.
fn constant(module: &Module, value: Value) -> Option<f64> {
    let data = module.op(module.defining_op(value)?).const_data()?;
    let ConstData::Splat(bits) = data else { return None };
    match module.dtype(value) {
        DType::F32 => Some(f32::from_bits(*bits as u32).into()),
        DType::F64 => Some(f64::from_bits(*bits)),
        _ => None,
    }
}

/// Returns true if `value` is a maximum of which `one` is an operand.
fn is_largest_of(module: &Module, value: Value, one: Value) -> bool {
    let Some(id) = module.defining_op(value) else { return false };
    let op = module.op(id);
    op.code == Opcode::MaxF && op.operands.iter().any(|&operand| operand == one || is_largest_of(module, operand, one))
}
