//! cutlet: GPU kernels as plain Rust functions over tiles.

pub mod backend;
mod cache;
pub mod codec;
pub mod dtype;
pub mod element;
mod error;
pub mod ir;
pub mod kernel;
mod launch;
pub mod layout;
pub mod ops;
pub mod pass;
pub mod prelude;
pub mod runtime;
mod target;
pub mod tile;

pub use backend::Hints;
pub use element::{bf16, f4e2m1fn, f8e4m3fn, f8e5m2, f8e8m0fnu, f16, tf32};
pub use error::{Diagnostic, Error, Location, Note, Result};
pub use ir::{Padding, Rounding};
pub use kernel::Constant;
pub use launch::{
    CompiledKernel, Exported, ExportedParam, Format, Grid, Launch, code_ir, code_ptx, code_tiled, compile, export,
    launch,
};
pub use ops::*;
pub use runtime::{ArraySpec, ArraySpecMut, Backend, Device, DeviceArray, DeviceView, DeviceViewMut, Event, Stream};
pub use target::Target;
pub use tile::{Array, ArrayMut, Scalar, Tile};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
