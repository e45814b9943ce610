//! Warp-uniform values of consumers, broadcast once by shuffle.

use super::core::Lowering;
use super::sync_state::WarpUniform;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Operand, RegClass, ShflMode, Special};
use crate::backend::ptx::mma::MmaPlan;

impl Lowering<'_> {
    /// Computes the warp-uniform values.
    pub fn init_warp_uniform(&mut self) -> WarpUniform {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let base = self.b.shfl(ShflMode::Idx, base, 0u32).reg();
        let thread = self.b.special(Special::TidX);
        let group = MmaPlan::group(&mut self.b, thread).reg();
        let has_warp_stores = self.schedule.tma_stores().any(|store| store.staging.is_some());
        let first = has_warp_stores.then(|| self.b.shfl(ShflMode::Idx, thread, 0u32).reg());
        WarpUniform { smem_base: base, warp_group: group, first_thread: first }
    }

    /// Returns the XOR of `bases[i]` over the set bits `i` of the warp number. ptxas knows that it
    /// is equal in all lanes.
    pub fn linear_in_warp(&mut self, bases: &[u32]) -> Operand {
        let lanes = WARP_SIZE.trailing_zeros() as usize;
        let bases: Vec<u32> = std::iter::repeat_n(0, lanes).chain(bases.iter().copied()).collect();
        match self
            .sync
            .warp_uniform()
            .and_then(|uniform| uniform.first_thread)
            .filter(|_| bases.iter().any(|&basis| basis != 0))
        {
            Some(first) => self.linear_of(first.into(), &bases),
            None => self.linear_in_thread(&bases),
        }
    }
}
