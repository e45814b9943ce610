//! What an agent does at each step.

use super::agent::{Agent, Sent, Taken, Turn};
use super::fault::{Fault, broken};
use super::groups;
use super::shared::Shared;
use super::strips;
use crate::backend::cpu::Held;
use crate::backend::ptx::schedule::{
    OrderPoint as TeamTurn, PINGPONG_GROUPS, Step, StripMine, SubStep, WarpRole, box_order, is_computed_at_use,
};
use crate::backend::ptx::{ViewShape, contiguous_axis};
use crate::ir::{Loc, OpId, Opcode, Sign};

impl<'a> Agent<'a> {
    /// What the next step waits for, if it has to.
    ///
    /// # Errors
    /// It waits for what cannot come.
    pub fn waits_for(&self, shared: &Shared<'a>) -> Result<Option<String>, Fault> {
        let Some(step) = self.next_step()? else { return Ok(None) };
        match step {
            &Step::Produce(channel) => {
                let place = shared.rings.to_fill(self.kernel.channel(channel)?.pipeline, channel)?;
                Ok((!shared.rings.is_free(place)).then(|| format!("fill {channel}: stage {} is not free", place.stage)))
            }
            Step::ConsumerWait(wait) => {
                let Some(held) = self.held.get(&wait.channel) else { return Ok(None) };
                let (channel, stage) = (wait.channel, held.place.stage);
                let waits = !shared.rings.has_arrived(held.place)?;
                Ok(waits.then(|| format!("await {channel}: the tiles have not arrived in stage {stage}")))
            }
            &Step::OrderWait(turn) => {
                let before = self.turns[turn as usize] * u64::from(PINGPONG_GROUPS) + self.team as u64;
                let passed = shared.passed[turn as usize];
                Ok((passed < before).then(|| format!("turn {turn}: {passed} of {before} have ended")))
            }
            Step::Mma(plan) if plan.order.acquire => Ok(self.waits_for_turn(shared)),
            Step::ExpOrderWait { .. } => Ok(self.waits_for_turn(shared)),
            Step::Sub(SubStep::Barrier { .. }) if self.kernel.groups > 1 => {
                let all = shared.meetings.iter().all(|&meetings| meetings > self.met);
                Ok((!all).then(|| "meet: other groups have not come".to_owned()))
            }
            _ => Ok(None),
        }
    }

    /// The turns of others that have to end first, if some have to.
    fn waits_for_turn(&self, shared: &Shared<'a>) -> Option<String> {
        let sharers = self.kernel.sharers() as u64;
        let (before, ended) = (self.had * sharers + self.team as u64, shared.turns);
        (sharers > 1 && ended < before).then(|| format!("turn: {ended} of {before} turns have ended"))
    }

    /// The next band or group has its turn.
    ///
    /// # Errors
    /// It is another one's turn that ends.
    pub fn end_turn(&mut self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        let (sharers, team) = (self.kernel.sharers() as u64, self.team as u64);
        let (turn, had) = (shared.turns, self.had);
        if sharers > 1 && turn != had * sharers + team {
            return Err(broken(format!("number {team}, which has had {had} turns, ends turn {turn}")));
        }
        self.had += 1;
        shared.turns += 1;
        Ok(())
    }

    /// Comes to the place where groups meet, if that is next.
    ///
    /// # Errors
    /// Those of [`Agent::next_step`].
    pub fn arrive(&self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        if self.acts == WarpRole::Consumer && matches!(self.next_step()?, Some(Step::Sub(SubStep::Barrier { .. }))) {
            shared.meetings[self.team] = self.met + 1;
        }
        Ok(())
    }

    /// Takes the next step, which does not wait.
    ///
    /// # Errors
    /// Those of its ops, at their places; what is wrong with the schedule.
    pub fn advance(&mut self, shared: &mut Shared<'a>) -> Result<Turn, Fault> {
        let Some(step) = self.next_step()? else { return Ok(Turn::Went) };
        let loc = self.place_of(step);
        let turn = self.step(shared, step).map_err(|fault| Fault { loc: fault.loc.or(loc), ..fault })?;
        self.arrive(shared)?;
        Ok(turn)
    }

    /// The user's place of a step.
    fn place_of(&self, step: &Step) -> Option<Loc> {
        let id = match step {
            &Step::Deferred(id) | &Step::Exec(id) | &Step::LocalLoadThreadPrivate(id) | &Step::LocalLoad(id) => {
                Some(id)
            }
            &Step::PrivatizedAtomic(id) | &Step::End(id) => Some(id),
            Step::TmaStore(send) => Some(send.op),
            &Step::If { op, .. } => Some(op),
            Step::StripMine(strip) => strip.ops().next(),
            Step::Mma(plan) => plan.last(),
            Step::For(plan) => Some(plan.op),
            Step::Loop(plan) => Some(plan.op),
            Step::Produce(_)
            | Step::Advance(_)
            | Step::ConsumerRelease(_)
            | Step::ConsumerWait(_)
            | Step::MmaWait(_) => None,
            Step::OrderWait(_) | Step::OrderArrive(_) | Step::ConsumerTryWait(_) | Step::Sub(_) => None,
            Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) => None,
        };
        id.map(|id| self.kernel.module.op(id).loc)
    }

    fn step(&mut self, shared: &mut Shared<'a>, step: &'a Step) -> Result<Turn, Fault> {
        if let Some(level) = self.levels.last_mut() {
            level.next += 1;
        }
        match step {
            &Step::Deferred(id) => self.name(id)?,
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => {
                self.need_operands(id)?;
                if self.is_silent && groups::is_noticed(self.kernel.module.op(id)) {
                    self.frame.set_tokens(id);
                } else {
                    self.store_before(id)?;
                    self.frame.step(id)?;
                }
            }
            Step::StripMine(strip) => self.strip(strip)?,
            &Step::LocalLoadThreadPrivate(id) => self.own(shared, id)?,
            &Step::LocalLoad(id) => self.rider(shared, id)?,
            Step::TmaStore(send) => self.send(send.op)?,
            Step::Mma(plan) => self.multiply(shared, plan)?,
            &Step::Produce(channel) => self.fill(shared, channel)?,
            &Step::Advance(channel) => self.take(shared, channel)?,
            Step::ConsumerWait(wait) => {
                let held = self.held.get_mut(&wait.channel);
                let fault = || broken(format!("channel {} is waited for, and not taken", wait.channel));
                let held = held.ok_or_else(fault)?;
                held.arrived = true;
                if self.seen.remove(&wait.channel).is_some_and(|seen| seen != held.place) {
                    return Err(broken(format!(
                        "a look at channel {} has seen the tiles of another stage",
                        wait.channel
                    )));
                }
            }
            &Step::ConsumerTryWait(channel) => {
                let ring = self.kernel.channel(channel)?.pipeline;
                shared.rings.move_on(ring, self.team);
                let place = shared.rings.to_take(ring, channel, self.team)?;
                if shared.rings.is_there(place) {
                    self.seen.insert(channel, place);
                }
            }
            Step::MmaWait(land) => self.land(shared, land)?,
            // Where threads meet, products land; what else a step does within is no matter for tiles.
            Step::Sub(part) => {
                if *part == SubStep::MmaWaitAll {
                    self.land_all(shared)?;
                }
                self.met += u64::from(matches!(part, SubStep::Barrier { .. }));
                self.meetings.come_to(part)?;
            }
            Step::ConsumerRelease(channels) => {
                for channel in channels {
                    let held = self.held.remove(channel);
                    let held = held.ok_or_else(|| broken(format!("channel {channel} is given back, and not held")))?;
                    shared.rings.give(held.place, self.team)?;
                }
            }
            Step::ExpOrderWait { .. } => {}
            Step::ExpOrderArrive(_) => self.end_turn(shared)?,
            &Step::OrderWait(turn) => self.turns[turn as usize] += 1,
            &Step::OrderArrive(turn) => {
                while turn == TeamTurn::SideEffects && !self.sends.is_empty() {
                    self.store_first()?;
                }
                shared.passed[turn as usize] += 1;
            }
            Step::For(plan) => self.for_loop(shared, plan)?,
            Step::Loop(plan) => return self.endless_loop(shared, plan),
            Step::If { op, arms, .. } => self.branch(*op, arms)?,
            &Step::End(id) => return self.end(shared, id),
        }
        Ok(Turn::Went)
    }

    /// A value without instructions: it is computed where it is used, if what it comes from is not there yet.
    fn name(&mut self, id: OpId) -> Result<(), Fault> {
        let op = self.kernel.module.op(id);
        if self.names_fetched(id) {
            self.frame.set_tokens(id);
            return Ok(());
        }
        let (context, code) = (self.kernel.context, op.code);
        let is_made = context.rematerialized.contains(&id) || is_computed_at_use(context, id);
        if !is_made && !matches!(code, Opcode::MakeToken | Opcode::JoinTokens) {
            // Nobody computes it.
            op.results.iter().for_each(|&result| drop(self.frame.forget(result)));
            return Ok(());
        }
        let is_one = op.results.len() == 1;
        if is_one && op.operands.iter().any(|&value| self.is_open(value)) {
            self.frame.forget(op.results[0]);
            self.deferred.insert(op.results[0], id);
            return Ok(());
        }
        self.need_operands(id)?;
        self.frame.step(id)
    }

    fn strip(&mut self, strip: &StripMine) -> Result<(), Fault> {
        let module = self.kernel.module;
        let inside = strip.defined_tiles(module);
        for id in strip.ops() {
            for &value in module.op(id).operands.iter().filter(|value| !inside.contains(value)) {
                self.need(value)?;
            }
            self.store_before(id)?;
        }
        let layout = self.kernel.schedule.layout(strip.layout);
        strips::run(&mut self.frame, (module, self.is_silent), strip, layout)
    }

    fn own(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<(), Fault> {
        let copies = self.ahead.get(&id).copied().filter(|_| self.is_own(id));
        let (number, copy) = copies.ok_or_else(|| broken(format!("op {} is not copied ahead", id.index())))?;
        let tile = shared.copies(number)?.own(copy)?;
        self.frame.set(self.kernel.module.op(id).results[0], tile);
        self.frame.set_tokens(id);
        Ok(())
    }

    /// A small tile that has come with the operands of products: read in its stage.
    fn rider(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<(), Fault> {
        let fault = |what: &str| broken(format!("op {}: {what}", id.index()));
        let roles = self.kernel.roles().ok_or_else(|| fault("nothing is streamed"))?;
        let place = roles.aux_slot(id).ok_or_else(|| fault("a tile that comes with no others"))?;
        let channel = place.channel as u32;
        let held = self.held.get(&channel).filter(|held| held.arrived).map(|held| held.place);
        // Or a product has it, and gives it back when it has landed.
        let mut kept = self.flights.iter().filter(|flight| !flight.carried).flat_map(|flight| &flight.gives);
        let kept = || kept.find(|(given, _)| *given == channel).map(|(_, place)| *place);
        let stage = held.or_else(kept).ok_or_else(|| fault("read in a stage before its tiles are there"))?;
        let result = self.kernel.module.op(id).results[0];
        let dtype = self.kernel.context.element_type(result);
        let (bytes, count) = (dtype.storage_bits() as usize / 8, self.kernel.context.inference.num_elements(result));
        let there = shared.rings.stage(stage);
        there.holds(stage.tile, id)?;
        let bits = (0..count).map(|element| there.read(place.smem_offset as usize + element * bytes, bytes));
        let bits = bits.collect::<Result<Vec<u64>, Fault>>()?;
        self.frame.set(result, Held::of_bits(dtype, bits.into_iter()));
        self.frame.set_tokens(id);
        Ok(())
    }

    fn send(&mut self, id: OpId) -> Result<(), Fault> {
        self.need_operands(id)?;
        self.store_before(id)?;
        let op = self.kernel.module.op(id);
        let mut operands = Vec::new();
        for &value in &op.operands {
            let held = self.frame.get(value);
            if !held.is_known() && self.kernel.module.ty(value).as_tile().is_some() {
                return Err(broken(format!("op {} sends %{}, which is not there", id.index(), value.index())));
            }
            operands.push(Some(held));
        }
        if !self.is_silent {
            self.sends.push_back(Sent { id, operands });
        }
        self.frame.set_tokens(id);
        Ok(())
    }

    fn fill(&mut self, shared: &mut Shared<'a>, channel: u32) -> Result<(), Fault> {
        if self.acts != WarpRole::Producer {
            return Err(broken("who multiplies fills a stage"));
        }
        let plan = self.kernel.channel(channel)?;
        let mut all = Vec::new();
        for load in &plan.loads {
            let coordinates = load.boxes.iter().map(|part| self.coordinates(load.load, &part.coord));
            all.push(coordinates.collect::<Result<Vec<Vec<i64>>, Fault>>()?);
            self.frame.set_tokens(load.load);
        }
        shared.fill(channel, all)
    }

    /// Where a box begins that stands at this place of the tile of a load.
    fn coordinates(&self, load: OpId, place: &[i64]) -> Result<Vec<i64>, Fault> {
        let module = self.kernel.module;
        let op = module.op(load);
        let shape = ViewShape::of(module, op.group(0)[0]);
        let shape = shape.ok_or_else(|| broken(format!("op {} loads no tile of a view", load.index())))?;
        let fastest = contiguous_axis(module, &shape).ok_or_else(|| broken("no dimension is contiguous"))?;
        let start = |axis: usize| {
            let index = self.frame.number(op.group(1)[axis], Sign::Signed)?;
            Ok(index.saturating_mul(shape.steps[axis]).saturating_add(place[axis]))
        };
        box_order(shape.tile.len(), fastest).map(start).collect()
    }

    /// Does the loop of the present step look ahead for a channel?
    fn looks_ahead(&self, channel: u32) -> bool {
        let body = self.levels.last().map(|level| self.kernel.schedule.steps(level.body));
        body.is_some_and(|steps| steps.contains(&Step::ConsumerTryWait(channel)))
    }

    fn take(&mut self, shared: &mut Shared<'a>, channel: u32) -> Result<(), Fault> {
        if self.acts != WarpRole::Consumer {
            return Err(broken("who loads takes a stage"));
        }
        let plan = self.kernel.channel(channel)?;
        let place = shared.rings.to_take(plan.pipeline, channel, self.team)?;
        if self.held.insert(channel, Taken { place, arrived: false }).is_some() {
            return Err(broken(format!("channel {channel} is taken twice")));
        }
        shared.rings.take(place);
        // Who looks ahead moves on there.
        if !self.looks_ahead(channel) {
            shared.rings.move_on(plan.pipeline, self.team);
        }
        plan.loads.iter().for_each(|load| self.frame.set_tokens(load.load));
        Ok(())
    }
}
