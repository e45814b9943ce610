//! Planted faults of passes: the translation check must name the pass of each one.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use cutlet::dtype::DType;
use cutlet::ir::{Attr, AttrKind, CmpPred, ConstData, Module, OpId, Opcode, Sign};
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
    planted("canonicalize", "a difference is folded with swapped operands", |_, after| swap(after, Opcode::SubI, all)),
    planted("canonicalize", "a signed quotient by a power of two becomes a shift", quotients_are_shifts),
    planted("canonicalize", "the arms of a branch are swapped", |_, after| swap_arms(after, all)),
    planted("cse", "a - b and b - a are one", differences_commute),
    planted("fold_int_range", "less is less or equal", less_is_less_or_equal),
    planted("dce", "a store is dead", stores_are_dead),
    planted("dce", "a loop without results is dead", loops_are_dead),
    planted("expand_ordered_reductions", "a new constant is larger by one", constants_are_larger),
    planted("expand_gather", "a new constant is larger by one", constants_are_larger),
    planted("guard_bounds", "a guard is inverted", new_comparisons_are_inverted),
];

/// Number of programs of a fault, and the time after which none is begun.
const PROGRAMS: u64 = 40;
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Faults that were found.
static FOUND: AtomicUsize = AtomicUsize::new(0);
static TRIED: AtomicUsize = AtomicUsize::new(0);

/// A test of each fault, and one of the reduction.
pub fn trials() -> Vec<Trial> {
    let trial = |planted: &'static Planted| {
        let name = format!("passes::planted/{}: {}", planted.fault.pass, planted.what);
        Trial::new(name, move || is_named(planted).map(|()| Completion::Completed))
    };
    let reduced = || a_program_is_reduced_for_a_pass().map(|()| Completion::Completed);
    let reduced = Trial::new("passes::a_program_is_reduced_for_a_pass", reduced);
    FAULTS.iter().map(trial).chain([reduced]).collect()
}

/// Prints the number of faults that were found.
pub fn report() {
    let (found, tried) = (FOUND.load(Relaxed), TRIED.load(Relaxed));
    if tried > 0 {
        println!("planted faults of passes: {found} of {tried} found");
    }
}

fn is_named(planted: &Planted) -> Result<()> {
    let Planted { what, fault } = planted;
    TRIED.fetch_add(1, Relaxed);
    let start = Instant::now();
    let session = Session::Interpret(Stage::Passes(Some(*fault)));
    let named =
        ["pass {} changes results", "pass `{}` made an invalid module"].map(|text| text.replace("{}", fault.pass));
    let is_found = |seed: &u64| {
        let problem = random::problem(session, *seed);
        problem.is_some_and(|problem| named.iter().any(|named| problem.contains(named)))
    };
    let seed = (1..=PROGRAMS).take_while(|_| start.elapsed() < TIME_LIMIT).find(is_found);
    let seconds = start.elapsed().as_secs_f64();
    let seed = seed.ok_or_else(|| anyhow!("{}: {what}: not found in {seconds:.1} s", fault.pass))?;
    println!("{}: {what}: found by program {seed} in {seconds:.1} s", fault.pass);
    FOUND.fetch_add(1, Relaxed);
    Ok(())
}

fn a_program_is_reduced_for_a_pass() -> Result<()> {
    let swapped = Fault { pass: "canonicalize", plant: |_, after| swap(after, Opcode::SubI, all) };
    let (whole, core) = random::reduced_size(Session::Interpret(Stage::Passes(Some(swapped))), PROGRAMS)?;
    println!("a program of {whole} steps is reduced to {core}");
    ensure!(core < whole && core <= 12, "{whole} steps are reduced to {core}");
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
