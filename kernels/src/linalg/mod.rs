//! Linear algebra of batches of matrices.
//!
//! | function | computes |
//! |---|---|
//! | [`cholesky`] | L with L Lᵀ = A |
//! | [`lu`] | L and U with L U = P A, by partial pivoting |
//! | [`qr`] | Q and R with Q R = A |
//! | [`solve_triangular`], [`inverse_unit_lower`] | solutions of triangular systems, inverses |
//! | [`solve`], [`solve_positive`] | solutions of general and of positive definite systems |
//! | [`least_squares`] | the least squares solution of A X ≈ B |
//! | [`determinant`] | the determinants of A |
//!
//! Arrays are (batch, rows, columns) of f32 or f64. A tile block has some whole matrices of at most
//! 128 rows in registers. Larger matrices are factored and solved by blocks, with products of
//! matrices between them. Odd extents are embedded in the next power of two.

mod cholesky;
mod columns;
mod lu;
mod lu_blocks;
mod qr;
mod qr_blocks;
mod tiles;
mod triangular;

pub use cholesky::{cholesky, solve_positive};
pub use lu::{determinant, lu, solve};
pub use qr::{least_squares, qr};
pub use triangular::{Triangle, inverse_unit_lower, solve_triangular};
