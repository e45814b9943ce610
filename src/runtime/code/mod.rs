//! Loaded code: cubins, their machine code, tensor maps, and the failures that a kernel reports.

pub(super) mod cubin;
pub(super) mod device_assert;
pub(super) mod encode_tensor_map;
pub(super) mod machine_code;
pub(super) mod pending_asserts;
