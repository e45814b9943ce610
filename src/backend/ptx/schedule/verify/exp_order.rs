//! Verifies the exponential order: every critical section ends in its body, after its exponentials.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::Step;
use crate::backend::ptx::schedule::pipeline::exp_order::{is_sunk, may_be_in_exp_span};

impl KernelInfo<'_> {
    /// Verifies ordered exponentials: a section ends in the sequence where it begins, after the
    /// exponentials, and has no wait for other groups. It excludes ordered MMAs, which use the same
    /// barriers.
    pub fn verify_exp_order(&self, steps: &[Step], may_be: bool) -> VerifyResult {
        let fault = |what: &str| Err(format!("an ordered section of exponentials {what}"));
        let is_here = |value| steps.iter().any(|step| self.exponentials(step) == Some(value));
        let multiplied = steps.iter().any(|step| matches!(step, Step::Mma(plan) if plan.order.is_some()));
        let mut open = None;
        for (at, step) in steps.iter().enumerate() {
            let sunk = steps[at + 1..].iter().find(|step| !matches!(step, Step::Sub(_))).is_some_and(is_sunk);
            match *step {
                Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) if !may_be => {
                    return fault("exists where no other group has one");
                }
                Step::ExpOrderWait { .. } | Step::ExpOrderArrive(_) if multiplied => {
                    return fault("exists beside ordered MMAs");
                }
                Step::ExpOrderWait { .. } if open.is_some() => return fault("begins inside another one"),
                Step::ExpOrderWait { sunk: true, .. } if !sunk => {
                    return fault("begins sunk, and no sunk wait is next");
                }
                Step::ExpOrderWait { exponentials, .. } if is_here(exponentials) => open = Some(exponentials),
                Step::ExpOrderWait { .. } => return fault("is for values that are no exponentials of its sequence"),
                Step::ExpOrderArrive(exponentials) if open == Some(exponentials) => open = None,
                Step::ExpOrderArrive(_) => return fault("ends that has not begun"),
                ref step if open.is_some() && !may_be_in_exp_span(step) => {
                    return fault("does not end before a wait for other groups");
                }
                _ => {}
            }
        }
        open.map_or(Ok(()), |_| fault("does not end"))
    }
}
