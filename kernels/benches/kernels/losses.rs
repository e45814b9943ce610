//! Rows of `cutlet_kernels::losses`.

use crate::row::Row;

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    Vec::new()
}
