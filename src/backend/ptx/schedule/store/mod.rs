//! Stores and atomics that use shared memory: TMA stores and privatization.
//!
//! Input: results of `analysis`. Output: `ir/tma_store` and `ir/privatized_array`.
//!
//! * `implied_mask` — one comparison that covers all elements of a thread
//! * `privatize` — selects atomics to privatize in shared memory
//! * `split` — splits a TMA store to fit the shared memory available
//! * `tma_store` — selects stores for TMA, per CTA or per warp

pub mod implied_mask;
pub mod privatize;
pub mod split;
pub mod tma_store;
