//! Linear algebra of tiles: triangular systems and factorizations, as compositions of other
//! operations.
//!
//! Each matrix is divided into blocks of [`BLOCK`](blocks::BLOCK) rows and columns. Within a block,
//! the rows are registers of each thread and the columns belong to the lanes of a warp
//! ([`Rows`](rows::Rows)). A step of an algorithm then needs one shuffle per row and no barrier.
//! Updates between blocks are matrix products.

pub(super) mod blocks;
pub(super) mod cholesky;
pub(super) mod lu;
pub(super) mod qr;
pub(super) mod rows;
pub(super) mod substitution;
pub(super) mod triangular;
