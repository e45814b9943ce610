//! Memory of a tile block's own (`alloca`): in shared memory, by generic addresses.
//!
//! A kernel that has some accesses all arrays by generic addresses, because an address may be one or the other.

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{CvtMods, Operand, Space, Ty};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Module, OpId, Opcode, Type};

/// Bytes and alignment of such memory.
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
    /// Finds room for all such memory; reports what there is none for.
    pub fn reserve_own(&mut self, body: BlockId) {
        let module = self.module;
        let mut all = Vec::new();
        module.walk(body, &mut |id| all.extend((module.op(id).code == Opcode::Alloca).then_some(id)));
        for id in all {
            self.data_space = Space::Generic;
            let extent = extent(module, id);
            let buffer = extent.and_then(|(bytes, align)| self.shared.reserve(bytes, align));
            match buffer {
                Some(buffer) => drop(self.own.insert(id, buffer)),
                None => {
                    let (bytes, all) = (extent.map_or(u32::MAX, |(bytes, _)| bytes), self.shared.budget());
                    let message = format!("there is no room for {bytes} bytes of a tile block's own in shared memory");
                    let place = module.location(module.op(id).loc).cloned();
                    let note = format!("a tile block has {all} bytes of it in all on {}", self.b.target);
                    self.errors.push(Diagnostic::new(message, place).note(note));
                }
            }
        }
    }

    /// `alloca`: the address.
    pub fn own_memory(&mut self, id: OpId) -> Lowered {
        // What has no room has been reported.
        let Some(buffer) = self.own.get(&id).copied() else { return Ok(()) };
        let place = self.b.add(Ty::U32, Operand::Smem, buffer.offset);
        let place = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), place);
        let address = self.b.generic_of_shared(place);
        self.single(self.module.op(id).results[0], address.into());
        Ok(())
    }
}
