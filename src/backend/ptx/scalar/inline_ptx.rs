//! Inline PTX of the user, emitted per element.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::repr;
use super::{ScalarTypes, Unsupported};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Op};
use crate::util::process::PerProcess;

/// Returns the result of the text on the operands, without the last operand: the meaning of the
/// text.
pub fn lower(b: &mut Builder, op: &Op, types: ScalarTypes<'_>, operands: &[Operand]) -> Result<Operand, Unsupported> {
    let Some(Attr::Text(text)) = op.attr(AttrKind::Text) else { return Err(Unsupported("no text".to_string())) };
    let registers: Vec<Reg> = operands[..3]
        .iter()
        .zip(types.operands)
        .map(|(&operand, &dtype)| in_register(b, operand, repr::class(dtype)))
        .collect_vec();
    let result = b.inline(kept(text), repr::class(types.result), registers).into();
    // Registers are wider than these types.
    Ok(match types.result {
        DType::I8 | DType::I16 => b.bfe(crate::backend::ptx::isa::inst::Ty::U32, result, 0, types.result.bits()),
        _ => result,
    })
}

fn in_register(b: &mut Builder, operand: Operand, class: RegClass) -> Reg {
    match (operand, class) {
        (Operand::Reg(reg), _) => reg,
        // PTX has no move of numbers to predicates.
        (Operand::Imm(value), RegClass::Pred) => {
            let word = b.reg(value, RegClass::B32);
            b.setp(crate::backend::ptx::isa::inst::Cmp::Ne, crate::backend::ptx::isa::inst::Ty::B32, word, 0i64)
        }
        (operand, class) => b.reg(operand, class),
    }
}

/// Returns a copy of the text with static lifetime, because instructions are `Copy`. Each text is
/// stored once per process.
fn kept(text: &str) -> &'static str {
    static TEXTS: PerProcess<Mutex<BTreeSet<&'static str>>> = PerProcess::new();
    let mut texts = TEXTS.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text) {
        return known;
    }
    let new: &'static str = Box::leak(text.into());
    texts.insert(new);
    new
}
