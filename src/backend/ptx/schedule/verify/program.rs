//! Verifies the program of each partition: every op once, operands defined, pipelines balanced.
//!
//! The checker walks each agent's program as its threads will, and knows nothing of how it came about. It asks:
//! * *complete*: every op of the module is done by exactly one step of its block, in a body of that block; the agent that
//!   loads does ops of its slice alone, and fills each channel in one place;
//! * *made before*: what an op reads is there: made, carried in, or in a stage that has been taken and not given back;
//! * *given back*: a stage that is taken is given back once, in the same body, when nothing uses it any more, or by the
//!   product that carries it into the next iteration;
//! * *in step*: both agents go through the stages of a ring in the same order, in the same loops and branches;
//! * *filled*: boxes fill the bytes of stages that products read, each once (`stage_layout`);
//! * *sent*: boxes of stores cover their tiles once, and stand in places of their own (`tma_store`);
//! * *combined*: atomics that the block combines find a copy of their array, which nobody accesses otherwise (`privatized`);
//! * *in order*: accesses that may meet at an element, and what is seen from outside, come as in the program;
//! * *waited for*: products have landed, and streamed tiles arrived, where they are read (`async_order`);
//! * *dealt*: a team skips the stages that the other one takes, and what others could notice comes in turn (`pingpong`);
//! * what strips, copies ahead, products that are issued together and quiet branches ask for (`steps`).

use std::collections::{HashMap, HashSet};

use super::steps;
use super::{PipelineEvent, VerifyResult};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::deferred_values::is_computed_at_use;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    MmaGroup, MmaWait, Partition, Schedule, SeqId, Step, StripRole, WarpRole,
};
use crate::ir::table::Effect;
use crate::ir::{BlockId, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Is this a schedule of the kernel with this body?
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn verify_schedule(&self, body: BlockId, schedule: &Schedule) -> VerifyResult {
        let acts: Vec<WarpRole> = schedule.partitions.iter().map(|agent| agent.role).collect();
        let wanted: &[WarpRole] =
            if schedule.warp_spec.is_some() { &[WarpRole::Consumer, WarpRole::Producer] } else { &[WarpRole::All] };
        if acts != wanted {
            return Err(format!("the agents are {acts:?} instead of {wanted:?}"));
        }
        if let Some(roles) = &schedule.warp_spec {
            self.verify_stage_layout(body, roles)?;
        }
        self.verify_mma_partition(body, schedule)?;
        self.verify_data_partition(body, schedule)?;
        self.verify_tma_stores(body, schedule)?;
        self.verify_privatized(body, schedule)?;
        self.verify_mma_order(schedule)?;
        self.verify_try_waits(schedule)?;
        let mut ways = Vec::new();
        for agent in &schedule.partitions {
            let mut walk = Walk::new(self, schedule, agent);
            walk.body(body, agent.body).map_err(|problem| format!("program {}: {problem}", agent.role))?;
            walk.end()?;
            ways.push(walk.way);
            self.verify_async_order(schedule, agent).map_err(|problem| format!("program {}: {problem}", agent.role))?;
        }
        self.verify_barriers(schedule)?;
        let [math, load] = &ways[..] else { return Ok(()) };
        self.verify_pingpong(body, schedule, load)?;
        for ring in 0..schedule.warp_spec.as_ref().map_or(0, |roles| roles.pipelines.len()) {
            if of_ring(math, ring) != of_ring(load, ring) {
                return Err(format!("the agents do not go through ring {ring} in the same order"));
            }
        }
        Ok(())
    }
}

/// The way through one ring: where it is not gone through, it is no matter who goes there.
fn of_ring(way: &[PipelineEvent], ring: usize) -> Vec<PipelineEvent> {
    let mut kept: Vec<PipelineEvent> = Vec::new();
    let mut entered = Vec::new();
    for mark in way {
        match mark {
            PipelineEvent::Stage(other, _) if *other != ring => continue,
            PipelineEvent::Enter(_) => entered.push(kept.len()),
            PipelineEvent::Leave => {
                let start = entered.pop().expect("entered before it is left");
                if !kept[start..].iter().any(|mark| matches!(mark, PipelineEvent::Stage(..))) {
                    kept.truncate(start);
                    continue;
                }
            }
            PipelineEvent::Stage(..) | PipelineEvent::Else => {}
        }
        kept.push(mark.clone());
    }
    kept
}

/// One agent's way through its program.
struct Walk<'a, 'm> {
    context: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    acts: WarpRole,
    /// Values that are there.
    there: HashSet<Value>,
    /// Channels whose stage is held, and the body in which it was taken.
    held: HashMap<u32, SeqId>,
    /// Channels that were taken or filled.
    gone_through: HashSet<u32>,
    /// The loads whose tiles the threads have in stages, in the loops around; own elements or not.
    ahead: HashMap<OpId, bool>,
    way: Vec<PipelineEvent>,
    bytes_ahead: u32,
}

impl<'a, 'm> Walk<'a, 'm> {
    fn new(context: &'a KernelInfo<'m>, schedule: &'a Schedule, agent: &Partition) -> Walk<'a, 'm> {
        Walk {
            context,
            schedule,
            acts: agent.role,
            there: HashSet::new(),
            held: HashMap::new(),
            gone_through: HashSet::new(),
            ahead: HashMap::new(),
            way: Vec::new(),
            bytes_ahead: 0,
        }
    }

    fn roles(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn channel_of(&self, load: OpId) -> Option<u32> {
        self.roles().and_then(|roles| roles.operand_channel.get(&load)).map(|&channel| channel as u32)
    }

    /// Is it the load of a small tile that comes with others?
    fn rides(&self, load: OpId) -> bool {
        self.roles().is_some_and(|roles| roles.aux_channel.contains_key(&load))
    }

    fn end(&self) -> VerifyResult {
        let channels = self.roles().map_or(0, |roles| roles.channels.len());
        match self.gone_through.len() == channels {
            true => Ok(()),
            false => Err(format!("program {}: not all channels are gone through", self.acts)),
        }
    }

    /// The steps of a body, which do the ops of a block.
    fn body(&mut self, block: BlockId, body: SeqId) -> VerifyResult {
        let ops = &self.context.module.block(block).ops;
        let places: HashMap<OpId, usize> = ops.iter().enumerate().map(|(place, &id)| (id, place)).collect();
        let mut before = self.there.clone();
        self.there.extend(&self.context.module.block(block).args);
        let mut done: HashSet<OpId> = HashSet::new();
        let mut order: Vec<usize> = Vec::new();
        for step in self.schedule.steps(body) {
            for id in ops_of(self.schedule, step) {
                let Some(&place) = places.get(&id) else {
                    return Err(format!("op {} is not of this body", id.index()));
                };
                if !done.insert(id) {
                    return Err(format!("op {} is done twice", id.index()));
                }
                order.push(place);
            }
            self.step(body, step)?;
        }
        self.is_complete(ops, &done)?;
        self.is_in_order(ops, &order)?;
        let held = self.held.iter().find(|&(_, &at)| at == body);
        if let Some((channel, _)) = held {
            return Err(format!("the stage of channel {channel} is never given back"));
        }
        // What a body makes is forgotten, since it need not have run.
        std::mem::swap(&mut self.there, &mut before);
        Ok(())
    }

    /// Are all ops done that this agent has to do?
    fn is_complete(&self, ops: &[OpId], done: &HashSet<OpId>) -> VerifyResult {
        let module = self.context.module;
        for &id in ops {
            let code = module.op(id).code;
            let ends = code.spec().effect == Effect::Terminator || code == Opcode::GdcWait;
            let wanted = match (self.acts, self.roles()) {
                (WarpRole::Producer, Some(roles)) => {
                    ends || roles.producer_ops.contains(&id) || roles.is_producer_load(id)
                }
                _ => true,
            };
            match (wanted, done.contains(&id)) {
                (true, false) => return Err(format!("op {} is not done", id.index())),
                (false, true) => return Err(format!("op {} is another agent's", id.index())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Do ops that others could notice come in the order of the program? `order`: their places there, as they are done.
    fn is_in_order(&self, ops: &[OpId], order: &[usize]) -> VerifyResult {
        // In the order of the program nothing meets what it should not.
        if order.is_sorted() {
            return Ok(());
        }
        for (at, &late) in order.iter().enumerate() {
            for &early in order[..at].iter().filter(|&&early| early > late) {
                if self.must_keep_order(ops[late], ops[early]) {
                    let (late, early) = (ops[late].index(), ops[early].index());
                    return Err(format!("op {early} is done before op {late}"));
                }
            }
        }
        Ok(())
    }

    fn must_keep_order(&self, first: OpId, second: OpId) -> bool {
        let module = self.context.module;
        // What is only read is the same at any time.
        let is_invariant_load =
            |&id: &OpId| module.op(id).code == Opcode::LoadView && self.context.is_invariant_load(id);
        if [first, second].iter().any(is_invariant_load) {
            return false;
        }
        let [a, b] = [first, second].map(|id| module.op(id).code.spec().effect);
        match (self.context.memory_effect_of(first), self.context.memory_effect_of(second)) {
            (Some(first), Some(second)) => first.may_race(&second),
            _ => a != Effect::Pure && b != Effect::Pure,
        }
    }

    fn step(&mut self, body: SeqId, step: &Step) -> VerifyResult {
        match step {
            &Step::Advance(channel) | &Step::Produce(channel) => self.go_through(body, step, channel)?,
            Step::ConsumerRelease(channels) => channels.iter().try_for_each(|&channel| self.give(body, channel))?,
            Step::StripMine(strip) => {
                steps::strip(self.context, self.schedule, strip)?;
                for &(id, part) in &strip.ops {
                    if part == StripRole::Body {
                        self.kind_fits(&Step::Exec(id), id)?;
                    }
                    self.reads(id)?;
                    self.there.extend(&self.context.module.op(id).results);
                }
            }
            Step::For(step) => {
                step.carried_mmas
                    .iter()
                    .try_for_each(|orbit| steps::orbit(self.context, self.schedule, step, orbit))?;
                steps::rounds(self.context, self.acts, step)?;
                if let Some(ahead) = &step.cp_async {
                    steps::ahead(self.context, step.op, ahead, self.schedule.steps(step.body))?;
                }
            }
            Step::MmaWait(MmaWait { mma: product, release_after: Some(value), .. }) if !self.there.contains(value) => {
                return Err(format!(
                    "op {} is waited for behind %{}, which is not there",
                    product.index(),
                    value.index()
                ));
            }
            &Step::If { op, pure: true, .. } if !self.context.is_pure(op) => {
                return Err(format!("the branches of op {} do more than compute", op.index()));
            }
            _ => {}
        }
        if let Step::Mma(plan) = step {
            return self.multiply(body, step, plan);
        }
        if let Some(id) = step.op() {
            self.kind_fits(step, id)?;
            self.reads(id)?;
            self.regions(step, id)?;
        }
        for id in ops_of(self.schedule, step) {
            self.there.extend(&self.context.module.op(id).results);
        }
        Ok(())
    }

    /// Products that are issued together, in order; then their stages come back.
    fn multiply(&mut self, body: SeqId, step: &Step, plan: &MmaGroup) -> VerifyResult {
        for &id in &plan.ops {
            self.kind_fits(step, id)?;
            self.reads(id)?;
            self.there.extend(&self.context.module.op(id).results);
        }
        let ahead = &self.ahead;
        let fetched = |load: OpId| self.channel_of(load).is_some() || ahead.get(&load) == Some(&false);
        steps::together(self.context, self.roles(), plan, (&fetched, self.bytes_ahead))?;
        plan.releases.iter().try_for_each(|&channel| self.give(body, channel))
    }

    /// Is the op one that a step of this kind does?
    fn kind_fits(&self, step: &Step, id: OpId) -> VerifyResult {
        let op = self.context.module.op(id);
        let fits = match step {
            Step::Deferred(_) => self.makes_nothing(id),
            Step::LocalLoadThreadPrivate(_) => self.ahead.get(&id) == Some(&true),
            Step::LocalLoad(_) => self.acts == WarpRole::Consumer && self.rides(id),
            Step::TmaStore(_) => matches!(op.code, Opcode::StoreView | Opcode::AtomicRedView),
            Step::PrivatizedAtomic(_) => op.code == Opcode::AtomicRmw,
            Step::Mma(_) => matches!(op.code, Opcode::MmaF | Opcode::MmaI),
            Step::For(_) => op.code == Opcode::For,
            Step::Loop(_) => op.code == Opcode::Loop,
            Step::If { .. } => op.code == Opcode::If,
            Step::End(_) => op.code.spec().effect == Effect::Terminator,
            Step::Exec(_) => {
                let other = matches!(op.code, Opcode::MmaF | Opcode::MmaI | Opcode::For | Opcode::Loop | Opcode::If);
                let ends = op.code.spec().effect == Effect::Terminator;
                let fetched = self.channel_of(id).is_some() || self.rides(id) || self.ahead.contains_key(&id);
                !(other || ends || fetched)
            }
            Step::Produce(_) | Step::Advance(_) | Step::ConsumerRelease(_) | Step::StripMine(_) => true,
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::OrderWait(_) | Step::OrderArrive(_) | Step::Sub(_) => true,
            Step::ConsumerTryWait(_) | Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => true,
        };
        if fits { Ok(()) } else { Err(format!("op {} ({}) is no such step", id.index(), op.code.spec().name)) }
    }

    /// Does nobody miss instructions for this op here?
    fn makes_nothing(&self, id: OpId) -> bool {
        let op = self.context.module.op(id);
        let fetched = |load: OpId| self.channel_of(load).is_some() || self.ahead.get(&load) == Some(&false);
        match op.code {
            Opcode::LoadView => fetched(id) || self.acts == WarpRole::Producer && self.rides(id),
            _ if self.context.rematerialized.contains(&id) => true,
            code => {
                let behind = op.results.first().and_then(|&result| self.context.source_load(result));
                is_computed_at_use(self.context, id)
                    || code == Opcode::FToF && behind.is_some_and(fetched)
                    || matches!(code, Opcode::MakeToken | Opcode::JoinTokens)
            }
        }
    }

    /// The bodies of a loop or branch.
    fn regions(&mut self, step: &Step, id: OpId) -> VerifyResult {
        let bodies = step.bodies();
        if bodies.is_empty() {
            return Ok(());
        }
        let regions = &self.context.module.op(id).regions;
        if regions.len() != bodies.len() {
            return Err(format!("op {} has {} regions", id.index(), regions.len()));
        }
        let before = (self.ahead.clone(), self.bytes_ahead);
        if let Step::For(step) = step
            && let Some(ahead) = &step.cp_async
        {
            self.bytes_ahead += ahead.bytes();
            self.ahead.extend(ahead.copies.iter().map(|copy| (copy.load, copy.thread_private)));
        }
        steps::fits(self.context, self.roles(), self.bytes_ahead)?;
        self.way.push(PipelineEvent::Enter(id));
        for (index, (&region, &body)) in regions.iter().zip(bodies).enumerate() {
            if index > 0 {
                self.way.push(PipelineEvent::Else);
            }
            self.body(region, body)?;
        }
        self.way.push(PipelineEvent::Leave);
        (self.ahead, self.bytes_ahead) = before;
        Ok(())
    }

    fn go_through(&mut self, body: SeqId, step: &Step, channel: u32) -> VerifyResult {
        let right = if matches!(step, Step::Advance(_)) { WarpRole::Consumer } else { WarpRole::Producer };
        let plan = self.roles().and_then(|roles| roles.channels.get(channel as usize));
        let (Some(plan), true) = (plan, right == self.acts) else { return Err(format!("no channel {channel} here")) };
        if !self.gone_through.insert(channel) || self.held.contains_key(&channel) {
            return Err(format!("channel {channel} is gone through twice"));
        }
        self.way.push(PipelineEvent::Stage(plan.pipeline, channel));
        if self.acts == WarpRole::Consumer {
            self.held.insert(channel, body);
            return Ok(());
        }
        plan.loads.iter().try_for_each(|load| self.reads(load.load))
    }

    fn give(&mut self, body: SeqId, channel: u32) -> VerifyResult {
        match self.held.remove(&channel) {
            Some(taken) if taken == body => Ok(()),
            Some(_) => Err(format!("the stage of channel {channel} is given back elsewhere than it was taken")),
            None => Err(format!("the stage of channel {channel} is given back, and not held")),
        }
    }

    /// Is all there that an op reads, also in the regions that are parts of it?
    fn reads(&mut self, id: OpId) -> VerifyResult {
        let module = self.context.module;
        let op = module.op(id);
        let ends = op.code.spec().effect == Effect::Terminator || !op.regions.is_empty();
        for &value in &op.operands {
            let wanted = match (self.acts, self.roles()) {
                _ if matches!(module.ty(value), Type::Token) => false,
                // It carries what the slice needs alone.
                (WarpRole::Producer, Some(_)) => !ends,
                _ => true,
            };
            if wanted && !self.there.contains(&value) {
                return Err(format!("op {} reads %{}, which is not there", id.index(), value.index()));
            }
            if self.acts != WarpRole::Producer && matches!(op.code, Opcode::MmaF | Opcode::MmaI) {
                self.reads_stage(id, value)?;
            }
        }
        Ok(())
    }

    fn reads_stage(&self, product: OpId, value: Value) -> VerifyResult {
        let load = self.context.source_load(value);
        match load.and_then(|load| self.channel_of(load)) {
            Some(channel) if !self.held.contains_key(&channel) => {
                Err(format!("op {} reads the stage of channel {channel}, which is not held", product.index()))
            }
            _ => Ok(()),
        }
    }
}

/// The ops that a step does, without those in its bodies.
fn ops_of(schedule: &Schedule, step: &Step) -> Vec<OpId> {
    let roles = schedule.warp_spec.as_ref();
    match step {
        &Step::Advance(channel) => roles.and_then(|roles| roles.consumer_anchor(channel)).into_iter().collect(),
        &Step::Produce(channel) => roles.and_then(|roles| roles.producer_anchor(channel)).into_iter().collect(),
        step => step.ops(),
    }
}
