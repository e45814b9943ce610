//! Compiled kernels: the PTX text, and the data that a launch needs.

use super::device_assert::FailureSites;
use super::measured::KernelStamps;
use super::remarks::CodeRemarks;
use super::tensor_map::TensorMap;

/// Source of the bytes of one kernel parameter at launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Entry parameter `index`, `bytes` wide.
    Word {
        /// Position among the entry's parameters.
        index: u32,
        /// Width in bytes: 1, 2, 4 or 8.
        bytes: u32,
    },
    /// The address of the note of failures (see [`FailureSites`]): 8 bytes.
    Failure,
    /// The address of the records of a traced launch (see [`KernelStamps`]), or 0: 8 bytes.
    Trace,
    /// A tensor map, made at each launch: 128 bytes, aligned to 64.
    TensorMap(TensorMap),
}

/// A kernel as PTX text, with the data that a launch needs.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// PTX of one entry.
    pub text: String,
    /// Name of the entry in the text.
    pub entry: String,
    /// Threads of a CTA.
    pub threads: u32,
    /// The number of CTAs that should fit on an SM, for which the assembler
    /// limits registers.
    pub min_blocks: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// CTAs of a cluster (1: none).
    pub cluster: u32,
    /// Kernel parameters in order.
    pub params: Vec<ParamKind>,
    /// Parameters of f32 that the code assumes to be in the range of `hoist_factor`, by their
    /// positions among the entry's parameters.
    pub positive_params: Vec<u32>,
    /// The failures that the kernel reports.
    pub failures: FailureSites,
    /// The sites of the time stamps, if the code has some.
    pub stamps: Option<KernelStamps>,
    /// The register layouts as text.
    pub layout: String,
    /// The steps of the schedule as text, if requested.
    pub schedule: String,
    /// The compilation remarks.
    pub remarks: CodeRemarks,
}
