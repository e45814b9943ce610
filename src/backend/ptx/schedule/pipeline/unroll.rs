//! Unrolling: how many iterations of a `for` are emitted in a row.

use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{OpId, Opcode};

/// Ops up to which the rounds of a loop are written out.
const MAX_OPS: usize = 4096;

impl KernelInfo<'_> {
    /// The rounds of a loop that its hint wants in a row, if it can have them; one, if even the assembler has to leave them
    /// one by one. `plain`: nothing runs ahead of the loop or over its back edge, and its iterations are not dealt.
    pub fn unroll_factor(&self, id: OpId, plain: bool) -> Option<u32> {
        let requested = self.unroll_hint(id)?;
        (requested == 1 || plain && self.can_unroll(id, requested)).then_some(requested)
    }

    /// Can so many rounds of a loop stand one after another? Its step is a constant, and nothing in it has memory or MMAs
    /// of its own, which would run into the next round.
    pub fn can_unroll(&self, id: OpId, factor: u32) -> bool {
        let (mut ops, mut plain) = (0, true);
        self.module.walk(self.module.op(id).regions[0], &mut |inner| {
            ops += 1;
            let code = self.module.op(inner).code;
            plain &= !matches!(code, Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled | Opcode::Alloca);
        });
        plain && factor > 1 && ops * factor as usize <= MAX_OPS && self.last_counter_offset(id, factor).is_some()
    }

    /// From the counter of the first one of so many rounds to that of the last, if that is a constant.
    pub fn last_counter_offset(&self, id: OpId, factor: u32) -> Option<i64> {
        let op = self.module.op(id);
        let step = self.inference.facts.constant(op.group(2)[0]).filter(|&step| step > 0)?;
        let most = if self.module.dtype(op.group(0)[0]) == DType::I32 { i64::from(i32::MAX) } else { i64::MAX };
        step.checked_mul(i64::from(factor) - 1).filter(|&apart| apart <= most)
    }
}
