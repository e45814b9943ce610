//! Masks that hold for all elements of a thread, found out at once.
//!
//! A mask of comparisons with numbers that are the same for the whole block often holds for every element but near the
//! end of an array. Where the largest element of a thread is known without looking at all of them, one comparison
//! decides for all; the elements' own masks are then needed only where it fails. So what only such a mask is made of is
//! not computed where it stands, but in the path that needs it.

use std::rc::Rc;

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Cmp, Operand, Ty};
use crate::backend::ptx::schedule::Comparison;
use crate::ir::{OpId, Value};
use crate::layout::Layout;

impl Lowering<'_> {
    /// A predicate that implies a mask in all elements of a thread that have this layout.
    pub fn implies_all(&mut self, mask: Value, layout: &Layout) -> Lowered<Operand> {
        let mut all: Option<Operand> = None;
        for comparison in self.context.comparisons(mask).ok_or("a mask that nothing cheaper implies")? {
            let holds = match comparison {
                Comparison::Range { largest, bound, signed } => {
                    let ty = if signed { Ty::S32 } else { Ty::U32 };
                    let bound = self.scalar(bound)?;
                    self.b.setp(Cmp::Gt, ty, bound, largest).into()
                }
                Comparison::Counting { value, bound } => {
                    // The last register has the largest number, unless they wrap around on the way there.
                    let slots = self.slots_here(value, layout)?;
                    let (first, last) = (slots[0], slots[slots.len() - 1]);
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

    /// Has everything that deferred ops of this one are made of at hand in this layout, so that no thread needs another
    /// one for them.
    pub fn bring_leaves(&mut self, id: OpId, layout: &Layout) -> Lowered {
        self.context.leaves_of(id).into_iter().try_for_each(|value| self.get(value, layout).map(drop))
    }

    /// The slots of a value, computed here as far as it was deferred.
    pub fn slots_here(&mut self, value: Value, layout: &Layout) -> Lowered<Rc<[Operand]>> {
        let Some(id) = self.context.deferred_op(value) else { return self.get(value, layout) };
        let mut operands = Vec::new();
        for &operand in &self.module.op(id).operands {
            operands.push(self.slots_here(operand, layout)?);
        }
        let operands: Vec<&[Operand]> = operands.iter().map(|slots| &slots[..]).collect();
        Ok(self.for_op(id, |lowering| lowering.apply(id, &operands, layout.num_registers()))?.into())
    }
}
