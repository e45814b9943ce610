//! Instructions that report to the host: waits with a time limit, and time stamps of steps.

pub mod stamp_state;
pub mod stamps;
pub mod wait_limit;
