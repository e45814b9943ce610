//! Layouts that are computed from other layouts, without ops and values.
//!
//! The inference and later stages (`schedule`, `lower`) use the same functions, and agree
//! therefore.

pub mod axis_bits;
pub mod blocks;
pub mod lane_gather;
pub mod packing;
pub mod rows_of_lanes;
pub mod scan_order;
