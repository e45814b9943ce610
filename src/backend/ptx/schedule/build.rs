//! Builds the schedule: runs the planning passes in order and emits the steps of each partition.

use std::collections::HashSet;
use std::rc::Rc;

use super::KernelInfo;
use super::ir::pipelines::WarpSpecialization;
use super::ir::program::{For, LayoutId, Loop, OrderPoint, Partition, Schedule, SeqId, Step, StripMine, WarpRole};
use super::ir::tma_store::{TmaStore, TmaStorePlan};
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::table::Effect;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// What is known while the steps of an agent are made.
struct Builder<'a, 'm> {
    context: &'a KernelInfo<'m>,
    /// What is reserved here. Copies that run ahead of the loops around have reserved their stages.
    shared: SharedMemory,
    acts: WarpRole,
    /// Loads of which the threads have their own elements in a stage, in the loops around.
    own: HashSet<OpId>,
    /// Loads whose tiles stand in stages as operands, in the loops around.
    staged: HashSet<OpId>,
    schedule: Schedule,
}

impl KernelInfo<'_> {
    /// The schedule of a kernel with this body. `roles`: what is streamed, if anything is; `shared`: with all that is
    /// reserved for the whole kernel.
    pub fn schedule(&self, body: BlockId, roles: Option<Rc<WarpSpecialization>>, shared: &SharedMemory) -> Schedule {
        let warps = self.consumer_warps();
        let agents = match roles {
            Some(_) => vec![(WarpRole::Consumer, 0..warps), (WarpRole::Producer, warps..warps + self.producer_warps())],
            None => vec![(WarpRole::All, 0..warps)],
        };
        let schedule = Schedule {
            warp_spec: roles,
            privatized: self.private,
            mma_partitions: self.splits(body),
            ..Schedule::default()
        };
        let mut builder = Builder {
            context: self,
            shared: shared.clone(),
            acts: WarpRole::All,
            own: HashSet::new(),
            staged: HashSet::new(),
            schedule,
        };
        for (acts, warps) in agents {
            builder.acts = acts;
            let body = builder.block(body);
            builder.schedule.partitions.push(Partition { role: acts, warps, body });
        }
        self.insert_waits(&mut builder.schedule);
        self.insert_barriers(&mut builder.schedule, shared);
        self.overlap_mmas(&mut builder.schedule);
        self.insert_try_waits(&mut builder.schedule);
        self.order_mmas(&mut builder.schedule);
        builder.schedule
    }
}

impl Builder<'_, '_> {
    fn roles(&self) -> Option<&WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn empty_body(&mut self) -> SeqId {
        self.schedule.sequences.push(Vec::new());
        SeqId(self.schedule.sequences.len() as u32 - 1)
    }

    fn block(&mut self, block: BlockId) -> SeqId {
        let id = self.empty_body();
        let ops = &self.context.module.block(block).ops;
        let steps = if self.acts == WarpRole::Producer { self.of_slice(ops) } else { self.of_all(ops) };
        self.schedule.sequences[id.0 as usize] = steps;
        id
    }

    /// The steps of ops that only lead to loads, or make them.
    fn of_slice(&mut self, ops: &[OpId]) -> Vec<Step> {
        let ops: Vec<OpId> = ops.iter().copied().filter(|&id| self.is_loaders(id)).collect();
        ops.into_iter().map(|id| self.step(id)).collect()
    }

    /// Does the agent that loads do this op?
    fn is_loaders(&self, id: OpId) -> bool {
        let code = self.context.module.op(id).code;
        // Loads of both agents come after a wait for the kernel before, which stands in the entry (see `analysis/early_exit`).
        code.spec().effect == Effect::Terminator
            || code == Opcode::GdcWait
            || self.roles().is_some_and(|roles| {
                roles.producer_ops.contains(&id) || roles.is_producer_load(id) || roles.staging_channel_of(id).is_some()
            })
    }

    fn of_all(&mut self, ops: &[OpId]) -> Vec<Step> {
        let ops = &self.in_time(ops)[..];
        let mut runs = self.context.strips(ops, &|id| self.is_in_stage(id));
        let mut steps = Vec::with_capacity(ops.len());
        let mut next = 0;
        while let Some(&id) = ops.get(next) {
            if matches!(self.context.module.op(id).code, Opcode::MmaF | Opcode::MmaI) {
                steps.extend(self.products(id));
                next += 1;
                continue;
            }
            if let Some(run) = runs.at(self.context, next) {
                next += run.parts.len();
                let layout = self.schedule.layout_id(run.layout);
                steps.push(Step::StripMine(Rc::new(StripMine {
                    layout,
                    registers_per_iteration: run.piece,
                    ops: run.parts,
                    live_out: run.gives,
                })));
                continue;
            }
            steps.extend(self.roles().and_then(|roles| roles.staging_channel_of(id)).map(Step::Advance));
            steps.push(self.step(id));
            let given = self.given_by(id);
            if !given.is_empty() {
                steps.push(Step::ConsumerRelease(given));
            }
            next += 1;
        }
        steps
    }

    fn step(&mut self, id: OpId) -> Step {
        let context = self.context;
        let op = context.module.op(id);
        let lent =
            self.roles().and_then(|roles| roles.staging_channel_of(id)).filter(|_| self.acts == WarpRole::Producer);
        if let Some(channel) = lent {
            return Step::Produce(channel);
        }
        match op.code {
            _ if context.deferred.contains(&id) => Step::Deferred(id),
            Opcode::FToF if self.is_fetched(op.results[0]) => Step::Deferred(id),
            Opcode::Constant | Opcode::Iota | Opcode::Assume | Opcode::Broadcast | Opcode::Reshape => {
                Step::Deferred(id)
            }
            Opcode::Permute | Opcode::MakeToken | Opcode::JoinTokens => Step::Deferred(id),
            Opcode::WithLayout if context.inference.source(op.results[0]) == ValueOrigin::View => Step::Deferred(id),
            Opcode::LoadView => self.load(id),
            Opcode::AtomicRmw if context.combined.contains(&id) => Step::PrivatizedAtomic(id),
            Opcode::StoreView | Opcode::AtomicRedView if context.boxed.contains_key(&id) => self.send(id),
            Opcode::For => self.for_loop(id),
            Opcode::Loop => {
                let body = op.regions[0];
                let hoisted = self.hoisted(body);
                Step::Loop(Box::new(Loop { op: id, hoisted, body: self.block(body) }))
            }
            Opcode::If => {
                let arms = op.regions.iter().map(|&region| self.block(region)).collect();
                Step::If { op: id, arms, pure: context.is_pure(id) }
            }
            code if code.spec().effect == Effect::Terminator => Step::End(id),
            code if code.is_elementwise() && context.inference.source(op.results[0]) == ValueOrigin::Rematerialized => {
                Step::Deferred(id)
            }
            _ => Step::Exec(id),
        }
    }

    fn send(&mut self, id: OpId) -> Step {
        let TmaStorePlan { layout, tile, staging: outbox } = self.context.boxed[&id].clone();
        Step::TmaStore(Box::new(TmaStore { op: id, layout: self.schedule.layout_id(&layout), tile, staging: outbox }))
    }

    /// The channels that are done with their stages after this op.
    fn given_by(&self, id: OpId) -> Vec<u32> {
        self.roles().map_or(Vec::new(), |roles| roles.released_by(id))
    }

    /// The products that belong together with the last one of them, which this may be; of the others nothing is done where
    /// they stand. They give back what they used themselves.
    fn products(&self, id: OpId) -> Vec<Step> {
        if self.context.bundles.last(id) != id {
            return Vec::new();
        }
        let fetched = |value| self.is_fetched(value);
        let mut products = self.context.issued(id, self.roles(), &fetched, self.shared.free());
        if let Some(last) = products.last_mut() {
            last.releases = self.given_by(id);
        }
        products.into_iter().map(|product| Step::Mma(Box::new(product))).collect()
    }

    fn load(&self, id: OpId) -> Step {
        let channel = self
            .roles()
            .and_then(|roles| roles.operand_channel.get(&id).or_else(|| roles.aux_channel.get(&id)).copied());
        let Some((channel, roles)) = channel.map(|channel| channel as u32).zip(self.roles()) else {
            return match () {
                () if self.staged.contains(&id) => Step::Deferred(id),
                () if self.own.contains(&id) => Step::LocalLoadThreadPrivate(id),
                () => Step::Exec(id),
            };
        };
        match self.acts {
            WarpRole::Producer if roles.producer_anchor(channel) == Some(id) => Step::Produce(channel),
            WarpRole::Consumer if roles.consumer_anchor(channel) == Some(id) => Step::Advance(channel),
            WarpRole::Consumer if roles.aux_channel.contains_key(&id) => Step::LocalLoad(id),
            WarpRole::Producer | WarpRole::Consumer | WarpRole::All => Step::Deferred(id),
        }
    }

    /// Is it the load of a small tile that comes with others?
    fn rides(&self, id: OpId) -> bool {
        self.roles().is_some_and(|roles| roles.aux_channel.contains_key(&id))
    }

    /// The last op that reads the stage in which a small tile comes.
    fn done_with(&self, load: OpId) -> Option<OpId> {
        self.roles().and_then(|roles| Some(roles.channels[*roles.aux_channel.get(&load)?].last_use))
    }

    /// The ops of a block, with small tiles that come with others where they are used first: they stand in registers no longer
    /// than they have to.
    fn in_time(&self, ops: &[OpId]) -> Vec<OpId> {
        let mut sorted = ops.to_vec();
        for &load in ops.iter().filter(|&&id| self.rides(id)) {
            let names = self.context.names_of(ops, load);
            let Some(user) = self.context.first_use(ops, load) else { continue };
            sorted.retain(|id| !names.contains(id));
            let place = |of: OpId| sorted.iter().position(|&id| id == of).unwrap_or(sorted.len());
            // Behind the last product that reads its stage, if it is used later: that runs meanwhile.
            let at = self.done_with(load).map_or(place(user), |last| place(user).min(place(last) + 1));
            sorted.splice(at..at, names);
        }
        sorted
    }

    /// Has the tile behind this value been fetched to shared memory, so that nothing is to be computed?
    fn is_fetched(&self, value: Value) -> bool {
        let is_streamed = |load: &OpId| self.roles().is_some_and(|roles| roles.operand_channel.contains_key(load));
        self.context.source_load(value).is_some_and(|load| is_streamed(&load) || self.staged.contains(&load))
    }

    /// Does this load, or the conversion of one, leave its tile in a stage?
    fn is_in_stage(&self, id: OpId) -> bool {
        self.own.contains(&id)
            || self.rides(id)
            || self.context.module.op(id).results.first().is_some_and(|&tile| self.is_fetched(tile))
    }

    /// What a loop with this body uses from outside in other layouts.
    fn hoisted(&mut self, body: BlockId) -> Vec<(Value, LayoutId)> {
        if self.acts == WarpRole::Producer {
            return Vec::new();
        }
        let mut hoisted = Vec::new();
        for (value, layout) in self.context.hoisted(body) {
            let brought = (value, self.schedule.layout_id(&layout));
            if !hoisted.contains(&brought) {
                hoisted.push(brought);
            }
        }
        hoisted
    }

    /// What teams do in turn comes between a turn and the end of it.
    fn take_turns(&mut self, body: SeqId) {
        let steps = std::mem::take(&mut self.schedule.sequences[body.0 as usize]);
        let spans = OrderPoint::ALL.map(|turn| {
            let of_turn = |step: &Step| match turn {
                OrderPoint::Pipeline => self.uses_rings(step),
                OrderPoint::SideEffects => step.ops().into_iter().any(|id| self.context.has_noticed(id)),
            };
            Some((steps.iter().position(of_turn)?, steps.iter().rposition(of_turn)?))
        });
        let all = || OrderPoint::ALL.into_iter().zip(spans);
        let mut with_turns = Vec::with_capacity(steps.len() + 4);
        for (at, step) in steps.into_iter().enumerate() {
            with_turns.extend(
                all()
                    .filter(|(_, span)| span.is_some_and(|(first, _)| first == at))
                    .map(|(turn, _)| Step::OrderWait(turn)),
            );
            with_turns.push(step);
            with_turns.extend(
                all()
                    .filter(|(_, span)| span.is_some_and(|(_, last)| last == at))
                    .map(|(turn, _)| Step::OrderArrive(turn)),
            );
        }
        self.schedule.sequences[body.0 as usize] = with_turns;
    }

    /// Does a step take stages or wait for them, itself or in its bodies?
    fn uses_rings(&self, step: &Step) -> bool {
        let inside = step.bodies().iter().flat_map(|&body| self.schedule.steps(body));
        matches!(step, Step::Advance(_) | Step::Mma(_)) || inside.into_iter().any(|inner| self.uses_rings(inner))
    }

    fn for_loop(&mut self, id: OpId) -> Step {
        let context = self.context;
        let body = context.module.op(id).regions[0];
        let hoisted = self.hoisted(body);
        let ahead = match self.acts {
            WarpRole::Producer => None,
            acts => context.plan_cp_async(id, (acts == WarpRole::All, self.roles()), &self.shared).map(Rc::new),
        };
        let slab: Option<Buffer> = ahead.as_ref().and_then(|ahead| self.shared.reserve(ahead.bytes(), ahead.align()));
        let before = (self.own.clone(), self.staged.clone());
        for copy in ahead.iter().flat_map(|ahead| &ahead.copies) {
            if copy.thread_private { &mut self.own } else { &mut self.staged }.insert(copy.load);
        }
        let steps = self.block(body);
        let orbits = match self.acts {
            WarpRole::Consumer => context.carried_mmas_of(id, self.schedule.steps(steps)),
            WarpRole::All | WarpRole::Producer => Vec::new(),
        };
        (self.own, self.staged) = before;
        if let Some(slab) = slab {
            self.shared.release(slab);
        }
        let leave = (!orbits.is_empty()).then(|| self.empty_body());
        let deal = self.roles().and_then(|roles| roles.pingpong.clone());
        let deal = deal.filter(|deal| deal.loop_op == id && self.acts == WarpRole::Consumer);
        if deal.is_some() {
            self.take_turns(steps);
        }
        let plain = self.acts != WarpRole::Producer && ahead.is_none() && orbits.is_empty() && deal.is_none();
        let rounds = context.unroll_factor(id, plain);
        Step::For(Box::new(For {
            op: id,
            hoisted,
            cp_async: ahead,
            carried_mmas: orbits,
            pingpong: deal,
            unroll: rounds,
            body: steps,
            epilogue: leave,
        }))
    }
}
