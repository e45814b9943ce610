//! Versions of loops: a loop whose accesses have guards that do not change in it runs without them
//! if all are true, and with them otherwise.
//!
//! Example: attention whose tiles are listed in a table. Its loop over keys has guards of batch and
//! head, which the launch cannot check.

use super::super::index::{Open, inside_condition};
use super::super::rewrite::rewrite_blocks;
use super::split::defined_inside;
use crate::dtype::DType;
use crate::ir::{Entry, Module, OpId, Opcode, Substitution, Type, Value};
use crate::util::collect::CollectVec as _;

/// Creates a version without guards of each loop with products whose open accesses have fixed
/// guards. The guarded version keeps its accesses in `open`.
pub(in super::super) fn run(module: &mut Module, entry: &Entry, open: &Open) {
    let mut values = Substitution::new();
    rewrite_blocks(module, entry.body, &mut |module, id, out| match guarded(module, id, open) {
        Some(accesses) => version(module, id, &accesses, open, out, &mut values),
        None => out.push(id),
    });
    values.apply(module, entry.body);
}

/// Returns the open accesses of a loop if there are any and the guards of all are fixed.
fn guarded(module: &Module, id: OpId, open: &Open) -> Option<Vec<OpId>> {
    let op = module.op(id);
    let body = *op.regions.first().filter(|_| op.code == Opcode::For)?;
    if !module.block(body).ops.iter().any(|&inner| module.op(inner).code.is_mma()) {
        return None;
    }
    let inside = defined_inside(module, body);
    let mut accesses = Vec::new();
    module.walk(body, &mut |inner| accesses.extend(open.contains_key(&inner).then_some(inner)));
    let is_fixed = |&access: &OpId| {
        let op = module.op(access);
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
        !inside.contains(&view) && open[&access].iter().all(|&dim| !inside.contains(&index[dim]))
    };
    (!accesses.is_empty() && accesses.iter().all(is_fixed)).then_some(accesses)
}

fn version(
    module: &mut Module,
    id: OpId,
    accesses: &[OpId],
    open: &Open,
    out: &mut Vec<OpId>,
    values: &mut Substitution,
) {
    let (op, loc) = (module.op(id).clone(), module.op(id).loc);
    let truth = module.intern(Type::scalar(DType::I1));
    let mut condition: Option<Value> = None;
    for &access in accesses {
        let one = inside_condition(module, access, &open[&access], loc, out);
        condition = Some(match condition {
            None => one,
            Some(before) => {
                let both = module.add_op(Opcode::AndI, &[&[before], &[one]], vec![], vec![], &[truth], loc);
                out.push(both);
                module.op(both).results[0]
            }
        });
    }
    let condition = condition.expect("an access");
    let types: Vec<_> = op.results.iter().map(|&value| module.ty_id(value)).collect_vec();
    let free = module.clone_op(id, &mut Substitution::new());
    module.renew_results(id);
    let regions = [free, id].map(|version| {
        let region = module.add_block(&[]);
        let results = module.op(version).results.clone();
        let yielded = module.add_op(Opcode::Yield, &[&results], vec![], vec![], &[], loc);
        module.block_mut(region).ops = vec![version, yielded];
        region
    });
    let branch = module.add_op(Opcode::If, &[&[condition]], vec![], regions.to_vec(), &types, loc);
    out.push(branch);
    let chosen = module.op(branch).results.clone();
    op.results.iter().zip(chosen).for_each(|(&old, new)| values.replace(old, new));
}
