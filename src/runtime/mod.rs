//! The runtime: devices, streams, memory and arrays.
//!
//! The only room that talks to the CUDA driver ([`driver`]), and the one that knows where bytes
//! live. Knows element types and shapes, no operation and no back end.

mod arg;
mod array;
mod bench;
mod device;
pub mod driver;
mod failure;
mod failures;
pub mod foreign;
mod gpu;
mod host;
mod memory;
mod module;
mod order;
mod packed;
mod stream;
mod strided;
mod table;
mod tensor_map;
#[cfg(test)]
mod tests;
mod transfer;
mod view;

pub use arg::{ArraySpec, ArraySpecMut};
pub use array::DeviceArray;
pub use bench::{Bench, Times};
pub use device::{Backend, Device};
pub(crate) use driver::Driver;
pub(crate) use failure::{FailureNote, Note};
pub(crate) use gpu::{Gpu, Seen, StreamHandle};
pub use memory::{ALIGNMENT, Memory, MemoryUse};
pub(crate) use module::{
    Cubin, GpuKernel, LaunchConfig, assemble, remarks, spills, uses_local_memory, wants_whole_program,
};
pub use packed::{PackedDeviceArray, PackedSpec, PackedSpecMut};
pub use stream::{Event, Stream};
pub use table::{ArrayTable, ArrayTableMut};
pub(crate) use tensor_map::TiledArray;
pub use view::{DeviceView, DeviceViewMut};
