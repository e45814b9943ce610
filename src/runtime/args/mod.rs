//! Arguments of launches: how arrays of the device reach a kernel.

pub(super) mod array_arg;
pub(super) mod by_pointer;
