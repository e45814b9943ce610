//! The runtime: devices, streams, memory and arrays.
//!
//! The only room that talks to the CUDA driver ([`driver`]), and the one that knows where bytes
//! live. Knows element types and shapes, no operation and no back end.

mod device;
pub mod driver;
mod memory;
mod stream;

pub use device::{Backend, Device};
pub use memory::{ALIGNMENT, Memory, MemoryUse};
pub use stream::{Event, Stream};
