//! Memory of arrays: allocations, and copies of their bytes.

mod allocation;
mod copy;

pub(crate) use allocation::WriteRecord;
pub use allocation::{ALIGNMENT, Memory, MemoryUse};
