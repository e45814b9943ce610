//! Requirements: what the lowering of an op asks of its step, in the order of the requests.
//!
//! Each fact stands once. `membar` fulfils the requirements of a step: it chooses conversions,
//! places buffers and inserts barriers. `lower` takes the operands of the op from the same list.
//! Scalars are the same in all threads, and no sub-step brings them.
//!
//! * `requirement` — the kinds of requirements, and the list of an op
//! * `inputs` — the operands of a value that is computed at its use
//! * `conversion_cache` — values that are available in other layouts than their own
//! * `memory` — accesses through views and pointers
//! * `exchange` — values that threads exchange: reductions, scans, gathers, blocks of tiles
//! * `reduction_steps` — the order in which registers, lanes and warps are combined
//! * `print` — message pieces and their scratch
//! * `op` — the requirements of each opcode

pub mod conversion_cache;
pub mod exchange;
pub mod inputs;
pub mod memory;
pub mod op;
pub mod print;
pub mod reduction_steps;
pub mod requirement;
