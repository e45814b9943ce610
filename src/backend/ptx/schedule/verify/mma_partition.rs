//! Verifies the MMA partition: every MMA has its planned instruction and split.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step};

impl KernelInfo<'_> {
    /// Verifies that the warps share each issued MMA as planned.
    pub fn verify_mma_partition(&self, schedule: &Schedule) -> VerifyResult {
        let planned = self.mma_partitions();
        if schedule.mma_partitions != planned {
            return Err(format!("MMAs are split as {:?} instead of {planned:?}", schedule.mma_partitions));
        }
        let mmas = schedule.sequences.iter().flatten().filter_map(|step| match step {
            Step::Mma(plan) => Some(&plan.ops),
            _ => None,
        });
        match mmas.flatten().find(|id| planned.iter().all(|(planned, _)| planned != *id)) {
            Some(id) => Err(format!("no warp has a part of MMA {}", id.index())),
            None => Ok(()),
        }
    }
}
