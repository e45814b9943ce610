//! Memory of arrays: allocations, and copies of their bytes.

mod allocation;
mod copy;

pub use allocation::{ALIGNMENT, Memory, MemoryUse};
pub(crate) use allocation::WriteRecord;
