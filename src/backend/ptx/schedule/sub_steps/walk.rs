//! Insertion of sub-steps: a walk through each partition that records those of every step.

use super::state::{MembarMmaGroup, MmaWaitUse, SubStepBuilder};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{
    For, HoistedOperand, LayoutId, Loop, MmaGroup, Schedule, SeqId, Step, StripMine, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::{BlockId, OpId, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

impl KernelInfo<'_> {
    /// Inserts sub-steps and barriers into a schedule. `smem`: shared memory with the buffers that
    /// are reserved for the whole kernel.
    pub fn insert_sub_steps(&self, schedule: &mut Schedule, smem: &SharedMemory) {
        let partitions: Vec<(WarpRole, SeqId)> =
            schedule.partitions.iter().map(|partition| (partition.role, partition.body)).collect_vec();
        let own = if self.pingpong_groups > 1 { smem.share(0, self.pingpong_groups) } else { smem.clone() };
        schedule.smem_bytes_per_group = if self.pingpong_groups > 1 { own.budget() - own.start() } else { 0 };
        schedule.smem_bytes = smem.used();
        schedule.smem = smem.clone();
        // The producer has no barriers.
        for (_, body) in partitions.into_iter().filter(|&(role, _)| role != WarpRole::Producer) {
            let mut builder = SubStepBuilder::new(self, schedule, own.clone());
            builder.define_all(&self.module.block(self.module.entries[0].body).args);
            builder.walk_sequence(body);
            let (waits, end) = (std::mem::take(&mut builder.mma_waits), builder.smem.used());
            let others = schedule.smem_bytes_per_group * (self.pingpong_groups - 1);
            schedule.smem_bytes = schedule.smem_bytes.max(if end > own.start() { end + others } else { 0 });
            for MmaWaitUse { body, position, .. } in waits.into_iter().rev().filter(|wait| !wait.is_needed) {
                schedule.sequences[body.0 as usize].remove(position);
            }
        }
    }
}

impl SubStepBuilder<'_, '_> {
    /// Walks through the steps of a sequence.
    fn walk_sequence(&mut self, body: SeqId) {
        let outer = (std::mem::take(&mut self.steps), std::mem::take(&mut self.sub_steps));
        let outer_seq = std::mem::replace(&mut self.seq, body);
        // Other iterations and arms may write other operands.
        self.stored_operands.clear();
        for step in std::mem::take(&mut self.schedule.sequences[body.0 as usize]) {
            match &step {
                Step::Sub(_) => continue,
                Step::ConsumerWait(_) | Step::OrderWait { sunk: true, .. } => {}
                Step::MmaWait(wait) => {
                    self.sunk_waits.push_back((wait.pending, self.mma_waits.len()));
                    self.mma_waits.push(MmaWaitUse { body, position: self.steps.len(), is_needed: false });
                    if !wait.sunk {
                        self.flush_sunk_waits();
                    }
                }
                step => {
                    self.step(step);
                    self.flush_sub_steps();
                    if !matches!(step, Step::End(_)) {
                        self.flush_sunk_waits();
                    }
                }
            }
            self.steps.push(step);
        }
        self.schedule.sequences[body.0 as usize] = std::mem::replace(&mut self.steps, outer.0);
        self.sub_steps = outer.1;
        self.seq = outer_seq;
        self.stored_operands.clear();
    }

    /// Inserts the sub-steps of a step before it. They are omitted if all are global accesses.
    fn flush_sub_steps(&mut self) {
        let mut sub_steps = std::mem::take(&mut self.sub_steps);
        if sub_steps.iter().all(|one| matches!(one, SubStep::GlobalAccess(_))) {
            sub_steps.clear();
        }
        self.steps.extend(sub_steps.into_iter().map(Step::Sub));
    }

    /// Walks through a sequence that may be skipped. Its conversions are not available after it.
    fn walk_region(&mut self, body: SeqId) {
        let mark = self.available.len();
        self.walk_sequence(body);
        self.available.truncate(mark);
    }

    fn step(&mut self, step: &Step) {
        match step {
            &Step::Exec(id) => {
                self.fulfil(id, self.info.requirements(id));
                self.define_results(id);
            }
            &Step::LocalLoad(id) => self.define_results(id),
            &Step::PrivatizedAtomic(id) => {
                self.fulfil(id, self.info.privatized_requirements(id));
                self.define_results(id);
            }
            Step::TmaStore(tma_store) => self.tma_store(tma_store),
            Step::StripMine(strip_mine) => self.strip_mine(strip_mine),
            Step::Mma(plan) => self.mma_group(plan),
            Step::For(plan) => self.for_loop(plan),
            Step::Loop(plan) => self.loop_op(plan),
            Step::If { op, arms, .. } => self.branches(*op, arms),
            &Step::End(id) => self.terminator(id),
            Step::ConsumerRelease(channels) => self.consumer_release(channels),
            Step::Deferred(_) | Step::Produce(_) | Step::Prefetch(_) | Step::Advance(_) => {}
            Step::OrderWait { .. } | Step::OrderArrive(_) => {}
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => {}
        }
    }

    /// Defines the results of an op.
    fn define_results(&mut self, id: OpId) {
        self.define_all(&self.info.module.op(id).results);
    }

    fn strip_mine(&mut self, strip_mine: &StripMine) {
        let info = self.info;
        let module = info.module;
        let own = self.schedule.layout(strip_mine.layout).clone();
        for (id, requirements) in info.strip_requirements(strip_mine, &own) {
            self.fulfil(id, requirements);
        }
        for &value in &strip_mine.live_out {
            self.own_layouts[value.index()] = Some(own.reshape(module.shape(value)));
        }
        strip_mine.ops().for_each(|id| self.add_global_access(id));
        let last = strip_mine.ops.last().map(|&(id, _)| id).filter(|&id| module.op(id).code == Opcode::Reduce);
        if let Some(id) = last {
            self.fulfil(id, info.strip_reduction_requirements(id));
            self.define_results(id);
        }
    }

    /// Fulfils an MMA group and adds it to those in flight.
    fn mma_group(&mut self, plan: &MmaGroup) {
        let reads = self.mma_operands(&plan.ops);
        self.flush_sunk_waits();
        if self.info.is_async(&plan.ops) {
            self.in_flight.push(MembarMmaGroup { results: self.info.results_of(&plan.ops), reads });
        }
        plan.ops.iter().for_each(|&id| self.define_results(id));
    }

    fn define_all(&mut self, values: &[Value]) {
        let module = self.info.module;
        let tiles = values.iter().filter(|&&value| matches!(module.ty(value), Type::Tile { .. }));
        tiles.for_each(|&value| self.define(value));
    }

    /// Adds the accesses of a loop body, which precede its head by the back edge. Returns the
    /// buffers that TMA may be reading before the loop.
    fn enter_loop(&mut self, body: BlockId) -> Vec<Buffer> {
        self.flush_sunk_waits();
        let before = self.smem.bulk();
        let info = self.info;
        let (mut accesses, mut has_tma_stores) = (Vec::new(), false);
        info.module.walk(body, &mut |id| {
            accesses.extend(info.memory_effect_of(id));
            self.tma_stored_arrays.extend(self.tma_stores.get(&id));
            has_tma_stores |= self.block_tma_stores.contains(&id);
        });
        self.global_hazards.add(&info.written_memory, accesses);
        self.smem.unknown(has_tma_stores);
        before
    }

    /// Adds the accesses of a loop body after the loop. `before`: buffers that TMA may still be
    /// reading if the loop has been skipped.
    fn leave_loop(&mut self, body: BlockId, before: &[Buffer]) {
        self.enter_loop(body);
        self.smem.still_reading(before);
    }

    /// Adds what precedes a loop: conversions of loop-invariant values, the requirements of the op,
    /// and loop-invariant operands.
    fn before_loop(&mut self, op: OpId, hoisted: &[(Value, LayoutId)], operands: &[HoistedOperand]) -> Vec<Buffer> {
        let info = self.info;
        for &(value, to) in hoisted {
            let layout = self.schedule.layout(to).clone();
            self.require(value, &layout);
        }
        self.fulfil(op, info.requirements(op));
        self.hoist_operands(operands)
    }

    fn for_loop(&mut self, plan: &For) {
        let info = self.info;
        let op = info.module.op(plan.op);
        let body = op.regions[0];
        let args = &info.module.block(body).args;
        let hoisted = self.before_loop(plan.op, &plan.hoisted, &plan.hoisted_operands);
        let stages_buffer =
            plan.cp_async.as_ref().and_then(|cp_async| self.smem.reserve(cp_async.bytes(), cp_async.align()));
        if let (Some(cp_async), None) = (&plan.cp_async, stages_buffer) {
            self.smem_overflow(cp_async.bytes());
        }
        self.smem_write(stages_buffer);
        let double_buffer = self.enter_double_buffer(plan);
        let before = self.enter_loop(body);
        // The current slot was read two iterations ago.
        self.smem.reads_ended(&double_buffer.slots.map_or(Vec::new(), |slots| vec![slots.halves()[0]]));
        self.define_all(args);
        let barrier_at_head = plan.cp_async.as_ref().is_some_and(|cp_async| cp_async.barrier_at_head);
        self.in_flight = self.carried_mmas(plan, double_buffer.slots, |carried| args[carried + 1]);
        if barrier_at_head {
            self.in_flight.clear();
            self.after_barrier();
        }
        self.walk_region(plan.body);
        self.in_flight = self.carried_mmas(plan, double_buffer.slots, |carried| op.results[carried]);
        if let Some(epilogue) = plan.epilogue {
            self.walk_sequence(epilogue);
        }
        if barrier_at_head {
            self.in_flight.clear();
        }
        self.leave_double_buffer(double_buffer);
        if let Some(stages_buffer) = stages_buffer {
            self.smem.release(stages_buffer);
        }
        self.release_hoisted_operands(&hoisted);
        self.leave_loop(body, &before);
        self.define_all(&op.results);
    }

    fn loop_op(&mut self, plan: &Loop) {
        let info = self.info;
        let op = info.module.op(plan.op);
        let body = op.regions[0];
        let args = &info.module.block(body).args;
        let hoisted = self.before_loop(plan.op, &plan.hoisted, &plan.hoisted_operands);
        let before = self.enter_loop(body);
        self.define_all(args);
        self.walk_region(plan.body);
        self.release_hoisted_operands(&hoisted);
        self.leave_loop(body, &before);
        self.define_all(&op.results);
    }

    fn branches(&mut self, id: OpId, arms: &[SeqId]) {
        self.flush_sunk_waits();
        let before = (self.smem.clone(), self.global_hazards.clone());
        let in_flight = self.in_flight.clone();
        let mut after = None;
        for (index, &arm) in arms.iter().enumerate() {
            if index == 1 {
                self.in_flight.clone_from(&in_flight);
                let history = std::mem::replace(&mut self.global_hazards, before.1.clone());
                after = Some((self.smem.enter_branch(&before.0), history));
            }
            self.walk_region(arm);
            self.flush_sunk_waits();
        }
        if let Some((smem, history)) = after {
            self.smem.join(&smem);
            self.global_hazards.join(&self.info.written_memory, history);
        }
        let results = &self.info.module.op(id).results;
        self.define_all(results);
    }

    fn terminator(&mut self, id: OpId) {
        let info = self.info;
        if info.module.op(id).code == Opcode::Return {
            self.leave_kernel();
        }
        self.fulfil(id, info.requirements(id));
        // Waits in a side-effect-free branch are sunk to the code after it.
        if !info.terminator_targets(id).is_some_and(|(owner, _)| info.is_pure(owner)) {
            self.flush_sunk_waits();
        }
    }
}
