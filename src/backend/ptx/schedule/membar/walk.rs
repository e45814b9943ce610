//! Inserts barriers: walks each partition and records the sub-steps of every step.

use super::state::{MembarState, MmaWaitUse};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::StripRole;
use crate::backend::ptx::schedule::ir::program::{
    CarriedMma, For, LayoutId, Loop, MmaGroup, Schedule, SeqId, Step, StripMine, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::shared::{Buffer, SharedMemory};
use crate::ir::{BlockId, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Says of each step what it does within. `shared`: with all that is reserved for the whole kernel.
    pub fn insert_barriers(&self, schedule: &mut Schedule, shared: &SharedMemory) {
        let agents: Vec<(WarpRole, SeqId)> = schedule.partitions.iter().map(|agent| (agent.role, agent.body)).collect();
        let own = if self.pingpong_groups > 1 { shared.share(0, self.pingpong_groups) } else { shared.clone() };
        schedule.smem_bytes_per_group = if self.pingpong_groups > 1 { own.budget() - own.start() } else { 0 };
        schedule.smem_bytes = shared.used();
        schedule.smem = shared.clone();
        // Who loads meets nobody.
        for (_, body) in agents.into_iter().filter(|&(acts, _)| acts != WarpRole::Producer) {
            let mut way = MembarState::new(self, schedule, own.clone());
            for &arg in &self.module.block(self.module.entries[0].body).args {
                if matches!(self.module.ty(arg), Type::Tile { .. }) {
                    way.define(arg);
                }
            }
            way.walk_sequence(body);
            let (waits, used) = (std::mem::take(&mut way.mma_waits), way.smem.used());
            let others = schedule.smem_bytes_per_group * (self.pingpong_groups - 1);
            schedule.smem_bytes = schedule.smem_bytes.max(if used > own.start() { used + others } else { 0 });
            for MmaWaitUse { body, position: at, .. } in waits.into_iter().rev().filter(|wait| !wait.is_needed) {
                schedule.sequences[body.0 as usize].remove(at);
            }
        }
    }
}

impl MembarState<'_, '_> {
    /// The steps of a body.
    fn walk_sequence(&mut self, body: SeqId) {
        let around = (std::mem::take(&mut self.steps), std::mem::take(&mut self.sub_steps));
        let outside = std::mem::replace(&mut self.seq, body);
        for step in std::mem::take(&mut self.schedule.sequences[body.0 as usize]) {
            match &step {
                Step::Sub(_) => continue,
                Step::ConsumerWait(_) => {}
                Step::MmaWait(land) => {
                    self.sunk_waits.push_back((land.pending, self.mma_waits.len()));
                    self.mma_waits.push(MmaWaitUse { body, position: self.steps.len(), is_needed: false });
                    if !land.sunk {
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
        self.schedule.sequences[body.0 as usize] = std::mem::replace(&mut self.steps, around.0);
        self.sub_steps = around.1;
        self.seq = outside;
    }

    /// Puts what a step does within before it. That it accesses memory at all, and no more, nobody has to say.
    fn flush_sub_steps(&mut self) {
        let mut within = std::mem::take(&mut self.sub_steps);
        if within.iter().all(|one| matches!(one, SubStep::GlobalAccess(_))) {
            within.clear();
        }
        self.steps.extend(within.into_iter().map(Step::Sub));
    }

    /// A body that need not run: what it brings is forgotten.
    fn walk_region(&mut self, body: SeqId) {
        let mark = self.available.len();
        self.walk_sequence(body);
        self.available.truncate(mark);
    }

    fn step(&mut self, step: &Step) {
        match step {
            &Step::Exec(id) => {
                self.op(id);
                self.define_results(id);
            }
            &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) => self.define_results(id),
            &Step::PrivatizedAtomic(id) => {
                self.privatized_atomic(id);
                self.define_results(id);
            }
            Step::TmaStore(send) => self.tma_store(send),
            Step::StripMine(strip) => self.strip_mine(strip),
            Step::Mma(plan) => self.mma_group(plan),
            Step::For(plan) => self.for_loop(plan),
            Step::Loop(plan) => self.loop_op(plan),
            Step::If { op, arms, pure: quiet } => self.branches(*op, arms, *quiet),
            &Step::End(id) => self.terminator(id),
            Step::ConsumerRelease(channels) => self.consumer_release(channels),
            Step::Deferred(_) | Step::Produce(_) | Step::Advance(_) | Step::OrderWait(_) | Step::OrderArrive(_) => {}
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => {}
            Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => {}
        }
    }

    /// An op has results from now on.
    fn define_results(&mut self, id: OpId) {
        let module = self.info.module;
        let tiles = module.op(id).results.iter().filter(|&&result| matches!(module.ty(result), Type::Tile { .. }));
        tiles.for_each(|&result| self.define(result));
    }

    fn strip_mine(&mut self, strip: &StripMine) {
        let context = self.info;
        let module = context.module;
        let inside = strip.defined_tiles(module);
        let own = self.schedule.layout(strip.layout).clone();
        for &(id, part) in &strip.ops {
            let op = module.op(id);
            let values: &[Value] = match part {
                StripRole::Body if op.code == Opcode::LoadView => &[],
                StripRole::Body if op.code == Opcode::StoreView => op.group(0),
                StripRole::Body => &op.operands,
                // Scalars, and what has no instructions: no tile of its own.
                StripRole::View | StripRole::Preheader => {
                    self.op(id);
                    continue;
                }
            };
            for &value in values.iter().filter(|&value| !inside.contains(value)) {
                self.require(value, &own.reshape(module.shape(value)));
            }
            match op.code {
                Opcode::LoadView => self.begin_load(id),
                Opcode::StoreView => self.begin_store(id),
                _ => {}
            }
        }
        for &value in &strip.live_out {
            self.own_layouts[value.index()] = Some(std::borrow::Cow::Owned(own.reshape(module.shape(value))));
        }
        strip.ops().for_each(|id| self.add_global_access(id));
        let last = strip.ops.last().map(|&(id, _)| id).filter(|&id| module.op(id).code == Opcode::Reduce);
        if let Some(id) = last {
            self.end_reduction(id);
            self.define_results(id);
        }
    }

    /// Products that are issued together.
    fn mma_group(&mut self, plan: &MmaGroup) {
        self.mma_operands(&plan.ops);
        self.flush_sunk_waits();
        if self.info.is_async(&plan.ops) {
            self.in_flight.push(self.info.results_of(&plan.ops));
        }
        plan.ops.iter().for_each(|&id| self.define_results(id));
    }

    /// Carried values and results get what is handed on to them.
    fn assign(&mut self, targets: &[Value], values: &[Value]) {
        for (&target, &value) in targets.iter().zip(values) {
            if !matches!(self.info.module.ty(target), Type::Tile { .. })
                || self.info.is_accumulated_in_place(target, value)
            {
                continue;
            }
            let inference = &self.info.inference;
            match inference.layout(target) {
                Some(layout) => self.require(value, layout),
                None => self.require(value, &inference.default_layout(target)),
            }
        }
    }

    fn define_all(&mut self, values: &[Value]) {
        let module = self.info.module;
        let tiles = values.iter().filter(|&&value| matches!(module.ty(value), Type::Tile { .. }));
        tiles.for_each(|&value| self.define(value));
    }

    /// Code that a back edge reaches knows little of what threads did. Gives what the copy engine may be reading before.
    fn enter_loop(&mut self, body: BlockId) -> Vec<Buffer> {
        self.flush_sunk_waits();
        let before = self.smem.bulk();
        let context = self.info;
        let (mut accesses, mut sends) = (Vec::new(), false);
        context.module.walk(body, &mut |id| {
            accesses.extend(context.memory_effect_of(id));
            self.tma_stored_arrays.extend(self.tma_stores.get(&id));
            sends |= self.block_tma_stores.contains(&id);
        });
        self.global_hazards.add(&context.written_memory, accesses);
        self.smem.unknown(sends);
        before
    }

    /// Nor does code behind a loop, which may have been skipped.
    fn leave_loop(&mut self, body: BlockId, before: &[Buffer]) {
        self.enter_loop(body);
        self.smem.still_reading(before);
    }

    fn convert_hoisted(&mut self, values: &[(Value, LayoutId)]) {
        for &(value, to) in values {
            let layout = self.schedule.layout(to).clone();
            self.require(value, &layout);
        }
    }

    fn for_loop(&mut self, plan: &For) {
        let context = self.info;
        let op = context.module.op(plan.op);
        let body = op.regions[0];
        let args = &context.module.block(body).args;
        self.convert_hoisted(&plan.hoisted);
        self.assign(&args[1..], op.group(3));
        let slab = plan.cp_async.as_ref().and_then(|ahead| self.smem.reserve(ahead.bytes(), ahead.align()));
        if let (Some(ahead), None) = (&plan.cp_async, slab) {
            self.smem_overflow(ahead.bytes());
        }
        self.smem_write(slab);
        let before = self.enter_loop(body);
        self.define_all(args);
        let mark = self.available.len();
        let of_all = plan.cp_async.as_ref().filter(|ahead| ahead.barrier_at_head);
        self.in_flight = carried_accumulators(&plan.carried_mmas, |carried| args[carried + 1]);
        if let Some(ahead) = of_all {
            self.in_flight.clear();
            self.after_barrier();
            self.staged_loads.extend(ahead.copies.iter().filter(|copy| !copy.thread_private).map(|copy| copy.load));
        }
        self.walk_region(plan.body);
        self.available.truncate(mark);
        self.in_flight = carried_accumulators(&plan.carried_mmas, |carried| op.results[carried]);
        if let Some(leave) = plan.epilogue {
            self.walk_sequence(leave);
        }
        if let Some(ahead) = of_all {
            self.in_flight.clear();
            for copy in &ahead.copies {
                self.staged_loads.remove(&copy.load);
            }
        }
        if let Some(slab) = slab {
            self.smem.release(slab);
        }
        self.leave_loop(body, &before);
        self.define_all(&op.results);
    }

    fn loop_op(&mut self, plan: &Loop) {
        let context = self.info;
        let op = context.module.op(plan.op);
        let body = op.regions[0];
        let args = &context.module.block(body).args;
        self.convert_hoisted(&plan.hoisted);
        self.assign(args, op.group(0));
        let before = self.enter_loop(body);
        self.define_all(args);
        self.walk_region(plan.body);
        self.leave_loop(body, &before);
        self.define_all(&op.results);
    }

    fn branches(&mut self, id: OpId, arms: &[SeqId], _quiet: bool) {
        self.flush_sunk_waits();
        let before = (self.smem.clone(), self.global_hazards.clone());
        let running = self.in_flight.clone();
        let mut after = None;
        for (index, &arm) in arms.iter().enumerate() {
            if index == 1 {
                self.in_flight.clone_from(&running);
                let history = std::mem::replace(&mut self.global_hazards, before.1.clone());
                after = Some((self.smem.enter_branch(&before.0), history));
            }
            self.walk_region(arm);
            self.flush_sunk_waits();
        }
        if let Some((shared, history)) = after {
            self.smem.join(&shared);
            self.global_hazards.join(&self.info.written_memory, history);
        }
        let results = &self.info.module.op(id).results;
        self.define_all(results);
    }

    fn terminator(&mut self, id: OpId) {
        let module = self.info.module;
        let op = module.op(id);
        if op.code == Opcode::Return {
            self.leave_kernel();
            self.flush_sunk_waits();
            return;
        }
        let wanted = |code: Opcode| match op.code {
            Opcode::Continue => matches!(code, Opcode::For | Opcode::Loop),
            Opcode::Break => code == Opcode::Loop,
            _ => code == Opcode::If,
        };
        let mut block = self.info.op_blocks[id.index()];
        while let Some(owner) = block.and_then(|block| module.block(block).parent) {
            let around = module.op(owner);
            if !wanted(around.code) {
                block = self.info.op_blocks[owner.index()];
                continue;
            }
            let targets = match (op.code, around.code) {
                (Opcode::Continue, Opcode::For) => &module.block(around.regions[0]).args[1..],
                (Opcode::Continue, _) => &module.block(around.regions[0]).args[..],
                _ => &around.results[..],
            };
            self.assign(targets, &op.operands);
            let beside = op.code == Opcode::Yield && self.info.is_pure(owner);
            if !beside {
                self.flush_sunk_waits();
            }
            return;
        }
    }
}

/// Products that the iteration before has issued: the sums of each.
fn carried_accumulators(orbits: &[CarriedMma], sum: impl Fn(usize) -> Value) -> Vec<Vec<Value>> {
    orbits.iter().map(|orbit| orbit.accumulators.iter().map(|&carried| sum(carried)).collect()).collect()
}
