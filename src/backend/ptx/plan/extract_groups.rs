//! Extract groups: tiles that are separated into many blocks at once, such as the legs of a
//! butterfly.
//!
//! A thread should hold the same position of all blocks, so that elements move between threads
//! once.

use rustc_hash::FxHashMap;

use crate::ir::{BlockId, Module, Op, Opcode, Value};

/// Minimum number of blocks of a group.
const MANY: u64 = 4;

/// Number of extracted blocks by value and block shape.
#[derive(Debug, Default)]
pub struct ExtractGroups<'m>(FxHashMap<(Value, &'m [i64]), u64>);

impl<'m> ExtractGroups<'m> {
    /// Returns the extract groups of a body.
    pub fn new(module: &'m Module, body: BlockId) -> ExtractGroups<'m> {
        let mut taken = FxHashMap::default();
        module.walk(body, &mut |id| {
            let op = module.op(id);
            if op.code == Opcode::Extract {
                *taken.entry((op.operands[0], module.shape(op.results[0]))).or_insert(0) += 1;
            }
        });
        ExtractGroups(taken)
    }

    /// Returns true if the `extract` belongs to a group that covers its tile.
    pub fn takes(&self, module: &'m Module, op: &Op) -> bool {
        let (source, part) = (op.operands[0], module.shape(op.results[0]));
        self.0.get(&(source, part)).is_some_and(|&taken| covers_tile(module, source, part, taken))
    }

    /// Returns the elements of the smallest block among tiles of at least `least` elements.
    pub fn smallest(&self, module: &'m Module, least: u64) -> Option<u64> {
        let large = self.0.iter().filter(|((source, part), taken)| {
            count(module.shape(*source)) >= least && covers_tile(module, *source, part, **taken)
        });
        large.map(|((_, part), _)| count(part)).min()
    }
}

fn covers_tile(module: &Module, source: Value, part: &[i64], taken: u64) -> bool {
    let blocks = count(module.shape(source)) / count(part).max(1);
    blocks >= MANY && taken >= blocks
}

fn count(shape: &[i64]) -> u64 {
    shape.iter().product::<i64>() as u64
}
