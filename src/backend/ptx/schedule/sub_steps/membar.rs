//! Barrier insertion by hazard analysis (Triton `Membar`).
//!
//! A barrier precedes three kinds of accesses: a read of shared memory that other threads have
//! written; a write that overlaps reads or writes of other threads; a global access that may race.
//! After a back edge all accesses of the loop count. The tests for a hazard are
//! `SharedMemory::record_write` and `SharedMemory::record_read` (`smem/allocation`), and for global
//! memory `may_race` (`global_hazards`).
//!
//! MMAs in flight read their operands until a wait completes them, also after a barrier. A write
//! waits for the last group that reads an overlapping buffer, and later groups stay in flight. A
//! barrier follows, since the wait completes only the MMAs of the own warp group.

use super::state::{MembarMmaGroup, SubStepBuilder};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::OpId;

impl SubStepBuilder<'_, '_> {
    /// Records a write to a buffer, after a barrier if there is a hazard.
    pub fn smem_write(&mut self, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else { return };
        self.wait_for_mma_reads(buffer);
        if self.smem.record_write(buffer) {
            self.barrier(false);
            self.smem.record_write(buffer);
        }
        self.record_smem_write(buffer);
    }

    /// Appends a write, which overwrites the stored operands in its buffer.
    pub fn record_smem_write(&mut self, buffer: Buffer) {
        self.stored_operands.retain(|operand| !operand.buffer.overlaps(buffer));
        self.sub_steps.push(SubStep::SmemWrite(buffer));
    }

    /// Records reads of buffers, after a barrier if there is a hazard.
    pub fn smem_read(&mut self, buffers: &[Option<Buffer>]) {
        for &buffer in buffers.iter().flatten() {
            if self.smem.record_read(buffer) {
                self.barrier(false);
            }
        }
        for &buffer in buffers.iter().flatten() {
            self.smem.record_read(buffer);
            self.sub_steps.push(SubStep::SmemRead(buffer));
        }
    }

    /// Waits for the MMA groups in flight that read a buffer. Sunk waits of the step are then
    /// included.
    pub fn wait_for_mma_reads(&mut self, buffer: Buffer) {
        let reads = |mma: &MembarMmaGroup| mma.reads.iter().any(|read| read.overlaps(buffer));
        let Some(last) = self.in_flight.iter().rposition(reads) else { return };
        let pending = self.in_flight.len() - 1 - last;
        let pending = self.sunk_waits.drain(..).map(|(pending, _)| pending).fold(pending, usize::min);
        self.complete_mmas(pending);
        self.sub_steps.push(SubStep::MmaReadWait { pending: pending as u32 });
    }

    /// Inserts a barrier, with the waits for TMA stores that precede it. `always`: a step needs the
    /// barrier, independent of hazards.
    pub fn barrier(&mut self, always: bool) {
        if self.smem.take_tma_store_wait() {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
        self.sub_steps.push(SubStep::Barrier { required: always });
        self.after_barrier();
    }

    /// Clears the hazards that a barrier has ordered.
    pub fn after_barrier(&mut self) {
        self.smem.clear_hazards();
        self.global_hazards.after_barrier();
    }

    /// Begins the global access of an op, after a barrier if the access may race.
    pub fn global_access(&mut self, id: OpId) {
        let Some(effect) = self.info.memory_effect_of(id) else { return };
        if self.sub_steps.last() == Some(&SubStep::GlobalAccess(id)) {
            // The access has already begun, and no sub-step follows it.
            return;
        }
        if self.global_hazards.may_race(&effect) {
            self.barrier(false);
        }
        if !self.info.written_memory.does_not_modify(&effect) {
            self.sub_steps.push(SubStep::GlobalAccess(id));
        }
        self.global_hazards.add(&self.info.written_memory, [effect]);
    }

    /// Adds the global access of an op to the hazards.
    pub fn add_global_access(&mut self, id: OpId) {
        self.global_hazards.add(&self.info.written_memory, self.info.memory_effect_of(id));
    }
}
