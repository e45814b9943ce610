//! A search for the configuration that is fastest: tile extents, hints, whatever a launch takes.
//!
//! [`options`] is what a search is told, [`mod@space`] makes lists of configurations, [`key`] says what an answer is
//! good for, [`record`] writes answers as text and [`keep`] finds them again, [`ahead`] compiles candidates and
//! [`prune`] leaves some out, [`sets`] are what the rest works on, [`within`] limits their time, [`trying`] runs and
//! [`turns`] measures them, [`line`] says how far that is, [`tuned`] is what was found, [`tuner`] does it all.

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
