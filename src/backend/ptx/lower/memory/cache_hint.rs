//! Cache hints of accesses.

use crate::backend::ptx::isa::inst::{CacheHint, Space};
use crate::backend::ptx::lower::Lowering;
use crate::ir::{MemOrder, OpId};

impl Lowering<'_> {
    /// Returns the cache hint of an access to global memory, as far as its memory order permits
    /// one.
    pub fn cache_hint(&self, id: OpId) -> CacheHint {
        if self.smem.data_space != Space::Global {
            return CacheHint::None;
        }
        // Numbers of the front end's `Cache`.
        let is_weak = self.module.op(id).mem_order() == MemOrder::Weak;
        match (self.info.int_hint(id, "cache"), is_weak) {
            (Some(0), _) | (Some(3), false) => CacheHint::EvictFirst,
            (Some(1), _) => CacheHint::EvictLast,
            (Some(2), _) | (Some(4), false) => CacheHint::NoAllocate,
            (Some(3), true) => CacheHint::Cs,
            (Some(4), true) => CacheHint::Cg,
            _ => CacheHint::None,
        }
    }
}
