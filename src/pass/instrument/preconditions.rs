//! Launch preconditions: moved from a kernel into a module of checks, and stated as `assume` ops in
//! the kernel.
//!
//! Input: the module of a trace, before all passes. The conditions are assertions in the body of
//! the entry ([`Module::required`]) that depend only on parameters and grid. The module of checks
//! has the parameters of the entry followed by the three extents of the grid, and contains only
//! assertions.
//!
//! In the kernel each condition becomes an `assume` op directly after its value. This is sound
//! because the kernel is launched only if all conditions are true. A comparison with a constant
//! implies a bound, a zero remainder implies a divisor. Of two equal values the earlier one
//! replaces the other.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Def, Module, Op, OpId, Opcode, Predicate, Sign, Type, Value,
};

/// Moves the preconditions out of the first entry. Returns them as a module, `None` if there are
/// none.
pub(crate) fn split_preconditions(module: &mut Module) -> Option<Module> {
    let body = module.entries.first()?.body;
    let required = std::mem::take(&mut module.required);
    if required.is_empty() {
        return None;
    }
    let checks = extract(module, body, &required);
    let conditions: Vec<Value> = required.iter().map(|&id| module.op(id).operands[0]).collect_vec();
    module.block_mut(body).ops.retain(|id| !required.contains(id));
    conditions.into_iter().for_each(|condition| state_as_assumptions(module, body, condition));
    Some(checks)
}

/// Returns the kernel reduced to the assertions and the ops that they need.
fn extract(module: &Module, body: BlockId, required: &[OpId]) -> Module {
    let mut checks = module.clone();
    checks.globals.clear();
    let mut needed: FxHashSet<OpId> = required.iter().copied().collect();
    for &id in module.block(body).ops.iter().rev() {
        if needed.contains(&id) {
            needed.extend(module.op(id).operands.iter().filter_map(|&value| module.defining_op(value)));
        }
    }
    let last = module.block(body).ops.last().copied();
    let i32_type = checks.intern(Type::scalar(DType::I32));
    let grid = [(); 3].map(|()| checks.add_block_arg(body, i32_type));
    let mut kept = Vec::new();
    for &id in &module.block(body).ops {
        if module.op(id).code == Opcode::GetNumTileBlocks && needed.contains(&id) {
            for (old, new) in module.op(id).results.iter().zip(grid) {
                checks.replace_all_uses(body, *old, new);
            }
        } else if needed.contains(&id) || Some(id) == last {
            kept.push(id);
        }
    }
    checks.block_mut(body).ops = kept;
    checks
}

/// States a condition as `assume` ops, if it can be expressed.
fn state_as_assumptions(module: &mut Module, body: BlockId, condition: Value) {
    let Some(op) = module.defining_op(condition).map(|id| module.op(id).clone()) else { return };
    match op.code {
        Opcode::AndI => op.operands.iter().for_each(|&part| state_as_assumptions(module, body, part)),
        Opcode::CmpI => assume_comparison(module, body, &op),
        _ => {}
    }
}

fn assume_comparison(module: &mut Module, body: BlockId, op: &Op) {
    let (pred, [a, b]) = (op.cmp_pred(), [op.operands[0], op.operands[1]]);
    let (x, pred, bound) = match (constant(module, a), constant(module, b)) {
        (None, Some(bound)) => (a, pred, bound),
        (Some(bound), None) => (b, pred.swapped(), bound),
        (None, None) if pred == CmpPred::Eq => return unify_equal(module, body, a, b),
        _ => return,
    };
    if pred == CmpPred::Eq && bound == 0 {
        assume_divisor(module, body, x);
    }
    // Bounds of `assume` are signed.
    if pred != CmpPred::Eq && op.sign() == Sign::Unsigned {
        return;
    }
    let (lower, upper) = match pred {
        CmpPred::Eq => (Some(bound), Some(bound)),
        CmpPred::Lt => (None, bound.checked_sub(1)),
        CmpPred::Le => (None, Some(bound)),
        CmpPred::Gt => (bound.checked_add(1), None),
        CmpPred::Ge => (Some(bound), None),
        CmpPred::Ne => return,
    };
    if lower.is_some() || upper.is_some() {
        assume(module, body, x, &Predicate::Bounded { lower, upper });
    }
}

/// Derives a divisor from a zero `remainder`.
fn assume_divisor(module: &mut Module, body: BlockId, remainder: Value) {
    let Some(op) = module.defining_op(remainder).map(|id| module.op(id).clone()) else { return };
    let Some(number) = op.operands.get(1).and_then(|&v| constant(module, v)) else { return };
    let divisor = match op.code {
        Opcode::RemI if number != 0 => 1u64 << number.trailing_zeros().min(30),
        Opcode::AndI => 1u64 << number.trailing_ones().min(30),
        _ => return,
    };
    if divisor == 1 {
        return;
    }
    let predicate = Predicate::DivBy { divisor, every: None, along: None };
    // The low bits are equal in other widths, so the divisor also holds before a conversion.
    let mut x = op.operands[0];
    loop {
        assume(module, body, x, &predicate);
        match module.defining_op(x).map(|id| module.op(id)) {
            Some(op) if matches!(op.code, Opcode::TruncI | Opcode::ExtI) && fits(module, op, divisor) => {
                x = op.operands[0];
            }
            _ => return,
        }
    }
}

/// Returns true if the divisor fits into the narrower type.
fn fits(module: &Module, op: &Op, divisor: u64) -> bool {
    let bits = [op.operands[0], op.results[0]].map(|v| module.dtype(v).bits());
    divisor.trailing_zeros() < bits[0].min(bits[1])
}

/// Replaces the later one of two equal values by the earlier one, with the assumptions about both.
fn unify_equal(module: &mut Module, body: BlockId, a: Value, b: Value) {
    if module.ty_id(a) != module.ty_id(b) || a == b {
        return;
    }
    let (Some(at), Some(bt)) = (position(module, body, a), position(module, body, b)) else { return };
    let (first, second) = if at <= bt { (a, b) } else { (b, a) };
    let mut assumptions = Vec::new();
    let mut value = second;
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)).filter(|op| op.code == Opcode::Assume) {
        assumptions.extend(op.attr(AttrKind::Predicate).cloned());
        value = op.operands[0];
    }
    let mut best = first;
    for predicate in assumptions.iter().rev() {
        if let Attr::Predicate(predicate) = predicate {
            best = assume(module, body, best, predicate).unwrap_or(best);
        }
    }
    module.replace_all_uses(body, second, best);
}

/// Returns the position at which a value of the body is available: 0 for a parameter, else one past
/// the position of its op. `None` for values of inner blocks.
fn position(module: &Module, body: BlockId, value: Value) -> Option<usize> {
    match module.def(value) {
        Def::Arg(block, _) => (block == body).then_some(0),
        Def::Result(id, _) => module.block(body).ops.iter().position(|&op| op == id).map(|at| at + 1),
    }
}

/// Inserts an `assume` op after the value and replaces all later uses. Returns the new value,
/// `None` if the value is a constant or belongs to an inner block.
fn assume(module: &mut Module, body: BlockId, value: Value, predicate: &Predicate) -> Option<Value> {
    if constant(module, value).is_some() {
        return None;
    }
    let at = position(module, body, value)?;
    let (ty, loc) = (module.ty_id(value), module.entries[0].loc);
    let attrs = vec![Attr::Predicate(predicate.clone())];
    let id = module.add_op(Opcode::Assume, &[&[value]], attrs, vec![], &[ty], loc);
    let better = module.op(id).results[0];
    module.replace_all_uses(body, value, better);
    module.block_mut(body).ops.insert(at, id);
    Some(better)
}

/// Returns the signed value of a scalar constant.
fn constant(module: &Module, value: Value) -> Option<i64> {
    let op = module.op(module.defining_op(value)?);
    let dtype = module.ty(value).as_tile().and_then(|(elem, _)| elem.dtype()).filter(|dtype| dtype.is_int())?;
    let bits = match op.const_data()? {
        ConstData::Splat(bits) => *bits,
        ConstData::Dense(_) => return None,
    };
    let unused = 64 - dtype.bits();
    Some(((bits << unused) as i64) >> unused)
}
