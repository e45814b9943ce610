//! What is known about the integers and addresses of a kernel: ranges, power-of-two divisors, and
//! which view accesses need no checks.
//!
//! Sources are `assume` ops, constants, grid queries, loop bounds and static extents; integer
//! arithmetic carries them on, with wrap-around. Loop-carried values are solved by iteration with
//! widening. Of a tile, a fact holds for every element. A fact about a value says something only for
//! the moments at which the value is computed; back ends use it to leave out checks and to widen
//! accesses. Relies on a verified module.

mod dataflow;
mod lattice;
mod residue;
mod table;
mod transfer;
mod views;

#[cfg(test)]
mod tests;

pub use lattice::Range;
pub use table::Facts;

use crate::ir::{Entry, MAX_GRID, Module, Value};

impl Facts {
    /// Derives the facts of one entry of a verified module, for any grid that CUDA runs.
    ///
    /// ```
    /// use cutlet::dtype::DType;
    /// use cutlet::ir::{Attr, Builder, Opcode, Overflow, Type};
    /// use cutlet::pass::Facts;
    ///
    /// let mut b = Builder::new();
    /// b.begin_entry("k", &[]);
    /// let i32_type = b.module.intern(Type::scalar(DType::I32));
    /// let ids = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[i32_type; 3]);
    /// let x = b.module.op(ids).results[0];
    /// let tile = b.splat(DType::I32, 128, &[]);
    /// let start = b.simple(Opcode::MulI, &[x, tile], vec![Attr::Overflow(Overflow::None)], i32_type);
    /// b.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    /// let facts = Facts::analyze(&b.module, &b.module.entries[0]);
    /// assert_eq!(facts.divisor(start), 128);
    /// assert_eq!(facts.range(x).map(|r| r.lo), Some(0));
    /// assert_eq!(facts.constant(tile), Some(128));
    /// ```
    pub fn analyze(module: &Module, entry: &Entry) -> Facts {
        dataflow::run(module, entry, MAX_GRID)
    }

    /// As [`Facts::analyze`], for grids of at most so many tile blocks along each axis.
    ///
    /// ```
    /// use cutlet::ir::Module;
    /// use cutlet::pass::Facts;
    ///
    /// let text = "entry @k() {\n  %x, %y, %z = get_tile_block_id : tile<i32>\n  return\n}\n";
    /// let module = Module::parse("k", text)?;
    /// let facts = Facts::analyze_within(&module, &module.entries[0], [100, 1, 1]);
    /// let ids = &module.op(module.block(module.entries[0].body).ops[0]).results;
    /// assert_eq!(facts.range(ids[0]).map(|range| range.hi), Some(99));
    /// assert_eq!(facts.constant(ids[1]), Some(0));
    /// # Ok::<(), cutlet::Diagnostic>(())
    /// ```
    pub fn analyze_within(module: &Module, entry: &Entry, most_blocks: [u32; 3]) -> Facts {
        dataflow::run(module, entry, most_blocks)
    }

    /// Does every tile of this view, at an index inside the index space, lie inside of the array
    /// along tile dimension `dim`? True when the array's extent is known to be a multiple of the
    /// tile's: then no element of an access needs a check along `dim`.
    pub fn covers(&self, view: Value, dim: usize) -> bool {
        self.views.get(&view).is_some_and(|facts| facts.covers.get(dim) == Some(&true))
    }

    /// Is this value, as the index of an access to `view`, known to lie inside the index space along
    /// tile dimension `dim`? So for a loop counter that ends at the view's own index space, and where
    /// constants decide it.
    pub fn inside(&self, module: &Module, view: Value, dim: usize, index: Value) -> bool {
        let Some(facts) = self.views.get(&view) else { return false };
        let Some(range) = self.range(index) else { return false };
        if range.lo < 0 {
            return false;
        }
        facts.least_count(self, dim).is_some_and(|count| range.hi < count)
            || views::counts_to_end(self, module, facts, dim, index)
    }
}
