//! Layouts of ops, by family.

mod cat_extract_insert;
mod control_flow;
mod elementwise;
mod gather_histogram;
mod mma;
mod pack_unpack;
mod pointer_access;
mod reduce_scan;
mod view_access;
mod with_layout;
