//! Groups of warps of the consumer, each of which goes through the program for itself.
//!
//! A group of four warps has its MMAs and its barriers of stages for itself, so between barriers one group may be far ahead of the other one. Here
//! each is a partition of its own, that computes whole tiles (values know nothing of threads) and gives its stages back for itself; turns
//! are those of the schedule, and where threads have a barrier each group waits for the others. What others may notice, stores and messages, only the first
//! group does.
//!
//! Where one op of a kernel may read what another one of it writes, groups that are apart would read at other times than threads, which read before they write
//! themselves: there the groups go as one.

use crate::backend::ptx::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Op, OpId, Opcode};

/// Groups of a schedule that go for themselves: 1 where they go as one.
pub fn count(info: &KernelInfo<'_>, body: BlockId, schedule: &Schedule) -> usize {
    let Some(partition) = schedule.partition(WarpRole::Consumer) else { return 1 };
    let alone = schedule.warp_spec.as_ref().is_none_or(|warp_spec| warp_spec.consumer_groups() == 1);
    let cp_async = schedule.loops(WarpRole::Consumer).into_iter().any(|plan| plan.cp_async.is_some());
    let warps = partition.warps.len() as u32;
    match alone && !cp_async && warps.is_multiple_of(WARP_GROUP_WARPS) && Accesses::new(info, body).is_race_free() {
        true => (warps / WARP_GROUP_WARPS).max(1) as usize,
        false => 1,
    }
}

/// Does only the first group do this op?
pub fn has_side_effect(op: &Op) -> bool {
    matches!(op.code.spec().effect, Effect::Write | Effect::ReadWrite | Effect::Other)
}

/// Accesses of a kernel to arrays.
#[derive(Default)]
struct Accesses {
    reads: Vec<Option<MemoryEffect>>,
    writes: Vec<Option<MemoryEffect>>,
    /// There is an op whose results are not those of another group's, or that orders what others do.
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
        let apart = |read: &Option<MemoryEffect>, write: &Option<MemoryEffect>| matches!((read, write), (Some(read), Some(write)) if !read.may_alias_across_threads(write));
        !self.is_bound && self.reads.iter().all(|read| self.writes.iter().all(|write| apart(read, write)))
    }
}
