//! What a warp of consumers knows from the start.

use super::Lowering;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass, ShflMode, Special};
use crate::backend::ptx::mma::MmaPlan;

/// What is the same in all lanes of a warp of consumers. It comes from a shuffle, so that ptxas computes it once: made anew before
/// each product, it would be most of the way from one product to the next.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Address of shared memory.
    pub base: Reg,
    /// Number of the group of four warps.
    group: Reg,
    /// Number of the warp's first thread, where warps send boxes of their own.
    first: Option<Reg>,
    /// Zero, which ptxas does not know and takes for another number in each lane; of 64 bits, where numbers are loaded one by one
    /// beside products.
    nothing: Option<Reg>,
}

impl Lowering<'_> {
    /// Computes it.
    pub fn learn(&mut self) -> Known {
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let base = self.b.shfl(ShflMode::Idx, base, 0u32).reg();
        let thread = self.b.special(Special::TidX);
        let group = MmaPlan::group(&mut self.b, thread).reg();
        let sends = self.schedule.sends().any(|send| send.staging.is_some());
        let first = sends.then(|| self.b.shfl(ShflMode::Idx, thread, 0u32).reg());
        let nothing = self.loads_lone_numbers().then(|| self.nothing_of_lanes());
        Known { base, group, first, nothing }
    }

    fn known(&self) -> Option<Known> {
        self.rings.as_ref().and_then(|rings| rings.known)
    }

    /// The number of a warp's group of four, where that is known from the start.
    pub fn known_group(&self) -> Option<Reg> {
        self.known().map(|known| known.group)
    }

    /// A zero of 64 bits that ptxas takes for another number in each lane.
    pub fn known_nothing(&self) -> Option<Reg> {
        self.known().and_then(|known| known.nothing)
    }

    /// The XOR of `images[i]` over the set bits `i` of a warp's number: the same in all lanes, and ptxas knows it.
    pub fn linear_in_warp(&mut self, images: &[u32]) -> Operand {
        let lanes = WARP_SIZE.trailing_zeros() as usize;
        let images: Vec<u32> = std::iter::repeat_n(0, lanes).chain(images.iter().copied()).collect();
        match self.known().and_then(|known| known.first).filter(|_| images.iter().any(|&image| image != 0)) {
            Some(first) => self.linear_of(first.into(), &images),
            None => self.linear_in_thread(&images),
        }
    }
}
