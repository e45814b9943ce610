//! Ping-pong: two consumer groups alternate the iterations of a persistent loop.
//!
//! A tile block that makes one tile after another has tensor cores idle while it stores one. So there are two *teams* of the
//! warps that layouts speak of, each of which runs the whole program, but of one outermost loop only every second iteration:
//! while one team stores its tile, the other one multiplies. One producer serves both: it goes through all iterations in
//! order, so that a team finds the stages of its iterations behind those of the other one's, which it skips. (CUTLASS calls
//! that ping-pong.) What an iteration does that others could notice it does in its *turn*: behind all that the iterations
//! before have done.

use crate::backend::ptx::hardware::WARP_GROUP_WARPS;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{PingPong, StageCount, WarpSpecialization};
use crate::ir::table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value};

/// Registers of an accumulator from which on a team has enough to do.
const LEAST_ACCUMULATORS: u32 = 64;

impl KernelInfo<'_> {
    /// How iterations may be dealt to teams, if they may be and should.
    pub fn deal(&self, body: BlockId, roles: &WarpSpecialization) -> Option<PingPong> {
        let crowded = self.bands > 1 || self.options.occupancy.is_some_and(|blocks| blocks > 1);
        if crowded || !self.can_pingpong() {
            return None;
        }
        let deal = self.possible_pingpong(body, roles)?;
        if let Some(teams) = self.hinted_number(deal.loop_op, "teams") {
            return (teams > 1).then_some(deal);
        }
        let products = self.inference.products.keys();
        let most = products.map(|&id| self.accumulators(id)).max().unwrap_or(0);
        if !self.options.pingpong || most < LEAST_ACCUMULATORS {
            return None;
        }
        // Where there is more to do between products than to multiply, teams would better do it beside each other's products.
        let mut loops = deal.stages_per_iteration.iter().flat_map(|takes| &takes.per_iteration_of);
        loops.all(|&id| self.only_multiplies(id, roles)).then_some(deal)
    }

    /// Are there as many warps as a team has?
    pub fn can_pingpong(&self) -> bool {
        self.inference.num_warps == WARP_GROUP_WARPS as usize
    }

    /// Does a loop do nothing with tiles but load and multiply them?
    fn only_multiplies(&self, id: OpId, roles: &WarpSpecialization) -> bool {
        let module = self.module;
        module.op(id).regions.iter().flat_map(|&region| &module.block(region).ops).all(|&inner| {
            let op = module.op(inner);
            let is_tile = |&value: &Value| matches!(module.ty(value), Type::Tile { .. } if self.inference.num_elements(value) > 1);
            match op.code {
                Opcode::MmaF | Opcode::MmaI | Opcode::Constant => true,
                code if code.spec().effect == Effect::Terminator => true,
                _ => roles.operand_channel.contains_key(&inner) || self.is_operand_view(inner) || !op.results.iter().any(is_tile),
            }
        })
    }

    /// How iterations may be dealt to teams: those of the one loop that stands in the entry, if nothing is carried from one
    /// to the next and each takes as many stages.
    pub fn possible_pingpong(&self, body: BlockId, roles: &WarpSpecialization) -> Option<PingPong> {
        let module = self.module;
        let entry = &module.block(body).ops;
        let mut with_regions = entry.iter().copied().filter(|&id| !module.op(id).regions.is_empty());
        let around = with_regions.next().filter(|&id| module.op(id).code == Opcode::For)?;
        let waits = |id: OpId| module.op(id).code == Opcode::GdcWait;
        let mut alone =
            with_regions.next().is_none() && entry.iter().all(|&id| id == around || waits(id) || !self.is_noticed(id));
        module.walk(body, &mut |id| alone &= module.op(id).code != Opcode::Alloca);
        let inside = module.op(around).regions[0];
        let carries = module.block(inside).args[1..].iter().any(|&arg| !matches!(module.ty(arg), Type::Token));
        if !alone || carries || module.block(inside).ops.iter().any(|&id| self.mixes(id, roles)) {
            return None;
        }
        let mut takes = vec![StageCount::default(); roles.pipelines.len()];
        for channel in &roles.channels {
            let takes = &mut takes[channel.pipeline];
            match module.block(channel.block).parent {
                Some(owner) if owner == around => takes.fixed += 1,
                Some(owner) if self.op_blocks[owner.index()] == Some(inside) && self.is_even(body, owner) => {
                    takes.per_iteration_of.push(owner);
                }
                _ => return None,
            }
        }
        takes.iter_mut().for_each(|takes| takes.per_iteration_of.sort_unstable());
        Some(PingPong { loop_op: around, stages_per_iteration: takes })
    }

    /// Could others notice when this op is done?
    fn is_noticed(&self, id: OpId) -> bool {
        let code = self.module.op(id).code;
        match code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => false,
            _ => !(code == Opcode::LoadView && self.is_invariant_load(id)),
        }
    }

    /// Could others notice when something in this op is done?
    pub fn has_noticed(&self, id: OpId) -> bool {
        let mut noticed = self.is_noticed(id);
        for &region in &self.module.op(id).regions {
            self.module.walk(region, &mut |inner| noticed |= self.is_noticed(inner));
        }
        noticed
    }

    /// Does an op have in its regions both what others could notice and what streamed tiles are for? Then turns would be long.
    fn mixes(&self, id: OpId, roles: &WarpSpecialization) -> bool {
        let (mut takes, mut regions) = (false, self.module.op(id).regions.clone());
        while let Some(region) = regions.pop() {
            takes |= roles.channels.iter().any(|channel| channel.block == region);
            regions.extend(self.module.block(region).ops.iter().flat_map(|&inner| &self.module.op(inner).regions));
        }
        takes && self.has_noticed(id)
    }

    /// Does a loop go round equally often whenever it is come to? Its bounds come from outside of all loops.
    fn is_even(&self, body: BlockId, id: OpId) -> bool {
        let op = self.module.op(id);
        let from_entry = |value: Value| match self.module.def(value) {
            Def::Arg(block, _) => block == body,
            Def::Result(id, _) => self.op_blocks[id.index()] == Some(body),
        };
        op.code == Opcode::For && (0..3).all(|group| from_entry(op.group(group)[0]))
    }
}
