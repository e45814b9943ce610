//! Sorts, scans, selection and sampling.

mod key;
mod radix_sort;

pub use key::{Direction, Key};
pub use radix_sort::{argsort, sort_keys, sort_pairs};
