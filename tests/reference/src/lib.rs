//! Inner loops of the references of Cutlet's tests, in plain arithmetic on the host.
//!
//! Tests are built without optimization, and this crate always with it. No function is generic, so
//! none is compiled in the crate of a test. Nothing here uses the library under test.

#![allow(clippy::needless_range_loop, reason = "the loops are formulas")]

pub mod format;
mod products;

pub use products::{Whole, add_tile, product, product_and_magnitudes};

/// True in the profile of tests, and false in that of benchmarks. `.ci/rustc` builds the tests
/// themselves without assertions.
pub const HAS_ASSERTIONS: bool = cfg!(debug_assertions);
