//! Inspection: the texts, remarks, timings and reports of a kernel.

pub(super) mod bench;
pub(super) mod bug_report;
pub(super) mod compiled_kernel;
pub(super) mod doctor;
pub(super) mod dump;
pub(super) mod plans;
pub(super) mod profile;
pub(super) mod remarks;
pub(super) mod roofline;
pub(super) mod roofline_work;
pub(super) mod spills;
pub(super) mod text;
pub(super) mod trace;
#[cfg(test)]
mod trace_tests;
