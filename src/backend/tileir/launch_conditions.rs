//! Conditions of a legalized kernel that the launch must check.

use super::Probe;
use super::launch_compare::Limit;

/// Check of tile indices and loop ends: by the launch or by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guards {
    /// The launch checks all conditions that it can.
    #[default]
    Launch,
    /// The kernel checks all conditions, so each launch is permitted.
    Kernel,
}

/// Conditions that a launch must satisfy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LaunchConditions {
    /// Comparisons.
    pub limits: Vec<Limit>,
    /// Conditions beyond comparisons.
    pub probe: Option<Probe>,
}

impl LaunchConditions {
    /// Returns true without a condition.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.probe.is_none()
    }
}
