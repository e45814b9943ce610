//! Inserts barriers: walks each partition and records the sub-steps of every step.

use super::state::{MembarState, Wait};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::StripRole;
use crate::backend::ptx::schedule::ir::program::{
    CarriedMma, For, LayoutId, Loop, MmaGroup, Schedule, SeqId, Step, StripMine, WarpRole,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::{BlockId, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Says of each step what it does within. `shared`: with all that is reserved for the whole kernel.
    pub fn insert_barriers(&self, schedule: &mut Schedule, shared: &SharedMemory) {
        let agents: Vec<(WarpRole, SeqId)> = schedule.partitions.iter().map(|agent| (agent.role, agent.body)).collect();
        let own = if self.teams > 1 { shared.share(0, self.teams) } else { shared.clone() };
        schedule.smem_bytes_per_group = if self.teams > 1 { own.budget() - own.start() } else { 0 };
        schedule.shared_bytes = shared.used();
        schedule.smem = shared.clone();
        // Who loads meets nobody.
        for (_, body) in agents.into_iter().filter(|&(acts, _)| acts != WarpRole::Producer) {
            let mut way = MembarState::new(self, schedule, own.clone());
            for &arg in &self.module.block(self.module.entries[0].body).args {
                if matches!(self.module.ty(arg), Type::Tile { .. }) {
                    way.made(arg);
                }
            }
            way.body(body);
            let (waits, used) = (std::mem::take(&mut way.waits), way.shared.used());
            let others = schedule.smem_bytes_per_group * (self.teams - 1);
            schedule.shared_bytes = schedule.shared_bytes.max(if used > own.start() { used + others } else { 0 });
            for Wait { body, at, .. } in waits.into_iter().rev().filter(|wait| !wait.finds) {
                schedule.sequences[body.0 as usize].remove(at);
            }
        }
    }
}

impl MembarState<'_, '_> {
    /// The steps of a body.
    fn body(&mut self, body: SeqId) {
        let around = (std::mem::take(&mut self.steps), std::mem::take(&mut self.within));
        let outside = std::mem::replace(&mut self.body, body);
        for step in std::mem::take(&mut self.schedule.sequences[body.0 as usize]) {
            match &step {
                Step::Sub(_) => continue,
                Step::ConsumerWait(_) => {}
                Step::MmaWait(land) => {
                    self.due.push_back((land.pending, self.waits.len()));
                    self.waits.push(Wait { body, at: self.steps.len(), finds: false });
                    if !land.sunk {
                        self.flush_sunk_waits();
                    }
                }
                step => {
                    self.step(step);
                    self.close_within();
                    if !matches!(step, Step::End(_)) {
                        self.flush_sunk_waits();
                    }
                }
            }
            self.steps.push(step);
        }
        self.schedule.sequences[body.0 as usize] = std::mem::replace(&mut self.steps, around.0);
        self.within = around.1;
        self.body = outside;
    }

    /// Puts what a step does within before it. That it accesses memory at all, and no more, nobody has to say.
    fn close_within(&mut self) {
        let mut within = std::mem::take(&mut self.within);
        if within.iter().all(|one| matches!(one, SubStep::GlobalAccess(_))) {
            within.clear();
        }
        self.steps.extend(within.into_iter().map(Step::Sub));
    }

    /// A body that need not run: what it brings is forgotten.
    fn region(&mut self, body: SeqId) {
        let mark = self.further.len();
        self.body(body);
        self.further.truncate(mark);
    }

    fn step(&mut self, step: &Step) {
        match step {
            &Step::Exec(id) => {
                self.op(id);
                self.all_made(id);
            }
            &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) => self.all_made(id),
            &Step::PrivatizedAtomic(id) => {
                self.combine(id);
                self.all_made(id);
            }
            Step::TmaStore(send) => self.send(send),
            Step::StripMine(strip) => self.strip(strip),
            Step::Mma(plan) => self.products(plan),
            Step::For(plan) => self.for_loop(plan),
            Step::Loop(plan) => self.endless_loop(plan),
            Step::If { op, arms, pure: quiet } => self.branches(*op, arms, *quiet),
            &Step::End(id) => self.terminator(id),
            Step::ConsumerRelease(channels) => self.give(channels),
            Step::Deferred(_) | Step::Produce(_) | Step::Advance(_) | Step::OrderWait(_) | Step::OrderArrive(_) => {}
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => {}
            Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => {}
        }
    }

    /// An op has results from now on.
    fn all_made(&mut self, id: OpId) {
        let module = self.context.module;
        let tiles = module.op(id).results.iter().filter(|&&result| matches!(module.ty(result), Type::Tile { .. }));
        tiles.for_each(|&result| self.made(result));
    }

    fn strip(&mut self, strip: &StripMine) {
        let context = self.context;
        let module = context.module;
        let inside = strip.inside(module);
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
                self.get(value, &own.reshape(module.shape(value)));
            }
            match op.code {
                Opcode::LoadView => self.begin_load(id),
                Opcode::StoreView => self.begin_store(id),
                _ => {}
            }
        }
        for &value in &strip.live_out {
            self.tiles[value.index()] = Some(std::borrow::Cow::Owned(own.reshape(module.shape(value))));
        }
        strip.ops().for_each(|id| self.note_access(id));
        let last = strip.ops.last().map(|&(id, _)| id).filter(|&id| module.op(id).code == Opcode::Reduce);
        if let Some(id) = last {
            self.end_reduction(id);
            self.all_made(id);
        }
    }

    /// Products that are issued together.
    fn products(&mut self, plan: &MmaGroup) {
        self.operands(&plan.ops);
        self.flush_sunk_waits();
        if self.context.run_on(&plan.ops) {
            self.running.push(self.context.results_of(&plan.ops));
        }
        plan.ops.iter().for_each(|&id| self.all_made(id));
    }

    /// Carried values and results get what is handed on to them.
    fn assign(&mut self, targets: &[Value], values: &[Value]) {
        for (&target, &value) in targets.iter().zip(values) {
            if !matches!(self.context.module.ty(target), Type::Tile { .. }) || self.context.adds_up(target, value) {
                continue;
            }
            let inference = &self.context.inference;
            match inference.layout(target) {
                Some(layout) => self.get(value, layout),
                None => self.get(value, &inference.default_layout(target)),
            }
        }
    }

    fn bind(&mut self, values: &[Value]) {
        let module = self.context.module;
        let tiles = values.iter().filter(|&&value| matches!(module.ty(value), Type::Tile { .. }));
        tiles.for_each(|&value| self.made(value));
    }

    /// Code that a back edge reaches knows little of what threads did. Gives what the copy engine may be reading before.
    fn enter_loop(&mut self, body: BlockId) -> Vec<Buffer> {
        self.flush_sunk_waits();
        let before = self.shared.bulk();
        let context = self.context;
        let (mut accesses, mut sends) = (Vec::new(), false);
        context.module.walk(body, &mut |id| {
            accesses.extend(context.memory_effect_of(id));
            self.boxes_stored.extend(self.sent.get(&id));
            sends |= self.sent_by_block.contains(&id);
        });
        self.history.may_have_happened(&context.written, accesses);
        self.shared.unknown(sends);
        before
    }

    /// Nor does code behind a loop, which may have been skipped.
    fn leave_loop(&mut self, body: BlockId, before: &[Buffer]) {
        self.enter_loop(body);
        self.shared.still_reading(before);
    }

    fn bring_all(&mut self, values: &[(Value, LayoutId)]) {
        for &(value, to) in values {
            let layout = self.schedule.layout(to).clone();
            self.get(value, &layout);
        }
    }

    fn for_loop(&mut self, plan: &For) {
        let context = self.context;
        let op = context.module.op(plan.op);
        let body = op.regions[0];
        let args = &context.module.block(body).args;
        self.bring_all(&plan.hoisted);
        self.assign(&args[1..], op.group(3));
        let slab = plan.cp_async.as_ref().and_then(|ahead| self.shared.reserve(ahead.bytes(), ahead.align()));
        if let (Some(ahead), None) = (&plan.cp_async, slab) {
            self.no_room(ahead.bytes());
        }
        self.write(slab);
        let before = self.enter_loop(body);
        self.bind(args);
        let mark = self.further.len();
        let of_all = plan.cp_async.as_ref().filter(|ahead| ahead.barrier_at_head);
        self.running = in_orbit(&plan.carried_mmas, |carried| args[carried + 1]);
        if let Some(ahead) = of_all {
            self.running.clear();
            self.met();
            self.staged.extend(ahead.copies.iter().filter(|copy| !copy.thread_private).map(|copy| copy.load));
        }
        self.region(plan.body);
        self.further.truncate(mark);
        self.running = in_orbit(&plan.carried_mmas, |carried| op.results[carried]);
        if let Some(leave) = plan.epilogue {
            self.body(leave);
        }
        if let Some(ahead) = of_all {
            self.running.clear();
            for copy in &ahead.copies {
                self.staged.remove(&copy.load);
            }
        }
        if let Some(slab) = slab {
            self.shared.release(slab);
        }
        self.leave_loop(body, &before);
        self.bind(&op.results);
    }

    fn endless_loop(&mut self, plan: &Loop) {
        let context = self.context;
        let op = context.module.op(plan.op);
        let body = op.regions[0];
        let args = &context.module.block(body).args;
        self.bring_all(&plan.hoisted);
        self.assign(args, op.group(0));
        let before = self.enter_loop(body);
        self.bind(args);
        self.region(plan.body);
        self.leave_loop(body, &before);
        self.bind(&op.results);
    }

    fn branches(&mut self, id: OpId, arms: &[SeqId], _quiet: bool) {
        self.flush_sunk_waits();
        let before = (self.shared.clone(), self.history.clone());
        let running = self.running.clone();
        let mut after = None;
        for (index, &arm) in arms.iter().enumerate() {
            if index == 1 {
                self.running.clone_from(&running);
                let history = std::mem::replace(&mut self.history, before.1.clone());
                after = Some((self.shared.enter_branch(&before.0), history));
            }
            self.region(arm);
            self.flush_sunk_waits();
        }
        if let Some((shared, history)) = after {
            self.shared.join(&shared);
            self.history.join(&self.context.written, history);
        }
        let results = &self.context.module.op(id).results;
        self.bind(results);
    }

    fn terminator(&mut self, id: OpId) {
        let module = self.context.module;
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
        let mut block = self.context.op_blocks[id.index()];
        while let Some(owner) = block.and_then(|block| module.block(block).parent) {
            let around = module.op(owner);
            if !wanted(around.code) {
                block = self.context.op_blocks[owner.index()];
                continue;
            }
            let targets = match (op.code, around.code) {
                (Opcode::Continue, Opcode::For) => &module.block(around.regions[0]).args[1..],
                (Opcode::Continue, _) => &module.block(around.regions[0]).args[..],
                _ => &around.results[..],
            };
            self.assign(targets, &op.operands);
            let beside = op.code == Opcode::Yield && self.context.is_pure(owner);
            if !beside {
                self.flush_sunk_waits();
            }
            return;
        }
    }
}

/// Products that the iteration before has issued: the sums of each.
fn in_orbit(orbits: &[CarriedMma], sum: impl Fn(usize) -> Value) -> Vec<Vec<Value>> {
    orbits.iter().map(|orbit| orbit.accumulators.iter().map(|&carried| sum(carried)).collect()).collect()
}
