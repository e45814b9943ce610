//! Masks that hold for all elements of a thread, found out at once.
//!
//! A mask of comparisons with numbers that are the same for the whole block often holds for every element but near the
//! end of an array. Where the largest element of a thread is known without looking at all of them, one comparison
//! decides for all; the elements' own masks are then needed only where it fails. So what only such a mask is made of is
//! not computed where it stands, but in the path that needs it.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Lowered, Lowering};
use crate::backend::ptx::infer::Source;
use crate::backend::ptx::inst::{Cmp, Operand, Ty};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, CmpPred, OpId, Opcode, Sign, Value};
use crate::layout::Layout;

/// A comparison that can be decided for all elements of a thread at once.
enum Comparison {
    /// With the largest number that the value ever has.
    Range { largest: i64, bound: Value, ty: Ty },
    /// Of numbers that count up from element to element.
    Counting { value: Value, bound: Value },
}

impl Lowering<'_> {
    /// Is there a predicate, cheaper than the mask, that implies it for all elements of a thread?
    pub fn can_imply(&self, mask: Value) -> bool {
        self.comparisons(mask).is_some()
    }

    /// A predicate that implies a mask in all elements of a thread that have this layout.
    pub fn implies_all(&mut self, mask: Value, layout: &Layout) -> Lowered<Operand> {
        let mut all: Option<Operand> = None;
        for comparison in self.comparisons(mask).ok_or("a mask that nothing cheaper implies")? {
            let holds = match comparison {
                Comparison::Range { largest, bound, ty } => {
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

    /// The comparisons of which a mask is the conjunction, if all of them can be decided at once.
    fn comparisons(&self, mask: Value) -> Option<Vec<Comparison>> {
        let module = self.module;
        let mut found = Vec::new();
        let mut pending = vec![mask];
        while let Some(value) = pending.pop() {
            let op = module.op(module.defining_op(value)?);
            match op.code {
                Opcode::AndI => pending.extend(&op.operands),
                Opcode::CmpI if op.attr(AttrKind::CmpPred) == Some(&Attr::CmpPred(CmpPred::Lt)) => {
                    let signed = op.attr(AttrKind::Sign) != Some(&Attr::Sign(Sign::Unsigned));
                    found.push(self.comparison(op.operands[0], op.operands[1], signed)?);
                }
                _ => return None,
            }
        }
        Some(found)
    }

    fn comparison(&self, value: Value, bound: Value, signed: bool) -> Option<Comparison> {
        let bound = self.uniform(bound).filter(|&bound| self.module.dtype(bound) == DType::I32)?;
        let small = |largest: i64| largest < i64::from(i16::MAX);
        match self.context.inference.facts.range(value).filter(|range| range.lo >= 0 && small(range.hi)) {
            Some(range) => {
                Some(Comparison::Range { largest: range.hi, bound, ty: if signed { Ty::S32 } else { Ty::U32 } })
            }
            None => (signed && self.counts_up(value)).then_some(Comparison::Counting { value, bound }),
        }
    }

    /// The scalar that a value repeats.
    fn uniform(&self, mut value: Value) -> Option<Value> {
        while !self.module.shape(value).is_empty() {
            let op = self.module.op(self.module.defining_op(value)?);
            if !matches!(op.code, Opcode::Broadcast | Opcode::Reshape) {
                return None;
            }
            value = op.operands[0];
        }
        Some(value)
    }

    /// Is this vector a scalar plus the number of each element?
    fn counts_up(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        let is = |value: Value, code: Opcode| {
            self.module.defining_op(value).is_some_and(|id| self.module.op(id).code == code)
        };
        let [a, b] = *op.operands else { return false };
        op.code == Opcode::AddI
            && self.module.shape(value).len() == 1
            && (is(a, Opcode::Iota) && self.uniform(b).is_some() || is(b, Opcode::Iota) && self.uniform(a).is_some())
    }

    /// Leaves the elementwise ops that nothing but this op uses, of its block, to where this one is lowered.
    pub fn defer(&mut self, id: OpId) {
        let module = self.module;
        let Some(block) = self.context.op_blocks[id.index()] else { return };
        let mut uses: HashMap<Value, u32> = HashMap::new();
        module.op(id).operands.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
        let before = module.block(block).ops.iter().rev().skip_while(|&&other| other != id).skip(1);
        for &other in before {
            let op = module.op(other);
            let [result] = *op.results else { continue };
            let is_ours = uses.get(&result).is_some_and(|&uses| uses == self.context.use_counts[result.index()]);
            if is_ours && op.code.is_elementwise() && self.context.inference.source(result) == Source::Concrete {
                self.context.deferred.insert(other);
                op.operands.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
            }
        }
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
