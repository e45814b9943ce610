//! Verifies the MMA order: every critical section ends in its body and waits for no other group.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step, WarpRole};
use crate::backend::ptx::schedule::pipeline::mma_order::may_be_in_mma_span;

impl KernelInfo<'_> {
    /// Verifies ordered MMAs: the groups have barriers, each section ends in the sequence where it
    /// begins, and no wait for other groups is inside.
    pub fn verify_mma_order(&self, schedule: &Schedule) -> VerifyResult {
        let may_be =
            schedule.partition(WarpRole::Consumer).is_some_and(|partition| self.can_order(schedule, partition));
        for steps in &schedule.sequences {
            self.verify_exp_order(steps, may_be && self.data_partitions == 1)?;
            let mut in_span = false;
            for step in steps {
                let Step::Mma(plan) = step else {
                    if in_span && !may_be_in_mma_span(step) {
                        return Err(format!(
                            "an ordered section does not end before op {:?}",
                            step.op().map(|id| id.index())
                        ));
                    }
                    continue;
                };
                let fault = |what: &str| Err(format!("op {} {what}", plan.ops[0].index()));
                if plan.order.is_some() && !(may_be && self.is_async(&plan.ops)) {
                    return fault("is ordered, and no other group is");
                }
                if plan.order.acquire && in_span || plan.order.release && !(in_span || plan.order.acquire) {
                    return fault("begins a section inside a section, or ends one that has not begun");
                }
                in_span = (in_span || plan.order.acquire) && !plan.order.release;
            }
            if in_span {
                return Err("an ordered section does not end".to_owned());
            }
        }
        Ok(())
    }
}
