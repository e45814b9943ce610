//! Atomics that a tile block first combines in its own shared memory.
//!
//! Integer atomics whose results nobody reads, in no order, again and again at scattered elements of an array that the
//! kernel does not touch otherwise: what they do to the first elements of the array goes to a copy in shared memory,
//! which starts at zero and is added to the array at the end. All others go to the array at once. So neither the
//! extent of the array nor what the elements mean has to be known; it pays where many elements meet at few places.

use super::atomic::{Ordering, form};
use super::history;
use super::pointer::PointerAccess;
use super::{Lowered, Lowering};
use crate::backend::ptx::inst::{Addr, Cmp, CvtMods, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty};
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::shared::Buffer;
use crate::dtype::DType;
use crate::ir::table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Def, Module, OpId, Opcode, Value};

/// Elements that have a copy.
const WORDS: u32 = 2048;

/// Fewest elements of a tile that goes there: else beginning and end cost more than they spare.
const LEAST_ELEMENTS: usize = 512;

/// The copy of an array's first elements.
#[derive(Clone, Copy, Debug)]
pub struct Private {
    root: Value,
    mode: AtomicMode,
    buffer: Buffer,
}

/// The mode of an integer atomic that leaves an element alone when its value is zero.
fn combining_mode(module: &Module, id: OpId) -> Option<AtomicMode> {
    let op = module.op(id);
    match (op.code, op.attr(AttrKind::AtomicMode)) {
        (Opcode::AtomicRmw, Some(Attr::AtomicMode(mode)))
            if matches!(mode, AtomicMode::Add | AtomicMode::Or | AtomicMode::Xor | AtomicMode::UMax)
                && module.dtype(op.operands[1]) == DType::I32 =>
        {
            Some(*mode)
        }
        _ => None,
    }
}

/// Array and offsets of pointers that are one address and an offset of 32 bits for each element.
fn parts(module: &Module, pointers: Value) -> Option<(Value, Value)> {
    let op = module.op(module.defining_op(pointers)?);
    if op.code != Opcode::Offset || module.dtype(op.operands[1]) != DType::I32 {
        return None;
    }
    let mut base = op.operands[0];
    while let Def::Result(id, _) = module.def(base) {
        let inner = module.op(id);
        match inner.code {
            Opcode::Broadcast | Opcode::Reshape | Opcode::Assume => base = inner.operands[0],
            _ => return None,
        }
    }
    // A pointer that a loop carries is another one in each iteration, and gone at the end.
    let Def::Arg(block, _) = module.def(base) else { return None };
    module.block(block).parent.is_none().then_some((base, op.operands[1]))
}

impl Lowering<'_> {
    /// Finds such arrays, and clears their copies.
    pub fn start_private(&mut self, body: BlockId) -> Lowered {
        let Some((root, mode)) = self.find_private(body) else { return Ok(()) };
        let bytes = WORDS * 4;
        let Some(buffer) = self.shared.reserve(bytes, 128) else { return Ok(()) };
        self.private = Some(Private { root, mode, buffer });
        self.each_quarter(buffer, &mut |this, addr, _| {
            this.b.st_vec(Space::Shared, Ty::B32, addr, &[Operand::Imm(0); 4], MemMods::default());
        });
        self.barrier();
        Ok(())
    }

    /// The first array with such atomics, and what they do.
    fn find_private(&self, body: BlockId) -> Option<(Value, AtomicMode)> {
        let module = self.module;
        let mut ops = Vec::new();
        module.walk(body, &mut |id| ops.push(id));
        if ops.iter().any(|&id| matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI)) {
            return None;
        }
        ops.iter().find_map(|&id| {
            let mode = combining_mode(module, id)?;
            let pointers = module.op(id).operands[0];
            let (root, _) = parts(module, pointers)?;
            let worth = self.inference.num_elements(pointers) >= LEAST_ELEMENTS
                && !self.inference.pointer_runs.contains_key(&id)
                && self.is_repeated(id);
            let alike = ops.iter().all(|&other| self.leaves_alone(other, root) || self.combines(other, root, mode));
            (worth && alike).then_some((root, mode))
        })
    }

    /// Does an op stand in a loop?
    pub fn is_repeated(&self, id: OpId) -> bool {
        let mut block = self.op_blocks[id.index()];
        while let Some(owner) = block.and_then(|block| self.module.block(block).parent) {
            if matches!(self.module.op(owner).code, Opcode::For | Opcode::Loop) {
                return true;
            }
            block = self.op_blocks[owner.index()];
        }
        false
    }

    /// Is this op without access to the array?
    fn leaves_alone(&self, id: OpId, root: Value) -> bool {
        let op = self.module.op(id);
        match op.code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => true,
            Effect::Other => matches!(op.code, Opcode::Assert | Opcode::Print),
            Effect::Read | Effect::Write | Effect::ReadWrite => {
                let names = ["view", "pointers", "source", "destination"];
                let group = op.code.spec().operands.iter().position(|operand| names.contains(&operand.name));
                let address = group.and_then(|group| op.group(group).first());
                address.is_some_and(|&address| {
                    let other = history::root(self.module, address);
                    let known = matches!(self.module.def(other), Def::Arg(block, _) if self.module.block(block).parent.is_none());
                    known && other != root
                })
            }
        }
    }

    /// Is this one of the atomics that the copy takes?
    fn combines(&self, id: OpId, root: Value, mode: AtomicMode) -> bool {
        let op = self.module.op(id);
        combining_mode(self.module, id) == Some(mode)
            && parts(self.module, op.operands[0]).is_some_and(|(base, _)| base == root)
            && Ordering::of(op).is_relaxed_on_device()
            && !self.is_result_read(id)
    }

    /// Does the atomic through the copy, if the array has one.
    pub fn combine_in_block(&mut self, id: OpId, access: &PointerAccess, values: &[Operand]) -> Lowered<bool> {
        let pointers = self.module.op(id).operands[0];
        let (Some(private), Some((base, offsets))) = (self.private, parts(self.module, pointers)) else {
            return Ok(false);
        };
        if base != private.root || access.vector != 1 {
            return Ok(false);
        }
        let offsets = self.get(offsets, &access.layout)?;
        let largest = offsets.iter().copied().reduce(|a, b| self.b.max(Ty::U32, a, b)).unwrap_or(Operand::Imm(0));
        let (slow, done) = (self.b.new_label(), self.b.new_label());
        let near = self.b.setp(Cmp::Lt, Ty::U32, largest, WORDS);
        self.b.bra_if(near, true, slow, false);
        let order = (Sem::Relaxed, Scope::Cta);
        let (op, ty) = form(private.mode, access.dtype)?;
        for (slot, &value) in values.iter().enumerate() {
            let guard = self.guard(access, slot, slot);
            let bytes = self.b.shl(Ty::B32, offsets[slot], 2);
            let addr = self.b.address(Operand::Smem, bytes).plus(i64::from(private.buffer.offset));
            let value = self.b.reg(value, RegClass::B32);
            self.b.guarded_if(guard, |b| b.red(op, ty, Space::Shared, order, &addr, &[value.into()]));
        }
        self.b.bra(done, false);
        self.b.place(slow);
        for (slot, &value) in values.iter().enumerate() {
            let guard = self.guard(access, slot, slot);
            let addr = self.slot_address(access, slot);
            self.red(private.mode, access.dtype, (Sem::Relaxed, Scope::Gpu), &addr, guard, &[value]);
        }
        self.b.place(done);
        Ok(true)
    }

    /// Adds what the block has combined to the array, at its end.
    pub fn flush_private(&mut self) -> Lowered {
        let Some(Private { root, mode, buffer }) = self.private else { return Ok(()) };
        let base = self.scalar(root)?;
        self.barrier();
        self.each_quarter(buffer, &mut |this, addr, offset| {
            let words = this.b.ld_vec(Space::Shared, Ty::B32, 4, addr, MemMods::default());
            let far = this.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), offset);
            let place = this.b.add(Ty::S64, base, far);
            for (index, word) in words.into_iter().enumerate() {
                let some: Reg = this.b.setp(Cmp::Ne, Ty::B32, word, 0);
                let addr = this.b.address(place, 4 * index as i64);
                this.red(mode, DType::I32, (Sem::Relaxed, Scope::Gpu), &addr, Some(some), &[word.into()]);
            }
        });
        Ok(())
    }

    /// Something for every 16 bytes of the copy that are this thread's, with their address and byte offset.
    fn each_quarter(&mut self, buffer: Buffer, body: &mut dyn FnMut(&mut Self, &Addr, Operand)) {
        let threads = self.inference.num_warps as u32 * WARP;
        let (turns, all) = ((WORDS / 4).div_ceil(threads), WORDS / 4);
        let tid = self.b.special(Special::TidX);
        let first = self.b.shl(Ty::B32, tid, 4);
        let (rest, done) = (self.b.new_label(), threads > all);
        if done {
            let has_part = self.b.setp(Cmp::Lt, Ty::U32, tid, all);
            self.b.bra_if(has_part, true, rest, false);
        }
        for turn in 0..turns {
            let offset = self.b.add(Ty::U32, first, turn * threads * 16);
            let addr = self.b.address(Operand::Smem, offset).plus(i64::from(buffer.offset));
            body(self, &addr, offset);
        }
        if done {
            self.b.place(rest);
        }
    }
}
