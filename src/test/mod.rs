//! Property tests of kernels: drawn shapes, strides and values, all checks, and reduced failures.
//!
//! A property is a kernel, a function that draws its arguments, and a reference or laws:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//! use cutlet::test::{Input, Kernel, Output};
//!
//! fn scale(x: Array<f32, 1>, y: ArrayMut<f32, 1>, factor: Scalar<f32>, tile: usize) {
//!     y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * factor);
//! }
//!
//! // The body of a `#[test]`.
//! Kernel::new(scale)
//!     .shapes(|draw| {
//!         let tile = draw.pick("tile", [16, 64]);
//!         let n = draw.extent("n", tile);
//!         (n.div_ceil(tile), (Input::new([n]), Output::new([n]), 2.0, Constant(tile)))
//!     })
//!     .reference(|(x, y, factor, _)| y.fill(|i| x[i] * f64::from(factor)))
//!     .run();
//! ```
//!
//! [`Function`] is the same for a host function that queues launches.
//!
//! # Cases
//!
//! A case is a function of its seed. It has these parts:
//! * Extents at boundaries of tiles, tile sizes and other options: [`Draw`].
//! * Values: small numbers, NaN, infinities, -0, subnormal numbers, extremes: [`Values`].
//! * Arrangements in memory: row-major, unaligned, with gaps between rows, column-major, every
//!   second element. Padding around an array is poisoned.
//!
//! # Launches of a case
//!
//! 1. On the cpu back end with all [`Checks`](crate::Checks): races, bounds, unwritten scratch,
//!    integer division, shifts, casts, overflow. The results are compared with the reference.
//! 2. Without checks and with all passes. The tile blocks run in another order, and outputs and
//!    padding have other contents. Results must not change.
//! 3. Launches of the laws: [`Runner::splits_along`], [`Runner::linear_in`],
//!    [`Runner::independent_of`].
//! 4. On the GPU, if there is one and `CUTLET_BACKEND` is not `cpu`.
//!
//! # Failures
//!
//! A failing case is reduced: smaller extents, simpler arrangements, simpler elements. The report
//! has the draws and a test in Rust. The seed is added to the corpus, a folder that belongs under
//! version control ([`Runner::corpus`]); the next run begins with it.
//!
//! # Limits
//!
//! Arguments are arrays of floats of 8 to 64 bits, integers and bool, numbers and constants. Tables
//! of arrays and packed arrays are not drawn. A mistake that no drawn case shows is
//! not found.

mod args;
mod arrays;
mod corpus;
mod draw;
mod examine;
mod failure;
mod function;
mod instance;
mod kernel;
mod laws;
mod program;
mod random;
mod reduce;
mod search;

pub use args::{InOut, Input, Output, TestArg};
pub use arrays::element::TestElement;
pub use arrays::host::HostArray;
pub use arrays::values::Values;
pub use draw::Draw;
pub use function::{Function, FunctionWithArgs};
pub use kernel::{Kernel, Runner};
pub use search::{Finding, Summary};
