//! Proofs for all values of symbols: extents, and grids that depend on them.

mod decide;
mod digits;
mod for_all;
mod linear;
mod product;
mod symbol;
mod system;
#[cfg(test)]
mod tests;

pub(super) use for_all::{ForAll, Needless};
pub use symbol::Symbol;
pub(crate) use symbol::{Expr as SymbolExpr, SymbolicLaunch};
