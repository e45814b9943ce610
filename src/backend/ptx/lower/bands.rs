//! Bands of rows: all run the same code, so what differs between them is computed from the number of the band.

use super::{Lowered, Lowering};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Operand, RegClass, ShflMode, Ty};
use crate::ir::Op;

impl Lowering<'_> {
    /// Which band of rows this warp helps to make, where there are several.
    pub fn start_band(&mut self, tid: Operand) {
        if self.context.bands > 1 {
            let threads = self.context.inference.num_warps as u32 * WARP_SIZE;
            let band = self.b.shr(Ty::U32, tid, threads.trailing_zeros());
            let band = self.b.reg(band, RegClass::B32);
            // The same in all lanes, and ptxas knows it.
            let band = self.b.shfl(ShflMode::Idx, band, 0u32).reg();
            self.rings.as_mut().expect("rings").band = Some(band);
        }
    }

    /// The band that a group of warps makes; of who loads for all of them the first one.
    pub fn band(&mut self, op: &Op) -> Lowered {
        let band = self.rings.as_ref().and_then(|rings| rings.band);
        self.single(op.results[0], band.map_or(Operand::Imm(0), Operand::from));
        Ok(())
    }

    /// From where the boxes of this band of rows lie as those of the first one lie from the base.
    pub fn outbox_of_band(&mut self, base: Operand, bytes: u32) -> Operand {
        let (bands, band) = (self.context.bands, self.rings.as_ref().and_then(|rings| rings.band));
        match band {
            Some(band) => {
                let base = self.b.reg(base, RegClass::B32);
                self.b.mad(Ty::U32, band, i64::from(bytes / bands), base)
            }
            None => base,
        }
    }
}
