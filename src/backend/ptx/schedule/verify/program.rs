//! Verifies the program of each partition: every op once, operands defined, pipelines balanced.
//!
//! The verifier walks each program independently of the passes. It checks:
//! * *complete*: one step of its block executes each op. The producer executes only ops of its
//!   slice, and issues the loads of each channel at one position.
//! * *defined*: the operands of an op are defined, carried into the loop, or in an acquired stage.
//! * *released*: a stage is released once, in the sequence that acquired it, after the last use.
//! * *in step*: producer and consumer use the stages of a pipeline in the same order, in the same
//!   loops and branches.
//! * *in order*: accesses that may race, and side effects, keep the order of the program.
//!
//! Other files check stages (`stage_layout`), multicast (`cluster_multicast`), TMA stores
//! (`tma_store`), privatized atomics (`privatized`), waits (`async_order`), ping-pong (`pingpong`)
//! and single steps (`steps`).

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::steps;
use super::{PipelineEvent, VerifyResult};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::deferred_values::is_computed_at_use;
use crate::backend::ptx::schedule::ir::load_path::LoadPath;
use crate::backend::ptx::schedule::ir::pipelines::WarpSpecialization;
use crate::backend::ptx::schedule::ir::program::{
    HoistedOperand, MmaGroup, MmaWait, Partition, Schedule, SeqId, Step, StripRole, WarpRole,
};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, OpId, Opcode, Type, Value};

impl KernelInfo<'_> {
    /// Verifies a schedule of the kernel with this body.
    ///
    /// # Errors
    /// The first fault of the schedule.
    pub fn verify_schedule(&self, body: BlockId, schedule: &Schedule) -> VerifyResult {
        let role: Vec<WarpRole> = schedule.partitions.iter().map(|partition| partition.role).collect_vec();
        let required: &[WarpRole] =
            if schedule.warp_spec.is_some() { &[WarpRole::Consumer, WarpRole::Producer] } else { &[WarpRole::All] };
        if role != required {
            return Err(format!("the partitions are {role:?} instead of {required:?}"));
        }
        if let Some(warp_spec) = &schedule.warp_spec {
            self.verify_stage_layout(warp_spec)?;
            self.verify_cluster_multicast(body, warp_spec)?;
        }
        let copies = schedule.sequences.iter().flatten().filter_map(|step| match step {
            Step::For(plan) => plan.cp_async.as_ref(),
            _ => None,
        });
        let copies = copies.flat_map(|cp_async| &cp_async.copies).map(|copy| (copy.load, copy.load_path()));
        if copies.collect::<FxHashMap<_, _>>() != schedule.cp_async_loads {
            return Err("the loads by cp.async are not those of the loops".to_owned());
        }
        self.verify_mma_partition(schedule)?;
        self.verify_data_partition(body, schedule)?;
        self.verify_tma_stores(schedule)?;
        self.verify_privatized(schedule)?;
        self.verify_order_barriers(schedule)?;
        self.verify_try_waits(schedule)?;
        let mut events_of_partitions = Vec::new();
        for partition in &schedule.partitions {
            let mut verifier = ProgramVerifier::new(self, schedule, partition);
            verifier
                .sequence(body, partition.body)
                .map_err(|problem| format!("program {}: {problem}", partition.role))?;
            verifier.all_channels_visited()?;
            verifier.all_tiles_prefetched()?;
            events_of_partitions.push(verifier.events);
            self.verify_async_order(schedule, partition)
                .map_err(|problem| format!("program {}: {problem}", partition.role))?;
        }
        self.verify_barriers(schedule)?;
        let [math, load] = &events_of_partitions[..] else { return Ok(()) };
        self.verify_pingpong(body, schedule, load)?;
        for pipeline in 0..schedule.warp_spec.as_ref().map_or(0, |warp_spec| warp_spec.pipelines.len()) {
            if events_of_pipeline(math, pipeline) != events_of_pipeline(load, pipeline) {
                return Err(format!("the partitions use pipeline {pipeline} in different orders"));
            }
        }
        Ok(())
    }
}

/// Returns the events of one pipeline. Loops and branches without a stage of the pipeline, or an
/// exit before one, are removed: the partitions need not agree on them.
fn events_of_pipeline(events: &[PipelineEvent], pipeline: usize) -> Vec<PipelineEvent> {
    let mut kept: Vec<PipelineEvent> = Vec::new();
    let (mut entered, mut end) = (Vec::new(), 0);
    for event in events {
        match event {
            PipelineEvent::Stage(other, _) if *other != pipeline => continue,
            PipelineEvent::Enter(_) => entered.push(kept.len()),
            PipelineEvent::Leave => {
                let start = entered.pop().expect("entered before it is left");
                let matters = |event: &PipelineEvent| matches!(event, PipelineEvent::Stage(..) | PipelineEvent::Return);
                if !kept[start..].iter().any(matters) {
                    kept.truncate(start);
                    continue;
                }
            }
            PipelineEvent::Stage(..) | PipelineEvent::Else | PipelineEvent::Return => {}
        }
        kept.push(event.clone());
        if entered.is_empty() && kept[end..].iter().any(|event| matches!(event, PipelineEvent::Stage(..))) {
            end = kept.len();
        }
    }
    // Exits after the last stage do not matter.
    kept.truncate(end);
    kept
}

/// Verifier of the program of one partition.
struct ProgramVerifier<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    role: WarpRole,
    /// Values that are defined at the current step.
    defined: FxHashSet<Value>,
    /// Channels with an acquired stage, and the sequence that acquired it.
    acquired: FxHashMap<u32, SeqId>,
    /// Channels with an advance or a produce so far.
    visited_channels: FxHashSet<u32>,
    /// Loads whose tiles the producer has prefetched so far.
    prefetched: FxHashSet<OpId>,
    events: Vec<PipelineEvent>,
    cp_async_bytes: u32,
}

impl<'a, 'm> ProgramVerifier<'a, 'm> {
    fn new(info: &'a KernelInfo<'m>, schedule: &'a Schedule, partition: &Partition) -> ProgramVerifier<'a, 'm> {
        ProgramVerifier {
            info,
            schedule,
            role: partition.role,
            defined: FxHashSet::default(),
            acquired: FxHashMap::default(),
            visited_channels: FxHashSet::default(),
            prefetched: FxHashSet::default(),
            events: Vec::new(),
            cp_async_bytes: 0,
        }
    }

    fn warp_spec(&self) -> Option<&'a WarpSpecialization> {
        self.schedule.warp_spec.as_deref()
    }

    fn all_tiles_prefetched(&self) -> VerifyResult {
        let planned = self.warp_spec().map_or(0, |warp_spec| warp_spec.prefetches.len());
        match self.role != WarpRole::Producer || self.prefetched.len() == planned {
            true => Ok(()),
            false => Err("not all planned tiles are prefetched".to_owned()),
        }
    }

    fn all_channels_visited(&self) -> VerifyResult {
        let channels = self.warp_spec().map_or(0, |warp_spec| warp_spec.channels.len());
        match self.visited_channels.len() == channels {
            true => Ok(()),
            false => Err(format!("program {}: not all channels are visited", self.role)),
        }
    }

    /// Verifies the steps of a sequence, which execute the ops of a block.
    fn sequence(&mut self, block: BlockId, body: SeqId) -> VerifyResult {
        let ops = &self.info.module.block(block).ops;
        let positions: FxHashMap<OpId, usize> = ops.iter().enumerate().map(|(position, &id)| (id, position)).collect();
        let mut before = self.defined.clone();
        self.defined.extend(&self.info.module.block(block).args);
        let mut done: FxHashSet<OpId> = FxHashSet::default();
        let mut order: Vec<usize> = Vec::new();
        for step in self.schedule.steps(body) {
            for id in ops_of(self.schedule, step) {
                let Some(&position) = positions.get(&id) else {
                    return Err(format!("op {} is not of this body", id.index()));
                };
                if !done.insert(id) {
                    return Err(format!("op {} is executed twice", id.index()));
                }
                order.push(position);
            }
            self.step(body, step)?;
        }
        self.is_complete(ops, &done)?;
        self.is_in_order(ops, &order)?;
        let unreleased = self.acquired.iter().find(|&(_, &at)| at == body);
        if let Some((channel, _)) = unreleased {
            return Err(format!("the stage of channel {channel} is never released"));
        }
        // Values of a block are not defined after it, since it need not have been executed.
        std::mem::swap(&mut self.defined, &mut before);
        Ok(())
    }

    /// Verifies that a sequence executes exactly the ops of its block that belong to this
    /// partition.
    fn is_complete(&self, ops: &[OpId], done: &FxHashSet<OpId>) -> VerifyResult {
        let module = self.info.module;
        for &id in ops {
            let code = module.op(id).code;
            let ends = code.spec().effect == Effect::Terminator || code == Opcode::GdcWait;
            let required = match (self.role, self.warp_spec()) {
                (WarpRole::Producer, Some(warp_spec)) => {
                    ends || warp_spec.producer_ops.contains(&id) || warp_spec.is_producer_load(id)
                }
                _ => true,
            };
            match (required, done.contains(&id)) {
                (true, false) => return Err(format!("op {} is not executed", id.index())),
                (false, true) => return Err(format!("op {} belongs to another partition", id.index())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Verifies that ops with effects keep the order of the program. `order`: the positions of the
    /// ops in their block, in order of execution.
    fn is_in_order(&self, ops: &[OpId], order: &[usize]) -> VerifyResult {
        // Program order has no reordered ops to check.
        if order.is_sorted() {
            return Ok(());
        }
        for (at, &sunk) in order.iter().enumerate() {
            for &early in order[..at].iter().filter(|&&early| early > sunk) {
                if self.must_keep_order(ops[sunk], ops[early]) {
                    let (sunk, early) = (ops[sunk].index(), ops[early].index());
                    return Err(format!("op {early} is done before op {sunk}"));
                }
            }
        }
        Ok(())
    }

    fn must_keep_order(&self, first: OpId, second: OpId) -> bool {
        let module = self.info.module;
        // A load of memory that the kernel does not write can be executed at any time.
        let is_invariant_load = |&id: &OpId| module.op(id).code == Opcode::LoadView && self.info.is_invariant_load(id);
        if [first, second].iter().any(is_invariant_load) {
            return false;
        }
        let [a, b] = [first, second].map(|id| module.op(id).code.spec().effect);
        match (self.info.memory_effect_of(first), self.info.memory_effect_of(second)) {
            (Some(first), Some(second)) => first.may_race(&second),
            _ => a != Effect::Pure && b != Effect::Pure,
        }
    }

    fn step(&mut self, body: SeqId, step: &Step) -> VerifyResult {
        match step {
            &Step::Advance(channel) | &Step::Produce(channel) => self.visit_channel(body, step, channel)?,
            Step::ConsumerRelease(channels) => channels.iter().try_for_each(|&channel| self.release(body, channel))?,
            &Step::Prefetch(load) => {
                let is_planned = |warp_spec: &WarpSpecialization| warp_spec.prefetches.contains_key(&load);
                let is_planned = self.role == WarpRole::Producer && self.warp_spec().is_some_and(is_planned);
                if !is_planned || !self.prefetched.insert(load) {
                    return Err(format!("the tile of op {} is prefetched without a plan, or twice", load.index()));
                }
                self.operands_defined(load)?;
            }
            Step::StripMine(strip_mine) => {
                steps::verify_strip_mine(self.info, self.schedule, strip_mine)?;
                for &(id, part) in &strip_mine.ops {
                    if part == StripRole::Body {
                        self.step_fits_op(&Step::Exec(id), id)?;
                    }
                    self.operands_defined(id)?;
                    self.defined.extend(&self.info.module.op(id).results);
                }
            }
            Step::For(step) => {
                step.carried_mmas.iter().try_for_each(|carried_mma| {
                    steps::verify_carried_mma(self.info, self.schedule, step, carried_mma)
                })?;
                steps::verify_unroll(self.info, self.role, step)?;
                if let Some(cp_async) = &step.cp_async {
                    steps::verify_cp_async(self.info, step.op, cp_async, self.schedule.steps(step.body))?;
                }
            }
            Step::MmaWait(MmaWait { mma, release_after: Some(value), .. }) if !self.defined.contains(value) => {
                return Err(format!("op {} is waited for behind %{}, which is not there", mma.index(), value.index()));
            }
            &Step::End(id) if self.info.module.op(id).code == Opcode::Return => {
                if let Some(channel) = self.acquired.keys().min() {
                    return Err(format!("the kernel ends with the stage of channel {channel}"));
                }
                self.events.push(PipelineEvent::Return);
            }
            &Step::If { op, pure: true, .. } if !self.info.is_pure(op) => {
                return Err(format!("the branches of op {} have side effects", op.index()));
            }
            _ => {}
        }
        if let Step::Mma(plan) = step {
            return self.mma_group(body, step, plan);
        }
        self.hoisted_operands(step)?;
        if let Some(id) = step.op() {
            self.step_fits_op(step, id)?;
            self.operands_defined(id)?;
            self.regions(step, id)?;
        }
        for id in ops_of(self.schedule, step) {
            self.defined.extend(&self.info.module.op(id).results);
        }
        Ok(())
    }

    /// Verifies the operands that a loop hoists: defined before the loop, read by an MMA of the
    /// loop, and not in shared memory otherwise.
    fn hoisted_operands(&self, step: &Step) -> VerifyResult {
        let (info, hoisted) = (self.info, step.hoisted_operands());
        if !hoisted.is_empty() && self.role == WarpRole::Producer {
            return Err("the producer hoists operands".to_owned());
        }
        for (at, operand) in hoisted.iter().enumerate() {
            let HoistedOperand { value, mma, is_left } = *operand;
            let is_read = step.op().is_some_and(|id| info.regions.nested(id).contains(&mma))
                && info.module.op(mma).code.is_mma()
                && info.module.op(mma).operands[usize::from(!is_left)] == value;
            let load = info.source_load(value);
            let is_staged = load.is_some_and(|load| self.schedule.load_path(load).is_smem_operand());
            if !is_read || is_staged || !self.defined.contains(&value) || hoisted[..at].contains(operand) {
                return Err(format!("%{} cannot be hoisted out of a loop", value.index()));
            }
        }
        Ok(())
    }

    /// Verifies an MMA group: each MMA in order, then the release of its stages.
    fn mma_group(&mut self, body: SeqId, step: &Step, plan: &MmaGroup) -> VerifyResult {
        for &id in &plan.ops {
            self.step_fits_op(step, id)?;
            self.operands_defined(id)?;
            self.defined.extend(&self.info.module.op(id).results);
        }
        let fetched = |load: OpId| self.schedule.load_path(load).is_smem_operand();
        steps::verify_mma_group(self.info, self.warp_spec(), plan, (&fetched, self.cp_async_bytes))?;
        plan.releases.iter().try_for_each(|&channel| self.release(body, channel))
    }

    /// Verifies that a step of this kind can execute the op.
    fn step_fits_op(&self, step: &Step, id: OpId) -> VerifyResult {
        let op = self.info.module.op(id);
        let fits = match step {
            Step::Deferred(_) => self.needs_no_code(id),
            Step::LocalLoad(_) => match self.schedule.load_path(id) {
                LoadPath::CpAsync { thread_private } => thread_private,
                LoadPath::TmaAux { .. } => self.role == WarpRole::Consumer,
                LoadPath::Direct | LoadPath::TmaOperand { .. } => false,
            },
            Step::TmaStore(_) => matches!(op.code, Opcode::StoreView | Opcode::AtomicRedView),
            Step::PrivatizedAtomic(_) => op.code == Opcode::AtomicRmw,
            Step::Mma(_) => op.code.is_mma(),
            Step::For(_) => op.code == Opcode::For,
            Step::Loop(_) => op.code == Opcode::Loop,
            Step::If { .. } => op.code == Opcode::If,
            Step::End(_) => op.code.spec().effect == Effect::Terminator,
            Step::Exec(_) => {
                let other = op.code.is_mma() || op.code.is_control_flow();
                let ends = op.code.spec().effect == Effect::Terminator;
                !(other || ends) && self.schedule.load_path(id) == LoadPath::Direct
            }
            Step::Produce(_) | Step::Prefetch(_) | Step::Advance(_) => true,
            Step::ConsumerRelease(_) | Step::StripMine(_) => true,
            Step::ConsumerWait(_) | Step::MmaWait(_) | Step::ConsumerTryWait(_) => true,
            Step::OrderWait { .. } | Step::OrderArrive(_) | Step::Sub(_) => true,
        };
        if fits { Ok(()) } else { Err(format!("op {} ({}) is no such step", id.index(), op.code.spec().name)) }
    }

    /// Returns true if this partition needs no instructions for the op at its position.
    fn needs_no_code(&self, id: OpId) -> bool {
        let op = self.info.module.op(id);
        let fetched = |load: OpId| self.schedule.load_path(load).is_smem_operand();
        match op.code {
            Opcode::LoadView => match self.schedule.load_path(id) {
                LoadPath::TmaAux { .. } => self.role == WarpRole::Producer,
                path => path.is_smem_operand(),
            },
            _ if self.info.rematerialized.contains(&id) => true,
            code => {
                let behind = op.results.first().and_then(|&result| self.info.source_load(result));
                is_computed_at_use(self.info, id)
                    || matches!(code, Opcode::FToF | Opcode::Cat) && behind.is_some_and(fetched)
                    || matches!(code, Opcode::MakeToken | Opcode::JoinTokens)
            }
        }
    }

    /// Verifies the sequences of a loop or branch.
    fn regions(&mut self, step: &Step, id: OpId) -> VerifyResult {
        let bodies = step.sequences();
        if bodies.is_empty() {
            return Ok(());
        }
        let regions = &self.info.module.op(id).regions;
        if regions.len() != bodies.len() {
            return Err(format!("op {} has {} regions", id.index(), regions.len()));
        }
        let before = self.cp_async_bytes;
        if let Step::For(step) = step
            && let Some(cp_async) = &step.cp_async
        {
            self.cp_async_bytes += cp_async.bytes();
        }
        steps::verify_smem_capacity(self.info, self.warp_spec(), self.cp_async_bytes)?;
        self.events.push(PipelineEvent::Enter(id));
        for (index, (&region, &body)) in regions.iter().zip(bodies).enumerate() {
            if index > 0 {
                self.events.push(PipelineEvent::Else);
            }
            self.sequence(region, body)?;
        }
        self.events.push(PipelineEvent::Leave);
        self.cp_async_bytes = before;
        Ok(())
    }

    fn visit_channel(&mut self, body: SeqId, step: &Step, channel: u32) -> VerifyResult {
        let right = if matches!(step, Step::Advance(_)) { WarpRole::Consumer } else { WarpRole::Producer };
        let plan = self.warp_spec().and_then(|warp_spec| warp_spec.channels.get(channel as usize));
        let (Some(plan), true) = (plan, right == self.role) else { return Err(format!("no channel {channel} here")) };
        if !self.visited_channels.insert(channel) || self.acquired.contains_key(&channel) {
            return Err(format!("channel {channel} is visited twice"));
        }
        self.events.push(PipelineEvent::Stage(plan.pipeline, channel));
        if self.role == WarpRole::Consumer {
            self.acquired.insert(channel, body);
            return Ok(());
        }
        plan.loads.iter().try_for_each(|load| self.operands_defined(load.load))
    }

    fn release(&mut self, body: SeqId, channel: u32) -> VerifyResult {
        match self.acquired.remove(&channel) {
            Some(taken) if taken == body => Ok(()),
            Some(_) => Err(format!("the stage of channel {channel} is released in another sequence than its advance")),
            None => Err(format!("the stage of channel {channel} is released, and not acquired")),
        }
    }

    /// Verifies that the operands of an op are defined. Operands of an MMA from a channel require
    /// an acquired stage.
    fn operands_defined(&mut self, id: OpId) -> VerifyResult {
        let module = self.info.module;
        let op = module.op(id);
        let ends = op.code.spec().effect == Effect::Terminator || !op.regions.is_empty();
        for &value in &op.operands {
            let required = match (self.role, self.warp_spec()) {
                _ if matches!(module.ty(value), Type::Token) => false,
                // Terminators and loops of the producer pass only the values of its slice.
                (WarpRole::Producer, Some(_)) => !ends,
                _ => true,
            };
            if required && !self.defined.contains(&value) {
                return Err(format!("op {} reads %{}, which is not there", id.index(), value.index()));
            }
            if self.role != WarpRole::Producer && op.code.is_mma() {
                self.stage_acquired(id, value)?;
            }
        }
        Ok(())
    }

    fn stage_acquired(&self, mma: OpId, value: Value) -> VerifyResult {
        let load = self.info.source_load(value);
        match load.and_then(|load| self.warp_spec()?.operand_channel(load)) {
            Some(channel) if !self.acquired.contains_key(&channel) => {
                Err(format!("op {} reads the stage of channel {channel}, which is not acquired", mma.index()))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the ops that a step executes, without those of its sequences. An advance or produce
/// executes the anchor load of its channel.
fn ops_of(schedule: &Schedule, step: &Step) -> Vec<OpId> {
    let warp_spec = schedule.warp_spec.as_ref();
    match step {
        &Step::Advance(channel) => {
            warp_spec.and_then(|warp_spec| warp_spec.consumer_anchor(channel)).into_iter().collect_vec()
        }
        &Step::Produce(channel) => {
            warp_spec.and_then(|warp_spec| warp_spec.producer_anchor(channel)).into_iter().collect_vec()
        }
        step => step.ops(),
    }
}
