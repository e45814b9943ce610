//! Harness of the measured kernels: command line, timing, inputs, and the printed line.

#[macro_use]
pub mod words;

mod data;
mod options;
mod product;
mod report;
mod timing;

pub use data::{Expected, largest_error, normal};
pub use options::Options;
pub use product::{expected_rows, sample_rows};
pub use report::{Report, Work};
pub use timing::Rotation;
