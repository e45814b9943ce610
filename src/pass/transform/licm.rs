//! Loop-invariant code motion: moves pure ops of a loop body whose operands are defined outside to
//! the position before the loop.
//!
//! Runs after `canonicalize`, which replaces invariant carried values by their initial values.
//! Inner loops are processed first, so that an op can leave several loops.
//!
//! A moved op executes even if the loop has no iteration. Therefore only ops that may be executed
//! speculatively are moved. Assumptions, and ops that are undefined for some operands (`extract` at
//! a run-time index), remain unless constants prove them defined.

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, Module, Op, OpId, Opcode, Overflow, Value};
use crate::util::collect::CollectVec as _;

/// Hoists invariant ops of each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    entries.into_iter().for_each(|body| block(module, body));
}

fn block(module: &mut Module, id: BlockId) {
    let ops = std::mem::take(&mut module.block_mut(id).ops);
    let mut out = Vec::with_capacity(ops.len());
    for op in ops {
        let regions = module.op(op).regions.clone();
        regions.iter().for_each(|&region| block(module, region));
        if module.op(op).code.is_loop() {
            hoist(module, regions[0], &mut out);
        }
        out.push(op);
    }
    module.block_mut(id).ops = out;
}

/// Moves invariant ops of a loop body to the end of `out`.
fn hoist(module: &mut Module, body: BlockId, out: &mut Vec<OpId>) {
    let mut inside = vec![false; module.num_values()];
    mark_defined(module, body, &mut inside);
    let ops = std::mem::take(&mut module.block_mut(body).ops);
    let mut kept = Vec::with_capacity(ops.len());
    for id in ops {
        if is_speculatable(module, module.op(id)) && is_invariant(module, id, &inside) {
            // The results are now defined outside of the loop.
            mark(module, id, &mut inside, false);
            out.push(id);
        } else {
            kept.push(id);
        }
    }
    module.block_mut(body).ops = kept;
}

fn mark_defined(module: &Module, block: BlockId, inside: &mut [bool]) {
    module.block(block).args.iter().for_each(|arg| inside[arg.index()] = true);
    for &op in &module.block(block).ops {
        mark(module, op, inside, true);
    }
}

fn mark(module: &Module, op: OpId, inside: &mut [bool], value: bool) {
    let op = module.op(op);
    op.results.iter().for_each(|result| inside[result.index()] = value);
    for &region in &op.regions {
        module.block(region).args.iter().for_each(|arg| inside[arg.index()] = value);
        module.block(region).ops.iter().for_each(|&op| mark(module, op, inside, value));
    }
}

/// Returns true if all operands, also of nested ops, are defined outside of the loop or inside of
/// the op itself.
fn is_invariant(module: &Module, id: OpId, inside: &[bool]) -> bool {
    let op = module.op(id);
    if op.operands.iter().any(|v| inside[v.index()]) {
        return false;
    }
    let mut own = vec![];
    for &region in &op.regions {
        own.push(region);
        module.walk(region, &mut |nested| own.extend(&module.op(nested).regions));
    }
    let is_own = |value: Value| match module.def(value) {
        Def::Arg(block, _) => own.contains(&block),
        Def::Result(op, _) => own.iter().any(|&block| module.block(block).ops.contains(&op)),
    };
    let mut invariant = true;
    for &region in &op.regions {
        module.walk(region, &mut |nested| {
            invariant &= module.op(nested).operands.iter().all(|&v| !inside[v.index()] || is_own(v));
        });
    }
    invariant
}

/// Returns true if the op may be executed speculatively.
fn is_speculatable(module: &Module, op: &Op) -> bool {
    match op.code.spec().effect {
        Effect::Pure => match op.code {
            Opcode::Assume => false,
            _ if op.overflow() != Overflow::None => false,
            Opcode::Extract => op.operands[1..].iter().all(|&v| is_constant(module, v)),
            Opcode::Insert => op.operands[2..].iter().all(|&v| is_constant(module, v)),
            _ => true,
        },
        Effect::Region if matches!(op.code, Opcode::Reduce | Opcode::Scan) => {
            let body = &module.block(op.regions[0]).ops;
            body.iter().all(|&id| {
                let nested = module.op(id);
                nested.code.spec().effect == Effect::Terminator || is_speculatable(module, nested)
            })
        }
        Effect::Region | Effect::Read | Effect::Write | Effect::ReadWrite | Effect::Other | Effect::Terminator => false,
    }
}

fn is_constant(module: &Module, value: Value) -> bool {
    module.defining_op(value).is_some_and(|id| module.op(id).const_data().is_some())
}
