//! State of the inference and operations that all op families share.

pub mod anchors;
pub mod core;
pub mod queries;
