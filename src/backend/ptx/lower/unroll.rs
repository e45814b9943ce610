//! Emits the unrolled body and the remainder loop of a `for`.
//!
//! One comparison covers `factor` iterations, and their loads are in flight together. The remainder
//! loop executes the remaining iterations one by one.

use super::Lowering;
use super::loop_counter::unsigned;
use super::state::core::FixedRegisters;
use crate::backend::ptx::isa::inst::{Cmp, Label, Operand, Reg, Ty};
use crate::backend::ptx::schedule::SeqId;
use crate::ir::BlockId;

/// An unrolled loop.
pub struct Unroll {
    /// Unroll factor.
    pub factor: u32,
    /// Difference between the counters of the last and the first iteration of the unrolled body.
    pub span: i64,
}

/// Registers and labels of a loop.
pub struct LoopRegs<'a> {
    pub block: BlockId,
    pub body: SeqId,
    pub carried: &'a [Option<FixedRegisters>],
    pub counter: Reg,
    pub ty: Ty,
    pub upper: Operand,
    pub step: Operand,
    /// Remainder loop. At least one iteration is left there.
    pub head: Label,
    /// After the loop.
    pub end: Label,
}

impl Lowering<'_> {
    /// Emits the unrolled loop. At least one iteration is left, here and at `head`.
    pub fn unrolled_iterations(&mut self, unroll: &Unroll, regs: &LoopRegs<'_>, round: &mut dyn FnMut(&mut Self)) {
        let &LoopRegs { counter, ty, step, head, end, .. } = regs;
        let all = self.b.new_label();
        let enough = self.has_full_unroll(unroll, regs);
        self.b.bra_if(enough, true, head, true);
        self.b.emit_label(all);
        self.b.pragma("nounroll");
        for number in 1..=unroll.factor {
            round(self);
            if number < unroll.factor {
                let after = self.b.add(ty, counter, step);
                self.b.mov_to(counter, after);
            }
        }
        let more = self.next_iteration(regs);
        self.b.bra_if(more, true, end, true);
        let enough = self.has_full_unroll(unroll, regs);
        self.b.bra_if(enough, false, all, true);
    }

    /// Advances the counter. Returns whether the iteration exists.
    pub fn next_iteration(&mut self, regs: &LoopRegs<'_>) -> Reg {
        let &LoopRegs { counter, ty, upper, step, .. } = regs;
        // The next counter may overflow its type: the rest of the range is compared.
        let left = self.b.sub(ty, upper, counter);
        let more = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let after = self.b.add(ty, counter, step);
        self.b.mov_to(counter, after);
        more
    }

    /// Returns whether enough iterations for the unrolled body are left. At least one is.
    fn has_full_unroll(&mut self, unroll: &Unroll, regs: &LoopRegs<'_>) -> Reg {
        let left = self.b.sub(regs.ty, regs.upper, regs.counter);
        self.b.setp(Cmp::Gt, unsigned(regs.ty), left, unroll.span)
    }
}
