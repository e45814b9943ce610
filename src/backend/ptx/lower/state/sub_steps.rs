//! Emits sub-steps: barriers, scratch buffers and conversions, in the order of the schedule.
//!
//! A lowering function requests each sub-step where it needs it. If the request differs from the
//! next sub-step of the schedule, the lowering fails with [`SCHEDULE_MISMATCH`].

use std::rc::Rc;

use super::core::SCHEDULE_MISMATCH;
use super::core::{Lowered, Lowering};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass, Ty};
use crate::backend::ptx::lower::named_barriers::NamedBarrier;
use crate::backend::ptx::schedule::{ConversionPlan, ConvertLayout, SubStep, WarpRole};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};
use crate::layout::Layout;

impl Lowering<'_> {
    /// Emits the next barrier of the schedule.
    pub fn scheduled_barrier(&mut self) -> Lowered {
        while let Some(sub_step) = self.smem.sub_steps.pop_front() {
            match sub_step {
                SubStep::MmaReadWait { .. } | SubStep::TmaStoreWait { .. } => self.synchronize(sub_step)?,
                SubStep::Barrier { .. } => return self.synchronize(sub_step),
                _ => break,
            }
        }
        Err(SCHEDULE_MISMATCH.to_owned())
    }

    /// Emits the waits for TMA stores that the schedule has here.
    pub fn tma_store_wait(&mut self) -> Lowered {
        while let Some(sub_step) = self.smem.next_if(|sub_step| matches!(sub_step, SubStep::TmaStoreWait { .. })) {
            self.synchronize(sub_step)?;
        }
        Ok(())
    }

    /// Returns the next buffer to write, after the barrier if there is one. No MMA in flight reads
    /// it.
    pub fn next_write_buffer(&mut self) -> Lowered<Buffer> {
        let next = self.next_after_barriers()?;
        let mut reads = self.sync.mmas.in_flight.iter().flat_map(|mma| &mma.reads);
        match next {
            Some(SubStep::SmemWrite(buffer)) if reads.any(|read| read.overlaps(buffer)) => {
                Err(SCHEDULE_MISMATCH.to_owned())
            }
            Some(SubStep::SmemWrite(buffer)) => Ok(self.group_buffer(buffer)),
            Some(SubStep::SmemOverflow { bytes, of }) => {
                Err(format!("{bytes} bytes of shared memory are needed, and {of} are free: use smaller tiles"))
            }
            _ => Err(SCHEDULE_MISMATCH.to_owned()),
        }
    }

    /// Returns the buffer with an operand that an earlier MMA has written, if the schedule has one
    /// here.
    pub fn stored_operand(&mut self, value: Value) -> Option<Buffer> {
        let is_it =
            |sub_step: &SubStep| matches!(sub_step, SubStep::StoredOperand { value: stored, .. } if *stored == value);
        let Some(SubStep::StoredOperand { buffer, .. }) = self.smem.next_if(is_it) else { return None };
        Some(self.group_buffer(buffer))
    }

    /// Begins another write to a buffer, after the barrier if there is one.
    pub fn begin_rewrite(&mut self, buffer: Buffer) -> Lowered {
        if self.next_write_buffer()? == buffer { Ok(()) } else { Err(SCHEDULE_MISMATCH.to_owned()) }
    }

    /// Begins the read of a buffer that threads have written, after the barrier if there is one.
    pub fn begin_read(&mut self, buffer: Buffer) -> Lowered {
        match self.next_after_barriers()? {
            Some(SubStep::SmemRead(next)) if self.group_buffer(next) == buffer => Ok(()),
            _ => Err(SCHEDULE_MISMATCH.to_owned()),
        }
    }

    /// Emits the barrier before an access, if other threads may still access the same elements.
    pub fn global_access(&mut self, id: OpId) -> Lowered {
        let next = self.smem.sub_steps.iter().find(|sub_step| !sub_step.synchronizes());
        if next == Some(&SubStep::GlobalAccess(id)) {
            self.next_after_barriers()?;
        }
        Ok(())
    }

    /// Returns the plan of a layout conversion.
    pub fn conversion_plan(&mut self, value: Value, required: &Layout) -> Lowered<Rc<ConversionPlan>> {
        match self.smem.sub_steps.pop_front() {
            Some(SubStep::ConvertLayout(ConvertLayout { value: converted, to, plan, .. }))
                if converted == value && self.schedule.layout(to).is_same(required) =>
            {
                Ok(Rc::clone(&self.schedule.conversions[plan as usize]))
            }
            _ => Err(SCHEDULE_MISMATCH.to_owned()),
        }
    }

    /// Emits waits and barriers, and returns the sub-step after them.
    fn next_after_barriers(&mut self) -> Lowered<Option<SubStep>> {
        while let Some(sub_step) = self.smem.next_if(|sub_step| sub_step.synchronizes()) {
            self.synchronize(sub_step)?;
        }
        Ok(self.smem.sub_steps.pop_front())
    }

    fn synchronize(&mut self, sub_step: SubStep) -> Lowered {
        match sub_step {
            SubStep::MmaReadWait { pending } => self.wait_for_operands(pending as usize),
            SubStep::TmaStoreWait { complete: written } => {
                let start = self.stamp_start();
                self.b.bulk_wait_group(0, !written);
                self.stamp_wait(start, None, None);
            }
            _ => self.emit_bar_sync(),
        }
        Ok(())
    }

    /// Emits a barrier of the threads of the partition.
    pub fn emit_bar_sync(&mut self) {
        let start = self.stamp_start();
        match self.sync.role {
            WarpRole::Consumer => {
                let consumers = self.info.inference.num_warps as u32 * WARP_SIZE;
                let barrier = NamedBarrier::ConsumerGroup(self.sync.group.index).id();
                self.sync_at(barrier.into(), Some(consumers), None, "the barrier of the consumer warps");
            }
            WarpRole::All | WarpRole::Producer => {
                self.sync_at(NamedBarrier::Cta.id().into(), None, None, "the barrier of the tile block");
            }
        }
        self.stamp_wait(start, None, None);
    }

    /// Allocates the register for the slot of the iteration, if the next loop has a double buffer.
    pub fn enter_double_buffer(&mut self) -> Option<Reg> {
        let slots = self.smem.next_if(|sub_step| matches!(sub_step, SubStep::DoubleBuffer(_)));
        let Some(SubStep::DoubleBuffer(slots)) = slots else { return None };
        let slot = self.b.copy(Operand::Imm(0), RegClass::B32);
        self.smem.double_buffers.push((self.group_buffer(slots), slot));
        Some(slot)
    }

    /// Alternates between the slots of a loop, at the end of an iteration.
    pub fn alternate_slots(&mut self, slot: Option<Reg>) {
        let (Some(slot), Some((slots, _))) = (slot, self.smem.double_buffers.last()) else { return };
        let other = self.b.xor(Ty::B32, slot, slots.halves()[0].bytes);
        self.b.mov_to(slot, other);
    }

    /// Ends the life of the double buffer of a loop.
    pub fn leave_double_buffer(&mut self, slot: Option<Reg>) {
        if slot.is_some() {
            self.smem.double_buffers.pop();
        }
    }

    /// Returns the buffers of an iteration as the next one names them.
    pub fn previous_slots(&self, mut buffers: Vec<Buffer>) -> Vec<Buffer> {
        let Some((slots, _)) = self.smem.double_buffers.last() else { return buffers };
        for buffer in &mut buffers {
            if slots.contains(self.group_buffer(*buffer)) {
                buffer.offset += slots.halves()[0].bytes;
            }
        }
        buffers
    }

    /// Returns true if an enclosing loop has two slots for this buffer.
    pub fn is_double_buffered(&self, buffer: Buffer) -> bool {
        self.smem.double_buffers.iter().any(|(slots, _)| slots.contains(buffer))
    }

    /// Returns the address from which the offset of a buffer counts.
    pub fn smem_base(&mut self, buffer: Buffer) -> Reg {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        match self.smem.double_buffers.iter().find(|(slots, _)| slots.contains(buffer)) {
            Some(&(_, slot)) => self.b.add(Ty::U32, base, slot).reg(),
            None => base,
        }
    }

    /// Returns the range of a buffer in the consumer group.
    fn group_buffer(&self, buffer: Buffer) -> Buffer {
        Buffer { offset: buffer.offset + self.sync.group.index * self.schedule.smem_bytes_per_group, ..buffer }
    }
}
