//! Sorts, scans, selection and sampling.

mod compact;
mod key;
mod look_back;
mod prefix;
mod radix_sort;

pub use compact::{Predicate, compact, compact_if};
pub use key::{Direction, Key};
pub use look_back::{Combine, Scanned};
pub use prefix::{Prefix, prefix};
pub use radix_sort::{argsort, sort_keys, sort_pairs};
#[doc(hidden)]
pub use radix_sort::{SortPlan, sort_keys_by};
