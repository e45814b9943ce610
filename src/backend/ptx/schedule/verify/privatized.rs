//! Verifies privatized atomics.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, Step};
use crate::backend::ptx::schedule::store::privatize::MAX_REPLICAS;
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

/// Bytes of one read from the copy.
const WIDE_READ: u32 = 16;

impl KernelInfo<'_> {
    /// Verifies that all privatized atomics update one array, that no other op accesses it, and
    /// that shared memory has a buffer for its copy.
    pub fn verify_privatized(&self, schedule: &Schedule) -> VerifyResult {
        let steps = schedule.sequences.iter().flatten();
        let combined: Vec<OpId> =
            steps.filter_map(|step| if let &Step::PrivatizedAtomic(id) = step { Some(id) } else { None }).collect_vec();
        let Some(privatized) = schedule.privatized else {
            return match combined.first() {
                Some(id) => Err(format!("op {} is privatized, and its array is not", id.index())),
                None => Ok(()),
            };
        };
        if schedule.warp_spec.is_some() || !combined.contains(&privatized.first) {
            return Err("an array is privatized, and no atomic uses it".to_owned());
        }
        if let Some(id) = combined.iter().find(|&&id| !self.is_privatizable(id, privatized.array, privatized.mode)) {
            return Err(format!("op {} cannot be privatized", id.index()));
        }
        if !self.is_only_privatizable(privatized.array, privatized.mode) {
            return Err("another op accesses a privatized array".to_owned());
        }
        let buffer = privatized.buffer;
        let fits = privatized.replicas.is_power_of_two()
            && privatized.replicas <= MAX_REPLICAS
            && buffer.offset.is_multiple_of(WIDE_READ)
            && privatized.bytes() <= buffer.bytes
            && buffer.offset + buffer.bytes <= schedule.smem.start();
        if fits { Ok(()) } else { Err("shared memory has no space for the replicas of an array".to_owned()) }
    }
}
