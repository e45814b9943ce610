//! Tests of barriers, of MMA waits, and of the order of consumer groups.

pub mod barriers;
pub mod mma_order;
pub mod mma_waits;
mod order_barrier_interleavings;
