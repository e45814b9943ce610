//! Stores without bounds checks: the ops that may write outside of their array.
//!
//! Input: the module of a trace, before all passes.
//!
//! * A store through a view is checked unless it assumes its bounds.
//! * A store through pointers is checked if its mask compares with each extent of the array that
//!   its pointers are derived from. Pointers of no array are unchecked.
//! * An assumption of the user about an integer may remove any check, so each store counts then.
//!
//! Memory of the tile block is left out.

use crate::error::Location;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, CmpPred, Def, Module, Op, OpId, Opcode, Overflow, Sign, Type, Value};

/// Store without a bounds check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UncheckedStore {
    /// Line of the op.
    pub place: Option<Location>,
    /// Number of the parameter that its address is derived from, if there is one.
    pub param: Option<usize>,
}

/// Returns the stores and atomics of the first entry that may write outside of their array, in
/// program order.
pub(crate) fn unchecked_stores(module: &Module) -> Vec<UncheckedStore> {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return Vec::new() };
    let has_assumption = module.written.iter().any(|written| is_assumption(module.op(written.op)));
    let mut stores: Vec<UncheckedStore> = Vec::new();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        if !matches!(op.code.spec().effect, Effect::Write | Effect::ReadWrite) {
            return;
        }
        let Some(base) = op.address().map(|address| module.base(address)) else { return };
        let is_scratch = module.defining_op(base).is_some_and(|id| module.op(id).code == Opcode::Alloca);
        if is_scratch || !has_assumption && is_checked(module, body, id, base) {
            return;
        }
        let param = match module.def(base) {
            Def::Arg(block, param) if block == body => Some(param as usize),
            _ => None,
        };
        let store = UncheckedStore { place: module.location(op.loc).cloned(), param };
        if !stores.contains(&store) {
            stores.push(store);
        }
    });
    stores
}

/// Returns true for an op of the user whose result has a property that the launch does not ensure.
fn is_assumption(op: &Op) -> bool {
    let wraps = matches!(op.attr(AttrKind::Overflow), None | Some(Attr::Overflow(Overflow::None)));
    op.code == Opcode::Assume || !wraps
}

fn is_checked(module: &Module, body: BlockId, id: OpId, base: Value) -> bool {
    let op = module.op(id);
    match op.code {
        Opcode::StoreView | Opcode::AtomicRedView => {
            !matches!(op.attr(AttrKind::Inbounds), Some(Attr::Inbounds(assumed)) if assumed.contains(&true))
        }
        Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => {
            let Some(&mask) = op.operand_group("mask").first() else { return false };
            let Some(array) = array_at(module, body, base) else { return false };
            let mut compared = Vec::new();
            bounds(module, mask, &mut compared);
            let Type::TensorView { shape, .. } = module.ty(array.results[0]) else { return false };
            compared.len() >= shape.len()
                && array.operand_group("dynamic_shape").iter().all(|extent| compared.contains(&plain(module, *extent)))
        }
        _ => false,
    }
}

/// Returns the array that begins at a parameter.
fn array_at(module: &Module, body: BlockId, base: Value) -> Option<&Op> {
    let mut ops = module.block(body).ops.iter().map(|&id| module.op(id));
    ops.find(|op| op.code == Opcode::MakeTensorView && module.base(op.operands[0]) == base)
}

/// Adds the values below which a mask requires its positions to be.
fn bounds(module: &Module, mask: Value, found: &mut Vec<Value>) {
    let Some(op) = module.defining_op(mask).map(|id| module.op(id)) else { return };
    match op.code {
        Opcode::AndI => op.operands.iter().for_each(|&part| bounds(module, part, found)),
        Opcode::CmpI => {
            let is_unsigned = matches!(op.attr(AttrKind::Sign), Some(Attr::Sign(Sign::Unsigned)));
            if is_unsigned && matches!(op.attr(AttrKind::CmpPred), Some(Attr::CmpPred(CmpPred::Lt))) {
                found.push(plain(module, op.operands[1]));
            }
        }
        code if code.is_shape_alias() => bounds(module, op.operands[0], found),
        _ => {}
    }
}

/// Returns a number before its conversions, assumptions and changes of shape.
fn plain(module: &Module, value: Value) -> Value {
    let mut value = value;
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)) {
        match op.code {
            Opcode::ExtI | Opcode::TruncI => value = op.operands[0],
            code if code.is_alias() => value = op.operands[0],
            _ => break,
        }
    }
    value
}
