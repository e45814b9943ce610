//! Atomics that a tile block first combines in its own shared memory.
//!
//! Integer atomics whose results nobody reads, in no order, again and again at scattered elements of an array that the
//! kernel does not touch otherwise: what they do to the first elements of the array goes to a copy in shared memory,
//! which starts at zero and is added to the array at the end. All others go to the array at once. So neither the
//! extent of the array nor what the elements mean has to be known; it pays where many elements meet at few places.
//!
//! Lanes that meet in one bank of shared memory wait for each other. So of the very first elements there are several
//! copies side by side, up to one a lane, each in a bank of its own.

use std::collections::HashSet;

use super::atomic::form;
use super::order::Ordering;
use super::pointer::{Mask, PointerAccess};
use super::{Lowered, Lowering};
use crate::backend::ptx::infer::replica_bits;
use crate::backend::ptx::inst::{Cmp, CvtMods, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty};
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::shared::Buffer;
use crate::dtype::DType;
use crate::ir::table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Def, Module, OpId, Opcode, Value};
use crate::layout::Layout;

/// Elements that have a copy.
const WORDS: u32 = 2048;

/// Of these, the first ones have several.
const NEAR: u32 = 256;

/// Most copies of an element: one a lane.
const MOST_COPIES: u32 = WARP;

/// Copies for each warp of the tile block: so all blocks of a multiprocessor together have as many, large or small.
const COPIES_PER_WARP: u32 = 4;

/// Fewest elements of a tile that goes there: else beginning and end cost more than they spare.
const LEAST_ELEMENTS: usize = 512;

/// The copy of an array's first elements: several of the near ones, side by side, and then one of the others.
#[derive(Clone, Copy, Debug)]
pub struct Private {
    /// The first atomic that works on it.
    first: OpId,
    root: Value,
    mode: AtomicMode,
    buffer: Buffer,
    /// Copies of a near element.
    copies: u32,
}

impl Private {
    /// Bytes of the copies of a near element.
    fn row(self) -> u32 {
        4 * self.copies
    }

    /// Where the elements that are not near begin.
    fn far(self) -> u32 {
        NEAR * self.row()
    }

    fn bytes(self) -> u32 {
        self.far() + 4 * (WORDS - NEAR)
    }
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
        let Some((first, root, mode)) = self.find_private(body) else { return Ok(()) };
        let copies = (COPIES_PER_WARP * self.context.inference.num_warps as u32).min(MOST_COPIES);
        let mut private = Private { first, root, mode, buffer: Buffer::default(), copies };
        let Some(buffer) = self.shared.reserve(private.bytes(), 128) else { return Ok(()) };
        private.buffer = buffer;
        self.private = Some(private);
        let mut ops = Vec::new();
        self.module.walk(body, &mut |id| ops.push(id));
        let runs = &self.context.inference.pointer_runs;
        ops.retain(|id| self.combines(*id, root, mode) && !runs.contains_key(id));
        for id in ops {
            let mask = self.mask_of(id);
            if mask.is_none_or(|mask| self.can_imply(mask)) {
                self.defer(id);
            }
        }
        self.clear(Buffer { bytes: private.bytes(), ..buffer });
        self.barrier();
        self.context.combined = self.combined_by(body, root);
        Ok(())
    }

    /// The atomics that go to the copy of an array.
    fn combined_by(&self, body: BlockId, root: Value) -> HashSet<OpId> {
        let module = self.module;
        let mut combined = HashSet::new();
        module.walk(body, &mut |id| {
            let op = module.op(id);
            let goes = op.code == Opcode::AtomicRmw
                && parts(module, op.operands[0]).is_some_and(|(base, _)| base == root)
                && !self.context.inference.pointer_runs.contains_key(&id);
            combined.extend(goes.then_some(id));
        });
        combined
    }

    /// The first array with such atomics, and what they do.
    fn find_private(&self, body: BlockId) -> Option<(OpId, Value, AtomicMode)> {
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
            let worth = self.context.inference.num_elements(pointers) >= LEAST_ELEMENTS
                && !self.context.inference.pointer_runs.contains_key(&id)
                && self.context.is_repeated(id);
            let alike = ops.iter().all(|&other| self.leaves_alone(other, root) || self.combines(other, root, mode));
            (worth && alike).then_some((id, root, mode))
        })
    }

    /// Is this op without access to the array?
    fn leaves_alone(&self, id: OpId, root: Value) -> bool {
        let op = self.module.op(id);
        match op.code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => true,
            Effect::Other => matches!(op.code, Opcode::Assert | Opcode::Print),
            Effect::Read | Effect::Write | Effect::ReadWrite => op.address().is_some_and(|address| {
                let other = self.module.base(address);
                let known =
                    matches!(self.module.def(other), Def::Arg(block, _) if self.module.block(block).parent.is_none());
                known && other != root
            }),
        }
    }

    /// Is this one of the atomics that the copy takes?
    fn combines(&self, id: OpId, root: Value, mode: AtomicMode) -> bool {
        let op = self.module.op(id);
        combining_mode(self.module, id) == Some(mode)
            && parts(self.module, op.operands[0]).is_some_and(|(base, _)| base == root)
            && Ordering::of(op).is_relaxed_on_device()
            && !self.context.is_result_read(id)
    }

    fn mask_of(&self, id: OpId) -> Option<Value> {
        self.module.op(id).operand_group("mask").first().copied()
    }

    /// Does the atomic through the copy, if the array has one.
    pub fn combine_in_block(&mut self, id: OpId, layout: &Layout, values: &[Operand]) -> Lowered<bool> {
        let pointers = self.module.op(id).operands[0];
        let (Some(private), Some((_, offsets))) = (self.private, parts(self.module, pointers)) else {
            return Ok(false);
        };
        if !self.context.combined.contains(&id) {
            return Ok(false);
        }
        self.bring_leaves(id, layout)?;
        self.order(id)?;
        let lane = self.lane_copy(private);
        let done = self.b.new_label();
        let mark = self.mark();
        if let Some(all) = self.all_near(id, offsets, layout)? {
            let slow = self.b.new_label();
            let all = self.b.reg(all, RegClass::Pred);
            self.b.bra_if(all, true, slow, false);
            let access = self.combined_access(id, layout, false)?;
            let near = self.slots_here(offsets, layout)?;
            self.combine_at(&access, values, private, &mut |this, slot| {
                this.b.mad(Ty::S32, near[slot], i64::from(private.row()), lane)
            })?;
            self.b.bra(done, false);
            self.b.place(slow);
            self.release(mark);
        }
        let mark = self.mark();
        let access = self.combined_access(id, layout, true)?;
        self.combine_anywhere(&access, values, private, offsets, lane)?;
        self.release(mark);
        self.b.place(done);
        Ok(true)
    }

    /// The access of an atomic that goes through the copy; where all elements are near it needs neither addresses nor
    /// masks.
    fn combined_access(&mut self, id: OpId, layout: &Layout, anywhere: bool) -> Lowered<PointerAccess> {
        let mut access = PointerAccess {
            dtype: DType::I32,
            layout: layout.clone(),
            vector: 1,
            addresses: Vec::new(),
            mask: Mask::None,
            owner: self.owner_of(replica_bits(layout)),
        };
        if anywhere {
            access.addresses = self.slots_here(self.module.op(id).operands[0], layout)?.to_vec();
            if let Some(mask) = self.mask_of(id) {
                access.mask = Mask::Slots(self.slots_here(mask, layout)?.to_vec());
            }
        }
        Ok(access)
    }

    /// A predicate that implies that all elements of the thread are near, and none of them masked; none where nothing
    /// cheaper than the mask itself does.
    fn all_near(&mut self, id: OpId, offsets: Value, layout: &Layout) -> Lowered<Option<Operand>> {
        let unmasked = match self.mask_of(id) {
            None => None,
            Some(mask) if self.can_imply(mask) => Some(self.implies_all(mask, layout)?),
            Some(_) => return Ok(None),
        };
        if self.context.inference.facts.range(offsets).is_some_and(|range| range.lo >= 0 && range.hi < i64::from(NEAR))
        {
            return Ok(Some(unmasked.unwrap_or(Operand::Imm(1))));
        }
        let slots = self.slots_here(offsets, layout)?;
        // NEAR is a power of two: a number has a bit from there on where one of those that it is made of has.
        let bits = slots.iter().copied().reduce(|a, b| self.b.or(Ty::B32, a, b)).unwrap_or(Operand::Imm(0));
        let near = self.b.setp(Cmp::Lt, Ty::U32, bits, NEAR).into();
        Ok(Some(unmasked.map_or(near, |unmasked| self.b.and(Ty::Pred, unmasked, near))))
    }

    /// Does the atomic in shared memory if all elements have a copy there, and else in the array.
    fn combine_anywhere(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        private: Private,
        offsets: Value,
        lane: Operand,
    ) -> Lowered {
        let offsets = self.slots_here(offsets, &access.layout)?;
        let [outside, done] = [(); 2].map(|()| self.b.new_label());
        let largest = offsets.iter().copied().reduce(|a, b| self.b.max(Ty::U32, a, b)).unwrap_or(Operand::Imm(0));
        let is_inside = self.b.setp(Cmp::Lt, Ty::U32, largest, WORDS);
        self.b.bra_if(is_inside, true, outside, false);
        self.combine_at(access, values, private, &mut |this, slot| {
            let near = this.b.mad(Ty::S32, offsets[slot], i64::from(private.row()), lane);
            let single = this.b.shl(Ty::B32, offsets[slot], 2);
            let single = this.b.add(Ty::U32, single, private.far() - 4 * NEAR);
            let is_near = this.b.setp(Cmp::Lt, Ty::U32, offsets[slot], NEAR);
            this.b.select(RegClass::B32, is_near, near, single)
        })?;
        self.b.bra(done, false);
        self.b.place(outside);
        for (slot, &value) in values.iter().enumerate() {
            let guard = self.guard(access, slot, slot);
            let addr = self.slot_address(access, slot);
            self.red(private.mode, access.dtype, (Sem::Relaxed, Scope::Gpu), &addr, guard, &[value]);
        }
        self.b.place(done);
        Ok(())
    }

    /// Bytes to this lane's copy of a near element.
    fn lane_copy(&mut self, private: Private) -> Operand {
        let tid = self.b.special(Special::TidX);
        let copy = self.b.and(Ty::B32, tid, private.copies - 1);
        self.b.shl(Ty::B32, copy, 2)
    }

    /// Does the atomic in shared memory, at a byte offset for each slot.
    fn combine_at(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        private: Private,
        offset: &mut dyn FnMut(&mut Self, usize) -> Operand,
    ) -> Lowered {
        let order = (Sem::Relaxed, Scope::Cta);
        let (op, ty) = form(private.mode, access.dtype)?;
        for (slot, &value) in values.iter().enumerate() {
            let guard = self.guard(access, slot, slot);
            let offset = offset(self, slot);
            let addr = self.b.address(Operand::Smem, offset).plus(i64::from(private.buffer.offset));
            let value = self.b.reg(value, RegClass::B32);
            self.b.guarded_if(guard, |b| b.red(op, ty, Space::Shared, order, &addr, &[value.into()]));
        }
        Ok(())
    }

    /// Adds what the block has combined to the array, at its end.
    pub fn flush_private(&mut self) -> Lowered {
        let Some(private) = self.private else { return Ok(()) };
        self.for_op(private.first, |lowering| lowering.flush_copies(private))
    }

    fn flush_copies(&mut self, private: Private) -> Lowered {
        let base = self.scalar(private.root)?;
        self.meet()?;
        let start = i64::from(private.buffer.offset);
        // The lanes of a warp begin at different copies, so that they read from different banks.
        let tid = self.b.special(Special::TidX);
        self.each_in_turn(NEAR, 4, &mut |this, offset| {
            let row = this.b.mul(Ty::U32, offset, private.copies);
            let mut sum = None;
            for turn in 0..private.copies {
                let copy = this.b.add(Ty::U32, tid, turn);
                let copy = this.b.and(Ty::B32, copy, private.copies - 1);
                let within = this.b.shl(Ty::B32, copy, 2);
                let place = this.b.add(Ty::U32, row, within);
                let addr = this.b.address(Operand::Smem, place).plus(start);
                let word: Operand = this.b.ld(Space::Shared, Ty::B32, &addr, MemMods::default()).into();
                sum = Some(sum.map_or(word, |sum| this.combined(private.mode, sum, word)));
            }
            if let Some(sum) = sum {
                this.flush(private, base, offset, 0, sum);
            }
        });
        self.each_in_turn((WORDS - NEAR) / 4, 16, &mut |this, offset| {
            let addr = this.b.address(Operand::Smem, offset).plus(start + i64::from(private.far()));
            let words = this.b.ld_vec(Space::Shared, Ty::B32, 4, &addr, MemMods::default());
            for (index, word) in (NEAR..).zip(words) {
                this.flush(private, base, offset, 4 * index, word.into());
            }
        });
        Ok(())
    }

    /// Adds a word of the block to the element so many bytes (`offset` and `further`) into the array, unless it is zero.
    fn flush(&mut self, private: Private, base: Operand, offset: Operand, further: u32, word: Operand) {
        let far = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), offset);
        let place = self.b.add(Ty::S64, base, far);
        let some: Reg = self.b.setp(Cmp::Ne, Ty::B32, word, 0);
        let addr = self.b.address(place, i64::from(further));
        self.red(private.mode, DType::I32, (Sem::Relaxed, Scope::Gpu), &addr, Some(some), &[word]);
    }

    /// What two words make together.
    fn combined(&mut self, mode: AtomicMode, a: Operand, b: Operand) -> Operand {
        match mode {
            AtomicMode::Or => self.b.or(Ty::B32, a, b),
            AtomicMode::Xor => self.b.xor(Ty::B32, a, b),
            AtomicMode::UMax => self.b.max(Ty::U32, a, b),
            _ => self.b.add(Ty::U32, a, b),
        }
    }

    /// Something for each of `count` parts of shared memory of so many bytes, shared among the threads: with the byte
    /// offset of the part.
    pub fn each_in_turn(&mut self, count: u32, bytes: u32, body: &mut dyn FnMut(&mut Self, Operand)) {
        let threads = self.context.inference.num_warps as u32 * WARP;
        let tid = self.b.special(Special::TidX);
        let first = self.b.mul(Ty::U32, tid, bytes);
        for start in (0..count).step_by(threads as usize) {
            let rest = (count - start < threads).then(|| self.b.new_label());
            if let Some(rest) = rest {
                let has_part = self.b.setp(Cmp::Lt, Ty::U32, tid, count - start);
                self.b.bra_if(has_part, true, rest, false);
            }
            let offset = self.b.add(Ty::U32, first, start * bytes);
            body(self, offset);
            if let Some(rest) = rest {
                self.b.place(rest);
            }
        }
    }
}
