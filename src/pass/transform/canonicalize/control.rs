//! Analyses and replacements of branches and loops whose control operands are constant.
//!
//! Functions without recursion: [`super`] simplifies the regions.

use super::int;
use super::rules::splat;
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, Module, Op, OpId, Opcode, Substitution, Value};
use crate::util::collect::CollectVec as _;

/// Collects the ops that end an iteration of this loop, also in branches of its body.
pub(crate) fn collect_continues(module: &Module, body: BlockId, out: &mut Vec<OpId>) {
    for &id in &module.block(body).ops {
        let op = module.op(id);
        match op.code {
            Opcode::Continue => out.push(id),
            // Other regions have their own terminators.
            Opcode::If => op.regions.iter().for_each(|&region| collect_continues(module, region, out)),
            _ => {}
        }
    }
}

/// Trip count of a loop with constant bounds, as far as the rules need it.
pub(super) enum Trips {
    None,
    One,
    Unknown,
}

/// Returns the results of a loop that is left in its first iteration before any effect.
pub(super) fn first_iteration_exit(module: &Module, replaced: &Substitution, op: &Op) -> Option<Vec<Value>> {
    let args = &module.block(op.regions[0]).args;
    let initial = |value: Value| {
        let value = args.iter().position(|&arg| arg == value).map_or(value, |place| op.operands[place]);
        replaced.resolve(value)
    };
    let mut decided = Vec::new();
    for &id in &module.block(op.regions[0]).ops {
        let inner = module.op(id);
        match inner.code {
            Opcode::Constant => {}
            Opcode::CmpI => {
                let [a, b] = [inner.operands[0], inner.operands[1]].map(initial);
                let bits = int::binary(inner, module.dtype(a), splat(module, a)?, splat(module, b)?)?;
                decided.push((inner.results[0], bits));
            }
            Opcode::If => {
                let (_, bits) = *decided.iter().find(|(value, _)| *value == inner.operands[0])?;
                let taken = &module.block(inner.regions[usize::from(bits & 1 == 0)]).ops;
                let first = taken.first().map(|&first| module.op(first));
                match first.map(|first| first.code) {
                    None | Some(Opcode::Yield) if inner.results.is_empty() => {}
                    Some(Opcode::Break) => {
                        let given: Vec<Value> = first?.operands.iter().map(|&value| initial(value)).collect_vec();
                        return Some(given).filter(|given| are_defined_outside(module, op, given));
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    None
}

/// Returns true if none of these values is defined in the body of the loop.
fn are_defined_outside(module: &Module, op: &Op, values: &[Value]) -> bool {
    let ops = &module.block(op.regions[0]).ops;
    values.iter().all(|&value| module.defining_op(value).is_none_or(|id| !ops.contains(&id)))
}

/// Returns true if each iteration ends at the end of the body.
pub(super) fn has_single_exit(module: &Module, body: BlockId) -> bool {
    let mut ends = Vec::new();
    collect_continues(module, body, &mut ends);
    ends.len() == 1 && module.block(body).ops.last() == ends.first()
}

/// Replaces carried values that no iteration changes by their initial values.
pub(super) fn replace_invariant(
    module: &Module,
    replaced: &mut Substitution,
    body: BlockId,
    [args, init, results]: [&[Value]; 3],
) {
    let mut ends = Vec::new();
    collect_continues(module, body, &mut ends);
    for (i, (&arg, &start)) in args.iter().zip(init).enumerate() {
        let same = ends.iter().all(|&end| {
            let next = replaced.resolve(module.op(end).operands[i]);
            next == arg || next == start
        });
        if same {
            replaced.replace(arg, start);
            if let Some(&result) = results.get(i) {
                replaced.replace(result, start);
            }
        }
    }
}

/// Replaces results for which both branches yield the same value.
pub(super) fn replace_equal_yields(module: &Module, replaced: &mut Substitution, op: &Op) {
    let ends: Vec<&Op> = op
        .regions
        .iter()
        .filter_map(|&region| module.block(region).ops.last().map(|&last| module.op(last)))
        .filter(|last| last.code == Opcode::Yield)
        .collect_vec();
    let mut same = Vec::new();
    if let [then, otherwise] = ends.as_slice() {
        for (i, &result) in op.results.iter().enumerate() {
            if then.operands[i] == otherwise.operands[i] {
                same.push((result, then.operands[i]));
            }
        }
    }
    same.into_iter().for_each(|(old, new)| replaced.replace(old, new));
}

/// Returns the trip count of a `for`.
pub(super) fn trips(module: &Module, op: &Op) -> Trips {
    let dtype: DType = module.dtype(op.operands[0]);
    let unused = 64 - dtype.bits();
    let read = |value: Value| {
        let bits = splat(module, value)? << unused;
        let unsigned = op.flag(Flag::UnsignedCmp);
        Some(if unsigned { i128::from(bits >> unused) } else { i128::from(bits as i64 >> unused) })
    };
    let (Some(lower), Some(upper)) = (read(op.operands[0]), read(op.operands[1])) else {
        return Trips::Unknown;
    };
    match read(op.operands[2]) {
        // The step must be positive; otherwise the loop is invalid.
        Some(step) if step <= 0 => Trips::Unknown,
        _ if lower >= upper => Trips::None,
        Some(step) if lower + step >= upper => Trips::One,
        _ => Trips::Unknown,
    }
}
