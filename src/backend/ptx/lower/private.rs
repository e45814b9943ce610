//! Atomics that a tile block first combines in its own shared memory.
//!
//! Which these are, and where the copy of the array's first elements stands, the schedule says. All threads clear it at the
//! start. Atomics go there or to the array, as the elements lie, and what the block has combined is added to the array at the
//! end.

use super::atomic::form;
use super::pointer::{Mask, PointerAccess};
use super::within::OTHERWISE;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty};
use crate::backend::ptx::layout_inference::replica_bits;
use crate::backend::ptx::schedule::{BINS, PrivatizedArray, REPLICATED_BINS, array_and_offsets};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{AtomicMode, OpId, Value};
use crate::layout::Layout;

impl Lowering<'_> {
    /// Clears the copy of an array, if there is one.
    pub fn clear_private(&mut self) {
        let Some(private) = self.schedule.privatized else { return };
        self.clear(Buffer { bytes: private.bytes(), ..private.buffer });
        self.barrier();
    }

    /// An atomic through the copy.
    pub fn combine_atomic(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let private = self.schedule.privatized.ok_or(OTHERWISE)?;
        let (_, offsets) = array_and_offsets(self.module, op.operands[0]).ok_or(OTHERWISE)?;
        let layout = self.access_layout(id)?;
        let values = self.get(op.operands[1], &layout)?;
        self.combine_in_block(id, (private, offsets), &layout, &values)?;
        self.lanes_meet();
        let slots = vec![Operand::Imm(0); layout.num_registers()].into();
        self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        Ok(())
    }

    fn combine_in_block(
        &mut self,
        id: OpId,
        (private, offsets): (PrivatizedArray, Value),
        layout: &Layout,
        values: &[Operand],
    ) -> Lowered {
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
                this.b.mad(Ty::S32, near[slot], i64::from(private.bin_bytes()), lane)
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
        Ok(())
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
            if let Some(mask) = self.context.mask_of(id) {
                access.mask = Mask::Slots(self.slots_here(mask, layout)?.to_vec());
            }
        }
        Ok(access)
    }

    /// A predicate that implies that all elements of the thread are near, and none of them masked; none where nothing
    /// cheaper than the mask itself does.
    fn all_near(&mut self, id: OpId, offsets: Value, layout: &Layout) -> Lowered<Option<Operand>> {
        let unmasked = match self.context.mask_of(id) {
            None => None,
            Some(mask) if self.context.can_imply(mask) => Some(self.implies_all(mask, layout)?),
            Some(_) => return Ok(None),
        };
        if self
            .context
            .inference
            .facts
            .range(offsets)
            .is_some_and(|range| range.lo >= 0 && range.hi < i64::from(REPLICATED_BINS))
        {
            return Ok(Some(unmasked.unwrap_or(Operand::Imm(1))));
        }
        let slots = self.slots_here(offsets, layout)?;
        // NEAR is a power of two: a number has a bit from there on where one of those that it is made of has.
        let bits = slots.iter().copied().reduce(|a, b| self.b.or(Ty::B32, a, b)).unwrap_or(Operand::Imm(0));
        let near = self.b.setp(Cmp::Lt, Ty::U32, bits, REPLICATED_BINS).into();
        Ok(Some(unmasked.map_or(near, |unmasked| self.b.and(Ty::Pred, unmasked, near))))
    }

    /// Does the atomic in shared memory if all elements have a copy there, and else in the array.
    fn combine_anywhere(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        private: PrivatizedArray,
        offsets: Value,
        lane: Operand,
    ) -> Lowered {
        let offsets = self.slots_here(offsets, &access.layout)?;
        let [outside, done] = [(); 2].map(|()| self.b.new_label());
        let largest = offsets.iter().copied().reduce(|a, b| self.b.max(Ty::U32, a, b)).unwrap_or(Operand::Imm(0));
        let is_inside = self.b.setp(Cmp::Lt, Ty::U32, largest, BINS);
        self.b.bra_if(is_inside, true, outside, false);
        self.combine_at(access, values, private, &mut |this, slot| {
            let near = this.b.mad(Ty::S32, offsets[slot], i64::from(private.bin_bytes()), lane);
            let single = this.b.shl(Ty::B32, offsets[slot], 2);
            let single = this.b.add(Ty::U32, single, private.single_bins_offset() - 4 * REPLICATED_BINS);
            let is_near = this.b.setp(Cmp::Lt, Ty::U32, offsets[slot], REPLICATED_BINS);
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
    fn lane_copy(&mut self, private: PrivatizedArray) -> Operand {
        let tid = self.b.special(Special::TidX);
        let copy = self.b.and(Ty::B32, tid, private.replicas - 1);
        self.b.shl(Ty::B32, copy, 2)
    }

    /// Does the atomic in shared memory, at a byte offset for each slot.
    fn combine_at(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        private: PrivatizedArray,
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
        let Some(private) = self.schedule.privatized else { return Ok(()) };
        self.for_op(private.first, |lowering| lowering.flush_copies(private))
    }

    fn flush_copies(&mut self, private: PrivatizedArray) -> Lowered {
        let base = self.scalar(private.array)?;
        self.meet()?;
        let start = i64::from(private.buffer.offset);
        // The lanes of a warp begin at different copies, so that they read from different banks.
        let tid = self.b.special(Special::TidX);
        self.each_in_turn(REPLICATED_BINS, 4, &mut |this, offset| {
            let row = this.b.mul(Ty::U32, offset, private.replicas);
            let mut sum = None;
            for turn in 0..private.replicas {
                let copy = this.b.add(Ty::U32, tid, turn);
                let copy = this.b.and(Ty::B32, copy, private.replicas - 1);
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
        self.each_in_turn((BINS - REPLICATED_BINS) / 4, 16, &mut |this, offset| {
            let addr = this.b.address(Operand::Smem, offset).plus(start + i64::from(private.single_bins_offset()));
            let words = this.b.ld_vec(Space::Shared, Ty::B32, 4, &addr, MemMods::default());
            for (index, word) in (REPLICATED_BINS..).zip(words) {
                this.flush(private, base, offset, 4 * index, word.into());
            }
        });
        Ok(())
    }

    /// Adds a word of the block to the element so many bytes (`offset` and `further`) into the array, unless it is zero.
    fn flush(&mut self, private: PrivatizedArray, base: Operand, offset: Operand, further: u32, word: Operand) {
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
        let threads = self.context.inference.num_warps as u32 * WARP_SIZE;
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
