//! Operands of MMAs that are written to shared memory before a loop.

use super::state::{StoredOperand, SubStepBuilder};
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::schedule::ir::program::HoistedOperand;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::Value;

impl SubStepBuilder<'_, '_> {
    /// Writes operands to buffers that live through a loop, and publishes them. Returns the
    /// buffers.
    pub fn hoist_operands(&mut self, operands: &[HoistedOperand]) -> Vec<Buffer> {
        let info = self.info;
        let mut buffers = Vec::new();
        for &HoistedOperand { value, mma, is_left } in operands {
            let operand = HoistedOperand { value, mma, is_left };
            let Some(plan) = info.hoisted_plan(&operand) else { continue };
            let layout = info.inference.natural_or_default(value);
            self.require(value, &layout);
            let bytes = plan.shared.bytes() as u32;
            let Some(buffer) = self.smem.reserve(bytes, plan.align.max(SWIZZLE_ATOM_BYTES)) else {
                self.smem_overflow(bytes);
                continue;
            };
            self.smem_write(Some(buffer));
            self.hoisted_operands.push(StoredOperand { value, is_left, plan, buffer });
            buffers.push(buffer);
        }
        if !buffers.is_empty() {
            self.barrier(true);
        }
        buffers
    }

    /// Ends the lives of the buffers of a loop.
    pub fn release_hoisted_operands(&mut self, buffers: &[Buffer]) {
        for &buffer in buffers.iter().rev() {
            self.smem.release(buffer);
            self.hoisted_operands.pop();
        }
    }

    /// Returns the buffer of an operand that an enclosing loop has hoisted.
    pub fn hoisted_operand(&self, value: Value, is_left: bool, plan: &OperandPlan) -> Option<Buffer> {
        let is_it =
            |other: &&StoredOperand<'_>| (other.value, other.is_left) == (value, is_left) && other.plan.is_same(plan);
        self.hoisted_operands.iter().find(is_it).map(|operand| operand.buffer)
    }
}
