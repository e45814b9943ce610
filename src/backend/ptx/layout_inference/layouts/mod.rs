//! Layouts that are computed from other layouts.

pub mod axis_bits;
pub mod blocks;
pub mod lane_gather;
pub mod packing;
pub mod scan_order;
