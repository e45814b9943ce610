//! A search for the configuration that is fastest: tile extents, hints, whatever a launch takes.
//!
//! [`options`] is what a search is told, [`mod@space`] makes lists of configurations, [`key`] says what an answer is
//! good for, [`record`] writes answers as text and [`keep`] finds them again, [`ahead`] compiles candidates and
//! [`prune`] leaves some out, [`trying`] runs the rest, [`turns`] measures them, [`tuned`] is what was found, [`tuner`]
//! does it all.

mod ahead;
mod keep;
mod key;
mod options;
mod prune;
mod record;
mod space;
mod trying;
mod tuned;
mod tuner;
mod turns;

pub use key::TuneKey;
pub use options::Tuner;
pub use record::{Record, Records, Trial};
pub use space::{Ranges, space};
pub use tuned::{Chosen, Origin, Outcome, TuneStep, Tuned};
