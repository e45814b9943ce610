//! Operations on whole arrays without a user-defined kernel: an expression over arrays is compiled
//! into one generated kernel.
//!
//! An expression ([`fusion`]) is divided into its arrays, which are arguments of the launch, and
//! its code, which the closure of the kernel captures. If no closure has captures, the kernel is
//! identified by its type, like any other.

mod combine;
mod creation;
mod decoupled_lookback;
mod expr;
mod fusion;
mod generated;
mod lookback_board;
pub(super) mod random;
mod reduce;
mod scan;
mod store;
#[cfg(test)]
mod tests;
mod tiling;

pub use expr::ArrayExpr;
pub use fusion::{FusedExpr, Map, MapWith, Zip};
