//! Implied masks: one comparison that covers all elements of a thread.
//!
//! A mask that compares with a scalar is often true for all elements except near the end of an
//! array. If the largest element of a thread follows from the layout or the range of the value, one
//! comparison implies the mask of the thread.

use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, CmpPred, Opcode, Sign, Value};

/// A comparison that can be decided for all elements of a thread at once.
pub enum Comparison {
    /// Comparison of a value with a scalar. The value is at most `largest`.
    Range { largest: i64, bound: Value, signed: bool },
    /// Comparison of ascending elements, a scalar plus the number of the element, with a scalar.
    Ascending { value: Value, bound: Value },
}

impl KernelInfo<'_> {
    /// Returns true if a predicate that is cheaper than the mask implies it for all elements of a
    /// thread.
    pub fn can_imply(&self, mask: Value) -> bool {
        self.comparisons(mask).is_some()
    }

    /// Returns the comparisons whose conjunction is a mask. `None` if one of them cannot be decided
    /// for all elements of a thread at once.
    pub fn comparisons(&self, mask: Value) -> Option<Vec<Comparison>> {
        if !self.is_enabled(Optimization::ImpliedMask) {
            return None;
        }
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
        match self.inference.int_ranges.range(value).filter(|range| range.lo >= 0 && small(range.hi)) {
            Some(range) => Some(Comparison::Range { largest: range.hi, bound, signed }),
            None => (signed && self.is_iota_plus_scalar(value)).then_some(Comparison::Ascending { value, bound }),
        }
    }

    /// Returns the scalar of which a value is a broadcast.
    fn uniform(&self, mut value: Value) -> Option<Value> {
        while !self.module.shape(value).is_empty() {
            let op = self.module.op(self.module.defining_op(value)?);
            if !op.code.has_operand_elements() {
                return None;
            }
            value = op.operands[0];
        }
        Some(value)
    }

    /// Returns true if a vector is a scalar plus the number of each element.
    fn is_iota_plus_scalar(&self, value: Value) -> bool {
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
}
