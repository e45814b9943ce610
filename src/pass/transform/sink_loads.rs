//! Sinking of loads below loops with MMAs (LLVM `Sink`): a tile that only the ops after a loop use
//! is loaded after it.
//!
//! An example is the residual of a product that is loaded before the loop. In the loop, its
//! registers are those of accumulators. Not part of the pipeline: the PTX back end calls it, since
//! it alone allocates registers.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Module, OpId, Opcode, Uses, Value};

/// Returns the module with loads after loops, or `None` if none moves.
pub fn sink_loads(module: &Module) -> Option<Module> {
    let entry = module.entries.first()?;
    let uses = Uses::new(module, entry.body);
    let mut blocks = vec![entry.body];
    module.walk(entry.body, &mut |id| blocks.extend(&module.op(id).regions));
    let mut changed: Option<Module> = None;
    for block in blocks {
        if let Some(ops) = sunk(module, &uses, block) {
            changed.get_or_insert_with(|| module.clone()).block_mut(block).ops = ops;
        }
    }
    changed
}

/// Returns the ops of a block in their new order, or `None` if it has no loop with MMAs or if no op
/// moves.
fn sunk(module: &Module, uses: &Uses, block: BlockId) -> Option<Vec<OpId>> {
    let ops = &module.block(block).ops;
    let is_mma_loop = |&id: &OpId| {
        let mut has_mma = false;
        let mut writes = false;
        module.walk(module.op(id).regions[0], &mut |inner| {
            has_mma |= module.op(inner).code.is_mma();
            writes |= matches!(module.op(inner).code.spec().effect, Effect::Write | Effect::ReadWrite | Effect::Other);
        });
        has_mma && !writes
    };
    let loop_at = ops.iter().rposition(|id| module.op(*id).code == Opcode::For && is_mma_loop(id))?;
    // The ops whose results no op up to the loop uses, from the last one on.
    let mut moved: FxHashSet<OpId> = FxHashSet::default();
    let after: FxHashSet<OpId> = ops[loop_at + 1..].iter().copied().collect();
    for &id in ops[..loop_at].iter().rev() {
        let op = module.op(id);
        let effect = op.code.spec().effect;
        if !matches!(effect, Effect::Pure | Effect::Read) {
            break;
        }
        let is_tile = op.results.first().is_some_and(|&result| is_tile(module, result));
        let can_move = is_tile && (op.is_weak_load() || effect == Effect::Pure && op.regions.is_empty());
        let is_used = op.results.iter().any(|&result| uses.count(result) > 0);
        let is_used_after = op
            .results
            .iter()
            .all(|&result| uses.users(result).iter().all(|(user, _)| after.contains(user) || moved.contains(user)));
        if can_move && is_used && is_used_after {
            moved.insert(id);
        }
    }
    if !moved.iter().any(|&id| module.op(id).is_weak_load()) {
        return None;
    }
    let (before, rest) = ops.split_at(loop_at);
    let stays = before.iter().filter(|id| !moved.contains(id)).chain(&rest[..1]);
    Some(stays.chain(before.iter().filter(|id| moved.contains(id))).chain(&rest[1..]).copied().collect_vec())
}

/// Returns true for a value with several elements.
fn is_tile(module: &Module, value: Value) -> bool {
    module.ty(value).as_tile().is_some_and(|(_, shape)| shape.iter().product::<i64>() > 1)
}
