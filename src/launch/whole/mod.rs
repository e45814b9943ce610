//! Operations on whole arrays, without a kernel of the user's: expressions over arrays become one generated kernel.
//!
//! An expression ([`fused`]) is taken apart into its arrays, which are arguments of the launch, and its code, which the
//! kernel is a closure over. Closures that capture nothing make kernels that are known by their type, as any other.

mod board;
mod combine;
mod expr;
mod fused;
mod launched;
mod look_back;
mod make;
mod plan;
mod reduce;
mod scan;
mod store;
#[cfg(test)]
mod tests;

pub use expr::ArrayExpr;
pub use fused::{FusedExpr, Map, MapWith, Zip};
