//! Non-blocking wait for the next stage (CUTLASS `consumer_try_wait`).

use crate::backend::ptx::isa::inst::{Addr, Operand, RegClass};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::state::sync_state::TryWaitState;
use crate::backend::ptx::schedule::Step;

impl Lowering<'_> {
    /// Allocates the registers of the try-waits of a loop, or forgets them after the loop.
    ///
    /// At the head, the next stage is known, and no try-wait has succeeded.
    pub fn init_try_wait(&mut self, steps: &[Step], begins: bool) {
        for step in steps {
            let &Step::ConsumerTryWait(channel) = step else { continue };
            let channel = channel as usize;
            let state = begins.then(|| {
                let next = self.next_stage(channel, false);
                let [full_barrier, smem] = [next.full_barrier, next.smem].map(|at| self.b.copy(at, RegClass::B32));
                TryWaitState { is_full: self.b.copy(Operand::Imm(0), RegClass::Pred), full_barrier, smem }
            });
            let Some(pipelines) = self.sync.pipelines.as_mut() else { continue };
            pipelines.try_wait[channel] = state;
        }
    }

    /// Computes the address of the next stage of a channel, and tests its full barrier.
    pub fn try_wait(&mut self, channel: usize) {
        let Some(state) = self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.try_wait[channel]) else {
            return;
        };
        let next = self.next_stage(channel, true);
        self.b.mov_to(state.full_barrier, next.full_barrier);
        self.b.mov_to(state.smem, next.smem);
        self.b.mbarrier_test(state.is_full, &Addr::new(state.full_barrier, 0), next.parity);
    }
}
