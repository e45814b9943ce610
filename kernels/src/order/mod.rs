//! Sorts, scans, selection and sampling.

mod compact;
mod histogram;
mod key;
mod largest;
mod look_back;
mod prefix;
mod radix_sort;
mod sample;
mod segmented_sort;
mod select;
mod top_k;

pub use compact::{Predicate, compact, compact_if};
pub use histogram::{histogram, histogram_even};
pub use key::{Direction, Key};
pub use largest::largest_of_groups;
pub use look_back::{Combine, Scanned};
pub use prefix::{Prefix, prefix};
pub use radix_sort::{RadixSort, argsort, sort_keys, sort_pairs};
pub use sample::{Draws, Sampling, greedy};
pub use segmented_sort::{segmented_sort_keys, segmented_sort_pairs};
pub use top_k::{Selected, top_k};
