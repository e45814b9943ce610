//! What accesses say about caches.

use super::Lowering;
use super::order::Ordering;
use crate::backend::ptx::isa::inst::{CacheHint, Space};
use crate::ir::OpId;

impl Lowering<'_> {
    /// How long caches should keep what an access to global memory touches, as an instruction of its order can say it.
    pub fn cache_hint(&self, id: OpId) -> CacheHint {
        if self.data_space != Space::Global {
            return CacheHint::None;
        }
        // By number as the front end's `Cache`.
        let is_weak = Ordering::of(self.module.op(id)).is_weak();
        match (self.context.hinted_number(id, "cache"), is_weak) {
            (Some(0), _) | (Some(3), false) => CacheHint::EvictFirst,
            (Some(1), _) => CacheHint::EvictLast,
            (Some(2), _) | (Some(4), false) => CacheHint::NoAllocate,
            (Some(3), true) => CacheHint::Cs,
            (Some(4), true) => CacheHint::Cg,
            _ => CacheHint::None,
        }
    }
}
