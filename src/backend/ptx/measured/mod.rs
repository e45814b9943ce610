//! Measured steps of a launch (`CUTLET_TRACE`).
//!
//! * `measured_trace`: the events of a launch, and their text form with one line per event.
//! * `trace_events`: the events as a trace-viewer file.
//! * `comparison`: the durations of the steps beside those of the cost model.

mod comparison;
mod measured_trace;
mod trace_events;

pub use comparison::{StepComparison, TraceComparison};
pub use measured_trace::{MeasuredEvent, MeasuredTrace};
