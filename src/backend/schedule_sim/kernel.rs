//! The simulated kernel: a schedule, its analyses, and one launch.

use rustc_hash::FxHashMap;

use super::error::{Fault, broken};
use super::warp::warp_groups;
use crate::backend::ParamWord;
use crate::backend::cpu::{Memory, Program};
use crate::backend::ptx::Scheduled;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole, WarpSpecialization};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module, OpId, Value};

/// Ordering of an op against earlier asynchronous accesses.
#[derive(Clone)]
pub enum OrderingEffect {
    Nothing,
    /// An access that may conflict.
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
    ordering_effect: FxHashMap<OpId, OrderingEffect>,
    /// Number of consumer groups that execute the program separately, each for a part of a tile.
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
        let mut ordering_effects = FxHashMap::default();
        info.module.walk(scheduled.body, &mut |id| drop(ordering_effects.insert(id, ordering_effect_of(info, id))));
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
            ordering_effect: ordering_effects,
            groups,
        }
    }

    /// Returns the number of consumer groups: ping-pong groups, data partitions, or warp groups of
    /// one tile.
    pub fn consumer_groups(&self) -> usize {
        self.warp_spec().map_or(1, WarpSpecialization::consumer_groups) as usize * self.groups
    }

    /// Returns the number of consumer groups that each use all stages and have an order.
    pub fn sharing_groups(&self) -> usize {
        self.info.data_partitions as usize * self.groups
    }

    pub fn warp_spec(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    /// Returns the channel of a producer load.
    pub fn channel_of(&self, load: OpId) -> Option<u32> {
        self.warp_spec().and_then(|warp_spec| warp_spec.operand_channel(load))
    }

    /// Returns the ordering of an op against earlier accesses.
    pub fn ordering_effect(&self, id: OpId) -> &OrderingEffect {
        self.ordering_effect.get(&id).unwrap_or(&OrderingEffect::All)
    }

    /// Returns true if the value may be undefined in the partition where a loop or branch passes it
    /// on.
    pub fn may_lack(&self, role: WarpRole, value: Value) -> bool {
        role == WarpRole::Producer
            && self.warp_spec().is_some_and(|warp_spec| !warp_spec.producer_live.contains(&value))
    }

    /// Returns the channel with this number.
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
