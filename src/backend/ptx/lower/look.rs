//! Looks at stages ahead of the wait for them, and work that is kept before a wait.

use super::Lowering;
use crate::backend::ptx::inst::{Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::schedule::Step;
use crate::ir::Value;

impl Lowering<'_> {
    /// At the head of a loop with these steps nothing of what it looks ahead for has been seen; behind it nobody asks.
    pub fn see(&mut self, steps: &[Step], begins: bool) {
        for step in steps {
            let (&Step::Look(channel), Some(rings)) = (step, self.rings.as_mut()) else { continue };
            rings.seen[channel as usize] = begins.then(|| self.b.copy(Operand::Imm(0), RegClass::Pred));
        }
    }

    /// Asks whether the next tiles of a channel have arrived.
    pub fn look(&mut self, channel: usize) {
        let Some(seen) = self.rings.as_ref().and_then(|rings| rings.seen[channel]) else { return };
        if let Some((barrier, parity)) = self.next_barrier(channel) {
            self.b.mbarrier_test(seen, &barrier, parity);
        }
    }

    /// A predicate that always holds. As far as ptxas knows, it depends on this value, so that it is computed before.
    pub fn has_computed(&mut self, value: Value) -> Option<Reg> {
        let never = self.never()?;
        let slots = self.tiles[value.index()].as_ref()?.slots.clone();
        let mut missing: Option<Reg> = None;
        for slot in slots.iter() {
            let &Operand::Reg(slot) = slot else { continue };
            if matches!(slot.class, RegClass::B32 | RegClass::F32) {
                let negative = self.b.setp(Cmp::Lt, Ty::S32, slot.as_class(RegClass::B32), 0);
                missing = Some(missing.map_or(negative, |missing| self.b.or(Ty::Pred, missing, negative).reg()));
            }
        }
        let missing = self.b.and(Ty::Pred, missing?, never);
        Some(self.b.not(Ty::Pred, missing).reg())
    }
}
