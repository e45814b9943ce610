//! Strip-mining eligibility: the role that an op can have in a strip-mined sequence.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::is_weak;
use crate::ir::{OpId, Opcode};
use crate::layout::Layout;
use crate::pass;

/// The role that an op can have in a strip-mined sequence.
pub enum StripEligibility {
    /// The op computes on tiles of this layout.
    Elementwise(Layout),
    /// The op changes the shape of a tile: the same elements in the same registers.
    View,
    /// The op has no instructions, or computes scalars. It is executed before the first strip
    /// iteration.
    Scalar,
    /// The op ends the sequence.
    Barrier,
}

impl KernelInfo<'_> {
    /// Returns the role that an op can have in a strip-mined sequence. `fetched`: returns true for
    /// ops whose tiles are in stages.
    pub fn strip_eligibility(&self, id: OpId, fetched: &dyn Fn(OpId) -> bool) -> StripEligibility {
        let op = self.module.op(id);
        match op.code {
            _ if self.rematerialized.contains(&id) => StripEligibility::Barrier,
            Opcode::StoreView if self.tma_stores.contains_key(&id) => StripEligibility::Barrier,
            Opcode::LoadView | Opcode::FToF if fetched(id) => StripEligibility::Barrier,
            Opcode::LoadView | Opcode::StoreView if self.is_indexed_access(id) || !is_weak(op) => {
                StripEligibility::Barrier
            }
            Opcode::LoadView | Opcode::StoreView => match self.inference.op_layouts.get(&id) {
                Some(layout) => StripEligibility::Elementwise(layout.clone()),
                None => StripEligibility::Barrier,
            },
            Opcode::Reduce if self.can_strip_reduce(id) => {
                StripEligibility::Elementwise(self.inference.op_layouts[&id].clone())
            }
            _ if op.results.first().is_some_and(|&result| self.is_view_of_registers(result)) => StripEligibility::View,
            Opcode::Constant | Opcode::Iota | Opcode::MakeToken | Opcode::JoinTokens => StripEligibility::Scalar,
            code if code.is_alias() || code.is_view() => StripEligibility::Scalar,
            code if code.is_elementwise() => {
                let result = op.results[0];
                match self.inference.origin(result) {
                    ValueOrigin::Rematerialized | ValueOrigin::View => StripEligibility::Scalar,
                    ValueOrigin::Register if self.inference.num_elements(result) == 1 => StripEligibility::Scalar,
                    ValueOrigin::Register => self
                        .inference
                        .layout(result)
                        .cloned()
                        .map_or(StripEligibility::Barrier, StripEligibility::Elementwise),
                }
            }
            _ => StripEligibility::Barrier,
        }
    }

    /// Returns true if the operands of a reduction would fill the registers, alone or with the
    /// tiles that they are computed from, and its combiner is commutative.
    fn can_strip_reduce(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let Some(layout) = self.inference.op_layouts.get(&id) else { return false };
        let bits: u32 = op.operands.iter().map(|&operand| self.element_type(operand).storage_bits()).sum();
        let words = layout.num_registers() as u64 * u64::from(bits) / 32;
        (num_warps::fills_registers(words, self.inference.num_warps as u32)
            || self.reduction_fills_registers(id, layout))
            && pass::is_commutative(self.module, op.regions[0])
    }
}
