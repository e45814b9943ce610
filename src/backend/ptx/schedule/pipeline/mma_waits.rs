//! Inserts MMA waits and pipeline waits.
//!
//! A product lands before a step that reads its result, and before code that may come from elsewhere or go elsewhere: loops,
//! branches that do more than compute, ends of bodies. Beside a producer the one before lands as soon as the next one is
//! issued: it is done by then, or nearly so, and its stage is wanted. What a loop carries in orbit lands in the next iteration,
//! or on the way out of the loop: behind the label where the way past the loop comes in, ptxas no longer sees that the wait
//! belongs to the products, and makes them wait for each other.
//!
//! A streamed tile is waited for where the first product brings it, or, if that is in a region, where its stage is taken.

use std::collections::HashSet;

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{
    ConsumerWait, For, MmaGroup, MmaWait, Schedule, SeqId, Step, WarpRole,
};
use crate::ir::{OpId, Value};

/// Products that may be running.
#[derive(Clone, Debug)]
struct Flight {
    /// The last one of those that are issued together.
    product: OpId,
    /// What they compute.
    results: Vec<Value>,
    /// Has an iteration before this one issued them?
    carried: bool,
}

/// What has landed when a body ends.
#[derive(Clone)]
enum Ending {
    /// All.
    Landed,
    /// All, or nothing else than what is in orbit: the results of each product.
    InOrbit(Vec<Vec<Value>>),
    /// What there is runs on.
    RunsOn,
    /// The same, beside a branch that only computes; but where threads meet, all has landed.
    Beside,
}

/// One agent's way through its program.
struct Waits<'a, 'm> {
    context: &'a KernelInfo<'m>,
    schedule: &'a mut Schedule,
    acts: WarpRole,
    /// In the order in which they were issued.
    flying: Vec<Flight>,
    /// Channels whose tiles have been waited for.
    arrived: HashSet<u32>,
    /// The steps of the body that is being made.
    steps: Vec<Step>,
}

impl KernelInfo<'_> {
    /// Puts waits between the steps of a schedule that has none.
    pub fn insert_waits(&self, schedule: &mut Schedule) {
        let agents: Vec<(WarpRole, SeqId)> = schedule.partitions.iter().map(|agent| (agent.role, agent.body)).collect();
        for (acts, body) in agents.into_iter().filter(|&(acts, _)| acts != WarpRole::Producer) {
            let (flying, arrived, steps) = (Vec::new(), HashSet::new(), Vec::new());
            let mut waits = Waits { context: self, schedule: &mut *schedule, acts, flying, arrived, steps };
            waits.body(body, &Ending::Landed);
        }
    }
}

impl Waits<'_, '_> {
    fn body(&mut self, body: SeqId, ending: &Ending) {
        let around = std::mem::take(&mut self.steps);
        for step in std::mem::take(&mut self.schedule.sequences[body.0 as usize]) {
            self.before(&step, ending);
            let (take, product) = (matches!(step, Step::Advance(_)), matches!(step, Step::Mma(_)));
            match &step {
                Step::For(step) => self.around_for(step),
                Step::Loop(step) => self.body(step.body, &Ending::Landed),
                Step::If { arms, pure: true, .. } => self.quiet_arms(arms),
                Step::If { arms, .. } => arms.iter().for_each(|&arm| self.body(arm, &Ending::Landed)),
                _ => {}
            }
            self.steps.push(step);
            if take || product {
                self.after_last();
            }
        }
        self.schedule.sequences[body.0 as usize] = std::mem::replace(&mut self.steps, around);
    }

    /// Branches that only compute. Where they meet, the same products may still run: what one of them waited for, the other one
    /// waits for at its end.
    fn quiet_arms(&mut self, arms: &[SeqId]) {
        let before = self.flying.clone();
        let mut left: Vec<Vec<Flight>> = Vec::new();
        for &arm in arms {
            self.flying.clone_from(&before);
            self.body(arm, &Ending::Beside);
            left.push(std::mem::take(&mut self.flying));
        }
        let alike = left.iter().map(Vec::len).min().unwrap_or(0);
        for (&arm, flying) in arms.iter().zip(left) {
            self.flying = flying;
            if self.flying.len() > alike {
                let around = std::mem::take(&mut self.steps);
                self.land(alike, true);
                let wait = std::mem::replace(&mut self.steps, around);
                let steps = &mut self.schedule.sequences[arm.0 as usize];
                let end = steps.len() - 1;
                steps.splice(end..end, wait);
            }
        }
    }

    /// The waits that a step needs.
    fn before(&mut self, step: &Step, ending: &Ending) {
        if !self.flying.is_empty() {
            for value in self.context.values_read_by(step) {
                let position = self.flying.iter().position(|flight| flight.results.contains(&value));
                position.into_iter().for_each(|position| self.land(self.flying.len() - 1 - position, true));
            }
            let known = |orbits: &[Vec<Value>]| self.flying.iter().all(|flight| orbits.contains(&flight.results));
            let all = match (step, ending) {
                (Step::End(_), Ending::Landed) => true,
                (Step::End(_), Ending::InOrbit(orbits)) => !known(orbits),
                (step, Ending::Beside) => self.context.meets(step),
                (Step::End(_), Ending::RunsOn) => false,
                (step, _) => self.context.waits_for_all_mmas(self.schedule, step),
            };
            if all {
                // A loop or branch computes bounds and conditions first, and what brings a tile what it is made of.
                let late = matches!(ending, Ending::Beside);
                self.land(0, late || !matches!(step, Step::ConsumerRelease(_) | Step::Advance(_) | Step::Exec(_)));
            }
        }
        match step {
            Step::Mma(plan) => self.await_operands(plan),
            &Step::LocalLoad(load) => self.await_rider(load),
            _ => {}
        }
    }

    /// The first use of a small tile that comes with others.
    fn await_rider(&mut self, load: OpId) {
        let channel = self
            .schedule
            .warp_spec
            .as_ref()
            .and_then(|roles| roles.aux_channel.get(&load))
            .map(|&channel| channel as u32);
        if let Some(channel) = channel.filter(|&channel| self.arrived.insert(channel)) {
            self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: false }));
        }
    }

    /// The first use of streamed tiles.
    fn await_operands(&mut self, plan: &MmaGroup) {
        for &id in &plan.ops {
            for &value in &self.context.module.op(id).operands[..2] {
                let load = self.context.source_load(value);
                let roles = self.schedule.warp_spec.as_deref();
                let channel = load.and_then(|load| roles?.operand_channel.get(&load)).map(|&channel| channel as u32);
                if let Some(channel) = channel.filter(|&channel| self.arrived.insert(channel)) {
                    self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: true }));
                }
            }
        }
    }

    /// After the step that came last.
    fn after_last(&mut self) {
        match self.steps.last() {
            Some(&Step::Advance(channel)) => {
                let early = self
                    .schedule
                    .warp_spec
                    .as_ref()
                    .is_some_and(|roles| roles.channels[channel as usize].wait_at_acquire);
                self.arrived.remove(&channel);
                if early {
                    self.arrived.insert(channel);
                    self.steps.push(Step::ConsumerWait(ConsumerWait { channel, sunk: false }));
                }
            }
            Some(Step::Mma(plan)) if self.context.is_async(&plan.ops) => {
                let Some(product) = plan.last() else { return };
                let results = self.context.results_of(&plan.ops);
                self.flying.push(Flight { product, results, carried: false });
                if self.acts == WarpRole::Consumer {
                    self.land(1, false);
                }
            }
            _ => {}
        }
    }

    /// The body of a loop, and the way out of it.
    fn around_for(&mut self, step: &For) {
        let op = self.context.module.op(step.op);
        let block = self.context.module.block(op.regions[0]);
        let exit = block.ops.last().map(|&exit| self.context.module.op(exit));
        let of = |values: &[Value]| -> Vec<Vec<Value>> {
            let orbits = step.carried_mmas.iter();
            orbits.map(|orbit| orbit.accumulators.iter().map(|&carried| values[carried]).collect()).collect()
        };
        let flights = |results: Vec<Vec<Value>>| -> Vec<Flight> {
            let orbits = step.carried_mmas.iter().zip(results);
            orbits.map(|(orbit, results)| Flight { product: orbit.mma, results, carried: true }).collect()
        };
        // Copies that run ahead of it for all threads wait at the head for whatever runs.
        let lands_at_head = step.cp_async.as_ref().is_some_and(|ahead| ahead.barrier_at_head);
        let ending = match exit {
            Some(exit) if !step.carried_mmas.is_empty() => Ending::InOrbit(of(&exit.operands)),
            _ if lands_at_head && self.acts == WarpRole::All => Ending::RunsOn,
            _ => Ending::Landed,
        };
        self.flying = if lands_at_head { Vec::new() } else { flights(of(&block.args[1..])) };
        self.body(step.body, &ending);
        self.flying = flights(of(&op.results));
        if let Some(leave) = step.epilogue {
            let around = std::mem::take(&mut self.steps);
            self.land(0, false);
            self.schedule.sequences[leave.0 as usize] = std::mem::replace(&mut self.steps, around);
        }
    }

    /// A wait for all but the `younger` that were issued last, if there are more of them.
    fn land(&mut self, younger: usize, late: bool) {
        let Some(landed) = self.flying.len().checked_sub(younger).filter(|&landed| landed > 0) else { return };
        let Flight { product, carried, .. } = self.flying[landed - 1];
        self.flying.drain(..landed);
        self.steps.push(Step::MmaWait(MmaWait {
            mma: product,
            from_previous_iteration: carried,
            pending: younger,
            sunk: late,
            defer_release: false,
            release_after: None,
        }));
    }
}
