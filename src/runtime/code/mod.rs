//! Loaded code: cubins, tensor maps, and the asserts that a kernel reports.

pub(super) mod cubin;
pub(super) mod device_assert;
pub(super) mod pending_asserts;
pub(super) mod tensor_map;
