//! Looks at the next stage of a ring while there is other work to do.
//!
//! To ask a barrier takes some thirty cycles. At the head of a loop whose products land in the iteration that has issued them,
//! nothing runs on the tensor cores meanwhile, and the first product waits for the answer. So the answer is asked for in the iteration
//! before, amid the work on its products; who had none then asks again.

use super::Context;
use super::checked::Checked;
use super::data::{Acts, Await, BodyId, For, Land, Schedule, Step};

impl Context<'_> {
    /// Has loops look ahead.
    pub fn place_looks(&self, schedule: &mut Schedule) {
        for plan in loops(schedule) {
            if !(plan.orbits.is_empty() && plan.rounds.is_none_or(|rounds| rounds == 1)) {
                continue;
            }
            let found = place_of_look(schedule.steps(plan.body)).filter(|&(_, channel)| {
                let stages = |channel| schedule.roles.as_ref().is_some_and(|roles| !roles.only_stage(channel));
                stages(channel) && may_look(schedule, plan.body, channel)
            });
            if let Some((at, channel)) = found {
                schedule.bodies[plan.body.0 as usize].insert(at, Step::Look(channel));
            }
        }
    }

    /// Does each look ask for the stage that its channel takes next?
    pub fn check_looks(&self, schedule: &Schedule) -> Checked {
        let around: Vec<BodyId> = loops(schedule).iter().map(|plan| plan.body).collect();
        for (body, steps) in schedule.bodies.iter().enumerate() {
            for (at, step) in steps.iter().enumerate() {
                let &Step::Look(channel) = step else { continue };
                let body = BodyId(body as u32);
                let is_ahead = steps[..at].contains(&Step::Take(channel));
                let is_alone = steps.iter().filter(|step| matches!(step, Step::Look(_))).count() == 1;
                if !(around.contains(&body) && is_ahead && is_alone && may_look(schedule, body, channel)) {
                    return Err(format!("a look at channel {channel} may be one at another stage than it takes next"));
                }
            }
        }
        Ok(())
    }
}

/// The loops of who computes that nobody goes past some iterations of.
fn loops(schedule: &Schedule) -> Vec<For> {
    let Some(agent) = schedule.agent(Acts::Math) else { return Vec::new() };
    let (mut bodies, mut found) = (vec![agent.body], Vec::new());
    while let Some(body) = bodies.pop() {
        for step in schedule.steps(body) {
            bodies.extend(step.bodies());
            if let Step::For(plan) = step
                && plan.deal.is_none()
            {
                found.push(For::clone(plan));
            }
        }
    }
    found
}

/// Where a look stands in a body, if anywhere, and the channel that it is for: behind the last product that lands, for tiles that the
/// first one of the next iteration waits for.
fn place_of_look(steps: &[Step]) -> Option<(usize, u32)> {
    let first = steps.iter().position(|step| matches!(step, Step::Multiply(_)))?;
    let channel = steps[..first].iter().find_map(|step| match step {
        Step::Await(Await { channel, .. }) => Some(*channel),
        _ => None,
    })?;
    let last = steps.iter().rposition(|step| matches!(step, Step::Land(Land { carried: false, .. })))?;
    // What is left to the next step comes there. Where that is the end, there was work before.
    let next = last + steps.iter().skip(last).position(|step| !(step.is_wait() || matches!(step, Step::Within(_))))?;
    let at = if matches!(steps[next], Step::End(_)) { last } else { next + 1 };
    (first < last).then_some((at, channel))
}

/// Does a body take one stage of the ring of a channel, which is the channel's? Then the next one is what it takes next.
fn may_look(schedule: &Schedule, body: BodyId, channel: u32) -> bool {
    let Some(roles) = &schedule.roles else { return false };
    let ring = |channel: u32| roles.channels.get(channel as usize).map(|channel| channel.ring);
    let (mut taken, mut bodies) = (Vec::new(), vec![body]);
    while let Some(body) = bodies.pop() {
        for step in schedule.steps(body) {
            bodies.extend(step.bodies());
            if let &Step::Take(other) = step
                && ring(other) == ring(channel)
            {
                taken.push(other);
            }
        }
    }
    taken == [channel]
}
