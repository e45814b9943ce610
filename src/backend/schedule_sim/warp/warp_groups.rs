//! Consumer groups: groups of warps that execute the consumer program separately.
//!
//! A group of four warps has its own MMAs and releases its own stages, so that one group can be
//! several steps before another between barriers. Each group is simulated as a partition that
//! computes whole tiles, because values have no threads. It releases its own stages. Order barriers
//! are those of the schedule, and each group waits for the others at a barrier. Only the first
//! group executes ops with side effects, i.e. stores and messages.
//!
//! If one op of a kernel may read elements that another op writes, separate groups would read at
//! other times than the threads. The groups of such a kernel are simulated as one.

use crate::backend::ptx::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Op, OpId, Opcode};

/// Returns the number of groups that are simulated separately: 1 if they are simulated as one.
pub fn count(info: &KernelInfo<'_>, body: BlockId, schedule: &Schedule) -> usize {
    let Some(partition) = schedule.partition(WarpRole::Consumer) else { return 1 };
    let is_single_group = schedule.warp_spec.as_ref().is_none_or(|warp_spec| warp_spec.consumer_groups() == 1);
    let cp_async = schedule.loops(WarpRole::Consumer).into_iter().any(|plan| plan.cp_async.is_some());
    let warps = partition.warps.len() as u32;
    match is_single_group
        && !cp_async
        && warps.is_multiple_of(WARP_GROUP_WARPS)
        && Accesses::new(info, body).is_race_free()
    {
        true => (warps / WARP_GROUP_WARPS).max(1) as usize,
        false => 1,
    }
}

/// Returns true if the op has side effects, so that only the first group executes it.
pub fn has_side_effect(op: &Op) -> bool {
    matches!(op.code.spec().effect, Effect::Write | Effect::ReadWrite | Effect::Other)
}

/// Accesses of a kernel to arrays.
#[derive(Default)]
struct Accesses {
    reads: Vec<Option<MemoryEffect>>,
    writes: Vec<Option<MemoryEffect>>,
    /// An op has different results in different groups, or orders accesses of other CTAs.
    is_bound: bool,
}

impl Accesses {
    fn new(info: &KernelInfo<'_>, body: BlockId) -> Accesses {
        let mut all = Accesses::default();
        info.module.walk(body, &mut |id| all.add(info, id));
        all
    }

    fn add(&mut self, info: &KernelInfo<'_>, id: OpId) {
        let op = info.module.op(id);
        let order = op.attr(AttrKind::MemOrder);
        self.is_bound |= !matches!(order, None | Some(Attr::MemOrder(MemOrder::Weak | MemOrder::Relaxed)));
        match op.code.spec().effect {
            Effect::Read => self.reads.push(info.memory_effect_of(id)),
            Effect::Write => self.writes.push(info.memory_effect_of(id)),
            Effect::ReadWrite => {
                self.is_bound |= info.is_result_used(id);
                self.writes.push(info.memory_effect_of(id));
            }
            Effect::Other => self.is_bound |= !matches!(op.code, Opcode::Print | Opcode::Assert),
            Effect::Pure | Effect::Region | Effect::Terminator => {}
        }
    }

    fn is_race_free(&self) -> bool {
        let is_disjoint = |read: &Option<MemoryEffect>, write: &Option<MemoryEffect>| matches!((read, write), (Some(read), Some(write)) if !read.may_alias_across_threads(write));
        !self.is_bound && self.reads.iter().all(|read| self.writes.iter().all(|write| is_disjoint(read, write)))
    }
}
