//! Kernels compiled ahead of time: exports, bundles, and imported modules.

#[cfg(feature = "bundle")]
pub(super) mod bundle;
pub(super) mod compile_all;
pub(super) mod export;
pub(super) mod load_module;
pub(super) mod stored_proof;
