//! Unrolling: unroll factors of `for` loops.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{OpId, Opcode};

/// Maximum number of ops in the unrolled iterations.
const MAX_OPS: usize = 4096;

impl KernelInfo<'_> {
    /// Returns the unroll factor that the hint of a loop requests, if it is possible. With 1, ptxas
    /// does not unroll either. `plain`: the loop has no multistage copies, carried MMAs or
    /// ping-pong.
    pub fn unroll_factor(&self, id: OpId, plain: bool) -> Option<u32> {
        let requested = self.unroll_hint(id).filter(|_| self.is_enabled(Optimization::Unroll))?;
        (requested == 1 || plain && self.can_unroll(id, requested)).then_some(requested)
    }

    /// Returns true if a loop can be unrolled: its step is constant, and it has no allocations and
    /// no MMAs.
    pub fn can_unroll(&self, id: OpId, factor: u32) -> bool {
        let ops = self.regions.nested(id);
        let plain = !self.regions.has_mma(id) && ops.iter().all(|&inner| self.module.op(inner).code != Opcode::Alloca);
        plain && factor > 1 && ops.len() * factor as usize <= MAX_OPS && self.last_counter_offset(id, factor).is_some()
    }

    /// Returns the difference of the counters of the first and the last unrolled iteration, if it
    /// is constant.
    pub fn last_counter_offset(&self, id: OpId, factor: u32) -> Option<i64> {
        let op = self.module.op(id);
        let step = self.inference.int_ranges.constant(op.group(2)[0]).filter(|&step| step > 0)?;
        let most = if self.module.dtype(op.group(0)[0]) == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        step.checked_mul(i64::from(factor) - 1).filter(|&distance| distance <= most)
    }
}
