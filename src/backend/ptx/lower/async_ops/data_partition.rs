//! Data partitions: consumer groups with rows of their own, which execute the same code.

use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Operand, RegClass, ShflMode, Ty};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::ir::Op;

impl Lowering<'_> {
    /// Computes the data partition of this warp, if the kernel has data partitions.
    pub fn init_data_partition(&mut self, tid: Operand) {
        if self.info.data_partitions > 1 {
            let threads = self.info.inference.num_warps as u32 * WARP_SIZE;
            let partition = self.b.shr(Ty::U32, tid, threads.trailing_zeros());
            let partition = self.b.reg(partition, RegClass::B32);
            // ptxas knows that the result of the shuffle is equal in all lanes.
            let partition = self.b.shfl(ShflMode::Idx, partition, 0u32).reg();
            self.sync.pipelines.as_mut().expect("pipelines").data_partition = Some(partition);
        }
    }

    /// Returns the data partition of a warp; 0 in the producer, which loads for all of them.
    pub fn data_partition_id(&mut self, op: &Op) -> Lowered {
        let partition = self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.data_partition);
        self.define_scalar(op.results[0], partition.map_or(Operand::Imm(0), Operand::from));
        Ok(())
    }

    /// Returns the address to which the staging-buffer offsets of this data partition are relative.
    pub fn staging_of_partition(&mut self, base: Operand, bytes: u32) -> Operand {
        let (partitions, partition) =
            (self.info.data_partitions, self.sync.pipelines.as_ref().and_then(|pipelines| pipelines.data_partition));
        match partition {
            Some(partition) => {
                let base = self.b.reg(base, RegClass::B32);
                self.b.mad(Ty::U32, partition, i64::from(bytes / partitions), base)
            }
            None => base,
        }
    }
}
