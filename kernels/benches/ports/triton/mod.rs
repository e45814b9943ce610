//! Rows of the comparison with kernels in Triton. Names and arrays are those of `rows.py`.

mod recurrent;

use crate::case::Case;

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    recurrent::small()
}

/// All rows.
pub fn cases() -> Vec<Case> {
    recurrent::cases()
}
