//! Analyses of the module that precede the inference.
//!
//! Input: the module and its integer ranges. Output: contiguity of accesses, chains and groups of
//! ops. The folder does not use the state of the inference.

pub mod adjacent_operands;
pub mod axis_info;
pub mod butterfly_chain;
pub mod permutation;
pub mod pointer_ops;
pub mod reduced_scan;
pub mod strided_reduction;
pub mod user_layout;
pub mod view_shape;
