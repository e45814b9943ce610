//! `alloca`: block-local arrays in shared memory.
//!
//! The state space of an access is that of its array. If the array of some access is unknown, or
//! an address becomes an integer, the kernel accesses all arrays by generic addresses.

use crate::backend::ptx::isa::inst::{CvtMods, Operand, Space, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Def, Elem, Module, OpId, Opcode, Type, Value};

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

/// Returns the state space of the array of an address, if it is known.
fn space_of(module: &Module, address: Value) -> Option<Space> {
    match module.def(module.base(address)) {
        Def::Arg(block, _) => module.block(block).parent.is_none().then_some(Space::Global),
        Def::Result(op, _) => match module.op(op).code {
            Opcode::Alloca => Some(Space::Shared),
            Opcode::GetGlobal => Some(Space::Global),
            _ => None,
        },
    }
}

/// Returns the address that an op itself accesses.
fn accessed(module: &Module, id: OpId) -> Option<Value> {
    use Opcode::{AtomicCas, AtomicRedView, AtomicRmw, LoadPtr, LoadView, StorePtr, StoreView};
    let op = module.op(id);
    let is_access =
        matches!(op.code, LoadView | LoadPtr | StoreView | StorePtr | AtomicCas | AtomicRmw | AtomicRedView);
    if is_access { op.address() } else { None }
}

/// Returns true if the state space of each access is known.
fn spaces_are_known(module: &Module, body: BlockId) -> bool {
    let mut known = true;
    module.walk(body, &mut |id| {
        let is_number = matches!(module.op(id).code, Opcode::PtrToInt | Opcode::InlinePtx);
        known &= !is_number && accessed(module, id).is_none_or(|address| space_of(module, address).is_some());
    });
    known
}

impl Lowering<'_> {
    /// Selects the state space of the accesses of an op, in a kernel with block-local arrays.
    pub fn select_space(&mut self, id: OpId) {
        if !self.smem.arrays.is_empty()
            && self.smem.data_space != Space::Generic
            && let Some(address) = accessed(self.module, id)
        {
            self.smem.data_space = space_of(self.module, address).unwrap_or(Space::Generic);
        }
    }

    /// Allocates all block-local arrays, and reports those that do not fit.
    pub fn reserve_allocas(&mut self, body: BlockId) {
        let module = self.module;
        let mut all = Vec::new();
        module.walk(body, &mut |id| all.extend((module.op(id).code == Opcode::Alloca).then_some(id)));
        if !all.is_empty() && !spaces_are_known(module, body) {
            self.smem.data_space = Space::Generic;
        }
        for id in all {
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

    /// Lowers `alloca` to the address of the array: in shared memory, or generic.
    pub fn alloca(&mut self, id: OpId) -> Lowered {
        // Arrays that do not fit are reported already.
        let Some(buffer) = self.smem.arrays.get(&id).copied() else { return Ok(()) };
        let place = self.b.add(Ty::U32, Operand::Smem, buffer.offset);
        let place = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), place);
        let address = match self.smem.data_space {
            Space::Generic => self.b.generic_of_shared(place).into(),
            _ => place,
        };
        self.define_scalar(self.module.op(id).results[0], address);
        Ok(())
    }
}
