//! Compile options of the ptx back end.

/// Choices of the user that overrule the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Warps of a tile block: a power of two from 1 to 32.
    pub num_warps: Option<u32>,
    /// Tile blocks that should fit on one multiprocessor at a time; fewer where its registers and
    /// warps do not allow it.
    pub occupancy: Option<u32>,
    /// Stages of shared memory of a loop whose loads feed a matrix product; 1: loads do not run
    /// ahead.
    pub num_stages: Option<u32>,
    /// Tile blocks of a cluster: with 2 or more, pairs share loads where they can.
    pub num_ctas: Option<u32>,
    /// Instructions and other lines at which lowering gives up.
    pub code_limit: Option<u32>,
    /// May the kernel take tensor maps? Without them it runs for arrays that no map can describe,
    /// too.
    pub tma: bool,
    /// Does the text name the user's lines? They change nothing else.
    pub line_info: bool,
    /// Is the schedule wanted as text, too?
    pub schedule: bool,
    /// May the cost model choose another plan where the others leave one open, and is everything
    /// that it considers to be said?
    pub plan_search: PlanSearch,
    /// May iterations be dealt to teams of warps?
    pub pingpong: bool,
}

/// What is chosen by the cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanSearch {
    /// Nothing.
    Off,
    /// Plans that may be faster.
    #[default]
    Calibrated,
    /// The same; but others are costed too, to be said.
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
            tma: true,
            line_info: false,
            schedule: false,
            plan_search: PlanSearch::Calibrated,
            pingpong: true,
        }
    }
}
