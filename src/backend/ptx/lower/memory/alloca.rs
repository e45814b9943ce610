//! `alloca`: block-local arrays in shared memory, by generic addresses.
//!
//! A kernel with a block-local array accesses all arrays by generic addresses, because a pointer
//! may refer to either state space.

use crate::backend::ptx::isa::inst::{CvtMods, Operand, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::ir::OpId;

impl Lowering<'_> {
    /// Lowers `alloca` to the generic address of the array.
    pub fn alloca(&mut self, id: OpId) -> Lowered {
        // Arrays that do not fit are reported already.
        let Some(buffer) = self.smem.arrays.get(&id).copied() else { return Ok(()) };
        let shared = self.b.add(Ty::U32, Operand::Smem, buffer.offset);
        let shared = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), shared);
        let address = self.b.generic_of_shared(shared);
        self.define_scalar(self.module.op(id).results[0], address.into());
        Ok(())
    }
}
