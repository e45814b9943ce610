//! Planted faults of passes: the translation check must name the pass of each one.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, ensure};
use cutlet::dtype::DType;
use cutlet::ir::op_table::Effect;
use cutlet::ir::{Attr, AttrKind, CmpPred, ConstData, Module, OpId, Opcode, Sign, Substitution};
use cutlet::pass::Fault;

use crate::harness::{Session, Stage};
use crate::random;
use crate::runner::{Completion, Trial};

/// A planted fault.
pub struct Planted {
    what: &'static str,
    fault: Fault,
}

const fn planted(pass: &'static str, what: &'static str, plant: fn(&Module, &mut Module)) -> Planted {
    Planted { what, fault: Fault { pass, plant } }
}

/// The faults.
const FAULTS: &[Planted] = &[
    planted("canonicalize", "x + 0.0 becomes x", plus_zero_is_nothing),
    planted("canonicalize", "a difference is folded with swapped operands", |_, after| swap(after, Opcode::SubI, all)),
    planted("canonicalize", "a signed quotient by a power of two becomes a shift", quotients_are_shifts),
    planted("canonicalize", "the arms of a branch are swapped", |_, after| swap_arms(after, all)),
    planted("cse", "loads are merged over a store", loads_are_merged_over_stores),
    planted("cse", "a - b and b - a are one", differences_commute),
    planted("fold_int_range", "less is less or equal", less_is_less_or_equal),
    planted("licm", "ops with effects leave a branch", effects_leave_branches),
    planted("licm", "loads leave a loop that stores", loads_leave_loops),
    planted("dce", "a store is dead", stores_are_dead),
    planted("dce", "a loop without results is dead", loops_are_dead),
    planted("split_extents", "two pieces are swapped", |before, after| swap_new(before, after, Opcode::Cat)),
    planted("select_to_branch", "the arms of a new branch are swapped", swap_new_arms),
    planted("persistent", "the last tile is left out", constants_are_larger),
    planted("expand_ordered_reductions", "a new constant is larger by one", constants_are_larger),
    planted("expand_gather", "a new constant is larger by one", constants_are_larger),
    planted("guard_bounds", "a guard is inverted", new_comparisons_are_inverted),
    planted("legalize_arithmetic", "the operands of a new select are swapped", new_selects_are_swapped),
    planted("legalize_padding", "the operands of a new select are swapped", new_selects_are_swapped),
    planted("atomic_16bit", "a new constant is larger by one", constants_are_larger),
    planted("split_loops", "a new constant is larger by one", constants_are_larger),
];

/// The number of programs of a fault, and the limit of a reduction in seconds.
const PROGRAMS: u64 = 60;

/// The test of all faults.
pub fn trials() -> Vec<Trial> {
    let all = || planted_faults_are_named().map(|()| Completion::Completed);
    vec![Trial::new("passes::planted_faults_are_named", all)]
}

fn planted_faults_are_named() -> Result<()> {
    let (mut found, mut missed) = (0, Vec::new());
    for Planted { what, fault } in FAULTS {
        let start = Instant::now();
        let session = Session::Interpret(Stage::Passes(Some(*fault)));
        let named =
            ["pass {} changes results", "pass `{}` made an invalid module"].map(|text| text.replace("{}", fault.pass));
        let seed = (1..=PROGRAMS).find(|&seed| {
            random::problem(session, seed).is_some_and(|problem| named.iter().any(|named| problem.contains(named)))
        });
        match seed {
            Some(seed) => {
                found += 1;
                println!("{}: {what}: found by program {seed} ({:.1} s)", fault.pass, start.elapsed().as_secs_f64());
            }
            None => missed.push(format!("{}: {what} ({:.1} s)", fault.pass, start.elapsed().as_secs_f64())),
        }
    }
    println!("planted faults of passes: {found} of {} found", FAULTS.len());
    ensure!(missed.is_empty(), "not found: {}", missed.join("; "));
    let session = Session::Interpret(Stage::Passes(Some(FAULTS[4].fault)));
    let (whole, core) = random::reduced_size(session, PROGRAMS)?;
    println!("a program of {whole} steps is reduced to {core}");
    ensure!(core < whole && core <= 8, "{whole} steps are reduced to {core}");
    Ok(())
}

fn all(_: OpId) -> bool {
    true
}

fn ops(module: &Module) -> Vec<OpId> {
    let mut ops = Vec::new();
    module.walk(module.entries[0].body, &mut |id| ops.push(id));
    ops
}

/// Ops that the pass has made.
fn new_ops(before: &Module, after: &Module) -> Vec<OpId> {
    let old: BTreeSet<OpId> = ops(before).into_iter().collect();
    ops(after).into_iter().filter(|id| !old.contains(id)).collect()
}

/// Swaps the first two operands of all ops of a kind.
fn swap(module: &mut Module, code: Opcode, wanted: fn(OpId) -> bool) {
    for id in ops(module).into_iter().filter(|&id| wanted(id)) {
        if module.op(id).code == code {
            module.op_mut(id).operands.swap(0, 1);
        }
    }
}

fn swap_new(before: &Module, after: &mut Module, code: Opcode) {
    for id in new_ops(before, after) {
        let op = after.op(id);
        if op.code == code && after.ty(op.operands[0]) == after.ty(op.operands[1]) {
            after.op_mut(id).operands.swap(0, 1);
        }
    }
}

fn is_branch_with_two_arms(module: &Module, id: OpId) -> bool {
    module.op(id).code == Opcode::If && module.op(id).regions.len() == 2
}

fn swap_arms(module: &mut Module, wanted: fn(OpId) -> bool) {
    for id in ops(module).into_iter().filter(|&id| wanted(id)) {
        if is_branch_with_two_arms(module, id) {
            module.op_mut(id).regions.swap(0, 1);
        }
    }
}

fn swap_new_arms(before: &Module, after: &mut Module) {
    for id in new_ops(before, after) {
        if is_branch_with_two_arms(after, id) {
            after.op_mut(id).regions.swap(0, 1);
        }
    }
}

fn new_selects_are_swapped(before: &Module, after: &mut Module) {
    for id in new_ops(before, after) {
        if after.op(id).code == Opcode::Select {
            after.op_mut(id).operands.swap(1, 2);
        }
    }
}

fn new_comparisons_are_inverted(before: &Module, after: &mut Module) {
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
fn constants_are_larger(before: &Module, after: &mut Module) {
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

fn splat(module: &Module, value: cutlet::ir::Value) -> Option<u64> {
    match module.op(module.defining_op(value)?).const_data()? {
        ConstData::Splat(bits) => Some(*bits),
        _ => None,
    }
}

/// Replaces the results of ops by values.
fn replace(module: &mut Module, wanted: impl Fn(&Module, OpId) -> Option<cutlet::ir::Value>) {
    let mut values = Substitution::new();
    for id in ops(module) {
        if let Some(value) = wanted(module, id) {
            values.replace(module.op(id).results[0], value);
        }
    }
    let body = module.entries[0].body;
    values.apply(module, body);
}

fn plus_zero_is_nothing(before: &Module, after: &mut Module) {
    *after = before.clone();
    replace(after, |module, id| {
        let op = module.op(id);
        let is_sum = op.code == Opcode::AddF && splat(module, op.operands[1]) == Some(0);
        is_sum.then(|| op.operands[0])
    });
}

fn quotients_are_shifts(_: &Module, after: &mut Module) {
    for id in ops(after) {
        let op = after.op(id);
        if op.code != Opcode::DivI || op.attr(AttrKind::Sign) != Some(&Attr::Sign(Sign::Signed)) {
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

fn loads_are_merged_over_stores(_: &Module, after: &mut Module) {
    let mut seen: Vec<OpId> = Vec::new();
    let body = after.entries[0].body;
    let mut values = Substitution::new();
    for id in after.block(body).ops.clone() {
        let op = after.op(id).clone();
        if op.code != Opcode::LoadView && op.code != Opcode::LoadPtr {
            continue;
        }
        let same = |&other: &OpId| {
            let other = after.op(other);
            (other.code, &other.operands, &other.attrs) == (op.code, &op.operands, &op.attrs)
                && after.ty(other.results[0]) == after.ty(op.results[0])
        };
        match seen.iter().copied().find(same) {
            Some(other) => {
                let other = after.op(other).results.clone();
                op.results.iter().zip(other).for_each(|(&old, new)| values.replace(old, new));
            }
            None => seen.push(id),
        }
    }
    values.apply(after, body);
}

fn differences_commute(_: &Module, after: &mut Module) {
    let subtractions: Vec<OpId> = after
        .block(after.entries[0].body)
        .ops
        .iter()
        .copied()
        .filter(|&id| after.op(id).code == Opcode::SubI)
        .collect();
    // Where no pair is there, one operand order is the other one's.
    if let Some(&id) = subtractions.last() {
        after.op_mut(id).operands.swap(0, 1);
    }
}

fn less_is_less_or_equal(_: &Module, after: &mut Module) {
    for id in ops(after) {
        if after.op(id).code == Opcode::CmpI {
            for attr in &mut after.op_mut(id).attrs {
                if *attr == Attr::CmpPred(CmpPred::Lt) {
                    *attr = Attr::CmpPred(CmpPred::Le);
                }
            }
        }
    }
}

/// Moves all but the terminator of each first arm of a branch before the branch.
fn effects_leave_branches(_: &Module, after: &mut Module) {
    let body = after.entries[0].body;
    let mut out = Vec::new();
    for id in after.block(body).ops.clone() {
        if after.op(id).code == Opcode::If {
            let arm = after.op(id).regions[0];
            let ops = after.block(arm).ops.clone();
            let kept: Vec<OpId> =
                ops.iter().copied().filter(|&id| after.op(id).code.spec().effect == Effect::Terminator).collect();
            out.extend(ops.iter().copied().filter(|id| !kept.contains(id)));
            after.block_mut(arm).ops = kept;
        }
        out.push(id);
    }
    after.block_mut(body).ops = out;
}

/// Moves loads with invariant operands out of loops.
fn loads_leave_loops(_: &Module, after: &mut Module) {
    let body = after.entries[0].body;
    let mut out: Vec<OpId> = Vec::new();
    for id in after.block(body).ops.clone() {
        if after.op(id).code.is_loop() {
            let inside = after.op(id).regions[0];
            let defined: BTreeSet<_> = out.iter().flat_map(|&id| after.op(id).results.clone()).collect();
            let args = after.block(body).args.clone();
            let ops = after.block(inside).ops.clone();
            let leaves = |&id: &OpId| {
                let op = after.op(id);
                op.code.spec().effect == Effect::Read
                    && op.operands.iter().all(|value| defined.contains(value) || args.contains(value))
            };
            let (moved, kept): (Vec<OpId>, Vec<OpId>) = ops.into_iter().partition(leaves);
            out.extend(moved);
            after.block_mut(inside).ops = kept;
        }
        out.push(id);
    }
    after.block_mut(body).ops = out;
}

fn drop_last(after: &mut Module, wanted: impl Fn(&Module, OpId) -> bool) {
    let body = after.entries[0].body;
    let ops = after.block(body).ops.clone();
    if let Some(at) = ops.iter().rposition(|&id| wanted(after, id)) {
        after.block_mut(body).ops.remove(at);
    }
}

fn stores_are_dead(_: &Module, after: &mut Module) {
    drop_last(after, |module, id| matches!(module.op(id).code, Opcode::StoreView | Opcode::StorePtr));
}

fn loops_are_dead(_: &Module, after: &mut Module) {
    drop_last(after, |module, id| module.op(id).code.is_loop() && module.op(id).results.is_empty());
}
