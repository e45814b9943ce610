//! Ping-pong: two consumer groups alternate the iterations of a persistent loop.
//!
//! The tensor cores of a persistent kernel are idle while it stores a tile. So two groups execute
//! the program, each every second iteration of one outermost loop: one group stores its tile while
//! the other one multiplies (CUTLASS ping-pong kernels). One producer loads for both, in the order
//! of the iterations. A group skips the stages of the other group. Side effects of an iteration
//! follow those of all earlier iterations.
//!
//! Data: `PingPong`, `OrderPoint::PINGPONG`. `build` inserts the order steps, and
//! `lower/async_ops/pingpong` and `lower/state/order_barrier` emit them. The verifier is
//! `verify/pingpong`; the cost model has `section` and `order_wait` (`cost/warp_walk`).

use crate::backend::ptx::hardware::WARP_GROUP_WARPS;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::pipelines::{PingPong, StagesPerIteration, WarpSpecialization};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, Def, OpId, Opcode, Type, Value, hint_key};
use crate::util::sort;

/// Minimum number of accumulator registers for which ping-pong is profitable.
const MIN_ACCUMULATOR_REGISTERS: u32 = 64;

impl KernelInfo<'_> {
    /// Returns the ping-pong of the kernel, if it is possible and profitable.
    pub fn plan_pingpong(&self, body: BlockId, warp_spec: &WarpSpecialization) -> Option<PingPong> {
        let shares_sm = self.data_partitions > 1 || self.options.occupancy.is_some_and(|blocks| blocks > 1);
        if shares_sm || !self.can_pingpong() || !self.is_enabled(Optimization::Pingpong) {
            return None;
        }
        let pingpong = self.possible_pingpong(body, warp_spec)?;
        if let Some(requested) = self.bool_hint(pingpong.loop_op, hint_key::PINGPONG) {
            return requested.then_some(pingpong);
        }
        let mmas = self.inference.mma_plans.keys();
        let most = mmas.map(|&id| self.accumulator_registers(id)).max().unwrap_or(0);
        if !self.options.pingpong || most < MIN_ACCUMULATOR_REGISTERS {
            return None;
        }
        // If a loop has other work than MMAs, groups without ping-pong overlap that work with the
        // MMAs of each other.
        let mut loops = pingpong.stages_per_iteration.iter().flat_map(|stage_counts| &stage_counts.per_trip_of);
        loops.all(|&id| self.has_only_mmas(id, warp_spec)).then_some(pingpong)
    }

    /// Returns true if the layouts have the warps of a ping-pong group.
    pub fn can_pingpong(&self) -> bool {
        self.inference.num_warps == WARP_GROUP_WARPS as usize
    }

    /// Returns true if a loop only loads and multiplies tiles.
    fn has_only_mmas(&self, id: OpId, warp_spec: &WarpSpecialization) -> bool {
        let module = self.module;
        module.op(id).regions.iter().flat_map(|&region| &module.block(region).ops).all(|&inner| {
            let op = module.op(inner);
            let is_tile = |&value: &Value| matches!(module.ty(value), Type::Tile { .. } if self.inference.num_elements(value) > 1);
            match op.code {
                Opcode::Constant => true,
                Opcode::Cat => {
                    let load = self.source_load(op.results[0]);
                    load.is_some_and(|load| warp_spec.operand_channel(load).is_some())
                }
                code if code.is_mma() || code.spec().effect == Effect::Terminator => true,
                _ => warp_spec.operand_channel(inner).is_some() || self.is_operand_view(inner) || !op.results.iter().any(is_tile),
            }
        })
    }

    /// Returns the ping-pong over the only loop of the entry, if the loop carries no values and all
    /// iterations use equally many stages.
    pub fn possible_pingpong(&self, body: BlockId, warp_spec: &WarpSpecialization) -> Option<PingPong> {
        let module = self.module;
        let entry = &module.block(body).ops;
        let mut with_regions = entry.iter().copied().filter(|&id| !module.op(id).regions.is_empty());
        let loop_op = with_regions.next().filter(|&id| module.op(id).code == Opcode::For)?;
        let waits = |id: OpId| module.op(id).code == Opcode::GdcWait;
        let is_only = with_regions.next().is_none()
            && entry.iter().all(|&id| id == loop_op || waits(id) || !self.has_side_effect(id))
            && self.regions.ops().iter().all(|&id| module.op(id).code != Opcode::Alloca);
        let inside = module.op(loop_op).regions[0];
        let carries = module.block(inside).args[1..].iter().any(|&arg| !matches!(module.ty(arg), Type::Token));
        if !is_only
            || carries
            || self.regions.has_multiple_latches(loop_op)
            || module.block(inside).ops.iter().any(|&id| self.mixes_loads_and_side_effects(id, warp_spec))
        {
            return None;
        }
        let mut stage_counts = vec![StagesPerIteration::default(); warp_spec.pipelines.len()];
        for channel in &warp_spec.channels {
            let stage_counts = &mut stage_counts[channel.pipeline];
            match module.block(channel.block).parent {
                Some(owner) if owner == loop_op => stage_counts.direct += 1,
                Some(owner)
                    if self.regions.block_of(owner) == Some(inside) && self.has_invariant_trip_count(body, owner) =>
                {
                    stage_counts.per_trip_of.push(owner);
                }
                _ => return None,
            }
        }
        stage_counts.iter_mut().for_each(|stage_counts| sort::natural(&mut stage_counts.per_trip_of));
        Some(PingPong { loop_op, stages_per_iteration: stage_counts })
    }

    /// Returns true if the execution of the op is visible to other threads or CTAs.
    fn has_side_effect(&self, id: OpId) -> bool {
        let code = self.module.op(id).code;
        match code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => false,
            _ => !(code == Opcode::LoadView && self.is_invariant_load(id)),
        }
    }

    /// Returns true if the op or an op of its regions has a side effect.
    pub fn contains_side_effect(&self, id: OpId) -> bool {
        self.regions.with_nested(id).iter().any(|&inner| self.has_side_effect(inner))
    }

    /// Returns true if the regions of an op have both side effects and uses of the producer's
    /// tiles. Ordered sections would be long then.
    fn mixes_loads_and_side_effects(&self, id: OpId, warp_spec: &WarpSpecialization) -> bool {
        let owns =
            |block: BlockId| self.regions.parent(block).is_some_and(|op| self.regions.with_nested(id).contains(&op));
        warp_spec.channels.iter().any(|channel| owns(channel.block)) && self.contains_side_effect(id)
    }

    /// Returns true if the trip count of a loop is invariant: its bounds are defined outside of all
    /// loops.
    fn has_invariant_trip_count(&self, body: BlockId, id: OpId) -> bool {
        let op = self.module.op(id);
        let from_entry = |value: Value| match self.module.def(value) {
            Def::Arg(block, _) => block == body,
            Def::Result(id, _) => self.regions.block_of(id) == Some(body),
        };
        op.code == Opcode::For && (0..3).all(|group| from_entry(op.group(group)[0]))
    }
}
