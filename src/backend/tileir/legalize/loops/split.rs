//! Splitting of loops over the range of a condition on their counter: `if counter < bound` in the
//! body becomes two loops without the `if`, one up to the bound and one from it.
//!
//! Example: masked attention, whose first tiles of keys need no mask. A tile that passes through an
//! `if` prevents `tileiras` from overlapping the products of a loop.

use rustc_hash::FxHashSet;

use super::super::rewrite::rewrite_blocks;
use crate::ir::{Attr, BlockId, CmpPred, ConstData, Entry, Flag, Module, OpId, Opcode, Sign, Substitution, Value};

/// Largest number of splits of an entry, each of which doubles a loop body.
const MOST: usize = 4;
/// Elements of a result of an `if` from which a loop is split.
const LARGE: i64 = 1024;

/// A condition of an `if` in a loop body.
struct Split {
    /// Position of the `if` in the body.
    position: usize,
    bound: Value,
    /// The region below the bound; the other one is for the bound and above.
    below: usize,
}

/// Splits the loops with products of an entry at conditions on their counter.
pub(in super::super) fn run(module: &mut Module, entry: &Entry) {
    for _ in 0..MOST {
        let mut values = Substitution::new();
        let mut is_done = false;
        rewrite_blocks(module, entry.body, &mut |module, id, out| match find(module, id).filter(|_| !is_done) {
            Some(found) => {
                is_done = true;
                split(module, id, &found, out, &mut values);
            }
            None => out.push(id),
        });
        if !is_done {
            return;
        }
        values.apply(module, entry.body);
    }
}

/// Returns the first condition at which a loop can be split.
fn find(module: &Module, id: OpId) -> Option<Split> {
    let op = module.op(id);
    if op.code != Opcode::For || op.flag(Flag::UnsignedCmp) || !is_one(module, op.operands[2]) {
        return None;
    }
    let body = op.regions[0];
    let ops = &module.block(body).ops;
    if !ops.iter().any(|&inner| module.op(inner).code.is_mma()) {
        return None;
    }
    let inside = defined_inside(module, body);
    ops.iter().enumerate().find_map(|(position, &inner)| {
        let branch = module.op(inner);
        let is_large = |&result: &Value| module.shape(result).iter().product::<i64>() >= LARGE;
        if branch.code != Opcode::If || !branch.results.iter().any(is_large) {
            return None;
        }
        let compare = module.op(module.defining_op(branch.operands[0])?);
        if compare.code != Opcode::CmpI || compare.sign() != Sign::Signed {
            return None;
        }
        let counter = module.block(body).args[0];
        let pred = compare.attrs.iter().find_map(|attr| match attr {
            Attr::CmpPred(pred) => Some(*pred),
            _ => None,
        })?;
        let (bound, below) = match (pred, compare.operands[0] == counter, compare.operands[1] == counter) {
            (CmpPred::Lt, true, false) => (compare.operands[1], 0),
            (CmpPred::Ge, true, false) => (compare.operands[1], 1),
            (CmpPred::Gt, false, true) => (compare.operands[0], 0),
            (CmpPred::Le, false, true) => (compare.operands[0], 1),
            _ => return None,
        };
        (!inside.contains(&bound)).then_some(Split { position, bound, below })
    })
}

fn is_one(module: &Module, value: Value) -> bool {
    let op = module.defining_op(value).map(|id| module.op(id));
    op.is_some_and(|op| op.const_data() == Some(&ConstData::Splat(1)))
}

/// Returns the values that a loop body defines.
pub(super) fn defined_inside(module: &Module, body: BlockId) -> FxHashSet<Value> {
    let mut values: FxHashSet<Value> = module.block(body).args.iter().copied().collect();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        values.extend(&op.results);
        op.regions.iter().for_each(|&region| values.extend(&module.block(region).args));
    });
    values
}

fn split(module: &mut Module, first: OpId, at: &Split, out: &mut Vec<OpId>, values: &mut Substitution) {
    let (op, loc) = (module.op(first).clone(), module.op(first).loc);
    let ty = module.ty_id(op.operands[0]);
    let mut limited = |module: &mut Module, code: Opcode, a: Value, b: Value| {
        let id = module.add_op(code, &[&[a], &[b]], vec![Attr::Sign(Sign::Signed)], vec![], &[ty], loc);
        out.push(id);
        module.op(id).results[0]
    };
    let end = limited(module, Opcode::MinI, at.bound, op.operands[1]);
    let start = limited(module, Opcode::MaxI, end, op.operands[0]);
    let second = module.clone_op(first, &mut Substitution::new());
    for (id, region) in [(first, at.below), (second, 1 - at.below)] {
        let body = module.op(id).regions[0];
        take_branch(module, body, at.position, region);
    }
    module.op_mut(first).operands[1] = end;
    let carried = module.renew_results(first);
    let operands = &mut module.op_mut(second).operands;
    operands[0] = start;
    operands[3..].copy_from_slice(&carried);
    let results = module.op(second).results.clone();
    op.results.iter().zip(results).for_each(|(&old, new)| values.replace(old, new));
    out.extend([first, second]);
}

/// Replaces an `if` of a block by the ops of one of its regions.
fn take_branch(module: &mut Module, block: BlockId, position: usize, region: usize) {
    let branch = module.op(module.block(block).ops[position]).clone();
    let mut inner = module.block(branch.regions[region]).ops.clone();
    let yielded = inner.pop().map(|id| module.op(id).operands.clone()).unwrap_or_default();
    module.block_mut(block).ops.splice(position..=position, inner);
    let mut values = Substitution::new();
    branch.results.iter().zip(yielded).for_each(|(&old, new)| values.replace(old, new));
    values.apply(module, block);
}
