//! Check that results do not depend on the order in which tile blocks run.
//!
//! The order of tile blocks decides the rounding of float atomics, the values that atomic
//! operations return, and the results of clocks. Atomic integer operations without a used result
//! have the same effect in every order. A load with a memory order sees stores of tile blocks that
//! run at the same time.
//!
//! Limits: the check is of operations. Flags whose values no result depends on are refused, too.

use rustc_hash::FxHashSet;

use crate::error::Diagnostic;
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, MemOrder, MemScope, Module, Op, OpId, Opcode, RegionTree, Uses, Value};

/// Checks all atomic operations of a verified module.
///
/// # Errors
/// A diagnostic for each op whose effect or result depends on the order of tile blocks.
pub fn check(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let mut problems = Vec::new();
    for entry in &module.entries {
        let (regions, uses) = (RegionTree::new(module, entry.body), Uses::new(module, entry.body));
        let problem = |&id: &OpId| {
            let op = module.op(id);
            let reason = reason(op, op.results.first().is_some_and(|&old| is_used(module, &uses, old)))?;
            let name = op.code.spec().name;
            let message = format!("this `{name}` {reason}, and the hints of this launch are `deterministic`");
            let way_out = "store partial results, and combine them in a fixed order by another kernel";
            Some(Diagnostic::new(message, module.location(op.loc).cloned()).note(way_out))
        };
        problems.extend(regions.ops().iter().filter_map(problem));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Returns true if an op with an effect, a region or a terminator uses a value, also through pure
/// ops.
fn is_used(module: &Module, uses: &Uses, value: Value) -> bool {
    let (mut stack, mut seen) = (vec![value], FxHashSet::default());
    while let Some(value) = stack.pop() {
        for &(user, _) in uses.users(value) {
            let op = module.op(user);
            if op.code.spec().effect != Effect::Pure {
                return true;
            }
            stack.extend(op.results.iter().copied().filter(|&result| seen.insert(result)));
        }
    }
    false
}

fn reason(op: &Op, is_used: bool) -> Option<&'static str> {
    let mode = match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => Some(*mode),
        _ => None,
    };
    match (op.code, mode) {
        (Opcode::AtomicRmw | Opcode::AtomicRedView, Some(AtomicMode::AddF)) => {
            Some("adds floats in the order in which tile blocks run")
        }
        (Opcode::AtomicRmw | Opcode::AtomicRedView, Some(AtomicMode::Xchg)) | (Opcode::AtomicCas, _) => {
            Some("stores a value that the order of tile blocks decides")
        }
        (code, _) if code.is_machine_query() && is_used => Some("returns the state of the machine"),
        (Opcode::LoadPtr | Opcode::LoadView, _) if is_used && sees_other_blocks(op) => {
            Some("reads a value that another tile block may store at the same time")
        }
        (Opcode::AtomicRmw, _) if is_used => Some("returns a value that the order of tile blocks decides"),
        _ => None,
    }
}

/// Returns true for a load that is ordered with stores of other tile blocks.
fn sees_other_blocks(load: &Op) -> bool {
    let is_weak = matches!(load.attr(AttrKind::MemOrder), None | Some(Attr::MemOrder(MemOrder::Weak)));
    let is_of_block = matches!(load.attr(AttrKind::MemScope), Some(Attr::MemScope(MemScope::TileBlock)));
    !is_weak && !is_of_block
}
