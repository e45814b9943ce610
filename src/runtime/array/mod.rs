//! Arrays of a device: memory, views, transfers, packed and complex arrays, and their order on
//! streams.

pub(super) mod array;
pub(super) mod array_table;
pub(super) mod complex;
pub(super) mod memory;
pub(super) mod new_array;
pub(super) mod pack_host;
pub(super) mod packed;
pub(super) mod packed_view;
pub(super) mod partition;
pub(super) mod red_zones;
pub(super) mod stream_order;
pub(super) mod strided;
pub(super) mod transfer;
pub(super) mod view;
