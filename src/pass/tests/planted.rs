//! Planted faults of passes, on random modules whose arrays are read and written: the fault changes
//! results, and the recorded pass is the one that is named.

use std::collections::BTreeSet;

use super::random;
use crate::ir::op_table::Effect;
use crate::ir::{Module, OpId, Opcode, Substitution, Value};
use crate::pass::{Fault, optimize, record_passes};

/// The number of modules of a fault.
const MODULES: u64 = 8;

/// Returns the names of the passes whose output differs from their input, in a module.
fn changed_by(fault: Fault, seed: u64) -> Vec<&'static str> {
    let mut module = random::kernel(seed);
    let ((), runs) = record_passes(Some(fault), || optimize(&mut module));
    let differs = |run: &&crate::pass::PassRun| random::run(&run.before) != random::run(&run.after);
    runs.iter().filter(differs).map(|run| run.name).collect()
}

#[test]
fn planted_faults_are_found_with_the_name_of_their_pass() {
    // The first module of each fault is selected, so that the search is short.
    let faults: [(u64, &str, Fault); 4] = [
        (270, "a product with 0.0 is 0.0", Fault { pass: "canonicalize", plant: products_with_zero_are_zero }),
        (88, "loads are merged over a store", Fault { pass: "cse", plant: loads_are_merged_over_stores }),
        (12, "ops with effects leave a branch", Fault { pass: "licm", plant: effects_leave_branches }),
        (150, "loads leave a loop that stores", Fault { pass: "licm", plant: loads_leave_loops }),
    ];
    let (mut found, mut missed) = (0, Vec::new());
    for (start, what, fault) in faults {
        let first =
            (start..start + MODULES).map(|seed| (seed, changed_by(fault, seed))).find(|(_, names)| !names.is_empty());
        match first {
            Some((seed, names)) => {
                assert!(names.iter().all(|&name| name == fault.pass), "{what}: {names:?}");
                println!("{}: {what}: found by module {seed}", fault.pass);
                found += 1;
            }
            None => missed.push(what),
        }
    }
    println!("planted faults of the pipeline: {found} of {} found", faults.len());
    assert!(missed.is_empty(), "{missed:?}");
}

fn ops(module: &Module) -> Vec<OpId> {
    let mut ops = Vec::new();
    module.walk(module.entries[0].body, &mut |id| ops.push(id));
    ops
}

fn splat(module: &Module, value: Value) -> Option<u64> {
    match module.op(module.defining_op(value)?).const_data()? {
        crate::ir::ConstData::Splat(bits) => Some(*bits),
        crate::ir::ConstData::Dense(_) => None,
    }
}

/// Replaces the results of ops by values.
fn replace(module: &mut Module, wanted: impl Fn(&Module, OpId) -> Option<Value>) {
    let mut values = Substitution::new();
    for id in ops(module) {
        if let Some(value) = wanted(module, id) {
            values.replace(module.op(id).results[0], value);
        }
    }
    let body = module.entries[0].body;
    values.apply(module, body);
}

fn products_with_zero_are_zero(before: &Module, after: &mut Module) {
    *after = before.clone();
    replace(after, |module, id| {
        let op = module.op(id);
        let is_product = op.code == Opcode::MulF;
        op.operands.iter().copied().find(|&value| is_product && splat(module, value) == Some(0))
    });
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
