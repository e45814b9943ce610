//! Layouts of MMAs: each MMA gets an MMA plan, whose accumulator layout is an anchor.
//!
//! The request has extents, element types and contiguity of the operands.

use super::super::state::core::Inference;
use crate::backend::ptx::mma::{MmaPlan, MmaRequest, OperandSpec};
use crate::ir::{Attr, AttrKind, Flag, OpId, Sign, Value};

impl Inference<'_> {
    /// Plans an MMA and sets the layout of its result.
    pub fn mma(&mut self, id: OpId) {
        let result = self.module.op(id).results[0];
        let plan = self.plan_mma(id);
        let layout = match &plan {
            Ok(plan) => plan.acc.clone(),
            Err(_) => self.default_layout(result),
        };
        self.mma_plans.insert(id, plan);
        self.set(result, layout);
    }

    /// Returns the plan of an MMA for the current layouts of its operands.
    fn plan_mma(&self, id: OpId) -> Result<MmaPlan, String> {
        let module = self.module();
        let op = module.op(id);
        let [a, b, acc] = op.operands[..] else { return Err("a product has three operands".to_owned()) };
        let (left, right) = (module.shape(a), module.shape(b));
        let rank = left.len();
        let batch = if rank == 3 { left[0] } else { 1 };
        let extents = [batch, left[rank - 2], right[rank - 1], left[rank - 1]];
        let signed = |kind: AttrKind| {
            !matches!(op.attr(kind), Some(Attr::SignLhs(Sign::Unsigned) | Attr::SignRhs(Sign::Unsigned)))
        };
        let spec = |value: Value, k_axis: usize, other: usize, signed: bool| OperandSpec {
            dtype: module.dtype(value),
            signed,
            k_contiguous: match self.natural(value) {
                Some(layout) => (layout.vector_len(k_axis), k_axis) > (layout.vector_len(other), other),
                None => true,
            },
            max_swizzle_bytes: self.adjacent_operands.max_swizzle_bytes(module, value),
        };
        MmaPlan::new(&MmaRequest {
            extents,
            rank,
            a: spec(a, rank - 1, rank - 2, signed(AttrKind::SignLhs)),
            b: spec(b, rank - 2, rank - 1, signed(AttrKind::SignRhs)),
            acc: module.dtype(acc),
            fast: op.flag(Flag::FastAcc),
            num_warps: self.num_warps,
            target: self.target,
        })
    }
}
