//! Builds the schedule: runs the planning passes in order and emits the steps of each partition.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::KernelInfo;
use super::ir::load_path::LoadPath;
use super::ir::pipelines::WarpSpecialization;
use super::ir::program::{
    For, HoistedOperand, LayoutId, Loop, OrderPoint, Partition, Schedule, SeqId, Step, StripMine, WarpRole,
};
use super::ir::sub_step::SubStep;
use super::ir::tma_store::{TmaStore, TmaStorePlan};
use super::pipeline::hoist_operands::HoistLevel;
use crate::backend::ptx::schedule::analysis::deferred_values::is_computed_at_use;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::layout::Layout;

/// The first pass after which a schedule has all its steps and sub-steps, so that it verifies.
pub const FIRST_COMPLETE: &str = "sub_steps";

/// The uses of shared memory that a schedule may do without.
#[derive(Clone, Copy)]
struct SmemUse {
    /// The loops that operands of MMAs are hoisted out of.
    level: HoistLevel,
    /// Loops may have double buffers.
    double_buffers: bool,
}

/// State of the construction of the steps.
struct ScheduleBuilder<'a, 'm> {
    info: &'a KernelInfo<'m>,
    /// Shared memory with the reservations at this step, including the stages of multistage copies
    /// of enclosing loops.
    smem: SharedMemory,
    role: WarpRole,
    schedule: Schedule,
    /// The loops that operands of MMAs are hoisted out of.
    level: HoistLevel,
    /// The operands that enclosing loops hoist.
    hoisted_operands: Vec<HoistedOperand>,
}

impl KernelInfo<'_> {
    /// Returns the schedule of a kernel with this body. `warp_spec`: the loads of the producer, if
    /// it has any. `smem`: shared memory with all reservations for the whole kernel.
    ///
    /// The buffers fit the share of a CTA at the requested occupancy, if all of them are smaller.
    /// Otherwise they rotate through all of shared memory, which saves barriers.
    ///
    /// `on_stage` sees the schedule after each pass from `insert_sub_steps` on, when it is
    /// complete.
    pub fn schedule(
        &self,
        body: BlockId,
        warp_spec: Option<Rc<WarpSpecialization>>,
        smem: &SharedMemory,
        on_stage: &mut dyn FnMut(&'static str, &Schedule),
    ) -> Schedule {
        if self.options.occupancy.is_some_and(|blocks| blocks > 1) {
            let share = smem.limited(smem.budget() - (smem.free() - self.smem_for_stages(smem)));
            let schedule = self.schedule_within(body, warp_spec.as_ref(), &share, on_stage);
            let overflows = |step: &Step| matches!(step, Step::Sub(SubStep::SmemOverflow { .. }));
            if !schedule.sequences.iter().flatten().any(overflows) {
                return schedule;
            }
        }
        self.schedule_within(body, warp_spec.as_ref(), smem, on_stage)
    }

    /// Returns the schedule with this shared memory. Operands of MMAs are hoisted, and loops have
    /// double buffers, as far as that costs the other steps nothing.
    fn schedule_within(
        &self,
        body: BlockId,
        warp_spec: Option<&Rc<WarpSpecialization>>,
        smem: &SharedMemory,
        on_stage: &mut dyn FnMut(&'static str, &Schedule),
    ) -> Schedule {
        let never = SmemUse { level: HoistLevel::Never, double_buffers: false };
        let mut plain = None;
        for double_buffers in [true, false].into_iter().filter(|&doubled| !doubled || self.may_double_buffer()) {
            for level in [HoistLevel::Outermost, HoistLevel::Innermost, HoistLevel::Never] {
                let schedule = self.schedule_with(body, warp_spec, SmemUse { level, double_buffers }, smem, on_stage);
                let [hoists, doubles] = [schedule.hoists_operands(), schedule.has_double_buffer()];
                if !hoists && !doubles {
                    return schedule;
                }
                let plain =
                    plain.get_or_insert_with(|| self.schedule_with(body, warp_spec, never, smem, &mut |_, _| {}));
                if self.can_hoist_operands(&schedule, plain) {
                    return schedule;
                }
                if !hoists {
                    break;
                }
            }
        }
        self.schedule_with(body, warp_spec, never, smem, on_stage)
    }

    /// Returns the schedule with this use of shared memory.
    fn schedule_with(
        &self,
        body: BlockId,
        warp_spec: Option<&Rc<WarpSpecialization>>,
        SmemUse { level, double_buffers }: SmemUse,
        smem: &SharedMemory,
        on_stage: &mut dyn FnMut(&'static str, &Schedule),
    ) -> Schedule {
        let warps = self.consumer_warps();
        let partitions = match warp_spec {
            Some(_) => vec![(WarpRole::Consumer, 0..warps), (WarpRole::Producer, warps..warps + self.producer_warps())],
            None => vec![(WarpRole::All, 0..warps)],
        };
        let schedule = Schedule {
            warp_spec: warp_spec.cloned(),
            privatized: self.privatized,
            mma_partitions: self.mma_partitions(),
            double_buffers,
            ..Schedule::default()
        };
        let mut builder = ScheduleBuilder {
            info: self,
            smem: smem.clone(),
            role: WarpRole::All,
            schedule,
            level,
            hoisted_operands: Vec::new(),
        };
        for (role, warps) in partitions {
            builder.role = role;
            let body = builder.block(body);
            builder.schedule.partitions.push(Partition { role, warps, body });
        }
        let mut schedule = builder.schedule;
        self.insert_waits(&mut schedule);
        self.insert_sub_steps(&mut schedule, smem);
        on_stage(FIRST_COMPLETE, &schedule);
        self.overlap_work_with_mmas(&mut schedule);
        on_stage("mma_overlap", &schedule);
        self.insert_try_waits(&mut schedule);
        on_stage("try_wait", &schedule);
        self.order_mmas(&mut schedule);
        on_stage("mma_order", &schedule);
        schedule
    }
}

impl ScheduleBuilder<'_, '_> {
    fn warp_spec(&self) -> Option<&WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn new_sequence(&mut self) -> SeqId {
        self.schedule.sequences.push(Vec::new());
        SeqId(self.schedule.sequences.len() as u32 - 1)
    }

    fn block(&mut self, block: BlockId) -> SeqId {
        let id = self.new_sequence();
        let ops = &self.info.module.block(block).ops;
        let steps = if self.role == WarpRole::Producer { self.producer_steps(ops) } else { self.consumer_steps(ops) };
        self.schedule.sequences[id.0 as usize] = steps;
        id
    }

    /// Returns the producer's steps: its loads, and the ops of its slice.
    fn producer_steps(&mut self, ops: &[OpId]) -> Vec<Step> {
        let ops: Vec<OpId> = ops.iter().copied().filter(|&id| self.is_producer_op(id)).collect_vec();
        ops.into_iter().map(|id| self.step(id)).collect_vec()
    }

    /// Returns true if the producer executes this op.
    fn is_producer_op(&self, id: OpId) -> bool {
        let code = self.info.module.op(id).code;
        // The loads of both partitions follow the wait for the preceding kernel, which is in the
        // entry block (`analysis/early_exit`).
        code.spec().effect == Effect::Terminator
            || code == Opcode::GdcWait
            || self.warp_spec().is_some_and(|warp_spec| {
                warp_spec.producer_ops.contains(&id)
                    || warp_spec.is_producer_load(id)
                    || warp_spec.prefetches.contains_key(&id)
                    || warp_spec.staging_channel_of(id).is_some()
            })
    }

    fn consumer_steps(&mut self, ops: &[OpId]) -> Vec<Step> {
        let ops = &self.info.small_tiles_first(&self.sink_aux_loads(ops))[..];
        let mut strip_finder = self.info.strip_finder(ops, &|id| self.is_in_stage(id));
        let mut steps = Vec::with_capacity(ops.len());
        let mut next = 0;
        while let Some(&id) = ops.get(next) {
            if self.info.module.op(id).code.is_mma() {
                steps.extend(self.mma_groups(id));
                next += 1;
                continue;
            }
            if let Some(candidate) = strip_finder.at(self.info, next) {
                next += candidate.ops.len();
                let layout = self.schedule.layout_id(candidate.layout);
                steps.push(Step::StripMine(Rc::new(StripMine {
                    layout,
                    registers_per_iteration: candidate.registers_per_iteration,
                    ops: candidate.ops,
                    live_out: candidate.live_out,
                })));
                continue;
            }
            steps.extend(self.warp_spec().and_then(|warp_spec| warp_spec.staging_channel_of(id)).map(Step::Advance));
            steps.push(self.step(id));
            let released = self.released_by(id);
            if !released.is_empty() {
                steps.push(Step::ConsumerRelease(released));
            }
            next += 1;
        }
        steps
    }

    fn step(&mut self, id: OpId) -> Step {
        let info = self.info;
        let op = info.module.op(id);
        let staging_channel = self
            .warp_spec()
            .and_then(|warp_spec| warp_spec.staging_channel_of(id))
            .filter(|_| self.role == WarpRole::Producer);
        if let Some(channel) = staging_channel {
            return Step::Produce(channel);
        }
        match op.code {
            _ if info.rematerialized.contains(&id) => Step::Deferred(id),
            Opcode::FToF | Opcode::Cat if self.is_in_smem(op.results[0]) => Step::Deferred(id),
            Opcode::MakeToken | Opcode::JoinTokens => Step::Deferred(id),
            _ if is_computed_at_use(info, id) => Step::Deferred(id),
            Opcode::LoadView => self.load(id),
            Opcode::AtomicRmw if info.privatized_atomics.contains(&id) => Step::PrivatizedAtomic(id),
            Opcode::StoreView | Opcode::AtomicRedView if info.tma_stores.contains_key(&id) => self.tma_store(id),
            Opcode::For => self.for_loop(id),
            Opcode::Loop => {
                let body = op.regions[0];
                let hoisted = self.hoisted_conversions(body);
                let (hoisted_operands, body) = self.loop_body(id);
                Step::Loop(Box::new(Loop { op: id, hoisted, hoisted_operands, body }))
            }
            Opcode::If => {
                let arms = op.regions.iter().map(|&region| self.block(region)).collect_vec();
                Step::If { op: id, arms, pure: info.is_pure(id) }
            }
            code if code.spec().effect == Effect::Terminator => Step::End(id),
            _ => Step::Exec(id),
        }
    }

    fn tma_store(&mut self, id: OpId) -> Step {
        let TmaStorePlan { layout, tile, staging } = self.info.tma_stores[&id].clone();
        Step::TmaStore(Box::new(TmaStore { op: id, layout: self.schedule.layout_id(&layout), tile, staging }))
    }

    /// Returns the channels whose stages are released after this op.
    fn released_by(&self, id: OpId) -> Vec<u32> {
        self.warp_spec().map_or(Vec::new(), |warp_spec| warp_spec.released_by(id))
    }

    /// Returns the steps of the MMA groups that end with this op, each with the stages that it
    /// releases. Other MMAs of a group have no step at their position.
    fn mma_groups(&self, id: OpId) -> Vec<Step> {
        if self.info.mma_groups.last_of(id) != id {
            return Vec::new();
        }
        let fetched = |value| self.is_in_smem(value);
        let mut mmas = self.info.plan_mma_groups(id, self.warp_spec(), &fetched, self.smem.free());
        if let Some(last) = mmas.last_mut() {
            last.releases = self.released_by(id);
        }
        mmas.into_iter().map(|mma| Step::Mma(Box::new(mma))).collect_vec()
    }

    fn load(&self, id: OpId) -> Step {
        let (channel, is_aux) = match self.schedule.load_path(id) {
            LoadPath::Direct => {
                let is_prefetch = |warp_spec: &WarpSpecialization| warp_spec.prefetches.contains_key(&id);
                let prefetches = self.role == WarpRole::Producer && self.warp_spec().is_some_and(is_prefetch);
                return if prefetches { Step::Prefetch(id) } else { Step::Exec(id) };
            }
            LoadPath::CpAsync { thread_private: true } => return Step::LocalLoad(id),
            LoadPath::CpAsync { thread_private: false } => return Step::Deferred(id),
            LoadPath::TmaOperand { channel } => (channel, false),
            LoadPath::TmaAux { channel } => (channel, true),
        };
        let warp_spec = self.warp_spec().expect("a producer");
        match self.role {
            WarpRole::Producer if warp_spec.producer_anchor(channel) == Some(id) => Step::Produce(channel),
            WarpRole::Consumer if warp_spec.consumer_anchor(channel) == Some(id) => Step::Advance(channel),
            WarpRole::Consumer if is_aux => Step::LocalLoad(id),
            WarpRole::Producer | WarpRole::Consumer | WarpRole::All => Step::Deferred(id),
        }
    }

    /// Returns the last op that reads the stage of an auxiliary load.
    fn last_use_of_stage(&self, load: OpId) -> Option<OpId> {
        self.warp_spec().and_then(|warp_spec| Some(warp_spec.channels[warp_spec.aux_channel(load)? as usize].last_use))
    }

    /// Returns the ops of a block, with auxiliary loads sunk to their first uses. The tiles then
    /// occupy registers for the shortest time.
    fn sink_aux_loads(&self, ops: &[OpId]) -> Vec<OpId> {
        let mut sorted = ops.to_vec();
        let is_aux_load = |&&id: &&OpId| matches!(self.schedule.load_path(id), LoadPath::TmaAux { .. });
        for &load in ops.iter().filter(is_aux_load) {
            let names = self.info.load_and_views(ops, load);
            let Some(user) = self.info.first_use(ops, load) else { continue };
            sorted.retain(|id| !names.contains(id));
            let position = |of: OpId| sorted.iter().position(|&id| id == of).unwrap_or(sorted.len());
            // If the first use is later, the load follows the last MMA that reads the stage, and
            // overlaps it.
            let at = self.last_use_of_stage(load).map_or(position(user), |last| position(user).min(position(last) + 1));
            sorted.splice(at..at, names);
            self.acquire_before(&mut sorted, load);
        }
        sorted
    }

    /// Moves the load at whose position a stage is acquired before an auxiliary load of the stage.
    fn acquire_before(&self, ops: &mut Vec<OpId>, load: OpId) {
        let channel = self.warp_spec().and_then(|warp_spec| Some((warp_spec, warp_spec.aux_channel(load)?)));
        let Some(anchor) = channel.and_then(|(warp_spec, channel)| warp_spec.consumer_anchor(channel)) else { return };
        let position = |of: OpId| ops.iter().position(|&id| id == of);
        if let (Some(from), Some(to)) = (position(anchor), position(load))
            && to < from
        {
            let anchor = ops.remove(from);
            ops.insert(to, anchor);
        }
    }

    /// Returns true if the tile of this value is in shared memory for an MMA, so that the value
    /// needs no instructions.
    fn is_in_smem(&self, value: Value) -> bool {
        self.info.source_load(value).is_some_and(|load| self.schedule.load_path(load).is_smem_operand())
    }

    /// Returns true if the tile of this load, or of a conversion of a load, is in a stage.
    fn is_in_stage(&self, id: OpId) -> bool {
        self.schedule.load_path(id) != LoadPath::Direct
            || self.info.module.op(id).results.first().is_some_and(|&tile| self.is_in_smem(tile))
    }

    /// Returns the conversions that a loop with this body hoists: values from outside, in the
    /// layouts of their uses.
    fn hoisted_conversions(&mut self, body: BlockId) -> Vec<(Value, LayoutId)> {
        if self.role == WarpRole::Producer {
            return Vec::new();
        }
        let mut hoisted = Vec::new();
        self.add_hoisted(self.info.hoisted_conversions(body), &mut hoisted);
        hoisted
    }

    /// Adds conversions before a loop, each once.
    fn add_hoisted(&mut self, conversions: Vec<(Value, Layout)>, hoisted: &mut Vec<(Value, LayoutId)>) {
        for (value, layout) in conversions {
            let conversion = (value, self.schedule.layout_id(&layout));
            if !hoisted.contains(&conversion) {
                hoisted.push(conversion);
            }
        }
    }

    /// Inserts order waits and order arrives of ping-pong groups.
    fn insert_order_barriers(&mut self, body: SeqId) {
        let steps = std::mem::take(&mut self.schedule.sequences[body.0 as usize]);
        let spans = OrderPoint::PINGPONG.map(|point| {
            let in_span = |step: &Step| match point {
                OrderPoint::SideEffects => step.ops().into_iter().any(|id| self.info.contains_side_effect(id)),
                _ => self.uses_pipelines(step),
            };
            Some((point, [steps.iter().position(in_span)?, steps.iter().rposition(in_span)?]))
        });
        let points = |at: usize, end: usize| {
            spans.into_iter().flatten().filter(move |(_, span)| span[end] == at).map(|(point, _)| point)
        };
        let mut ordered_steps = Vec::with_capacity(steps.len() + 4);
        for (at, step) in steps.into_iter().enumerate() {
            ordered_steps.extend(points(at, 0).map(|point| Step::OrderWait { point, sunk: false }));
            ordered_steps.push(step);
            ordered_steps.extend(points(at, 1).map(Step::OrderArrive));
        }
        self.schedule.sequences[body.0 as usize] = ordered_steps;
    }

    /// Returns true if a step, or a step of its sequences, advances a pipeline or is an MMA group.
    fn uses_pipelines(&self, step: &Step) -> bool {
        let inside = step.sequences().iter().flat_map(|&body| self.schedule.steps(body));
        matches!(step, Step::Advance(_) | Step::Mma(_)) || inside.into_iter().any(|inner| self.uses_pipelines(inner))
    }

    fn for_loop(&mut self, id: OpId) -> Step {
        let info = self.info;
        let body = info.module.op(id).regions[0];
        let mut hoisted = self.hoisted_conversions(body);
        let planned = match self.role {
            WarpRole::Producer => None,
            role => info.plan_cp_async(id, (role == WarpRole::All, self.warp_spec()), &self.smem),
        };
        let cp_async = planned.map(|(plan, of_indices)| {
            self.add_hoisted(of_indices, &mut hoisted);
            Rc::new(plan)
        });
        let stages_buffer: Option<Buffer> =
            cp_async.as_ref().and_then(|cp_async| self.smem.reserve(cp_async.bytes(), cp_async.align()));
        let copies = cp_async.iter().flat_map(|cp_async| &cp_async.copies);
        self.schedule.cp_async_loads.extend(copies.map(|copy| (copy.load, copy.load_path())));
        let (hoisted_operands, steps) = self.loop_body(id);
        let carried_mmas = match self.role {
            WarpRole::Consumer => info.carried_mmas_of(id, self.schedule.steps(steps)),
            WarpRole::All | WarpRole::Producer => Vec::new(),
        };
        if let Some(stages_buffer) = stages_buffer {
            self.smem.release(stages_buffer);
        }
        let epilogue = (!carried_mmas.is_empty()).then(|| self.new_sequence());
        let pingpong = self.warp_spec().and_then(|warp_spec| warp_spec.pingpong.clone());
        let pingpong = pingpong.filter(|pingpong| pingpong.loop_op == id && self.role == WarpRole::Consumer);
        if pingpong.is_some() {
            self.insert_order_barriers(steps);
        }
        let plain =
            self.role != WarpRole::Producer && cp_async.is_none() && carried_mmas.is_empty() && pingpong.is_none();
        let unroll = info.unroll_factor(id, plain);
        Step::For(Box::new(For {
            op: id,
            hoisted,
            hoisted_operands,
            cp_async,
            carried_mmas,
            pingpong,
            unroll,
            body: steps,
            epilogue,
        }))
    }

    /// Returns the sequence of a loop, and the operands of MMAs that the loop hoists.
    fn loop_body(&mut self, id: OpId) -> (Vec<HoistedOperand>, SeqId) {
        let outer = self.hoisted_operands.len();
        if self.role != WarpRole::Producer {
            let is_hoisted = |value| self.hoisted_operands.iter().any(|operand| operand.value == value);
            let is_there = |value| self.is_in_smem(value) || is_hoisted(value);
            let hoisted = self.info.hoisted_operands(id, self.level, &is_there);
            self.hoisted_operands.extend(hoisted);
        }
        let body = self.block(self.info.module.op(id).regions[0]);
        (self.hoisted_operands.split_off(outer), body)
    }
}
