//! State of the inference, and operations that all op families share.
//!
//! `core` has the data and the operations set, propagate and request. `anchors` describes
//! unanchored values. `queries` answers later stages. The folder uses `analysis` and `layouts`
//! alone.

pub mod anchors;
pub mod core;
pub mod queries;
