//! Measured steps of a launch (`CUTLET_TRACE`).
//!
//! * `measured_trace`: the events of a launch, and their text form with one line per event.

mod measured_trace;

pub use measured_trace::{MeasuredEvent, MeasuredTrace};
