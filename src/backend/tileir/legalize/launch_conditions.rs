//! What a legalised kernel leaves to the launch.

use super::launch_compare::Limit;
use super::launch_probe::Probe;

/// Who sees to it that tile indices are inside, and that loops end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guards {
    /// The launch, where it can.
    #[default]
    Launch,
    /// The kernel alone: any launch will do.
    Kernel,
}

/// What must hold at a launch.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Promises {
    /// Comparisons.
    pub limits: Vec<Limit>,
    /// What comparisons cannot say.
    pub probe: Option<Probe>,
}

impl Promises {
    /// Is there nothing to hold?
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.probe.is_none()
    }
}
