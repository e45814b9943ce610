//! A search for the configuration that is fastest: tile extents, hints, whatever a launch takes.
//!
//! [`space`] makes lists of configurations, [`mod@key`] says what an answer is good for, [`record`] keeps answers as text,
//! [`ahead`] compiles candidates and [`prune`] leaves some out, [`tuned`] is what was found, [`tuner`] does it, [`turns`]
//! measures.

mod ahead;
mod key;
mod prune;
mod record;
mod space;
mod tuned;
mod tuner;
mod turns;

pub use key::TuneKey;
pub use record::{Record, Records, Trial};
pub use space::{Ranges, space};
pub use tuned::{Chosen, Origin, Outcome, TuneStep, Tuned};
pub use tuner::Tuner;
