//! Compile options of the ptx back end.

use super::optimizations::OptimizationSet;

/// Options of the user, which override the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Warps of a CTA: a power of two from 1 to 32.
    pub num_warps: Option<u32>,
    /// The requested number of CTAs per SM; fewer if registers and warps do not
    /// allow it.
    pub occupancy: Option<u32>,
    /// Pipeline stages of a loop whose loads are operands of an MMA; 1: no pipelining.
    pub num_stages: Option<u32>,
    /// CTAs of a cluster; with 2 or more, pairs multicast loads if possible.
    pub num_ctas: Option<u32>,
    /// Number of lines at which lowering stops.
    pub code_limit: Option<u32>,
    /// Milliseconds after which a wait is reported and ends its thread.
    pub wait_limit: Option<u32>,
    /// Steps with time stamps.
    pub stamped: StampedSteps,
    /// The kernel may have tensor maps as parameters. Without them it also runs for arrays that no
    /// map describes.
    pub tma: bool,
    /// The text has `.loc` directives. They do not change the code.
    pub line_info: bool,
    /// The result contains the schedule as text.
    pub schedule: bool,
    /// Permission of the cost model to select another plan than the default one.
    pub plan_search: PlanSearch,
    /// The launch has several tile blocks for each CTA that runs at a time. More CTAs per SM are
    /// then a candidate of the plan search.
    pub has_many_blocks: bool,
    /// Ping-pong schedules are allowed.
    pub pingpong: bool,
    /// Left operands that a loop does not change are in registers, also loaded ones, so that stages
    /// have their shared memory.
    pub loaded_operands_in_registers: bool,
    /// Each launch checks [`super::Compiled::positive_params`], so the code may assume their range.
    pub assumes_positive_params: bool,
    /// Enabled optimizations.
    pub optimizations: OptimizationSet,
}

/// Steps of a kernel that have time stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StampedSteps {
    #[default]
    None,
    /// Steps whose stamps do not prevent the overlap of computations with MMAs.
    KeepOverlap,
    All,
}

/// Scope of the plan search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanSearch {
    /// No search: the default plan.
    Off,
    /// Candidates that may be selected.
    #[default]
    Calibrated,
    /// As `Calibrated`; further plans are costed and reported.
    Report,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions {
            num_warps: None,
            occupancy: None,
            num_stages: None,
            num_ctas: None,
            code_limit: None,
            wait_limit: None,
            stamped: StampedSteps::None,
            tma: true,
            line_info: false,
            schedule: false,
            plan_search: PlanSearch::Calibrated,
            has_many_blocks: false,
            pingpong: true,
            loaded_operands_in_registers: false,
            assumes_positive_params: false,
            optimizations: OptimizationSet::ALL,
        }
    }
}
