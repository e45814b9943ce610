//! Requirements: operands, exchanges and barriers that the lowering of an op needs, in order.
//!
//! This list is their single source. `sub_steps` fulfils the requirements of a step: it
//! chooses conversions, allocates buffers and inserts barriers. `lower` reads the operands of the
//! op from the same list. Scalars are equal in all threads and need no sub-step.
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
