//! Utilities without knowledge of the rest of the crate.
//!
//! `process` detects forks, `task` separates thread-local state from tasks of a thread pool,
//! `spelling` finds the right name for a wrong one. `temp_dir` creates temporary folders, `report`
//! writes messages, `collect` and `sort` make lists, `span` is for the feature `tracing`.
//! `test_sample` selects a part of the cases of a test.

pub(crate) mod collect;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod sort;
pub(crate) mod span;
pub(crate) mod spelling;
pub(crate) mod task;
pub(crate) mod temp_dir;
#[cfg(test)]
pub(crate) mod test_sample;
