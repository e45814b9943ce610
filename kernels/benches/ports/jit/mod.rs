//! Rows of the comparison with kernels in Triton and TileLang. Names and arrays are those of
//! `rows_triton.py` and `export_tilelang.py`.

mod linalg;
mod order;
mod recurrent;
pub mod stages;
mod tiles;

use crate::case::Case;

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    [recurrent::small(), order::small(), linalg::small(), tiles::small()].into_iter().flatten().collect()
}

/// All rows.
pub fn cases() -> Vec<Case> {
    [recurrent::cases(), order::cases(), linalg::cases(), tiles::cases()].into_iter().flatten().collect()
}
