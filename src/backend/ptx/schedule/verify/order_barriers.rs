//! Verifies order barriers: every ordered section ends in its sequence and has the steps that it
//! orders.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{OrderBarrierKind, OrderPoint, Schedule, SeqId, Step, WarpRole};
use crate::backend::ptx::schedule::pipeline::exp_order::{emits_sunk_waits, is_sunk, may_be_in_exp_span};
use crate::backend::ptx::schedule::pipeline::mma_order::may_be_in_mma_span;

impl KernelInfo<'_> {
    /// Verifies the ordered sections of all sequences:
    /// * the other consumer groups have the same section;
    /// * a section ends in the sequence where it begins;
    /// * no wait for other groups is inside, and no step that it orders is outside.
    pub fn verify_order_barriers(&self, schedule: &Schedule) -> VerifyResult {
        let pingpong = schedule.loops(WarpRole::Consumer).into_iter().find(|plan| plan.pingpong.is_some());
        (0..schedule.sequences.len() as u32).map(SeqId).try_for_each(|body| {
            let points = if pingpong.is_some_and(|plan| plan.body == body) { &OrderPoint::PINGPONG[..] } else { &[] };
            self.verify_order_of_sequence(schedule, schedule.steps(body), points)
        })
    }

    /// `pingpong`: the order points that the sequence must have.
    fn verify_order_of_sequence(&self, schedule: &Schedule, steps: &[Step], pingpong: &[OrderPoint]) -> VerifyResult {
        let (mut open, mut done): (Vec<OrderPoint>, Vec<OrderPoint>) = (Vec::new(), Vec::new());
        for (at, step) in steps.iter().enumerate() {
            let fault = |point: OrderPoint, what: &str| Err(format!("the ordered section {point} {what}"));
            match *step {
                Step::OrderWait { point, sunk } => {
                    let shares = |other: &OrderPoint| other.barrier_set() == point.barrier_set();
                    if point.barrier() == OrderBarrierKind::Mbarrier && !pingpong.contains(&point)
                        || point.barrier() == OrderBarrierKind::Named && !self.may_have_named_order(schedule, point)
                    {
                        return fault(point, "exists where no other group has one");
                    }
                    if open.iter().any(shares) {
                        return fault(point, "begins inside another one");
                    }
                    let other = |other: &OrderPoint| {
                        shares(other) && std::mem::discriminant(other) != std::mem::discriminant(&point)
                    };
                    if done.iter().any(other) || pingpong.contains(&point) && done.contains(&point) {
                        return fault(point, "exists with another one");
                    }
                    let next = steps[at + 1..].iter().find(|step| !matches!(step, Step::Sub(_)));
                    let begins = match point {
                        OrderPoint::Pipeline | OrderPoint::SideEffects => !sunk,
                        OrderPoint::Mma(_) => sunk && matches!(next, Some(Step::Mma(plan)) if self.is_async(&plan.ops)),
                        OrderPoint::Exp(value) => {
                            let is_here = steps.iter().any(|step| self.exponentials(step) == Some(value));
                            is_here && (!sunk || next.is_some_and(is_sunk))
                        }
                    };
                    if !begins {
                        return fault(point, "begins before a step that it cannot begin with");
                    }
                    open.push(point);
                }
                Step::OrderArrive(point) => {
                    let begun = open.iter().position(|other| *other == point);
                    open.remove(begun.ok_or_else(|| format!("the ordered section {point} ends before it begins"))?);
                    let wait =
                        |step: &Step| matches!(step, Step::OrderWait { point: other, sunk: true } if *other == point);
                    let begun = steps[..at].iter().rposition(wait);
                    if begun.is_some_and(|begun| !steps[begun..at].iter().any(emits_sunk_waits)) {
                        return fault(point, "ends before its wait is emitted");
                    }
                    if let OrderPoint::Mma(id) = point
                        && !matches!(&steps[at - 1], Step::Mma(plan) if plan.last() == Some(id))
                    {
                        return fault(point, "does not end after its last MMA");
                    }
                    done.push(point);
                }
                ref step => {
                    if let Some(&point) = open.iter().find(|&&point| !may_be_in_section(step, point)) {
                        return fault(point, "does not end before a wait for other groups");
                    }
                    let mut outside = pingpong.iter().filter(|point| !open.contains(point));
                    if let Some(&point) = outside.find(|&&point| self.needs_section(schedule, step, point)) {
                        return fault(point, "does not have all steps that it orders");
                    }
                }
            }
        }
        open.first().map_or(Ok(()), |point| Err(format!("the ordered section {point} does not end")))
    }

    /// Returns true if the consumer groups can have this section, with named barriers.
    fn may_have_named_order(&self, schedule: &Schedule, point: OrderPoint) -> bool {
        let consumer = schedule.partition(WarpRole::Consumer);
        consumer.is_some_and(|partition| self.can_order(schedule, partition))
            && (matches!(point, OrderPoint::Mma(_)) || self.data_partitions == 1)
    }

    /// Returns true if this section orders a step, or a step of its sequences.
    fn needs_section(&self, schedule: &Schedule, step: &Step, point: OrderPoint) -> bool {
        let is_ordered = match point {
            OrderPoint::SideEffects => step.ops().into_iter().any(|id| self.contains_side_effect(id)),
            _ => matches!(step, Step::Advance(_) | Step::ConsumerWait(_)),
        };
        let mut inside = step.sequences().iter().flat_map(|&body| schedule.steps(body));
        is_ordered || inside.any(|step| self.needs_section(schedule, step, point))
    }
}

/// Returns true if the step may be in this section: it does not wait for other groups.
fn may_be_in_section(step: &Step, point: OrderPoint) -> bool {
    match point {
        OrderPoint::Pipeline | OrderPoint::SideEffects => true,
        OrderPoint::Mma(_) => may_be_in_mma_span(step),
        OrderPoint::Exp(_) => may_be_in_exp_span(step),
    }
}
