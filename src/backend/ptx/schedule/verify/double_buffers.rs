//! Verifies double buffers: steps of an iteration write its slot alone, and MMAs that stay in
//! flight across the back edge read no other buffer that threads write.

use super::VerifyResult;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::smem::allocation::Buffer;

/// Both slots of the operands that threads write, by enclosing loop.
#[derive(Default)]
pub struct DoubleBuffers(Vec<Option<Buffer>>);

impl DoubleBuffers {
    /// Enters a loop.
    pub fn push(&mut self, slots: Option<Buffer>) {
        self.0.push(slots);
    }

    /// Leaves a loop.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns the slots of the innermost loop.
    pub fn innermost(&self) -> Option<Buffer> {
        self.0.last().copied().flatten()
    }

    /// Returns true if a write is to the slot of the current iteration, or to no slot.
    pub fn is_current_slot(&self, buffer: Buffer) -> bool {
        let mut loops = self.0.iter().rev();
        let innermost = loops.next().copied().flatten();
        innermost.is_none_or(|slots| !slots.overlaps(buffer) || slots.halves()[0].contains(buffer))
            && !buffer.overlaps_any(loops.flatten())
    }

    /// Verifies the offsets of the slots of a loop: inside of shared memory, and apart from the
    /// other buffers that live as long as a loop.
    pub fn verify_slots(&self, slots: Buffer, (start, most): (u32, u32), others: &[Buffer]) -> VerifyResult {
        let end = slots.end();
        if slots.offset < start || end > most || !slots.halves()[1].offset.is_multiple_of(SWIZZLE_ATOM_BYTES) {
            return Err(format!("no two slots are from {} to {end}", slots.offset));
        }
        match slots.overlaps_any(others.iter().chain(self.0.iter().flatten())) {
            true => Err(format!("slots of a loop overlap another buffer from {} to {end}", slots.offset)),
            false => Ok(()),
        }
    }

    /// Verifies that MMAs in flight at the end of an iteration read the slot of the iteration, if
    /// the loop has slots. `reads`: their buffers, without those of hoisted operands.
    pub fn verify_carried_reads<'a>(&self, reads: impl IntoIterator<Item = &'a Buffer>) -> VerifyResult {
        let Some(slots) = self.innermost() else { return Ok(()) };
        match reads.into_iter().find(|buffer| !slots.halves()[0].contains(**buffer)) {
            Some(buffer) => Err(format!(
                "MMAs that stay in flight across the back edge read from {} to {}, outside of their slot",
                buffer.offset,
                buffer.end()
            )),
            None => Ok(()),
        }
    }
}
