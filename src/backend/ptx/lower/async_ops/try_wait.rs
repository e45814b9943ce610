//! Looks at stages ahead of the wait for them, and work that is kept before a wait.

use crate::backend::ptx::isa::inst::{Addr, Operand, RegClass};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::state::sync_state::Seen;
use crate::backend::ptx::schedule::Step;

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
            let Some(rings) = self.sync.pipelines.as_mut() else { continue };
            rings.seen[channel] = seen;
        }
    }

    /// Finds out where the next stage of a channel is, and asks whether its tiles have arrived.
    pub fn look(&mut self, channel: usize) {
        let Some(seen) = self.sync.pipelines.as_ref().and_then(|rings| rings.seen[channel]) else { return };
        let (barrier, stage, parity) = self.coming(channel, true);
        self.b.mov_to(seen.barrier, barrier);
        self.b.mov_to(seen.stage, stage);
        self.b.mbarrier_test(seen.arrived, &Addr::new(seen.barrier, 0), parity);
    }
}
