//! Ops that compute tiles from tiles.
//!
//! * Input: operands in the layouts of layout inference.
//! * Output: the registers of the results.
//! * Order: `mma`; reductions (`reduce_lanes`, `minmax3`, `reduce_warps`, then `reduce`); scans
//!   (`scan_lanes`, `scan_warps`, then `scan`); rearrangements; the debugging ops `assert` and
//!   `printf`.
//! * The folder knows neither control flow nor the producer.

pub mod assert;
pub mod cat_extract_insert;
pub mod gather_histogram;
pub mod minmax3;
pub mod mma;
pub mod pack_unpack;
pub mod printf;
pub mod ranks;
pub mod reduce;
pub mod reduce_lanes;
pub mod reduce_warps;
pub mod scan;
pub mod scan_lanes;
pub mod scan_warps;
