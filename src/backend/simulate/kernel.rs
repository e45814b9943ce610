//! What runs: a schedule with what it is of, and one launch.

use std::collections::HashMap;

use super::fault::{Fault, broken};
use super::groups;
use crate::backend::ParamWord;
use crate::backend::cpu::{Memory, Program};
use crate::backend::ptx::Scheduled;
use crate::backend::ptx::schedule::{KernelInfo, MemoryEffect, Schedule, WarpRole, WarpSpecialization};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module, OpId, Value};

/// What an op is to accesses that others have begun.
#[derive(Clone)]
pub enum Meets {
    Nothing,
    /// Accesses that this one conflicts with.
    Touch(MemoryEffect),
    All,
}

/// A schedule and one launch of it.
pub struct Kernel<'a> {
    pub context: &'a KernelInfo<'a>,
    pub module: &'a Module,
    pub body: BlockId,
    pub schedule: &'a Schedule,
    pub program: &'a Program,
    pub memory: &'a Memory,
    pub grid: [u32; 3],
    pub params: &'a [ParamWord],
    meets: HashMap<OpId, Meets>,
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
        let context = scheduled.context;
        let mut meets = HashMap::new();
        context.module.walk(scheduled.body, &mut |id| drop(meets.insert(id, meets_of(context, id))));
        let Scheduled { body, schedule, .. } = *scheduled;
        let groups = groups::count(context, body, schedule);
        Kernel { context, module: context.module, body, schedule, program, memory, grid, params, meets, groups }
    }

    /// Agents that run the program of those that multiply: teams, bands of rows, or groups that have a tile together.
    pub fn crews(&self) -> usize {
        self.roles().map_or(1, WarpSpecialization::consumer_groups) as usize * self.groups
    }

    /// Those of them that each use all stages, and have turns one after another.
    pub fn sharers(&self) -> usize {
        self.context.data_partitions as usize * self.groups
    }

    pub fn roles(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    /// The channel of a streamed load.
    pub fn channel_of(&self, load: OpId) -> Option<u32> {
        self.roles().and_then(|roles| roles.operand_channel.get(&load)).map(|&channel| channel as u32)
    }

    /// What an op is to accesses that were begun before.
    pub fn meets(&self, id: OpId) -> &Meets {
        self.meets.get(&id).unwrap_or(&Meets::All)
    }

    /// May the agent find nothing in this value where a loop or branch passes it on?
    pub fn may_lack(&self, acts: WarpRole, value: Value) -> bool {
        acts == WarpRole::Producer && self.roles().is_some_and(|roles| !roles.producer_live.contains(&value))
    }

    /// The channel with this number.
    ///
    /// # Errors
    /// There is none.
    pub fn channel(&self, number: u32) -> Result<&'a crate::backend::ptx::schedule::Channel, Fault> {
        let channel = self.roles().and_then(|roles| roles.channels.get(number as usize));
        channel.ok_or_else(|| broken(format!("there is no channel {number}")))
    }
}

fn meets_of(context: &KernelInfo<'_>, id: OpId) -> Meets {
    let op = context.module.op(id);
    let weak = matches!(op.attr(AttrKind::MemOrder), None | Some(Attr::MemOrder(MemOrder::Weak)));
    match context.memory_effect_of(id) {
        _ if op.code.spec().effect == Effect::Pure => Meets::Nothing,
        Some(touch) if weak => Meets::Touch(touch),
        _ => Meets::All,
    }
}
