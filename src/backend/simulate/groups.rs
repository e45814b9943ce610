//! Groups of warps of the agent that multiplies, each of which goes through the program for itself.
//!
//! A group of four warps has its products and its barriers of stages for itself, so between meetings one group may be far ahead of the other one. Here
//! each is an agent of its own, that computes whole tiles (values know nothing of threads) and gives its stages back for itself; turns
//! are those of the schedule, and where threads meet each group waits for the others. What others may notice, stores and messages, only the first
//! group does.
//!
//! Where one op of a kernel may read what another one of it writes, groups that are apart would read at other times than threads, which read before they write
//! themselves: there the groups go as one.

use crate::backend::ptx::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Op, OpId, Opcode};

/// Groups of a schedule that go for themselves: 1 where they go as one.
pub fn count(context: &KernelInfo<'_>, body: BlockId, schedule: &Schedule) -> usize {
    let Some(agent) = schedule.partition(WarpRole::Consumer) else { return 1 };
    let alone = schedule.warp_spec.as_ref().is_none_or(|roles| roles.consumer_groups() == 1);
    let ahead = schedule.loops(WarpRole::Consumer).into_iter().any(|plan| plan.cp_async.is_some());
    let warps = agent.warps.len() as u32;
    match alone && !ahead && warps.is_multiple_of(WARP_GROUP_WARPS) && Accesses::of(context, body).never_meet() {
        true => (warps / WARP_GROUP_WARPS).max(1) as usize,
        false => 1,
    }
}

/// Does only the first group do this op?
pub fn is_noticed(op: &Op) -> bool {
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
    fn of(context: &KernelInfo<'_>, body: BlockId) -> Accesses {
        let mut all = Accesses::default();
        context.module.walk(body, &mut |id| all.add(context, id));
        all
    }

    fn add(&mut self, context: &KernelInfo<'_>, id: OpId) {
        let op = context.module.op(id);
        let order = op.attr(AttrKind::MemOrder);
        self.is_bound |= !matches!(order, None | Some(Attr::MemOrder(MemOrder::Weak | MemOrder::Relaxed)));
        match op.code.spec().effect {
            Effect::Read => self.reads.push(context.memory_effect_of(id)),
            Effect::Write => self.writes.push(context.memory_effect_of(id)),
            Effect::ReadWrite => {
                self.is_bound |= context.is_result_used(id);
                self.writes.push(context.memory_effect_of(id));
            }
            Effect::Other => self.is_bound |= !matches!(op.code, Opcode::Print | Opcode::Assert),
            Effect::Pure | Effect::Region | Effect::Terminator => {}
        }
    }

    fn never_meet(&self) -> bool {
        let apart = |read: &Option<MemoryEffect>, write: &Option<MemoryEffect>| matches!((read, write), (Some(read), Some(write)) if !read.may_alias_across_threads(write));
        !self.is_bound && self.reads.iter().all(|read| self.writes.iter().all(|write| apart(read, write)))
    }
}
