//! Loops and branches: what their bodies begin with, and what is passed on at their ends.

use std::rc::Rc;

use super::agent::{Agent, Kind, Level, Passed, Turn};
use super::copies::Copies;
use super::fault::{Fault, broken};
use super::shared::Shared;
use crate::backend::ptx::schedule::{
    CarriedMma, CpAsyncPlan, For, LayoutId, Loop, PINGPONG_GROUPS, PingPong, SeqId, Step, WarpRole,
};
use crate::ir::{OpId, Opcode, Sign, Value};

impl<'a> Agent<'a> {
    /// # Errors
    /// What is converted is not there.
    fn before_loop(&mut self, hoisted: &[(Value, LayoutId)]) -> Result<(), Fault> {
        for &(value, _) in hoisted {
            self.need(value)?;
            if self.acts != WarpRole::Producer && !self.frame.is_known(value) && self.fetched(value).is_none() {
                return Err(broken(format!("%{} is converted ahead of a loop, and not there", value.index())));
            }
        }
        Ok(())
    }

    /// What is passed on: values, and of those that products add up where they stand (`to`: in which arguments) who
    /// computes them. `orbits`: of a loop that says which.
    fn passed(
        &mut self,
        values: &[Value],
        (to, orbits): (&[Value], Option<&[CarriedMma]>),
    ) -> Result<Vec<Passed>, Fault> {
        let mut all = Vec::with_capacity(values.len());
        for (position, &value) in values.iter().enumerate() {
            if let Some((flight, promise)) = self.running.get(&value)
                && to.get(position).is_some_and(|&arg| self.kernel.context.is_accumulated_in_place(arg, value))
                && self.may_carry(orbits, (*flight, value), position)
            {
                all.push(Passed::Running(*flight, promise.clone()));
                continue;
            }
            self.need(value)?;
            all.push(Passed::Held(self.frame.get(value)));
        }
        Ok(all)
    }

    /// Does a loop carry this sum of products in flight at this position?
    fn may_carry(&self, orbits: Option<&[CarriedMma]>, (number, value): (u64, Value), position: usize) -> bool {
        let Some(orbits) = orbits else { return true };
        let Some(flight) = self.flights.iter().find(|flight| flight.number == number) else { return false };
        let sums = self.kernel.context.results_of(&flight.ops);
        let of_flight = orbits.iter().filter(|orbit| orbit.mma == flight.last);
        let mut carried = of_flight.flat_map(|orbit| orbit.accumulators.iter().zip(&sums));
        carried.any(|(&carried, &sum)| carried == position && sum == value)
    }

    /// Is everything there that is passed to these values?
    fn is_there(&self, to: &[Value], passed: &[Passed]) -> Result<(), Fault> {
        let module = self.kernel.module;
        for (&value, passed) in to.iter().zip(passed) {
            let there = match passed {
                Passed::Held(held) => held.is_known(),
                Passed::Running(..) => true,
            };
            if !there && module.ty(value).as_tile().is_some() && !self.kernel.may_lack(self.acts, value) {
                return Err(broken(format!("nothing is passed to %{}", value.index())));
            }
        }
        Ok(())
    }

    fn enter(&mut self, kind: Kind<'a>, op: OpId, region: usize, body: SeqId) -> Result<(), Fault> {
        let block = self.kernel.module.op(op).regions.get(region).copied();
        let block = block.ok_or_else(|| broken(format!("op {} has no such region", op.index())))?;
        let allocations = self.frame.allocations();
        self.levels.push(Level { kind, block, body, next: 0, allocations });
        Ok(())
    }

    /// `for`.
    ///
    /// # Errors
    /// Those of its parts.
    pub fn for_loop(&mut self, shared: &mut Shared<'a>, plan: &'a For) -> Result<(), Fault> {
        let module = self.kernel.module;
        let op = module.op(plan.op);
        (0..3).try_for_each(|group| self.need(op.group(group)[0]))?;
        let mut range = self.frame.range(plan.op)?;
        if let Some(deal) = &plan.pingpong {
            self.deal(shared, deal, &mut range)?;
        }
        for step in self.kernel.schedule.steps(plan.body) {
            if let Step::ConsumerTryWait(channel) = step {
                self.seen.remove(channel);
            }
        }
        let [at, upper, _] = range;
        self.before_loop(&plan.hoisted)?;
        let carried = self.passed(op.group(3), (&[], None))?;
        let copies = match &plan.cp_async {
            Some(ahead) => Some(self.start_copies(shared, plan, ahead, range)?),
            None => None,
        };
        if at < upper {
            self.enter(Kind::For { plan, at, range, turn: 0, copies }, plan.op, 0, plan.body)?;
            return self.begin_round(shared, carried);
        }
        self.leave_for(shared, copies, (plan.op, carried), &[])
    }

    /// The iterations of this team, of a loop with this range.
    fn deal(
        &mut self,
        shared: &mut Shared<'a>,
        deal: &PingPong,
        [lower, _, step]: &mut [i128; 3],
    ) -> Result<(), Fault> {
        self.skips.clear();
        for takes in &deal.stages_per_iteration {
            let mut all = u64::from(takes.fixed);
            for &inner in &takes.per_iteration_of {
                let op = self.kernel.module.op(inner);
                (0..3).try_for_each(|group| self.need(op.group(group)[0]))?;
                let [lower, upper, step] = self.frame.range(inner)?;
                all += if lower < upper { ((upper - lower + step - 1) / step) as u64 } else { 0 };
            }
            self.skips.push(all);
        }
        *lower += self.team as i128 * *step;
        *step *= i128::from(PINGPONG_GROUPS);
        (0..self.team).for_each(|_| self.skip(shared));
        Ok(())
    }

    /// Goes past the stages of an iteration that is another team's.
    fn skip(&self, shared: &mut Shared<'a>) {
        self.skips.iter().enumerate().for_each(|(ring, &count)| shared.rings.skip(ring, self.team, count));
    }

    /// A round of the innermost loop begins with these values.
    fn begin_round(&mut self, shared: &mut Shared<'a>, carried: Vec<Passed>) -> Result<(), Fault> {
        let module = self.kernel.module;
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.next = 0;
        let block = level.block;
        let head = match level.kind {
            Kind::For { plan, at, range, turn, copies } => Some((plan, at, range, turn, copies)),
            _ => None,
        };
        self.forget(block);
        let args = &module.block(block).args;
        let args = if let Some((plan, at, ..)) = head {
            let counter = self.frame.counter(plan.op, at);
            self.receive(args[0], Passed::Held(counter));
            &args[1..]
        } else {
            args
        };
        self.is_there(args, &carried)?;
        args.iter().zip(carried).for_each(|(&arg, passed)| self.receive(arg, passed));
        let Some((plan, _, range, turn, Some(copies))) = head else { return Ok(()) };
        let Some(ahead) = &plan.cp_async else { return Ok(()) };
        if ahead.barrier_at_head {
            self.meetings.meet();
        }
        shared.copies(copies)?.wait((ahead.stages as u64).saturating_sub(2))?;
        if ahead.async_mma {
            self.land_all(shared)?;
        }
        shared.copies(copies)?.compute_on(turn);
        if !ahead.barrier_at_head { self.refill(shared, plan, copies, range, turn) } else { Ok(()) }
    }

    /// After a loop, with what its last round left, and what is waited for on the way out.
    fn leave_for(
        &mut self,
        shared: &mut Shared<'a>,
        copies: Option<usize>,
        (op, carried): (OpId, Vec<Passed>),
        waits: &[Step],
    ) -> Result<(), Fault> {
        self.give_results(op, carried)?;
        for step in waits {
            match step {
                Step::MmaWait(land) => self.land(shared, land)?,
                _ => return Err(broken("more than waits on the way out of a loop")),
            }
        }
        let Some(copies) = copies else { return Ok(()) };
        if shared.copies(copies)?.plan.async_mma {
            self.land_all(shared)?;
        }
        shared.copies(copies)?.now = None;
        self.ahead.retain(|_, (number, _)| *number != copies);
        shared.stop_copies(copies)
    }

    /// `loop`.
    ///
    /// # Errors
    /// Those of its parts.
    pub fn endless_loop(&mut self, shared: &mut Shared<'a>, plan: &'a Loop) -> Result<Turn, Fault> {
        let op = self.kernel.module.op(plan.op);
        self.before_loop(&plan.hoisted)?;
        let carried = self.passed(op.group(0), (&[], None))?;
        let turns = self.frame.turns(op.regions[0]);
        self.enter(Kind::Loop { plan, turns }, plan.op, 0, plan.body)?;
        self.turn(shared, carried)
    }

    /// A turn of a loop without a range.
    fn turn(&mut self, shared: &mut Shared<'a>, carried: Vec<Passed>) -> Result<Turn, Fault> {
        let state: Vec<_> = carried
            .iter()
            .map(|passed| match passed {
                Passed::Held(held) => held.clone(),
                Passed::Running(_, promise) => promise.borrow().clone(),
            })
            .collect();
        let waits = match self.levels.last_mut().map(|level| &mut level.kind) {
            Some(Kind::Loop { turns, .. }) => turns.next(&state)?,
            _ => false,
        };
        self.begin_round(shared, carried)?;
        Ok(if waits { Turn::Waits } else { Turn::Went })
    }

    /// `if`.
    ///
    /// # Errors
    /// Its condition is not there.
    pub fn branch(&mut self, op: OpId, arms: &[SeqId]) -> Result<(), Fault> {
        let condition = self.kernel.module.op(op).operands[0];
        self.need(condition)?;
        let arm = usize::from(self.frame.number(condition, Sign::Unsigned)? == 0);
        let Some(&body) = arms.get(arm) else { return Ok(()) };
        self.enter(Kind::If { op }, op, arm, body)?;
        let block = self.levels.last().map(|level| level.block);
        block.into_iter().for_each(|block| self.forget(block));
        Ok(())
    }

    // Ends.

    /// The end of a body or of the kernel.
    ///
    /// # Errors
    /// Those of what comes with it.
    pub fn end(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<Turn, Fault> {
        let op = self.kernel.module.op(id);
        let is_loop = |level: &Level<'_>| matches!(level.kind, Kind::For { .. } | Kind::Loop { .. });
        let target = match op.code {
            Opcode::Return => {
                if let Some(flight) = self.flights.front() {
                    return Err(broken(format!("the kernel ends before op {} has landed", flight.last.index())));
                }
                while !self.sends.is_empty() {
                    self.store_first()?;
                }
                self.leave(0);
                return Ok(Turn::Went);
            }
            Opcode::Continue => self.levels.iter().rposition(is_loop),
            Opcode::Break => self.levels.iter().rposition(|level| matches!(level.kind, Kind::Loop { .. })),
            _ => self.levels.iter().rposition(|level| matches!(level.kind, Kind::If { .. })),
        };
        let target = target.ok_or_else(|| broken(format!("op {} ends what has not begun", id.index())))?;
        match (&self.levels[target].kind, op.code) {
            (&Kind::For { plan, .. }, _) => self.next_round(shared, plan, target, &op.operands),
            (Kind::Loop { .. }, Opcode::Continue) => {
                let args = &self.kernel.module.block(self.levels[target].block).args;
                let carried = self.passed(&op.operands, (args, None))?;
                self.leave(target + 1);
                self.frame.free(self.levels[target].allocations);
                self.turn(shared, carried)
            }
            (&Kind::Loop { plan, .. }, _) => {
                let carried = self.passed(&op.operands, (&[], None))?;
                self.leave(target);
                self.give_results(plan.op, carried)
            }
            (&Kind::If { op: branch }, _) => {
                let carried = self.passed(&op.operands, (&[], None))?;
                self.leave(target);
                self.give_results(branch, carried)
            }
            (Kind::Entry, _) => Err(broken("the kernel ends in a region")),
        }
    }

    /// Leaves all bodies but so many.
    fn leave(&mut self, count: usize) {
        while self.levels.len() > count {
            let allocations = self.levels.pop().map_or(0, |level| level.allocations);
            self.frame.free(allocations);
        }
    }

    fn give_results(&mut self, op: OpId, carried: Vec<Passed>) -> Result<Turn, Fault> {
        let results = &self.kernel.module.op(op).results;
        self.is_there(results, &carried)?;
        results.iter().zip(carried).for_each(|(&result, passed)| self.receive(result, passed));
        Ok(Turn::Went)
    }

    /// The end of a round of a `for`.
    fn next_round(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        target: usize,
        values: &[Value],
    ) -> Result<Turn, Fault> {
        let args = &self.kernel.module.block(self.levels[target].block).args;
        let until_head = plan.cp_async.is_some() && self.acts == WarpRole::All;
        let orbits = if until_head { None } else { Some(&plan.carried_mmas[..]) };
        let carried = self.passed(values, (&args[1..], orbits))?;
        self.keep_orbits(plan);
        self.leave(target + 1);
        self.frame.free(self.levels[target].allocations);
        let Kind::For { at, range, turn, copies, .. } = &mut self.levels[target].kind else {
            return Err(broken("a round of no loop"));
        };
        let (copies, before, range) = (*copies, *turn, *range);
        let [_, upper, step] = range;
        *at += step;
        *turn += 1;
        let goes_on = *at < upper;
        if plan.pingpong.is_some() {
            self.skip(shared);
        }
        if let (Some(copies), Some(ahead)) = (copies, &plan.cp_async)
            && ahead.barrier_at_head
        {
            self.refill(shared, plan, copies, range, before)?;
        }
        if goes_on {
            self.begin_round(shared, carried)?;
        } else {
            self.leave(target);
            let waits = plan.epilogue.map_or(&[][..], |body| self.kernel.schedule.steps(body));
            self.leave_for(shared, copies, (plan.op, carried), waits)?;
        }
        Ok(Turn::Went)
    }

    /// Products that are still in flight give back what the loop carries for them.
    fn keep_orbits(&mut self, plan: &For) {
        for flight in &mut self.flights {
            let orbit = plan.carried_mmas.iter().find(|orbit| orbit.mma == flight.last);
            let carried = orbit.map_or(&[][..], |orbit| &orbit.releases);
            flight.gives.retain(|(channel, _)| carried.contains(channel));
            flight.carried = true;
        }
    }

    // Copies ahead.

    fn start_copies(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        ahead: &Rc<CpAsyncPlan>,
        range: [i128; 3],
    ) -> Result<usize, Fault> {
        let context = self.kernel.context;
        let form = |copy: &crate::backend::ptx::schedule::CpAsync| {
            let layout = context.inference.accesses.get(&copy.load).cloned();
            let layout = layout.ok_or_else(|| broken(format!("op {} has no layout", copy.load.index())))?;
            Ok((layout, context.element_type(context.module.op(copy.load).results[0])))
        };
        let forms = ahead.copies.iter().map(form).collect::<Result<_, Fault>>()?;
        if ahead.stages == 0 {
            return Err(broken("copies ahead, and no stages"));
        }
        let number = shared.start_copies(Copies::new(plan.op, ahead.clone(), forms));
        for (which, copy) in ahead.copies.iter().enumerate() {
            self.ahead.insert(copy.load, (number, which));
        }
        (0..ahead.stages as u64 - 1).try_for_each(|turn| self.copy_round(shared, plan, number, range, turn))?;
        Ok(number)
    }

    /// The stage of the round before is filled for a later one.
    fn refill(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        copies: usize,
        range: [i128; 3],
        turn: u64,
    ) -> Result<(), Fault> {
        let distance = shared.copies(copies)?.plan.stages as u64 - 1;
        self.copy_round(shared, plan, copies, range, turn + distance)?;
        shared.copies(copies)?.next();
        Ok(())
    }

    /// Begins the copies of a round, if there is one.
    fn copy_round(
        &mut self,
        shared: &mut Shared<'a>,
        plan: &'a For,
        copies: usize,
        [lower, upper, step]: [i128; 3],
        turn: u64,
    ) -> Result<(), Fault> {
        let module = self.kernel.module;
        let at = lower + i128::from(turn) * step;
        let Some(ahead) = plan.cp_async.as_ref().filter(|_| at < upper) else {
            return shared.copies(copies)?.begin(turn, None);
        };
        let counter = module.block(module.op(plan.op).regions[0]).args[0];
        let before = self.frame.get(counter);
        self.frame.set(counter, self.frame.counter(plan.op, at));
        let mut tiles = Vec::new();
        let kept: Vec<Value> = ahead.address_ops.iter().flat_map(|&id| &module.op(id).results).copied().collect();
        kept.iter().for_each(|&value| drop(self.frame.forget(value)));
        ahead.address_ops.iter().try_for_each(|&id| self.frame.step(id))?;
        for copy in &ahead.copies {
            self.need(module.op(copy.load).group(0)[0])?;
            self.frame.step(copy.load)?;
            tiles.push(self.frame.forget(module.op(copy.load).results[0]).bits());
        }
        kept.into_iter().for_each(|value| drop(self.frame.forget(value)));
        self.frame.set(counter, before);
        shared.copies(copies)?.begin(turn, Some(tiles))
    }
}
