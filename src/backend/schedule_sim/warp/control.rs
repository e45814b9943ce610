//! Loops and branches: entry of their sequences, and values that are passed at their ends.

use std::rc::Rc;

use super::warp_state::{Level, LevelKind, Partition, Passed, StepOutcome};
use crate::backend::ptx::schedule::{
    CarriedMma, CpAsyncPlan, For, LayoutId, Loop, PINGPONG_GROUPS, PingPong, SeqId, Step, WarpRole,
};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::memory::async_copy::CpAsyncCopies;
use crate::backend::schedule_sim::memory::shared_state::Shared;
use crate::ir::{OpId, Opcode, Sign, Value};

impl<'a> Partition<'a> {
    /// # Errors
    /// The operand of a hoisted conversion is not available.
    fn before_loop(&mut self, hoisted: &[(Value, LayoutId)]) -> Result<(), Fault> {
        for &(value, _) in hoisted {
            self.require(value)?;
            if self.role != WarpRole::Producer && !self.frame.is_known(value) && self.staged_load(value).is_none() {
                return Err(broken(format!("%{} is converted before a loop, and not available", value.index())));
            }
        }
        Ok(())
    }

    /// Returns the values to pass. Accumulators of MMAs in flight are passed as such; `to` has the
    /// arguments, `carried_mmas` those of the loop.
    fn passed(
        &mut self,
        values: &[Value],
        (to, carried_mmas): (&[Value], Option<&[CarriedMma]>),
    ) -> Result<Vec<Passed>, Fault> {
        let mut all = Vec::with_capacity(values.len());
        for (position, &value) in values.iter().enumerate() {
            if let Some((mma_group, promise)) = self.in_flight_values.get(&value)
                && to.get(position).is_some_and(|&arg| self.kernel.info.is_accumulated_in_place(arg, value))
                && self.may_carry(carried_mmas, (*mma_group, value), position)
            {
                all.push(Passed::InFlight(*mma_group, promise.clone()));
                continue;
            }
            self.require(value)?;
            all.push(Passed::Content(self.frame.get(value)));
        }
        Ok(all)
    }

    /// Returns true if the loop carries this accumulator in flight at this position.
    fn may_carry(&self, carried_mmas: Option<&[CarriedMma]>, (number, value): (u64, Value), position: usize) -> bool {
        let Some(carried_mmas) = carried_mmas else { return true };
        let Some(mma_group) = self.in_flight.iter().find(|mma_group| mma_group.number == number) else { return false };
        let sums = self.kernel.info.results_of(&mma_group.ops);
        let of_flight = carried_mmas.iter().filter(|carried_mma| carried_mma.mma == mma_group.last);
        let mut carried = of_flight.flat_map(|carried_mma| carried_mma.accumulators.iter().zip(&sums));
        carried.any(|(&carried, &sum)| carried == position && sum == value)
    }

    /// Returns true if all values that are passed to these arguments are available.
    fn is_there(&self, to: &[Value], passed: &[Passed]) -> Result<(), Fault> {
        let module = self.kernel.module;
        for (&value, passed) in to.iter().zip(passed) {
            let there = match passed {
                Passed::Content(content) => content.is_known(),
                Passed::InFlight(..) => true,
            };
            if !there && module.ty(value).as_tile().is_some() && !self.kernel.may_lack(self.role, value) {
                return Err(broken(format!("nothing is passed to %{}", value.index())));
            }
        }
        Ok(())
    }

    fn enter(&mut self, kind: LevelKind<'a>, op: OpId, region: usize, body: SeqId) -> Result<(), Fault> {
        let block = self.kernel.module.op(op).regions.get(region).copied();
        let block = block.ok_or_else(|| broken(format!("op {} has no such region", op.index())))?;
        let allocations = self.frame.allocations();
        self.levels.push(Level { kind, block, body, next: 0, allocations });
        Ok(())
    }

    /// Executes a `for`.
    ///
    /// # Errors
    /// Errors of its steps.
    pub fn for_loop(&mut self, shared: &mut Shared<'a>, plan: &'a For) -> Result<(), Fault> {
        let module = self.kernel.module;
        let op = module.op(plan.op);
        (0..3).try_for_each(|group| self.require(op.group(group)[0]))?;
        let mut range = self.frame.range(plan.op)?;
        if let Some(pingpong) = &plan.pingpong {
            self.begin_pingpong(shared, pingpong, &mut range)?;
        }
        for step in self.kernel.schedule.steps(plan.body) {
            if let Step::ConsumerTryWait(channel) = step {
                self.try_waited.remove(channel);
            }
        }
        let [at, upper, _] = range;
        self.before_loop(&plan.hoisted)?;
        let carried = self.passed(op.group(3), (&[], None))?;
        let copies = match &plan.cp_async {
            Some(cp_async) => Some(self.start_copies(shared, plan, cp_async, range)?),
            None => None,
        };
        self.barriers.enter_loop();
        if at < upper {
            self.enter(LevelKind::For { plan, at, range, iteration: 0, copies }, plan.op, 0, plan.body)?;
            return self.begin_iteration(shared, carried);
        }
        self.end_for(shared, copies, (plan.op, carried), &[])
    }

    /// Returns the iterations of this ping-pong group in a loop with this range.
    fn begin_pingpong(
        &mut self,
        shared: &mut Shared<'a>,
        pingpong: &PingPong,
        [lower, _, step]: &mut [i128; 3],
    ) -> Result<(), Fault> {
        self.skipped_stages.clear();
        for stage_count in &pingpong.stages_per_iteration {
            let mut all = u64::from(stage_count.direct);
            for &inner in &stage_count.per_trip_of {
                let op = self.kernel.module.op(inner);
                (0..3).try_for_each(|group| self.require(op.group(group)[0]))?;
                let [lower, upper, step] = self.frame.range(inner)?;
                all += if lower < upper { ((upper - lower + step - 1) / step) as u64 } else { 0 };
            }
            self.skipped_stages.push(all);
        }
        *lower += self.group as i128 * *step;
        *step *= i128::from(PINGPONG_GROUPS);
        (0..self.group).for_each(|_| self.skip_peer_iteration(shared));
        Ok(())
    }

    /// Skips the stages of an iteration of the other ping-pong group.
    fn skip_peer_iteration(&self, shared: &mut Shared<'a>) {
        self.skipped_stages
            .iter()
            .enumerate()
            .for_each(|(pipeline, &count)| shared.pipelines.skip(pipeline, self.group, count));
    }

    /// Begins an iteration of the innermost loop with these values.
    fn begin_iteration(&mut self, shared: &mut Shared<'a>, carried: Vec<Passed>) -> Result<(), Fault> {
        let module = self.kernel.module;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.next = 0;
        let block = level.block;
        let head = match level.kind {
            LevelKind::For { plan, at, range, iteration: turn, copies } => Some((plan, at, range, turn, copies)),
            _ => None,
        };
        self.forget(block);
        let args = &module.block(block).args;
        let args = if let Some((plan, at, ..)) = head {
            let counter = self.frame.counter(plan.op, at);
            self.receive(args[0], Passed::Content(counter));
            &args[1..]
        } else {
            args
        };
        self.is_there(args, &carried)?;
        args.iter().zip(carried).for_each(|(&arg, passed)| self.receive(arg, passed));
        let Some((plan, _, range, iteration, Some(copies))) = head else { return Ok(()) };
        let Some(cp_async) = &plan.cp_async else { return Ok(()) };
        if cp_async.barrier_at_head {
            self.barriers.after_barrier();
        }
        shared.copies(copies)?.wait((cp_async.stages as u64).saturating_sub(2))?;
        if cp_async.async_mma {
            self.mma_wait_all(shared)?;
        }
        shared.copies(copies)?.begin_iteration(iteration);
        if !cp_async.barrier_at_head { self.refill(shared, plan, copies, range, iteration) } else { Ok(()) }
    }

    /// Ends a loop with the values of its last iteration and the waits after it.
    fn end_for(
        &mut self,
        shared: &mut Shared<'a>,
        copies: Option<usize>,
        (op, carried): (OpId, Vec<Passed>),
        waits: &[Step],
    ) -> Result<(), Fault> {
        self.set_results(op, carried)?;
        self.barriers.leave_loop();
        for step in waits {
            match step {
                Step::MmaWait(wait) => self.mma_wait(shared, wait)?,
                _ => return Err(broken("more than waits on the way out of a loop")),
            }
        }
        let Some(copies) = copies else { return Ok(()) };
        if shared.copies(copies)?.plan.async_mma {
            self.mma_wait_all(shared)?;
        }
        shared.copies(copies)?.current = None;
        self.cp_async_loads.retain(|_, (number, _)| *number != copies);
        shared.end_cp_async(copies)
    }

    /// Executes a `loop`.
    ///
    /// # Errors
    /// Errors of its steps.
    pub fn loop_op(&mut self, shared: &mut Shared<'a>, plan: &'a Loop) -> Result<StepOutcome, Fault> {
        let op = self.kernel.module.op(plan.op);
        self.before_loop(&plan.hoisted)?;
        let carried = self.passed(op.group(0), (&[], None))?;
        let iterations = self.frame.iteration_limit(op.regions[0]);
        self.enter(LevelKind::Loop { plan, iterations }, plan.op, 0, plan.body)?;
        self.enter_loop_iteration(shared, carried)
    }

    /// Begins an iteration of a `loop`.
    fn enter_loop_iteration(&mut self, shared: &mut Shared<'a>, carried: Vec<Passed>) -> Result<StepOutcome, Fault> {
        let state: Vec<_> = carried
            .iter()
            .map(|passed| match passed {
                Passed::Content(content) => content.clone(),
                Passed::InFlight(_, promise) => promise.borrow().clone(),
            })
            .collect();
        let waits = match self.levels.last_mut().map(|level| &mut level.kind) {
            Some(LevelKind::Loop { iterations, .. }) => iterations.next(&state)?,
            _ => false,
        };
        self.begin_iteration(shared, carried)?;
        Ok(if waits { StepOutcome::Blocked } else { StepOutcome::Done })
    }

    /// Executes an `if`.
    ///
    /// # Errors
    /// Its condition is not available.
    pub fn branch(&mut self, op: OpId, arms: &[SeqId]) -> Result<(), Fault> {
        let condition = self.kernel.module.op(op).operands[0];
        self.require(condition)?;
        let arm = usize::from(self.frame.number(condition, Sign::Unsigned)? == 0);
        let Some(&body) = arms.get(arm) else { return Ok(()) };
        self.enter(LevelKind::If { op }, op, arm, body)?;
        let block = self.levels.last().map(|level| level.block);
        block.into_iter().for_each(|block| self.forget(block));
        Ok(())
    }

    // Terminators.

    /// Executes the terminator of a sequence or of the kernel.
    ///
    /// # Errors
    /// Errors of the passed values.
    pub fn end(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<StepOutcome, Fault> {
        let op = self.kernel.module.op(id);
        let is_loop = |level: &Level<'_>| matches!(level.kind, LevelKind::For { .. } | LevelKind::Loop { .. });
        let target = match op.code {
            Opcode::Return => {
                if let Some(mma_group) = self.in_flight.front() {
                    return Err(broken(format!("the kernel ends while op {} is in flight", mma_group.last.index())));
                }
                while !self.tma_stores.is_empty() {
                    self.complete_first_store()?;
                }
                self.leave(0);
                return Ok(StepOutcome::Done);
            }
            Opcode::Continue => self.levels.iter().rposition(is_loop),
            Opcode::Break => self.levels.iter().rposition(|level| matches!(level.kind, LevelKind::Loop { .. })),
            _ => self.levels.iter().rposition(|level| matches!(level.kind, LevelKind::If { .. })),
        };
        let target = target.ok_or_else(|| broken(format!("op {} ends what has not begun", id.index())))?;
        match (&self.levels[target].kind, op.code) {
            (&LevelKind::For { plan, .. }, _) => self.next_iteration(shared, plan, target, &op.operands),
            (LevelKind::Loop { .. }, Opcode::Continue) => {
                let args = &self.kernel.module.block(self.levels[target].block).args;
                let carried = self.passed(&op.operands, (args, None))?;
                self.leave(target + 1);
                self.frame.free(self.levels[target].allocations);
                self.enter_loop_iteration(shared, carried)
            }
            (&LevelKind::Loop { plan, .. }, _) => {
                let carried = self.passed(&op.operands, (&[], None))?;
                self.leave(target);
                self.set_results(plan.op, carried)
            }
            (&LevelKind::If { op: branch }, _) => {
                let carried = self.passed(&op.operands, (&[], None))?;
                self.leave(target);
                self.set_results(branch, carried)
            }
            (LevelKind::Entry, _) => Err(broken("the kernel ends in a region")),
        }
    }

    /// Leaves all but `count` entered sequences.
    fn leave(&mut self, count: usize) {
        while self.levels.len() > count {
            let allocations = self.levels.pop().map_or(0, |level| level.allocations);
            self.frame.free(allocations);
        }
    }

    fn set_results(&mut self, op: OpId, carried: Vec<Passed>) -> Result<StepOutcome, Fault> {
        let results = &self.kernel.module.op(op).results;
        self.is_there(results, &carried)?;
        results.iter().zip(carried).for_each(|(&result, passed)| self.receive(result, passed));
        Ok(StepOutcome::Done)
    }

    /// Ends an iteration of a `for`.
    fn next_iteration(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        target: usize,
        values: &[Value],
    ) -> Result<StepOutcome, Fault> {
        let args = &self.kernel.module.block(self.levels[target].block).args;
        let until_head = plan.cp_async.is_some() && self.role == WarpRole::All;
        let carried_mmas = if until_head { None } else { Some(&plan.carried_mmas[..]) };
        let carried = self.passed(values, (&args[1..], carried_mmas))?;
        self.keep_carried_mmas(plan);
        self.leave(target + 1);
        self.frame.free(self.levels[target].allocations);
        let LevelKind::For { at, range, iteration: turn, copies, .. } = &mut self.levels[target].kind else {
            return Err(broken("an iteration without a loop"));
        };
        let (copies, before, range) = (*copies, *turn, *range);
        let [_, upper, step] = range;
        *at += step;
        *turn += 1;
        let goes_on = *at < upper;
        if plan.pingpong.is_some() {
            self.skip_peer_iteration(shared);
        }
        if let (Some(copies), Some(cp_async)) = (copies, &plan.cp_async)
            && cp_async.barrier_at_head
        {
            self.refill(shared, plan, copies, range, before)?;
        }
        self.barriers.next_iteration();
        if goes_on {
            self.begin_iteration(shared, carried)?;
        } else {
            self.leave(target);
            let waits = plan.epilogue.map_or(&[][..], |body| self.kernel.schedule.steps(body));
            self.end_for(shared, copies, (plan.op, carried), waits)?;
        }
        Ok(StepOutcome::Done)
    }

    /// MMAs in flight release the stages that the loop carries for them.
    fn keep_carried_mmas(&mut self, plan: &For) {
        for mma_group in &mut self.in_flight {
            let carried_mma = plan.carried_mmas.iter().find(|carried_mma| carried_mma.mma == mma_group.last);
            let carried = carried_mma.map_or(&[][..], |carried_mma| &carried_mma.releases);
            mma_group.releases.retain(|(channel, _)| carried.contains(channel));
            mma_group.from_previous_iteration = true;
        }
    }

    // Multistage copies.

    fn start_copies(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        cp_async: &Rc<CpAsyncPlan>,
        range: [i128; 3],
    ) -> Result<usize, Fault> {
        let info = self.kernel.info;
        let form = |copy: &crate::backend::ptx::schedule::CpAsync| {
            let layout = info.inference.op_layouts.get(&copy.load).cloned();
            let layout = layout.ok_or_else(|| broken(format!("op {} has no layout", copy.load.index())))?;
            Ok((layout, info.element_type(info.module.op(copy.load).results[0])))
        };
        let forms = cp_async.copies.iter().map(form).collect::<Result<_, Fault>>()?;
        if cp_async.stages == 0 {
            return Err(broken("multistage copies without stages"));
        }
        let number = shared.begin_cp_async(self.group, CpAsyncCopies::new(plan.op, cp_async.clone(), forms));
        for (which, copy) in cp_async.copies.iter().enumerate() {
            if self.kernel.schedule.load_path(copy.load) != copy.load_path() {
                return Err(broken(format!("op {} is copied, and has another path", copy.load.index())));
            }
            self.cp_async_loads.insert(copy.load, (number, which));
        }
        (0..cp_async.stages as u64 - 1)
            .try_for_each(|iteration| self.copy_iteration(shared, plan, number, range, iteration))?;
        Ok(number)
    }

    /// Fills the stage of the previous iteration for a later one.
    fn refill(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        copies: usize,
        range: [i128; 3],
        iteration: u64,
    ) -> Result<(), Fault> {
        let distance = shared.copies(copies)?.plan.stages as u64 - 1;
        self.copy_iteration(shared, plan, copies, range, iteration + distance)?;
        shared.copies(copies)?.next();
        Ok(())
    }

    /// Issues the copies of an iteration, if there is one.
    fn copy_iteration(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        copies: usize,
        [lower, upper, step]: [i128; 3],
        iteration: u64,
    ) -> Result<(), Fault> {
        let module = self.kernel.module;
        let at = lower + i128::from(iteration) * step;
        let Some(cp_async) = plan.cp_async.as_ref().filter(|_| at < upper) else {
            return shared.copies(copies)?.begin(iteration, None);
        };
        let counter = module.block(module.op(plan.op).regions[0]).args[0];
        let before = self.frame.get(counter);
        self.frame.set(counter, self.frame.counter(plan.op, at));
        let mut tiles = Vec::new();
        let kept: Vec<Value> = cp_async.address_ops.iter().flat_map(|&id| &module.op(id).results).copied().collect();
        kept.iter().for_each(|&value| drop(self.frame.forget(value)));
        let copied = cp_async.copies.iter().map(|copy| copy.load);
        for id in cp_async.address_ops.iter().copied().chain(copied) {
            let outer = module.op(id).operands.iter().filter(|value| !kept.contains(value));
            outer.copied().try_for_each(|value| self.require(value))?;
        }
        cp_async.address_ops.iter().try_for_each(|&id| self.frame.step(id))?;
        for copy in &cp_async.copies {
            self.require(module.op(copy.load).group(0)[0])?;
            self.frame.step(copy.load)?;
            tiles.push(self.frame.forget(module.op(copy.load).results[0]).bits());
        }
        kept.into_iter().for_each(|value| drop(self.frame.forget(value)));
        self.frame.set(counter, before);
        shared.copies(copies)?.begin(iteration, Some(tiles))
    }
}
