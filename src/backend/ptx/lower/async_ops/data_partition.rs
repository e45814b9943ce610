//! Data partitions: consumer groups with rows of their own, which execute the same code.

use crate::backend::ptx::inst::{Operand, RegClass, ShflMode, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::plan::WARP;
use crate::ir::Op;

impl Lowering<'_> {
    /// Which band of rows this warp helps to make, where there are several.
    pub fn init_data_partition(&mut self, tid: Operand) {
        if self.info.bands > 1 {
            let threads = self.info.inference.num_warps as u32 * WARP;
            let band = self.b.shr(Ty::U32, tid, threads.trailing_zeros());
            let band = self.b.reg(band, RegClass::B32);
            // The same in all lanes, and ptxas knows it.
            let band = self.b.shfl(ShflMode::Idx, band, 0u32).reg();
            self.sync.pipelines.as_mut().expect("pipelines").data_partition = Some(band);
        }
    }

    /// The band that a group of warps makes; of who loads for all of them the first one.
    pub fn data_partition_id(&mut self, op: &Op) -> Lowered {
        let band = self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.data_partition);
        self.define_scalar(op.results[0], band.map_or(Operand::Imm(0), Operand::from));
        Ok(())
    }

    /// From where the boxes of this band of rows lie as those of the first one lie from the base.
    pub fn staging_of_partition(&mut self, base: Operand, bytes: u32) -> Operand {
        let (bands, band) =
            (self.info.bands, self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.data_partition));
        match band {
            Some(band) => {
                let base = self.b.reg(base, RegClass::B32);
                self.b.mad(Ty::U32, band, i64::from(bytes / bands), base)
            }
            None => base,
        }
    }
}
