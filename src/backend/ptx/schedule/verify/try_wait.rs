//! Verifies `consumer_try_wait`: each tests the stage that its channel acquires next.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step, WarpRole};

impl KernelInfo<'_> {
    /// Verifies that each `consumer_try_wait` is the only one of a loop body, and tests the stage
    /// that its channel acquires next.
    pub fn verify_try_waits(&self, schedule: &Schedule) -> VerifyResult {
        let loops = schedule.loops(WarpRole::Consumer);
        for (body, steps) in schedule.sequences.iter().enumerate() {
            for (at, step) in steps.iter().enumerate() {
                let &Step::ConsumerTryWait(channel) = step else { continue };
                let loop_step = loops.iter().find(|plan| plan.body.0 as usize == body);
                let is_advanced = steps[..at].contains(&Step::Advance(channel));
                let is_alone = steps.iter().filter(|step| matches!(step, Step::ConsumerTryWait(_))).count() == 1;
                if !(is_advanced
                    && is_alone
                    && loop_step.is_some_and(|plan| self.can_try_wait(schedule, plan, channel)))
                {
                    return Err(format!("the try_wait of channel {channel} may test another stage than the next one"));
                }
            }
        }
        Ok(())
    }
}
