//! Arguments of launches: the conversion of arrays of the device to kernel parameters.

pub(super) mod array_arg;
pub(super) mod by_pointer;
