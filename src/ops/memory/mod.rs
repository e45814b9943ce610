//! Loads and stores of tiles: whole tiles, gathers, scatters, elements and parts of arrays.

pub(super) mod access_options;
pub(super) mod array_table;
pub(super) mod block_scratch;
pub(super) mod element;
pub(super) mod element_index;
pub(super) mod fence;
pub(super) mod gather_scatter;
pub(super) mod global;
pub(super) mod load_store;
pub(super) mod memory_order;
pub(super) mod subarray;
pub(super) mod tile_access;
pub(super) mod tiled_view;
