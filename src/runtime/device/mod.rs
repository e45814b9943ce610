//! Devices and streams: the GPU, events, pools, futures, deadlines, deferred releases, and the
//! memory of the cpu device.

pub(super) mod compile_timeout;
pub(super) mod deadline;
pub(super) mod deferred_release;
pub(super) mod device;
pub(super) mod gpu;
pub(super) mod known_memory;
pub(super) mod peer;
pub(super) mod spin_kernel;
pub(super) mod stream;
pub(super) mod stream_future;
pub(super) mod stream_pool;
