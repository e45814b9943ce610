//! Passes over the instructions of a finished kernel.
//!
//! Input: a function of `isa`. Output: the function with better instructions, and the number of
//! registers it needs. Order: `mul_wide`, then `register_pressure`.
//!
//! The folder does not depend on tiles, layouts or schedules.

pub mod mul_wide;
pub mod register_pressure;
