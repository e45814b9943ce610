//! Extract groups: tiles that are separated into many blocks at once, such as the legs of a
//! butterfly.
//!
//! A thread should hold the same position of all blocks, so that elements move between threads
//! once.

use std::collections::HashMap;

use crate::ir::{BlockId, Module, Op, Opcode, Value};

/// From so many blocks on a tile is taken apart at once.
const MANY: u64 = 4;

/// How many blocks of a shape are extracted from each value.
#[derive(Debug, Default)]
pub struct ExtractGroups<'m>(HashMap<(Value, &'m [i64]), u64>);

impl<'m> ExtractGroups<'m> {
    /// Those of a body.
    pub fn of(module: &'m Module, body: BlockId) -> ExtractGroups<'m> {
        let mut taken = HashMap::new();
        module.walk(body, &mut |id| {
            let op = module.op(id);
            if op.code == Opcode::Extract {
                *taken.entry((op.operands[0], module.shape(op.results[0]))).or_insert(0) += 1;
            }
        });
        ExtractGroups(taken)
    }

    /// Is this `extract` one of as many as take a tile apart?
    pub fn takes(&self, module: &'m Module, op: &Op) -> bool {
        let (source, part) = (op.operands[0], module.shape(op.results[0]));
        self.0.get(&(source, part)).is_some_and(|&taken| is_apart(module, source, part, taken))
    }

    /// Elements of the smallest blocks of the tiles of at least so many elements.
    pub fn smallest(&self, module: &'m Module, least: u64) -> Option<u64> {
        let large = self.0.iter().filter(|((source, part), taken)| {
            count(module.shape(*source)) >= least && is_apart(module, *source, part, **taken)
        });
        large.map(|((_, part), _)| count(part)).min()
    }
}

fn is_apart(module: &Module, source: Value, part: &[i64], taken: u64) -> bool {
    let blocks = count(module.shape(source)) / count(part).max(1);
    blocks >= MANY && taken >= blocks
}

fn count(shape: &[i64]) -> u64 {
    shape.iter().product::<i64>() as u64
}
