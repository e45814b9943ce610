//! Accesses to global memory by threads.
//!
//! * Input: ops on views and pointers, and the layouts of their accesses.
//! * Output: loads, stores and atomics with addresses, masks and cache hints.
//! * Order: `tensor_view`, `tile_bounds` and `indexed_axis` are the base of `view_access`, which
//!   `view_load_store` and `unaligned_load` use. `pointer_access` is the base of `atomic` and
//!   `privatized_atomic`.
//! * The folder knows neither TMA nor MMAs.

pub mod alloca;
pub mod atomic;
pub mod atomic_16bit;
pub mod cache_hint;
pub mod global_symbol;
pub mod implied_mask;
pub mod indexed_axis;
pub mod pointer_access;
pub mod privatized_atomic;
pub mod tensor_view;
pub mod tile_bounds;
pub mod unaligned_load;
pub mod view_access;
pub mod view_load_store;
