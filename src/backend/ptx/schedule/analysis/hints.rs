//! Hints of ops for the scheduler.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::rejected_loads::ProducerRejection;
use crate::ir::{Attr, AttrKind, HintValue, OpId, hint_key};

/// Minimum number of stages of loads with a `latency` hint.
const MIN_STAGES: u32 = 2;

impl KernelInfo<'_> {
    fn hint(&self, id: OpId, key: &str) -> Option<&HintValue> {
        let Some(Attr::Hints(hints)) = self.module.op(id).attr(AttrKind::Hints) else { return None };
        hints.get("default", key)
    }

    /// Returns the integer hint of an op with this key.
    pub fn int_hint(&self, id: OpId, key: &str) -> Option<u32> {
        match self.hint(id, key) {
            Some(&HintValue::Int(number)) => u32::try_from(number).ok(),
            _ => None,
        }
    }

    /// Returns the boolean hint of an op with this key.
    pub fn bool_hint(&self, id: OpId, key: &str) -> Option<bool> {
        match self.hint(id, key) {
            Some(&HintValue::Bool(flag)) => Some(flag),
            _ => None,
        }
    }

    /// Returns the requested number of stages for the loads of a loop, or for loads outside of
    /// loops. The hint of a loop precedes the option of the kernel.
    pub fn requested_stages(&self, loop_op: Option<OpId>) -> Option<u32> {
        self.loop_stages(loop_op).or(self.options.num_stages)
    }

    /// Returns the number of stages that the loop itself requests.
    pub fn loop_stages(&self, loop_op: Option<OpId>) -> Option<u32> {
        loop_op.and_then(|id| self.int_hint(id, hint_key::NUM_STAGES))
    }

    /// Returns an error if a hint or option excludes a producer for the loads of a loop, or for
    /// those outside of loops.
    pub fn can_use_producer(&self, loop_op: Option<OpId>) -> Result<(), ProducerRejection> {
        match loop_op.and_then(|id| self.bool_hint(id, hint_key::WARP_SPECIALIZE)) {
            Some(false) => Err(ProducerRejection::LoopHint),
            _ if self.requested_stages(loop_op) == Some(1) => Err(ProducerRejection::OneStage),
            _ => Ok(()),
        }
    }

    /// Returns the number of stages for loads with a `latency` hint: the maximum of the hints, at
    /// least `MIN_STAGES`.
    pub fn stages_for_latency(&self, loads: impl IntoIterator<Item = OpId>) -> Option<u32> {
        let latencies = loads.into_iter().filter_map(|load| self.int_hint(load, "latency"));
        latencies.max().map(|latency| latency.max(MIN_STAGES))
    }

    /// Returns true if the hints of the access allow TMA.
    pub fn allows_tma(&self, id: OpId) -> bool {
        !matches!(self.hint(id, "allow_tma"), Some(HintValue::Bool(false)))
    }

    /// Returns the unroll factor that a loop requests.
    pub fn unroll_hint(&self, id: OpId) -> Option<u32> {
        self.int_hint(id, hint_key::UNROLL)
    }
}
