//! Verifies double buffers: steps of an iteration write its slot alone, and MMAs that stay in
//! flight across the back edge read no other buffer that threads write.

use super::VerifyResult;
use super::barriers::{BarrierVerifier, overlaps_any};
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::smem::allocation::Buffer;

impl BarrierVerifier<'_, '_> {
    /// Returns true if a write is to the slot of the current iteration, or to no slot.
    pub fn is_current_slot(&self, buffer: Buffer) -> bool {
        let mut loops = self.double_buffers.iter().rev();
        let innermost = loops.next().copied().flatten();
        innermost.is_none_or(|slots| !slots.overlaps(buffer) || slots.halves()[0].contains(buffer))
            && !overlaps_any(loops.flatten(), buffer)
    }

    /// Verifies the place of the slots of a loop: inside of shared memory, and apart from the other
    /// buffers that live as long as a loop. `before`: the earlier sub-steps of the loop.
    pub fn is_double_buffer(&self, slots: Buffer, (start, most): (u32, u32), before: &[SubStep]) -> VerifyResult {
        let end = slots.offset.saturating_add(slots.bytes);
        if slots.offset < start || end > most || !slots.halves()[1].offset.is_multiple_of(SWIZZLE_ATOM_BYTES) {
            return Err(format!("no two slots are from {} to {end}", slots.offset));
        }
        let kept = before.iter().filter_map(|one| match one {
            SubStep::SmemWrite(buffer) if !before.contains(&SubStep::SmemRead(*buffer)) => Some(buffer),
            _ => None,
        });
        let hoisted = self.hoisted_operands.iter().flatten().map(|(buffer, _)| buffer);
        let others = kept.chain(hoisted).chain(self.cp_async_buffers.iter().flatten());
        match overlaps_any(others.chain(self.double_buffers.iter().flatten()), slots) {
            true => Err(format!("slots of a loop overlap another buffer from {} to {end}", slots.offset)),
            false => Ok(()),
        }
    }

    /// Verifies that MMAs in flight at the end of an iteration read the slot of the iteration, if
    /// the loop has slots.
    pub fn mmas_keep_their_slots(&self) -> VerifyResult {
        let Some(Some(slots)) = self.double_buffers.last() else { return Ok(()) };
        let is_kept = |buffer: &Buffer| slots.halves()[0].contains(*buffer) || self.is_hoisted(*buffer);
        match self.accessed.mma_reads.iter().flatten().find(|buffer| !is_kept(buffer)) {
            Some(buffer) => Err(format!(
                "MMAs that stay in flight across the back edge read from {} to {}, outside of their slot",
                buffer.offset,
                buffer.offset + buffer.bytes
            )),
            None => Ok(()),
        }
    }
}
