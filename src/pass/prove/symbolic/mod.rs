//! Proofs for all values of symbols: extents, and grids that depend on them.

mod decide;
mod for_all;
mod linear;
mod symbol;
mod system;

pub(super) use for_all::ForAll;
pub use symbol::Symbol;
pub(crate) use symbol::{Expr as SymbolExpr, SymbolicLaunch};
