//! Passes over the instructions of a finished kernel.
//!
//! Input: a function of `isa`. Output: the function with better instructions, and the number of
//! registers it needs.
//!
//! The folder does not depend on tiles, layouts or schedules.

pub mod register_pressure;
