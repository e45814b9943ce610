//! Devices and streams: the GPU, events, pools, futures, deadlines and deferred releases.

pub(super) mod compile_timeout;
pub(super) mod deadline;
pub(super) mod deferred_release;
pub(super) mod device;
pub(super) mod gpu;
pub(super) mod peer;
pub(super) mod spin_kernel;
pub(super) mod stream;
pub(super) mod stream_future;
pub(super) mod stream_pool;
