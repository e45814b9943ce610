//! Choice of the fastest configuration of a row.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cutlet as ct;
use cutlet::Backend;

/// A configuration of a row.
#[derive(Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its index.
    pub index: usize,
    /// Its name.
    pub label: String,
}

/// As records have it.
impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// Settings of the tuning of rows.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The back end of all launches.
    pub backend: Backend,
    /// Runs of each configuration.
    pub runs: usize,
    /// Time limit of a configuration.
    pub limit: Duration,
    /// File of the results.
    pub record: Option<PathBuf>,
    /// True if rows with a recorded result are measured again.
    pub afresh: bool,
}

/// A row that can be tuned.
pub trait Tune {
    /// Tries all configurations of the row of this name. `plain` is the default: a label, or its
    /// part before a comma; if there is none, the first label.
    fn tune(
        self: Box<Self>,
        name: &str,
        plain: &str,
        how: &Tuning,
    ) -> ct::Result<(Choice, ct::tune::TuningResult<Choice>)>;
}
