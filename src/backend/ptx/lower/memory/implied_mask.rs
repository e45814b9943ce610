//! Implied masks: one predicate for all elements of a thread (LLVM: implied conditions).
//!
//! A mask that compares indices with a CTA-uniform bound is true for all elements except near the
//! end of an array. If the largest index of a thread is known, one comparison implies the mask of
//! all elements. The masks of the elements are computed only on the path where the comparison
//! fails, so the ops that compute them are deferred to this path.

use std::rc::Rc;

use crate::backend::ptx::isa::inst::{Cmp, Operand, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::schedule::Comparison;
use crate::ir::Value;
use crate::layout::Layout;

impl Lowering<'_> {
    /// Returns a predicate that implies a mask in all elements of a thread.
    pub fn implies_all(&mut self, mask: Value, layout: &Layout) -> Lowered<Operand> {
        let mut all: Option<Operand> = None;
        for comparison in self.info.comparisons(mask).ok_or("a mask that nothing cheaper implies")? {
            let holds = match comparison {
                Comparison::Range { largest, bound, signed } => {
                    let ty = if signed { Ty::S32 } else { Ty::U32 };
                    let bound = self.scalar(bound)?;
                    self.b.setp(Cmp::Gt, ty, bound, largest).into()
                }
                Comparison::Ascending { value, bound } => {
                    // The last register has the largest number, unless the numbers overflow.
                    let regs = self.rematerialize(value, layout)?;
                    let (first, last) = (regs[0], regs[regs.len() - 1]);
                    let bound = self.scalar(bound)?;
                    let below = self.b.setp(Cmp::Lt, Ty::S32, last, bound);
                    let in_order = self.b.setp(Cmp::Le, Ty::S32, first, last);
                    self.b.and(Ty::Pred, below, in_order)
                }
            };
            all = Some(all.map_or(holds, |all| self.b.and(Ty::Pred, all, holds)));
        }
        Ok(all.unwrap_or(Operand::Imm(1)))
    }

    /// Returns the registers of a value, and computes deferred ops here.
    pub fn rematerialize(&mut self, value: Value, layout: &Layout) -> Lowered<Rc<[Operand]>> {
        let Some(id) = self.info.deferred_op(value) else { return self.get(value, layout) };
        let mut operands = Vec::new();
        for &operand in &self.module.op(id).operands {
            operands.push(self.rematerialize(operand, layout)?);
        }
        Ok(self.for_op(id, |lowering| lowering.apply(id, &operands, layout.num_registers()))?.into())
    }
}
