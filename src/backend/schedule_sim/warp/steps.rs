//! Execution of the steps of a partition.

use super::strip_mine;
use super::warp_groups;
use super::warp_state::{AcquiredStage, Partition, PendingStore, StepOutcome};
use crate::backend::cpu::SlotContent;
use crate::backend::ptx::schedule::{
    LoadPath, OrderPoint, Step, StripMine, SubStep, WarpRole, box_order, is_computed_at_use,
};
use crate::backend::ptx::tensor_map::{RAGGED_EXTENT, ragged_unit};
use crate::backend::ptx::{ViewShape, contiguous_axis};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::memory::shared_state::Shared;
use crate::ir::{Loc, OpId, Opcode, Sign, Value};

impl<'a> Partition<'a> {
    /// Returns the condition that the next step waits for, if it is not true.
    ///
    /// # Errors
    /// The condition can never become true.
    pub fn blocked_by(&self, shared: &Shared<'a>) -> Result<Option<String>, Fault> {
        let Some(step) = self.next_step()? else { return Ok(None) };
        match step {
            &Step::Produce(channel) => {
                let slot = shared.pipelines.next_to_produce(self.kernel.channel(channel)?.pipeline, channel)?;
                Ok((!shared.pipelines.is_free(slot))
                    .then(|| format!("produce {channel}: stage {} is not free", slot.stage)))
            }
            Step::ConsumerWait(wait) => {
                let Some(acquired) = self.acquired.get(&wait.channel) else { return Ok(None) };
                let (channel, stage) = (wait.channel, acquired.slot.stage);
                let is_blocked = !shared.pipelines.is_full_for(acquired.slot)?;
                Ok(is_blocked.then(|| format!("consumer_wait {channel}: the tiles have not arrived in stage {stage}")))
            }
            &Step::OrderWait { point, .. } => {
                let required = self.next_section(point);
                let passed = shared.order_counts[point.barrier_set()];
                Ok((passed < required).then(|| format!("order_wait {point}: {passed} of {required} have arrived")))
            }
            Step::Sub(SubStep::Barrier { .. }) if self.kernel.groups > 1 => {
                let all = shared.barrier_counts.iter().all(|&barriers| barriers > self.barrier_count);
                Ok((!all).then(|| "barrier: other groups have not arrived".to_owned()))
            }
            _ => Ok(None),
        }
    }

    /// Registers the arrival at a barrier of the consumer groups, if it is next.
    ///
    /// # Errors
    /// Errors of [`Partition::next_step`].
    pub fn arrive(&self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        if self.role == WarpRole::Consumer && matches!(self.next_step()?, Some(Step::Sub(SubStep::Barrier { .. }))) {
            shared.barrier_counts[self.group] = self.barrier_count + 1;
        }
        Ok(())
    }

    /// Executes the next step, which does not wait.
    ///
    /// # Errors
    /// Errors of its ops with their locations, and faults of the schedule.
    pub fn advance(&mut self, shared: &mut Shared<'a>) -> Result<StepOutcome, Fault> {
        let Some(step) = self.next_step()? else { return Ok(StepOutcome::Done) };
        let loc = self.location_of(step);
        let point = self.step(shared, step).map_err(|fault| Fault { loc: fault.loc.or(loc), ..fault })?;
        self.arrive(shared)?;
        Ok(point)
    }

    /// Returns the source location of a step.
    fn location_of(&self, step: &Step) -> Option<Loc> {
        let id = if let Step::Mma(plan) = step { plan.last() } else { step.ops().first().copied() };
        id.map(|id| self.kernel.module.op(id).loc)
    }

    fn step(&mut self, shared: &mut Shared<'a>, step: &'a Step) -> Result<StepOutcome, Fault> {
        if let Some(level) = self.levels.last_mut() {
            level.next += 1;
        }
        if !matches!(step, Step::Sub(_) | Step::Mma(_)) && !step.is_wait() {
            self.barriers.after_step();
        }
        match step {
            &Step::Deferred(id) => self.name(id)?,
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => {
                self.require_operands(id)?;
                if self.is_silent && warp_groups::has_side_effect(self.kernel.module.op(id)) {
                    self.frame.set_tokens(id);
                } else {
                    self.complete_stores_before(id)?;
                    self.frame.step(id)?;
                }
            }
            Step::StripMine(strip_mine) => self.strip_mine(strip_mine)?,
            &Step::LocalLoad(id) => match self.kernel.schedule.load_path(id) {
                LoadPath::CpAsync { .. } => self.local_load_thread_private(shared, id)?,
                _ => self.local_load_stage(shared, id)?,
            },
            Step::TmaStore(tma_store) => self.tma_store(tma_store.op)?,
            Step::Mma(plan) => self.mma_group(shared, plan)?,
            &Step::Produce(channel) => self.produce(shared, channel)?,
            // A hint to the memory system.
            Step::Prefetch(_) => {}
            &Step::Advance(channel) => self.advance_stage(shared, channel)?,
            Step::ConsumerWait(wait) => {
                let acquired = self.acquired.get_mut(&wait.channel);
                let fault = || broken(format!("channel {} is waited for, and not acquired", wait.channel));
                let acquired = acquired.ok_or_else(fault)?;
                acquired.is_full = true;
                if self.try_waited.remove(&wait.channel).is_some_and(|seen| seen != acquired.slot) {
                    return Err(broken(format!("the try_wait of channel {} has tested another stage", wait.channel)));
                }
            }
            &Step::ConsumerTryWait(channel) => {
                let pipeline = self.kernel.channel(channel)?.pipeline;
                shared.pipelines.advance(pipeline, self.group);
                let slot = shared.pipelines.next_to_acquire(pipeline, channel, self.group)?;
                if shared.pipelines.is_there(slot) {
                    self.try_waited.insert(channel, slot);
                }
            }
            Step::MmaWait(wait) => self.mma_wait(shared, wait)?,
            // Other sub-steps have no effect on tiles.
            Step::Sub(part) => {
                if let &SubStep::MmaReadWait { pending } = part {
                    self.mma_wait_operands(shared, pending as usize)?;
                }
                self.barrier_count += u64::from(matches!(part, SubStep::Barrier { .. }));
                self.barriers.sub_step(part)?;
            }
            Step::ConsumerRelease(channels) => {
                for channel in channels {
                    let acquired = self.acquired.remove(channel);
                    let acquired =
                        acquired.ok_or_else(|| broken(format!("channel {channel} is released, and not acquired")))?;
                    shared.pipelines.release(acquired.slot, self.group)?;
                }
            }
            &Step::OrderWait { point, .. } => self.order_counts[point.barrier_set()] += 1,
            &Step::OrderArrive(point) => {
                while point == OrderPoint::SideEffects && !self.tma_stores.is_empty() {
                    self.complete_first_store()?;
                }
                self.order_arrive(shared, point)?;
            }
            Step::For(plan) => self.for_loop(shared, plan)?,
            Step::Loop(plan) => return self.loop_op(shared, plan),
            Step::If { op, arms, .. } => self.branch(*op, arms)?,
            &Step::End(id) => return self.end(shared, id),
        }
        Ok(StepOutcome::Done)
    }

    /// Executes a deferred step: the value is computed at its use, if its operands are not
    /// available yet.
    fn name(&mut self, id: OpId) -> Result<(), Fault> {
        let op = self.kernel.module.op(id);
        if self.names_staged_tile(id) {
            self.frame.set_tokens(id);
            return Ok(());
        }
        let (info, code) = (self.kernel.info, op.code);
        let is_made = info.rematerialized.contains(&id) || is_computed_at_use(info, id);
        if !is_made && !matches!(code, Opcode::MakeToken | Opcode::JoinTokens) {
            // No partition computes it.
            op.results.iter().for_each(|&result| drop(self.frame.forget(result)));
            return Ok(());
        }
        let is_one = op.results.len() == 1;
        if is_one && op.operands.iter().any(|&value| self.is_open(value)) {
            self.frame.forget(op.results[0]);
            self.deferred.insert(op.results[0], id);
            return Ok(());
        }
        self.require_operands(id)?;
        self.frame.step(id)
    }

    fn strip_mine(&mut self, strip_mine: &StripMine) -> Result<(), Fault> {
        let module = self.kernel.module;
        let inside = strip_mine.defined_tiles(module);
        for id in strip_mine.ops() {
            for &value in module.op(id).operands.iter().filter(|value| !inside.contains(value)) {
                self.require(value)?;
            }
            self.complete_stores_before(id)?;
        }
        let layout = self.kernel.schedule.layout(strip_mine.layout);
        strip_mine::run(&mut self.frame, (module, self.is_silent), strip_mine, layout)
    }

    fn local_load_thread_private(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<(), Fault> {
        let copies = self.cp_async_loads.get(&id).copied();
        let (number, copy) = copies.ok_or_else(|| broken(format!("op {} has no multistage copy", id.index())))?;
        let tile = shared.copies(number)?.thread_private_tile(copy)?;
        self.frame.set(self.kernel.module.op(id).results[0], tile);
        self.frame.set_tokens(id);
        Ok(())
    }

    /// Reads an auxiliary load in its stage.
    fn local_load_stage(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<(), Fault> {
        let fault = |what: &str| broken(format!("op {}: {what}", id.index()));
        let warp_spec = self.kernel.warp_spec().ok_or_else(|| fault("nothing is streamed"))?;
        let slot = warp_spec.aux_slot(id).ok_or_else(|| fault("a tile in no channel"))?;
        let channel = slot.channel as u32;
        let acquired_slot = self.acquired.get(&channel).filter(|stage| stage.is_full).map(|stage| stage.slot);
        // Otherwise an MMA in flight has the stage, and releases it at its completion.
        let mut in_flight_slot = self
            .in_flight
            .iter()
            .filter(|mma_group| !mma_group.from_previous_iteration)
            .flat_map(|mma_group| &mma_group.releases);
        let in_flight_slot = || in_flight_slot.find(|(released, _)| *released == channel).map(|(_, slot)| *slot);
        let stage = acquired_slot
            .or_else(in_flight_slot)
            .ok_or_else(|| fault("read in a stage before the wait for its tiles"))?;
        let result = self.kernel.module.op(id).results[0];
        let dtype = self.kernel.info.element_type(result);
        let (bytes, count) = (dtype.storage_bits() as usize / 8, self.kernel.info.inference.num_elements(result));
        let there = shared.pipelines.stage(stage);
        there.holds(stage.tile, id)?;
        let bits = (0..count).map(|element| there.read(slot.smem_offset as usize + element * bytes, bytes));
        let bits = bits.collect::<Result<Vec<u64>, Fault>>()?;
        self.frame.set(result, SlotContent::of_bits(dtype, bits.into_iter()));
        self.frame.set_tokens(id);
        Ok(())
    }

    fn tma_store(&mut self, id: OpId) -> Result<(), Fault> {
        self.require_operands(id)?;
        self.complete_stores_before(id)?;
        let op = self.kernel.module.op(id);
        let mut operands = Vec::new();
        for &value in &op.operands {
            let content = self.frame.get(value);
            if !content.is_known() && self.kernel.module.ty(value).as_tile().is_some() {
                return Err(broken(format!("op {} sends %{}, which is not there", id.index(), value.index())));
            }
            operands.push(Some(content));
        }
        if !self.is_silent {
            self.tma_stores.push_back(PendingStore { id, operands });
        }
        self.frame.set_tokens(id);
        Ok(())
    }

    fn produce(&mut self, shared: &mut Shared<'a>, channel: u32) -> Result<(), Fault> {
        if self.role != WarpRole::Producer {
            return Err(broken("the consumer loads a stage"));
        }
        let plan = self.kernel.channel(channel)?;
        let mut all = Vec::new();
        for load in &plan.loads {
            let coordinates = load.boxes.iter().map(|part| self.coordinates(load.load, &part.coord));
            all.push(coordinates.collect::<Result<Vec<Vec<i64>>, Fault>>()?);
            self.frame.set_tokens(load.load);
        }
        shared.produce(channel, all)
    }

    /// Returns the array coordinates of a box by its position in the tile of a load.
    fn coordinates(&self, load: OpId, slot: &[i64]) -> Result<Vec<i64>, Fault> {
        let module = self.kernel.module;
        let op = module.op(load);
        let shape = ViewShape::of(module, op.group(0)[0]);
        let shape = shape.ok_or_else(|| broken(format!("op {} loads no tile of a view", load.index())))?;
        let fastest = contiguous_axis(module, &shape).ok_or_else(|| broken("no dimension is contiguous"))?;
        let slice = self.kernel.info.ragged_slice(shape.tensor);
        let number = |value: Value| self.frame.number(value, Sign::Signed);
        let (mut coordinates, mut rows) = (Vec::new(), Vec::new());
        for axis in box_order(shape.tile.len(), fastest) {
            let start = number(op.group(1)[axis])?.saturating_mul(shape.steps[axis]).saturating_add(slot[axis]);
            let Some(slice) = slice.filter(|slice| slice.dim == shape.dim_map[axis]) else {
                coordinates.push(start);
                continue;
            };
            let (begin, extent) = (slice.begin.map_or(Ok(0), number)?, RAGGED_EXTENT as i64);
            let length = number(slice.length)?;
            // A tile before the slice is replaced by one after it.
            let is_before = start < 0 && shape.steps[axis] >= shape.tile[axis];
            let start = if is_before { length } else { start };
            let unit = ragged_unit(coordinates.len(), u64::from(shape.elem.storage_bits() / 8)) as i64;
            coordinates.push(start.saturating_add(extent - length));
            rows = vec![(begin + length) / unit, extent / unit];
        }
        coordinates.extend(rows);
        Ok(coordinates)
    }

    /// Returns true if the current loop has a try-wait of the channel.
    fn has_try_wait(&self, channel: u32) -> bool {
        let body = self.levels.last().map(|level| self.kernel.schedule.steps(level.body));
        body.is_some_and(|steps| steps.contains(&Step::ConsumerTryWait(channel)))
    }

    fn advance_stage(&mut self, shared: &mut Shared<'a>, channel: u32) -> Result<(), Fault> {
        if self.role != WarpRole::Consumer {
            return Err(broken("the producer acquires a stage"));
        }
        let plan = self.kernel.channel(channel)?;
        let slot = shared.pipelines.next_to_acquire(plan.pipeline, channel, self.group)?;
        if self.acquired.insert(channel, AcquiredStage { slot, is_full: false }).is_some() {
            return Err(broken(format!("channel {channel} is acquired twice")));
        }
        shared.pipelines.acquire(slot);
        // A loop with a try-wait advances there.
        if !self.has_try_wait(channel) {
            shared.pipelines.advance(plan.pipeline, self.group);
        }
        plan.loads.iter().for_each(|load| self.frame.set_tokens(load.load));
        Ok(())
    }
}
