//! The runtime: devices, streams, memory and arrays.
//!
//! Only this folder calls the CUDA driver ([`driver`]) and manages memory. It depends on element
//! types and shapes, but not on operations or back ends.

mod args;
mod array;
mod code;
mod device;
#[doc(hidden)]
pub mod driver;
pub mod foreign;
pub(crate) mod graph;
mod measure;
#[cfg(test)]
mod tests;

#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use args::array_arg::with_index64;
pub use args::array_arg::{ArraySpec, ArraySpecMut};
pub use args::by_pointer::ByPointer;
pub use array::array::DeviceArray;
pub use array::array_table::{ArrayTable, ArrayTableMut};
pub use array::complex::{ComplexDeviceArray, Interleaved};
pub use array::memory::{ALIGNMENT, Memory, MemoryUse};
pub use array::new_array::NewArray;
pub use array::packed::{PackedDeviceArray, PackedSpec, PackedSpecMut};
pub use array::packed_view::{PackedView, PackedViewMut};
pub use array::partition::Partition;
pub use array::red_zones::with_memory_checks;
pub(crate) use array::red_zones::{are_in_use as red_zones_are_in_use, write_records_are_in_use};
pub(crate) use array::stream_order::Access;
pub use array::view::{DeviceView, DeviceViewMut};
pub(crate) use code::cubin::{
    Cubin, GpuFunction, GpuKernel, LaunchConfig, assemble, remarks, spills, uses_local_memory, wants_whole_program,
};
pub(crate) use code::device_assert::{FailureNote, Note};
pub(crate) use code::encode_tensor_map::TiledArray;
pub use code::machine_code::SpilledLine;
pub(crate) use code::machine_code::local_memory;
#[cfg(test)]
pub(crate) use code::machine_code::opcodes;
pub(crate) use device::compile_timeout::{compile_limit, within};
pub(crate) use device::deadline::{in_user_code, launch_end, limited};
pub use device::device::{Backend, Device};
pub(crate) use device::gpu::{Gpu, GpuStream, Seen, StreamHandle, driver_build};
pub(crate) use device::known_memory::contains as is_known_memory;
pub use device::stream::{Event, Stream};
pub use device::stream_future::StreamFuture;
pub use device::stream_pool::StreamPool;
pub(crate) use driver::Driver;
pub use graph::{Graph, GraphResource};
pub use measure::bench::{Bench, Times};
pub use measure::interleaved::Comparison;
pub use measure::state_copies::Scratch;
