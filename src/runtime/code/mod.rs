//! Loaded code: cubins, tensor maps, and the asserts that a kernel reports.

pub(super) mod cubin;
pub(super) mod device_assert;
pub(super) mod encode_tensor_map;
pub(super) mod pending_asserts;
