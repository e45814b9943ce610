//! Measured steps of a launch (`Hints::trace`).
//!
//! * `measured_trace`: the events of a launch, and their text form with one line per event.
//! * `records`: the records that a traced kernel writes, and their conversion to events.
//! * `modelled`: the steps of the cost model as events.
//! * `trace_events`: the events as a trace-viewer file.
//! * `timeline`: the events as a picture, above those of the cost model.
//! * `comparison`: the durations of the steps, compared with those of the cost model.

mod comparison;
mod measured_trace;
mod modelled;
mod records;
#[cfg(test)]
mod tests;
mod timeline;
mod trace_events;

pub use comparison::{StepComparison, TraceComparison};
pub use measured_trace::{MeasuredEvent, MeasuredTrace};
pub use modelled::modelled_events;
pub use records::{
    EVENTS, FIRST_BLOCKS, HEADER_BYTES, HeaderField, KernelStamps, RECORD_BYTES, SAMPLED_MULTIPROCESSORS, SLOT_BYTES,
    SLOTS, StampKind, StampSite,
};
