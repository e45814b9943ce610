//! Data partitioning: each consumer group computes a share of the rows of every tile, with one
//! program for all groups.
//!
//! A matrix product of 192 rows is divided among three groups of four warps. Each group has 64
//! rows, and all groups read the same right operand. A linear layout cannot express this division,
//! because twelve warps are no power of two. The rows are independent, so the program for 64 rows
//! is the same for all groups except for the index of the first row:
//!
//! ```text
//! %x = load_view_tko %q[%i, %zero]  : tile<192x64xf16>       %part = data_partition_id count = 3
//!                                                            %at = %i * 3 + %part
//!                                                            %x = load_view_tko %q3[%at, %zero]  : tile<64x64xf16>
//! %y = mmaf %x, %k, %z              : tile<192x128xf32>      %y = mmaf %x, %k, %z  : tile<64x128xf32>
//! ```
//!
//! 1. `analysis` finds the partitioned values, beginning with the matrix products.
//! 2. `rewrite` changes the program.
//!
//! Scalars, control flow and right operands of products are equal in all partitions. No partition
//! reads a value of another one:
//! * Reductions are along rows.
//! * Each partition stores its own rows, to elements that no other op accesses.
//!
//! The consumer warp groups of FlashAttention-3 (Shah et al., 2024) divide a tile of queries in
//! this way.

mod analysis;
mod rewrite;

use super::{manager, optimize};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, Module, Opcode};
use analysis::PartitionedRows;

/// Returns the module, which has a single entry, rewritten for `count` data partitions.
///
/// # Errors
/// An op that cannot be partitioned, with its location.
pub fn run(module: &Module, count: u32) -> Result<Module, Diagnostic> {
    let body = module.entries[0].body;
    let rows = PartitionedRows::new(module, body, i64::from(count)).map_err(|(id, why)| {
        let op = module.op(id);
        Diagnostic::new(format!("`{}` {why}", op.code.spec().name), module.location(op.loc).cloned())
    })?;
    let mut module = module.clone();
    manager::apply("data_partition", &mut module, |module| rewrite::rewrite(module, body, &rows));
    optimize(&mut module);
    Ok(module)
}

/// Returns the number of data partitions of a kernel, 1 if the kernel is not partitioned.
pub fn count(module: &Module, body: BlockId) -> u32 {
    let mut count = 1;
    module.walk(body, &mut |id| {
        let op = module.op(id);
        if let (Opcode::DataPartitionId, Some(&Attr::NumElem(number))) = (op.code, op.attr(AttrKind::NumElem)) {
            count = number as u32;
        }
    });
    count
}
