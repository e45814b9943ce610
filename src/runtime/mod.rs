//! The runtime: devices, streams, memory and arrays.
//!
//! The only room that talks to the CUDA driver ([`driver`]), and the one that knows where bytes
//! live. Knows element types and shapes, no operation and no back end.

mod arg;
mod array;
mod bench;
mod by_pointer;
mod compare;
mod complex;
mod cut;
mod deadline;
mod device;
#[doc(hidden)]
pub mod driver;
mod failure;
mod failures;
mod finish;
pub mod foreign;
mod gpu;
mod graph;
mod host;
mod leftover;
mod limit;
mod memory;
mod module;
mod new_array;
mod nvtx;
mod order;
mod packed;
mod packed_view;
mod peer;
mod pool;
pub(crate) mod recording;
mod scratch;
mod stream;
mod strided;
mod table;
mod tensor_map;
#[cfg(test)]
mod tests;
mod transfer;
mod view;
mod wait;

#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use arg::with_index64;
pub use arg::{ArraySpec, ArraySpecMut};
pub use array::DeviceArray;
pub use bench::{Bench, Times};
pub use by_pointer::ByPointer;
pub use compare::Comparison;
pub use complex::{ComplexDeviceArray, Interleaved};
pub use cut::Partition;
pub(crate) use deadline::{in_user_code, launch_end, limited};
pub use device::{Backend, Device};
pub(crate) use driver::Driver;
pub(crate) use failure::{FailureNote, Note};
pub use finish::StreamFuture;
pub(crate) use gpu::{Gpu, GpuStream, Seen, StreamHandle, driver_build};
pub use graph::{Graph, GraphResource};
pub(crate) use limit::{compile_limit, within};
pub use memory::{ALIGNMENT, Memory, MemoryUse};
pub(crate) use module::{
    Cubin, GpuFunction, GpuKernel, LaunchConfig, assemble, remarks, spills, uses_local_memory, wants_whole_program,
};
pub use new_array::NewArray;
pub(crate) use nvtx::Range;
pub use packed::{PackedDeviceArray, PackedSpec, PackedSpecMut};
pub use packed_view::PackedView;
pub use pool::StreamPool;
pub use scratch::Scratch;
pub use stream::{Event, Stream};
pub use table::{ArrayTable, ArrayTableMut};
pub(crate) use tensor_map::TiledArray;
pub use view::{DeviceView, DeviceViewMut};
