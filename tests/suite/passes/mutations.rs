//! Mutations of the results of passes, for planted faults.

use std::collections::BTreeSet;

use cutlet::dtype::DType;
use cutlet::ir::{
    Attr, AttrKind, CmpPred, ConstData, MemOrder, Module, OpId, Opcode, Overflow, Predicate, Sign, Substitution, Type,
    Value,
};

pub fn ops(module: &Module) -> Vec<OpId> {
    let mut ops = Vec::new();
    module.walk(module.entries[0].body, &mut |id| ops.push(id));
    ops
}

fn ops_of(module: &Module, code: Opcode) -> Vec<OpId> {
    ops(module).into_iter().filter(|&id| module.op(id).code == code).collect()
}

/// Returns the ops that the pass has made.
fn new_ops(before: &Module, after: &Module) -> Vec<OpId> {
    let old: BTreeSet<OpId> = ops(before).into_iter().collect();
    ops(after).into_iter().filter(|id| !old.contains(id)).collect()
}

fn new_ops_of(before: &Module, after: &Module, code: Opcode) -> Vec<OpId> {
    new_ops(before, after).into_iter().filter(|&id| after.op(id).code == code).collect()
}

/// Swaps the first two operands of all ops of a kind.
pub fn swap(module: &mut Module, code: Opcode) {
    for id in ops_of(module, code) {
        module.op_mut(id).operands.swap(0, 1);
    }
}

/// Swaps the first two operands of all new ops of a kind.
pub fn swap_new(before: &Module, after: &mut Module, code: Opcode) {
    for id in new_ops_of(before, after, code) {
        after.op_mut(id).operands.swap(0, 1);
    }
}

/// Exchanges the operands of the first and the last op of a kind.
pub fn exchange(module: &mut Module, code: Opcode) {
    let all = ops_of(module, code);
    if let [first, .., last] = all[..] {
        let operands = [first, last].map(|id| module.op(id).operands.clone());
        module.op_mut(first).operands = operands[1].clone();
        module.op_mut(last).operands = operands[0].clone();
    }
}

/// Replaces results by values.
fn replace(module: &mut Module, pairs: &[(Value, Value)]) {
    let mut values = Substitution::new();
    pairs.iter().for_each(|&(old, new)| values.replace(old, new));
    let body = module.entries[0].body;
    values.apply(module, body);
}

/// Replaces the result of an op by an operand of the same type: the op has no effect.
fn bypass_one(module: &mut Module, id: OpId) {
    let op = module.op(id).clone();
    let is_like = |value: &&Value| module.ty_id(**value) == module.ty_id(op.results[0]);
    if let Some(&operand) = op.operands.iter().find(is_like) {
        replace(module, &[(op.results[0], operand)]);
    }
}

/// The last op of a kind has no effect.
pub fn bypass(module: &mut Module, code: Opcode) {
    if let Some(&id) = ops_of(module, code).last() {
        bypass_one(module, id);
    }
}

/// The last new op of a kind has no effect.
pub fn bypass_new(before: &Module, after: &mut Module, code: Opcode) {
    if let Some(&id) = new_ops_of(before, after, code).last() {
        bypass_one(after, id);
    }
}

/// The last loop has no iterations.
pub fn last_loop_is_lost(after: &mut Module) {
    if let Some(&id) = ops_of(after, Opcode::For).last() {
        let lower = after.op(id).operands[0];
        after.op_mut(id).operands[1] = lower;
    }
}

/// The new loops have no iterations.
pub fn new_loops_are_lost(before: &Module, after: &mut Module) {
    for id in new_ops_of(before, after, Opcode::For) {
        let lower = after.op(id).operands[0];
        after.op_mut(id).operands[1] = lower;
    }
}

/// Removes the first op of a kind, which has no used result.
pub fn remove_first(module: &mut Module, code: Opcode) {
    let mut blocks = vec![module.entries[0].body];
    module.walk(module.entries[0].body, &mut |id| blocks.extend(&module.op(id).regions));
    let Some(&first) = ops_of(module, code).first() else { return };
    for block in blocks {
        module.block_mut(block).ops.retain(|&id| id != first);
    }
}

/// The new ops of a kind have the first value of the type of their operand instead of the operand.
pub fn operands_are_others(before: &Module, after: &mut Module, code: Opcode) {
    for id in new_ops_of(before, after, code) {
        let operand = after.op(id).operands[0];
        let is_like = |value: &Value| after.ty_id(*value) == after.ty_id(operand);
        if let Some(other) = ops(after).into_iter().flat_map(|id| after.op(id).results.clone()).find(is_like) {
            after.op_mut(id).operands[0] = other;
        }
    }
}

/// Swaps the arms of branches.
pub fn swap_arms(module: &mut Module, ids: &[OpId]) {
    for &id in ids.iter().filter(|&&id| module.op(id).regions.len() == 2).collect::<Vec<_>>() {
        module.op_mut(id).regions.swap(0, 1);
    }
}

pub fn all_arms_are_swapped(_: &Module, after: &mut Module) {
    let all = ops_of(after, Opcode::If);
    swap_arms(after, &all);
}

pub fn new_arms_are_swapped(before: &Module, after: &mut Module) {
    let all = new_ops_of(before, after, Opcode::If);
    swap_arms(after, &all);
}

pub fn new_comparisons_are_inverted(before: &Module, after: &mut Module) {
    for id in new_ops(before, after) {
        for attr in &mut after.op_mut(id).attrs {
            if let Attr::CmpPred(pred) = attr {
                *pred = match pred {
                    CmpPred::Eq => CmpPred::Ne,
                    CmpPred::Ne => CmpPred::Eq,
                    CmpPred::Lt => CmpPred::Ge,
                    CmpPred::Ge => CmpPred::Lt,
                    CmpPred::Le => CmpPred::Gt,
                    _ => CmpPred::Le,
                };
            }
        }
    }
}

/// Adds one to the last new integer constant.
pub fn constants_are_larger(before: &Module, after: &mut Module) {
    let constants = new_ops(before, after).into_iter().rev();
    let is_int = |&id: &OpId| {
        let op = after.op(id);
        matches!(op.const_data(), Some(ConstData::Splat(_)))
            && matches!(after.dtype(op.results[0]), DType::I32 | DType::I64)
    };
    let Some(id) = constants.into_iter().find(is_int) else { return };
    for attr in &mut after.op_mut(id).attrs {
        if let Attr::Value(ConstData::Splat(bits)) = attr {
            *bits += 1;
        }
    }
}

fn splat(module: &Module, value: Value) -> Option<u64> {
    match module.op(module.defining_op(value)?).const_data()? {
        ConstData::Splat(bits) => Some(*bits),
        _ => None,
    }
}

pub fn quotients_are_shifts(_: &Module, after: &mut Module) {
    for id in ops_of(after, Opcode::DivI) {
        let op = after.op(id);
        if op.attr(AttrKind::Sign) != Some(&Attr::Sign(Sign::Signed)) {
            continue;
        }
        let Some(bits) = splat(after, op.operands[1]).filter(|bits| bits.is_power_of_two() && *bits > 1) else {
            continue;
        };
        let Some(constant) = after.defining_op(op.operands[1]) else { continue };
        // Other uses of the constant are wrong, too.
        for attr in &mut after.op_mut(constant).attrs {
            if let Attr::Value(data) = attr {
                *data = ConstData::Splat(bits.trailing_zeros().into());
            }
        }
        let op = after.op_mut(id);
        op.code = Opcode::ShrI;
        op.attrs.retain(|attr| attr.kind() == AttrKind::Sign);
    }
}

/// Swaps the operands of the last difference, as if differences commuted.
pub fn differences_commute(_: &Module, after: &mut Module) {
    let body = after.block(after.entries[0].body).ops.clone();
    if let Some(&id) = body.iter().rfind(|&&id| after.op(id).code == Opcode::SubI) {
        after.op_mut(id).operands.swap(0, 1);
    }
}

pub fn less_is_less_or_equal(_: &Module, after: &mut Module) {
    for id in ops_of(after, Opcode::CmpI) {
        for attr in &mut after.op_mut(id).attrs {
            if *attr == Attr::CmpPred(CmpPred::Lt) {
                *attr = Attr::CmpPred(CmpPred::Le);
            }
        }
    }
}

fn drop_last(after: &mut Module, wanted: impl Fn(&Module, OpId) -> bool) {
    let body = after.entries[0].body;
    let ops = after.block(body).ops.clone();
    if let Some(at) = ops.iter().rposition(|&id| wanted(after, id)) {
        after.block_mut(body).ops.remove(at);
    }
}

pub fn stores_are_dead(_: &Module, after: &mut Module) {
    drop_last(after, |module, id| matches!(module.op(id).code, Opcode::StoreView | Opcode::StorePtr));
}

pub fn loops_are_dead(_: &Module, after: &mut Module) {
    drop_last(after, |module, id| module.op(id).code.is_loop() && module.op(id).results.is_empty());
}

/// Moves the loads of loops before them, also those of arrays that the loops store.
pub fn loads_leave_loops(_: &Module, after: &mut Module) {
    let body = after.entries[0].body;
    let mut out: Vec<OpId> = Vec::new();
    for id in after.block(body).ops.clone() {
        if after.op(id).code.is_loop() {
            let inside = after.op(id).regions[0];
            let mut defined: BTreeSet<Value> = after.block(body).args.iter().copied().collect();
            defined.extend(out.iter().flat_map(|&id| after.op(id).results.clone()));
            let leaves = |&id: &OpId| {
                after.op(id).code == Opcode::LoadView && after.op(id).operands.iter().all(|x| defined.contains(x))
            };
            let (moved, kept): (Vec<OpId>, Vec<OpId>) = after.block(inside).ops.clone().into_iter().partition(leaves);
            out.extend(moved);
            after.block_mut(inside).ops = kept;
        }
        out.push(id);
    }
    after.block_mut(body).ops = out;
}

/// Moves the first load below the first store.
pub fn loads_sink_below_stores(_: &Module, after: &mut Module) {
    let residual = |module: &Module, id: OpId| {
        let op = module.op(id);
        op.code == Opcode::LoadView && module.dtype(op.results[0]) == DType::F32
    };
    let body = after.entries[0].body;
    let mut ops = after.block(body).ops.clone();
    let Some(load) = ops.iter().position(|&id| residual(after, id)) else { return };
    let Some(store) = ops.iter().position(|&id| after.op(id).code == Opcode::StoreView) else { return };
    let moved = ops.remove(load);
    ops.insert(store, moved);
    after.block_mut(body).ops = ops;
}

/// Relaxes the orders of all atomics.
pub fn all_orders_are_relaxed(_: &Module, after: &mut Module) {
    for id in ops(after) {
        for attr in &mut after.op_mut(id).attrs {
            if let Attr::MemOrder(order) = attr
                && *order != MemOrder::Weak
            {
                *order = MemOrder::Relaxed;
            }
        }
    }
}

/// No op waits for a token.
pub fn accesses_have_no_order(_: &Module, after: &mut Module) {
    let (ty, body) = (after.intern(Type::Token), after.entries[0].body);
    let loc = after.entries[0].loc;
    let made = after.add_op(Opcode::MakeToken, &[], vec![], vec![], &[ty], loc);
    let token = after.op(made).results[0];
    for id in ops(after) {
        for at in 0..after.op(id).operands.len() {
            if matches!(after.ty(after.op(id).operands[at]), Type::Token) {
                after.op_mut(id).operands[at] = token;
            }
        }
    }
    after.block_mut(body).ops.insert(0, made);
}

/// Marks all sums as sums that do not overflow.
pub fn no_sum_wraps(_: &Module, after: &mut Module) {
    for id in ops_of(after, Opcode::AddI) {
        after.op_mut(id).set_attr(Attr::Overflow(Overflow::Nsw));
    }
}

/// Sets the lower bounds of assumptions to 1000.
pub fn bounds_are_larger(_: &Module, after: &mut Module) {
    for id in ops_of(after, Opcode::Assume) {
        for attr in &mut after.op_mut(id).attrs {
            if let Attr::Predicate(Predicate::Bounded { lower: Some(lower), .. }) = attr {
                *lower += 1000;
            }
        }
    }
}

/// Assertions fail.
pub fn assertions_are_false(_: &Module, after: &mut Module) {
    let mut blocks = vec![after.entries[0].body];
    after.walk(after.entries[0].body, &mut |id| blocks.extend(&after.op(id).regions));
    for block in blocks {
        let mut out = Vec::new();
        for id in after.block(block).ops.clone() {
            if after.op(id).code == Opcode::Assert {
                let (condition, loc) = (after.op(id).operands[0], after.op(id).loc);
                let ty = after.ty_id(condition);
                let value = vec![Attr::Value(ConstData::Splat(0))];
                let made = after.add_op(Opcode::Constant, &[], value, vec![], &[ty], loc);
                after.op_mut(id).operands[0] = after.op(made).results[0];
                out.push(made);
            }
            out.push(id);
        }
        after.block_mut(block).ops = out;
    }
}

/// Inverts the signs of ops of a kind.
pub fn signs_are_inverted(module: &mut Module, code: Opcode) {
    for id in ops_of(module, code) {
        for attr in &mut module.op_mut(id).attrs {
            if let Attr::Sign(sign) = attr {
                *sign = if *sign == Sign::Signed { Sign::Unsigned } else { Sign::Signed };
            }
        }
    }
}

/// Swaps a factor and the term of fused products.
pub fn terms_are_factors(_: &Module, after: &mut Module) {
    for id in ops_of(after, Opcode::Fma) {
        after.op_mut(id).operands.swap(0, 2);
    }
}
