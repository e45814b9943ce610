//! Autotuning: a search for the fastest configuration of tile extents, hints and other parameters
//! of a launch.
//!
//! * Input: [`options`]; [`mod@space`] makes lists of configurations.
//! * Earlier results: [`key`] identifies a result, [`record`] is its text, [`memo`] reads and
//!   writes results.
//! * Candidates: [`precompile`] compiles them, [`prune`] rejects some of them.
//! * Measurement: [`workspaces`] has the states, [`time_limit`] the limit of time; [`trials`]
//!   executes candidates, and [`interleave`] measures them alternately.
//! * Output: [`progress_line`] shows the progress, [`result`] is the result. [`tuner`] has the
//!   entry points.

mod interleave;
mod key;
mod memo;
mod options;
mod precompile;
mod progress_line;
mod prune;
mod record;
mod result;
mod space;
mod time_limit;
mod trials;
mod tuner;
mod workspaces;

pub use key::TuneKey;
pub use options::Tuner;
pub use record::{Record, Records, Trial};
pub use result::{Chosen, Origin, Outcome, TuneStep, TuningResult};
pub use space::{Ranges, space};
