//! `alloca`: block-local arrays in shared memory, by generic addresses.
//!
//! A kernel with a block-local array accesses all arrays by generic addresses, because a pointer
//! may refer to either state space.

use crate::backend::ptx::isa::inst::{CvtMods, Operand, Space, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Module, OpId, Opcode, Type};

/// Returns bytes and alignment of a block-local array.
fn extent(module: &Module, id: OpId) -> Option<(u32, u32)> {
    let op = module.op(id);
    let Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } = module.ty(op.results[0]) else { return None };
    let number = |kind| match op.attr(kind) {
        Some(Attr::NumElem(n) | Attr::Alignment(n)) => Some(*n),
        _ => None,
    };
    let bits = number(AttrKind::NumElem)?.checked_mul(pointee.storage_bits().into())?;
    let align = number(AttrKind::Alignment)?.max(16);
    Some((u32::try_from(bits.div_ceil(8)).ok()?, u32::try_from(align).ok()?))
}

impl Lowering<'_> {
    /// Allocates all block-local arrays, and reports those that do not fit.
    pub fn reserve_allocas(&mut self, body: BlockId) {
        let module = self.module;
        let mut all = Vec::new();
        module.walk(body, &mut |id| all.extend((module.op(id).code == Opcode::Alloca).then_some(id)));
        for id in all {
            self.smem.data_space = Space::Generic;
            let extent = extent(module, id);
            let buffer = extent.and_then(|(bytes, align)| self.smem.memory.reserve(bytes, align));
            match buffer {
                Some(buffer) => drop(self.smem.arrays.insert(id, buffer)),
                None => {
                    let (bytes, all) = (extent.map_or(u32::MAX, |(bytes, _)| bytes), self.smem.memory.budget());
                    let message = format!("there is no room for {bytes} bytes of a tile block's own in shared memory");
                    let place = module.location(module.op(id).loc).cloned();
                    let note = format!("a tile block has {all} bytes of it in all on {}", self.b.target);
                    self.report.errors.push(Diagnostic::new(message, place).note(note));
                }
            }
        }
    }

    /// Lowers `alloca` to the generic address of the array.
    pub fn alloca(&mut self, id: OpId) -> Lowered {
        // Arrays that do not fit are reported already.
        let Some(buffer) = self.smem.arrays.get(&id).copied() else { return Ok(()) };
        let place = self.b.add(Ty::U32, Operand::Smem, buffer.offset);
        let place = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), place);
        let address = self.b.generic_of_shared(place);
        self.define_scalar(self.module.op(id).results[0], address.into());
        Ok(())
    }
}
