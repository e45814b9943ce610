//! Looks at stages ahead of the wait for them, and work that is kept before a wait.

use super::Lowering;
use super::ring::Seen;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::schedule::Step;
use crate::ir::Value;

impl Lowering<'_> {
    /// At the head of a loop with these steps nothing of what it looks ahead for has been seen, but where the first stage is; behind
    /// it nobody asks.
    pub fn see(&mut self, steps: &[Step], begins: bool) {
        for step in steps {
            let &Step::ConsumerTryWait(channel) = step else { continue };
            let channel = channel as usize;
            let seen = begins.then(|| {
                let (barrier, stage, _) = self.coming(channel, false);
                let [barrier, stage] = [barrier, stage].map(|place| self.b.copy(place, RegClass::B32));
                Seen { arrived: self.b.copy(Operand::Imm(0), RegClass::Pred), barrier, stage }
            });
            let Some(rings) = self.rings.as_mut() else { continue };
            rings.seen[channel] = seen;
        }
    }

    /// Finds out where the next stage of a channel is, and asks whether its tiles have arrived.
    pub fn look(&mut self, channel: usize) {
        let Some(seen) = self.rings.as_ref().and_then(|rings| rings.seen[channel]) else { return };
        let (barrier, stage, parity) = self.coming(channel, true);
        self.b.mov_to(seen.barrier, barrier);
        self.b.mov_to(seen.stage, stage);
        self.b.mbarrier_test(seen.arrived, &Addr::new(seen.barrier, 0), parity);
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
