//! Privatized atomics: clear, update and flush of the copy in shared memory.
//!
//! The schedule selects the atomics and the buffer of the first [`BINS`] elements. All threads
//! clear the buffer at the start. An atomic updates the buffer, or the array for elements beyond
//! the buffer. At the end the buffer is added to the array.

use super::atomic::form;
use super::pointer_access::{Mask, PointerAccess};
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty};
use crate::backend::ptx::layout_inference::{mask_of, replica_bits};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::schedule::{BINS, PrivatizedArray, REPLICATED_BINS, array_and_offsets};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{AtomicMode, OpId, Value};
use crate::layout::Layout;

impl Lowering<'_> {
    /// Clears the privatized array, if there is one.
    pub fn clear_privatized(&mut self) {
        let Some(array) = self.schedule.privatized else { return };
        self.clear(Buffer { bytes: array.bytes(), ..array.buffer });
        self.emit_bar_sync();
    }

    /// Lowers a privatized atomic.
    pub fn privatized_atomic(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let array = self.schedule.privatized.ok_or(SCHEDULE_MISMATCH)?;
        let (_, offsets) = array_and_offsets(self.module, op.operands[0]).ok_or(SCHEDULE_MISMATCH)?;
        let Tile { layout, regs: values } = self.operand()?;
        // Leaves of deferred ops, so that their computation needs no other thread.
        self.operands()?;
        self.update_privatized(id, (array, offsets), &layout, &values)?;
        self.reconverge_warp();
        let regs = vec![Operand::Imm(0); layout.num_registers()].into();
        self.values.define(op.results[0], Tile { layout, regs });
        Ok(())
    }

    fn update_privatized(
        &mut self,
        id: OpId,
        (array, offsets): (PrivatizedArray, Value),
        layout: &Layout,
        values: &[Operand],
    ) -> Lowered {
        self.global_access(id)?;
        let lane = self.replica_offset(array);
        let done = self.b.new_label();
        let mark = self.mark();
        if let Some(all) = self.all_replicated(id, offsets, layout)? {
            let slow = self.b.new_label();
            let all = self.b.reg(all, RegClass::Pred);
            self.b.bra_if(all, true, slow, false);
            let access = self.access_of_privatized(id, layout, false)?;
            let replicated = self.rematerialize(offsets, layout)?;
            self.update_at(&access, values, array, &mut |this, register| {
                this.b.mad(Ty::S32, replicated[register], i64::from(array.bin_bytes()), lane)
            })?;
            self.b.bra(done, false);
            self.b.emit_label(slow);
            self.release(mark);
        }
        let mark = self.mark();
        let access = self.access_of_privatized(id, layout, true)?;
        self.update_any_bin(&access, values, array, offsets, lane)?;
        self.release(mark);
        self.b.emit_label(done);
        Ok(())
    }

    /// Returns the access of a privatized atomic. Elements with replicated bins need neither
    /// addresses nor masks.
    fn access_of_privatized(&mut self, id: OpId, layout: &Layout, anywhere: bool) -> Lowered<PointerAccess> {
        let mut access = PointerAccess {
            dtype: DType::I32,
            layout: layout.clone(),
            vector: 1,
            addresses: Vec::new(),
            mask: Mask::None,
            owner: self.owner_of(replica_bits(layout)),
        };
        if anywhere {
            access.addresses = self.rematerialize(self.module.op(id).operands[0], layout)?.to_vec();
            if let Some(mask) = mask_of(self.module.op(id)) {
                access.mask = Mask::Registers(self.rematerialize(mask, layout)?.to_vec());
            }
        }
        Ok(access)
    }

    /// Returns a predicate that implies: all elements of the thread have replicated bins, and none
    /// is masked.
    ///
    /// `None` if nothing is cheaper than the mask itself.
    fn all_replicated(&mut self, id: OpId, offsets: Value, layout: &Layout) -> Lowered<Option<Operand>> {
        let unmasked = match mask_of(self.module.op(id)) {
            None => None,
            Some(mask) if self.info.can_imply(mask) => Some(self.implies_all(mask, layout)?),
            Some(_) => return Ok(None),
        };
        if self
            .info
            .inference
            .int_ranges
            .range(offsets)
            .is_some_and(|range| range.lo >= 0 && range.hi < i64::from(REPLICATED_BINS))
        {
            return Ok(Some(unmasked.unwrap_or(Operand::Imm(1))));
        }
        let regs = self.rematerialize(offsets, layout)?;
        // `REPLICATED_BINS` is a power of two: the OR of numbers is below it if all of them are.
        let bits = regs.iter().copied().reduce(|a, b| self.b.or(Ty::B32, a, b)).unwrap_or(Operand::Imm(0));
        let replicated = self.b.setp(Cmp::Lt, Ty::U32, bits, REPLICATED_BINS).into();
        Ok(Some(unmasked.map_or(replicated, |unmasked| self.b.and(Ty::Pred, unmasked, replicated))))
    }

    /// Updates shared memory if all elements have bins, else the array.
    fn update_any_bin(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        array: PrivatizedArray,
        offsets: Value,
        lane: Operand,
    ) -> Lowered {
        let offsets = self.rematerialize(offsets, &access.layout)?;
        let [outside, done] = [(); 2].map(|()| self.b.new_label());
        let largest = offsets.iter().copied().reduce(|a, b| self.b.max(Ty::U32, a, b)).unwrap_or(Operand::Imm(0));
        let is_inside = self.b.setp(Cmp::Lt, Ty::U32, largest, BINS);
        self.b.bra_if(is_inside, true, outside, false);
        self.update_at(access, values, array, &mut |this, register| {
            let replicated = this.b.mad(Ty::S32, offsets[register], i64::from(array.bin_bytes()), lane);
            let single = this.b.shl(Ty::B32, offsets[register], 2);
            let single = this.b.add(Ty::U32, single, array.single_bins_offset() - 4 * REPLICATED_BINS);
            let is_near = this.b.setp(Cmp::Lt, Ty::U32, offsets[register], REPLICATED_BINS);
            this.b.select(RegClass::B32, is_near, replicated, single)
        })?;
        self.b.bra(done, false);
        self.b.emit_label(outside);
        for (register, &value) in values.iter().enumerate() {
            let guard = self.guard(access, register, register);
            let addr = self.register_address(access, register);
            self.red(array.mode, access.dtype, (Sem::Relaxed, Scope::Gpu), &addr, guard, &[value]);
        }
        self.b.emit_label(done);
        Ok(())
    }

    /// Returns the byte offset of this lane's replica.
    fn replica_offset(&mut self, array: PrivatizedArray) -> Operand {
        let tid = self.b.special(Special::TidX);
        let copy = self.b.and(Ty::B32, tid, array.replicas - 1);
        self.b.shl(Ty::B32, copy, 2)
    }

    /// Updates shared memory, at a byte offset for each register.
    fn update_at(
        &mut self,
        access: &PointerAccess,
        values: &[Operand],
        array: PrivatizedArray,
        offset: &mut dyn FnMut(&mut Self, usize) -> Operand,
    ) -> Lowered {
        let order = (Sem::Relaxed, Scope::Cta);
        let (op, ty) = form(array.mode, access.dtype)?;
        for (register, &value) in values.iter().enumerate() {
            let guard = self.guard(access, register, register);
            let offset = offset(self, register);
            let addr = self.b.address(Operand::Smem, offset).plus(i64::from(array.buffer.offset));
            let value = self.b.reg(value, RegClass::B32);
            self.b.guarded_if(guard, |b| b.red(op, ty, Space::Shared, order, &addr, &[value.into()]));
        }
        Ok(())
    }

    /// Adds the privatized array to the array, at the end of the kernel.
    pub fn flush_privatized(&mut self) -> Lowered {
        let Some(array) = self.schedule.privatized else { return Ok(()) };
        self.for_op(array.first, |lowering| lowering.flush_bins(array))
    }

    fn flush_bins(&mut self, array: PrivatizedArray) -> Lowered {
        let base = self.scalar(array.array)?;
        self.scheduled_barrier()?;
        let start = i64::from(array.buffer.offset);
        // The lanes of a warp start at different replicas, which are in different banks.
        let tid = self.b.special(Special::TidX);
        self.each_part_by_threads(REPLICATED_BINS, 4, &mut |this, offset| {
            let row = this.b.mul(Ty::U32, offset, array.replicas);
            let mut sum = None;
            for turn in 0..array.replicas {
                let copy = this.b.add(Ty::U32, tid, turn);
                let copy = this.b.and(Ty::B32, copy, array.replicas - 1);
                let within = this.b.shl(Ty::B32, copy, 2);
                let smem_offset = this.b.add(Ty::U32, row, within);
                let addr = this.b.address(Operand::Smem, smem_offset).plus(start);
                let word: Operand = this.b.ld(Space::Shared, Ty::B32, &addr, MemMods::default()).into();
                sum = Some(sum.map_or(word, |sum| this.combine_words(array.mode, sum, word)));
            }
            if let Some(sum) = sum {
                this.flush_word(array, base, offset, 0, sum);
            }
        });
        self.each_part_by_threads((BINS - REPLICATED_BINS) / 4, 16, &mut |this, offset| {
            let addr = this.b.address(Operand::Smem, offset).plus(start + i64::from(array.single_bins_offset()));
            let words = this.b.ld_vec(Space::Shared, Ty::B32, 4, &addr, MemMods::default());
            for (index, word) in (REPLICATED_BINS..).zip(words) {
                this.flush_word(array, base, offset, 4 * index, word.into());
            }
        });
        Ok(())
    }

    /// Adds a word to the element at the byte offset `offset` + `further` of the array, unless the
    /// word is 0.
    fn flush_word(&mut self, array: PrivatizedArray, base: Operand, offset: Operand, further: u32, word: Operand) {
        let far = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), offset);
        let bin = self.b.add(Ty::S64, base, far);
        let some: Reg = self.b.setp(Cmp::Ne, Ty::B32, word, 0);
        let addr = self.b.address(bin, i64::from(further));
        self.red(array.mode, DType::I32, (Sem::Relaxed, Scope::Gpu), &addr, Some(some), &[word]);
    }

    /// Combines two words.
    fn combine_words(&mut self, mode: AtomicMode, a: Operand, b: Operand) -> Operand {
        match mode {
            AtomicMode::Or => self.b.or(Ty::B32, a, b),
            AtomicMode::Xor => self.b.xor(Ty::B32, a, b),
            AtomicMode::UMax => self.b.max(Ty::U32, a, b),
            _ => self.b.add(Ty::U32, a, b),
        }
    }
}
