//! Integer range analysis: ranges and power-of-two divisors of integers and addresses, and view
//! accesses that need no bounds checks.
//!
//! Sources are `assume` ops, constants, grid queries, loop bounds and static extents. They are
//! propagated through integer arithmetic with wrap-around. Loop-carried values are solved by
//! iteration with widening. A property of a tile is that of each element. It holds at each
//! execution of the op that computes the value. Back ends use the results to omit checks and to
//! widen accesses. Requires a verified module.

mod dataflow;
mod lattice;
mod residue;
mod table;
mod transfer;
mod views;

#[cfg(test)]
mod tests;

pub use lattice::IntRange;
pub use table::IntRanges;

use crate::ir::{Entry, MAX_GRID, Module, Value};

impl IntRanges {
    /// Analyzes one entry of a verified module, for any grid that CUDA supports.
    ///
    /// ```
    /// use cutlet::dtype::DType;
    /// use cutlet::ir::{Attr, Builder, Opcode, Overflow, Type};
    /// use cutlet::pass::IntRanges;
    ///
    /// let mut b = Builder::new();
    /// b.begin_entry("k", &[]);
    /// let i32_type = b.module.intern(Type::scalar(DType::I32));
    /// let ids = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[i32_type; 3]);
    /// let x = b.module.op(ids).results[0];
    /// let tile = b.splat(DType::I32, 128, &[]);
    /// let start = b.simple(Opcode::MulI, &[x, tile], vec![Attr::Overflow(Overflow::None)], i32_type);
    /// b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    /// let ranges = IntRanges::analyze(&b.module, &b.module.entries[0]);
    /// assert_eq!(ranges.divisor(start), 128);
    /// assert_eq!(ranges.range(x).map(|r| r.lo), Some(0));
    /// assert_eq!(ranges.constant(tile), Some(128));
    /// ```
    pub fn analyze(module: &Module, entry: &Entry) -> IntRanges {
        dataflow::run(module, entry, MAX_GRID)
    }

    /// Runs [`IntRanges::analyze`] for grids of at most `max_blocks` tile blocks along each axis.
    ///
    /// ```
    /// use cutlet::ir::Module;
    /// use cutlet::pass::IntRanges;
    ///
    /// let text = "entry @k() {\n  %x, %y, %z = get_tile_block_id : tile<i32>\n  return\n}\n";
    /// let module = Module::parse("k", text)?;
    /// let ranges = IntRanges::analyze_for_grid(&module, &module.entries[0], [100, 1, 1]);
    /// let ids = &module.op(module.block(module.entries[0].body).ops[0]).results;
    /// assert_eq!(ranges.range(ids[0]).map(|range| range.hi), Some(99));
    /// assert_eq!(ranges.constant(ids[1]), Some(0));
    /// # Ok::<(), cutlet::Diagnostic>(())
    /// ```
    pub fn analyze_for_grid(module: &Module, entry: &Entry, max_blocks: [u32; 3]) -> IntRanges {
        dataflow::run(module, entry, max_blocks)
    }

    /// Returns true if each tile of this view in the index space is inside of the array along tile
    /// dimension `dim`. This is the case if the extent of the array is a multiple of the extent of
    /// the tile. An access then needs no check along `dim`.
    pub fn covers(&self, view: Value, dim: usize) -> bool {
        self.views.get(&view).is_some_and(|info| info.covers.get(dim) == Some(&true))
    }

    /// Returns true if this value, as an index of an access to `view`, is inside of the index space
    /// along tile dimension `dim`. Recognized are a loop counter whose upper bound is the index
    /// space of the view, and constant bounds.
    pub fn is_inside(&self, module: &Module, view: Value, dim: usize, index: Value) -> bool {
        let Some(info) = self.views.get(&view) else { return false };
        let Some(range) = self.range(index) else { return false };
        if range.lo < 0 {
            return false;
        }
        info.min_count(self, dim).is_some_and(|count| range.hi < count)
            || views::counts_to_end(self, module, info, dim, index)
    }
}
