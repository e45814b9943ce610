//! State of the lowering of one kernel, and the operations on it that all lowering functions share.
//!
//! * Input: the schedule, its sub-steps, values of earlier steps.
//! * Output: operands of values in the layouts of their users; waits, conversions and barriers.
//! * Order: `core`, `values` and `sync_state` are data. `pipeline`, `order_barrier` and `mma_queue`
//!   wait for asynchronous operations. `sub_steps` executes barriers and provides scratch buffers.
//!   `instrument` reports to the host. `thread_index`, `convert_layout`, `elementwise` and
//!   `materialize` compute values.
//! * The folder knows no op but those that are rematerialized. It calls other folders only by
//!   `Dispatch`.

pub mod convert_layout;
pub mod core;
pub mod elementwise;
pub mod instrument;
pub mod materialize;
pub mod memory_order;
pub mod mma_queue;
pub mod order_barrier;
pub mod pipeline;
pub mod sub_steps;
pub mod sync_state;
pub mod thread_index;
pub mod values;
pub mod vector_access;
