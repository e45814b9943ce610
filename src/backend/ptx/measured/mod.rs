//! Measured steps of a launch (`Hints::trace`).
//!
//! * `measured_trace`: the events of a launch, and their text form with one line per event.
//! * `records`: the records that a traced kernel writes, and their conversion to events.

mod measured_trace;
mod records;

pub use measured_trace::{MeasuredEvent, MeasuredTrace};
pub use records::{
    EVENTS, FIRST_BLOCKS, HEADER_BYTES, HeaderField, KernelStamps, RECORD_BYTES, SAMPLED_MULTIPROCESSORS, SLOT_BYTES,
    SLOTS, StampKind, StampSite,
};
