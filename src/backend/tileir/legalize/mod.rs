//! From our semantics to those of Tile IR: what we define and Tile IR leaves undefined becomes ops
//! with the defined result, on a copy of the module before it is written.
//!
//! Nothing is added where facts prove that the undefined case cannot happen. Of tile indices outside
//! of an array, most need nothing either: an index that is a block id or the counter of a
//! loop over tiles is inside whenever grid and extents fit together, which the host checks at each
//! launch ([`Limit`]) at the price of a few integer operations; others that depend on nothing but block ids,
//! parameters and counters are gone through before the first launch of a kind ([`Probe`]), and so are ends of loops
//! whose counter could wrap. Launches that do not fit, and indices and ends that depend on data, get a kernel in
//! which each such access has an `if`, and each such loop a wider counter.

mod arithmetic;
mod bounds;
mod loops;
mod padding;
mod probe;

#[cfg(test)]
mod tests;

pub use bounds::{Bound, Limit};
pub use probe::Probe;

use super::grid;
use crate::ir::Module;
use crate::pass;

/// Who sees to it that tile indices are inside, and that loops end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guards {
    /// The launch, where it can.
    #[default]
    Launch,
    /// The kernel alone: any launch will do.
    Kernel,
}

/// What must hold at a launch.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    /// Comparisons.
    pub limits: Vec<Limit>,
    /// What comparisons cannot say.
    pub probe: Option<Probe>,
}

impl Promises {
    /// Is there nothing to hold?
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.probe.is_none()
    }
}

/// Makes the undefined cases of a verified module defined. Gives what a launch must check before it
/// runs the result.
pub fn legalize(module: &mut Module, guards: Guards) -> Promises {
    let mut promises = Promises::default();
    for entry in module.entries.clone() {
        let facts = grid::facts(module, &entry);
        let mut wrapping = loops::wrapping(module, &entry, &facts);
        let of_entry = bounds::run(module, &entry, &facts, guards, &mut wrapping);
        promises.limits.extend(of_entry.limits);
        promises.probe = promises.probe.or(of_entry.probe);
        arithmetic::run(module, &entry, &facts);
        padding::run(module, &entry);
        loops::widen(module, &entry, &wrapping);
    }
    pass::tidy(module);
    promises
}

/// Lets tf32 be read from memory as f32 and converted, for targets that know no better.
pub fn read_tf32_as_f32(module: &mut Module) {
    for entry in module.entries.clone() {
        padding::run_for_all(module, &entry);
    }
    pass::tidy(module);
}

/// Takes a block's ops apart and puts them together again with what `rewrite` adds before each.
fn rewrite_blocks(
    module: &mut Module,
    block: crate::ir::BlockId,
    rewrite: &mut impl FnMut(&mut Module, crate::ir::OpId, &mut Vec<crate::ir::OpId>),
) {
    let ops = std::mem::take(&mut module.block_mut(block).ops);
    let mut out = Vec::with_capacity(ops.len());
    for id in ops {
        for region in module.op(id).regions.clone() {
            rewrite_blocks(module, region, rewrite);
        }
        rewrite(module, id, &mut out);
    }
    module.block_mut(block).ops = out;
}
