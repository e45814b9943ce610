//! What runs: a schedule with what it is of, and one launch.

use std::collections::HashMap;

use super::error::{Fault, broken};
use super::warp::warp_groups;
use crate::backend::ParamWord;
use crate::backend::cpu::{Memory, Program};
use crate::backend::ptx::Scheduled;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole, WarpSpecialization};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module, OpId, Value};

/// What an op is to accesses that others have begun.
#[derive(Clone)]
pub enum OrderingEffect {
    Nothing,
    /// Accesses that this one conflicts with.
    Access(MemoryEffect),
    All,
}

/// A schedule and one launch of it.
pub struct Kernel<'a> {
    pub info: &'a KernelInfo<'a>,
    pub module: &'a Module,
    pub body: BlockId,
    pub schedule: &'a Schedule,
    pub program: &'a Program,
    pub memory: &'a Memory,
    pub grid: [u32; 3],
    pub params: &'a [ParamWord],
    ordering_effect: HashMap<OpId, OrderingEffect>,
    /// Groups of warps that multiply and go through their program for themselves, if each has a part of a tile.
    pub groups: usize,
}

impl<'a> Kernel<'a> {
    pub fn new(
        scheduled: &'a Scheduled<'a>,
        program: &'a Program,
        memory: &'a Memory,
        grid: [u32; 3],
        params: &'a [ParamWord],
    ) -> Kernel<'a> {
        let info = scheduled.context;
        let mut meets = HashMap::new();
        info.module.walk(scheduled.body, &mut |id| drop(meets.insert(id, ordering_effect_of(info, id))));
        let Scheduled { body, schedule, .. } = *scheduled;
        let groups = warp_groups::count(info, body, schedule);
        Kernel {
            info,
            module: info.module,
            body,
            schedule,
            program,
            memory,
            grid,
            params,
            ordering_effect: meets,
            groups,
        }
    }

    /// Partitions that run the program of the consumers: ping-pong groups, data partitions, or groups that have a tile together.
    pub fn consumer_groups(&self) -> usize {
        self.warp_spec().map_or(1, WarpSpecialization::consumer_groups) as usize * self.groups
    }

    /// Those of them that each use all stages, and have turns one after another.
    pub fn sharing_groups(&self) -> usize {
        self.info.data_partitions as usize * self.groups
    }

    pub fn warp_spec(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    /// The channel of a producer load.
    pub fn channel_of(&self, load: OpId) -> Option<u32> {
        self.warp_spec().and_then(|warp_spec| warp_spec.operand_channel(load))
    }

    /// What an op is to accesses that were begun before.
    pub fn ordering_effect(&self, id: OpId) -> &OrderingEffect {
        self.ordering_effect.get(&id).unwrap_or(&OrderingEffect::All)
    }

    /// May the partition find nothing in this value where a loop or branch passes it on?
    pub fn may_lack(&self, role: WarpRole, value: Value) -> bool {
        role == WarpRole::Producer
            && self.warp_spec().is_some_and(|warp_spec| !warp_spec.producer_live.contains(&value))
    }

    /// The channel with this number.
    ///
    /// # Errors
    /// There is none.
    pub fn channel(&self, number: u32) -> Result<&'a crate::backend::ptx::schedule::Channel, Fault> {
        let channel = self.warp_spec().and_then(|warp_spec| warp_spec.channels.get(number as usize));
        channel.ok_or_else(|| broken(format!("there is no channel {number}")))
    }
}

fn ordering_effect_of(info: &KernelInfo<'_>, id: OpId) -> OrderingEffect {
    let op = info.module.op(id);
    let weak = matches!(op.attr(AttrKind::MemOrder), None | Some(Attr::MemOrder(MemOrder::Weak)));
    match info.memory_effect_of(id) {
        _ if op.code.spec().effect == Effect::Pure => OrderingEffect::Nothing,
        Some(effect) if weak => OrderingEffect::Access(effect),
        _ => OrderingEffect::All,
    }
}
