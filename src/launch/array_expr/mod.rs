//! Operations on whole arrays, without a kernel of the user's: expressions over arrays become one generated kernel.
//!
//! An expression ([`fused`]) is taken apart into its arrays, which are arguments of the launch, and its code, which the
//! kernel is a closure over. Closures that capture nothing make kernels that are known by their type, as any other.

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
