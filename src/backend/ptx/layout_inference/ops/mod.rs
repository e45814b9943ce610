//! Layouts of ops, one file for each family.
//!
//! A family sets the layouts of results ([`Inference::set`]) and the access layouts of its ops. It
//! uses `analysis`, `layouts` and `state`, and no other family.
//!
//! [`Inference::set`]: super::Inference::set

mod cat_extract_insert;
mod cluster;
mod control_flow;
mod elementwise;
mod gather_histogram;
mod mma;
mod pack_unpack;
mod pointer_access;
mod reduce_scan;
mod view_access;
mod with_layout;
