//! cutlet: GPU kernels as plain Rust functions over tiles.

pub mod backend;
pub mod codec;
pub mod dtype;
pub mod element;
mod error;
pub mod ir;
pub mod kernel;
pub mod layout;
pub mod pass;
pub mod runtime;
mod target;
pub mod tile;

pub use backend::Hints;
pub use error::{Diagnostic, Error, Location, Note, Result};
pub use runtime::{ArraySpec, ArraySpecMut, Backend, Device, DeviceArray, DeviceView, DeviceViewMut, Event, Stream};
pub use target::Target;
