//! Positive extents: the launch checks that extents on which divisors depend are not 0, so that
//! these divisions need no case for 0.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::arithmetic::by_zero;
use super::index::through_assumes;
use crate::backend::tileir::grid;
use crate::backend::tileir::launch_compare::{Bound, Limit};
use crate::ir::{Attr, Entry, Module, OpId, Opcode, Predicate, Value};
use crate::pass::IntRanges;
use crate::util::sort;

/// Assumes that extents are positive if this excludes a divisor of 0. Returns the conditions for
/// the launch, and new ranges with them.
pub(super) fn assume(module: &mut Module, entry: &Entry, facts: &IntRanges) -> Option<(Vec<Limit>, IntRanges)> {
    let divisions = by_zero(module, entry, facts);
    if divisions.is_empty() {
        return None;
    }
    let divisors = divisions.iter().map(|&id| module.op(id).operands[1]).collect_vec();
    let extents = extents_of(module, entry, divisors);
    let params = module.block(entry.body).args.clone();
    let mut limits = Vec::new();
    for &(bound, param) in &extents {
        set_lower_bound(module, bound, 1);
        let position = params.iter().position(|&other| other == param).expect("a parameter");
        limits.push(Limit { index: Bound::Constant(1), count: Bound::Param(position as u32) });
    }
    let positive = grid::facts(module, entry);
    if by_zero(module, entry, &positive).len() < divisions.len() {
        return Some((limits, positive));
    }
    extents.into_iter().for_each(|(bound, _)| set_lower_bound(module, bound, 0));
    None
}

/// Returns the extents on which values depend: the op that states that one is not negative, and its
/// parameter.
fn extents_of(module: &Module, entry: &Entry, values: Vec<Value>) -> Vec<(OpId, Value)> {
    let params = &module.block(entry.body).args;
    let (mut seen, mut open) = (FxHashSet::default(), values);
    let mut found = Vec::new();
    while let Some(value) = open.pop() {
        let Some(id) = module.defining_op(value).filter(|_| seen.insert(value)) else { continue };
        let op = module.op(id);
        open.extend(&op.operands);
        let is_nonnegative = op.attrs.contains(&Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None }));
        let param = through_assumes(module, value);
        if op.code == Opcode::Assume && is_nonnegative && params.contains(&param) {
            found.push((id, param));
        }
    }
    let extents = extents(module, entry);
    found.retain(|(_, param)| extents.contains(param));
    sort::natural(&mut found);
    found
}

/// Returns the parameters that are extents of arrays.
fn extents(module: &Module, entry: &Entry) -> FxHashSet<Value> {
    let mut extents = FxHashSet::default();
    module.walk(entry.body, &mut |id| {
        let op = module.op(id);
        if op.code == Opcode::MakeTensorView {
            extents.extend(op.operand_group("dynamic_shape").iter().map(|&extent| through_assumes(module, extent)));
        }
    });
    extents
}

fn set_lower_bound(module: &mut Module, assume: OpId, lower: i64) {
    module.op_mut(assume).set_attr(Attr::Predicate(Predicate::Bounded { lower: Some(lower), upper: None }));
}
