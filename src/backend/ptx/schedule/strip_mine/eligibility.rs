//! Strip-mining eligibility: the role an op can have in a strip-mined loop.

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::is_weak;
use crate::ir::{OpId, Opcode};
use crate::layout::Layout;
use crate::pass;

/// What an op is to a strip.
pub enum Role {
    /// Works on tiles of this layout.
    Tile(Layout),
    /// Gives a tile another shape: the same elements in the same slots.
    Name,
    /// Has no instructions, or computes scalars: before the pieces.
    Scalar,
    /// Ends the run.
    Other,
}

impl KernelInfo<'_> {
    /// What an op is to a strip that it may stand in. `fetched`: ops of tiles that stand in stages.
    pub fn role(&self, id: OpId, fetched: &dyn Fn(OpId) -> bool) -> Role {
        let op = self.module.op(id);
        match op.code {
            _ if self.deferred.contains(&id) => Role::Other,
            Opcode::StoreView if self.boxed.contains_key(&id) => Role::Other,
            Opcode::LoadView | Opcode::FToF if fetched(id) => Role::Other,
            Opcode::LoadView | Opcode::StoreView if self.is_indexed_access(id) || !is_weak(op) => Role::Other,
            Opcode::LoadView | Opcode::StoreView => match self.inference.accesses.get(&id) {
                Some(layout) => Role::Tile(layout.clone()),
                None => Role::Other,
            },
            Opcode::Reduce if self.reduces_in_pieces(id) => Role::Tile(self.inference.accesses[&id].clone()),
            Opcode::Reshape | Opcode::Assume | Opcode::WithLayout
                if self.inference.source(op.results[0]) == ValueOrigin::View =>
            {
                Role::Name
            }
            Opcode::Constant
            | Opcode::Iota
            | Opcode::Assume
            | Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Permute
            | Opcode::MakeTensorView
            | Opcode::MakePartitionView
            | Opcode::MakeStridedView
            | Opcode::MakeGatherScatterView
            | Opcode::MakeToken
            | Opcode::JoinTokens => Role::Scalar,
            code if code.is_elementwise() => {
                let result = op.results[0];
                match self.inference.source(result) {
                    ValueOrigin::Rematerialized | ValueOrigin::View => Role::Scalar,
                    ValueOrigin::Register if self.inference.num_elements(result) == 1 => Role::Scalar,
                    ValueOrigin::Register => self.inference.layout(result).cloned().map_or(Role::Other, Role::Tile),
                }
            }
            _ => Role::Other,
        }
    }

    /// Would the operands of this reduction fill the registers, and may their elements come in any order?
    fn reduces_in_pieces(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let Some(layout) = self.inference.accesses.get(&id) else { return false };
        let bits: u32 = op.operands.iter().map(|&operand| self.element_type(operand).storage_bits()).sum();
        let words = layout.num_registers() as u64 * u64::from(bits) / 32;
        num_warps::fills_registers(words, self.inference.num_warps as u32) && pass::commutes(self.module, op.regions[0])
    }
}
