//! Last uses: the ops after which the tile of a value is freed, or that may modify it in place.
//!
//! A value dies in the block that defines it, at the last op that uses it there or in a region
//! nested in that op. Values that no op uses die at once.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::ir::{BlockId, Module, OpId, Value};

/// Side tables by op.
#[derive(Debug, Default)]
pub(crate) struct LastUses {
    /// By op: the values without a read after the op.
    dying: Vec<Vec<Value>>,
}

impl LastUses {
    pub fn new(module: &Module, body: BlockId) -> LastUses {
        let mut last_uses = LastUses::none(module);
        last_uses.visit(module, body);
        last_uses
    }

    /// Creates an analysis without last uses, for execution in another order than that of the
    /// program: no value is freed or modified in place.
    pub fn none(module: &Module) -> LastUses {
        LastUses { dying: vec![Vec::new(); module.num_ops()] }
    }

    /// Returns the values without a read after this op.
    pub fn dying(&self, op: OpId) -> &[Value] {
        &self.dying[op.index()]
    }

    /// Returns true if the op may consume this operand: it has no regions, the value is only one of
    /// its operands, and the op is the last use.
    pub fn takes(&self, module: &Module, op: OpId, operand: usize) -> bool {
        let data = module.op(op);
        let value = data.operands[operand];
        let once = data.operands.iter().filter(|&&other| other == value).count() == 1;
        data.regions.is_empty() && once && self.dying(op).contains(&value)
    }

    /// Analyzes a block from its last op to its first, and returns the outer values that it reads.
    fn visit(&mut self, module: &Module, block: BlockId) -> FxHashSet<Value> {
        let mut used = FxHashSet::default();
        let defined: FxHashSet<Value> = {
            let ops = &module.block(block).ops;
            let results = ops.iter().flat_map(|&op| module.op(op).results.iter());
            results.chain(&module.block(block).args).copied().collect()
        };
        for &id in module.block(block).ops.iter().rev() {
            let op = module.op(id);
            let mut reads: Vec<Value> = op.operands.clone();
            for &region in &op.regions {
                reads.extend(self.visit(module, region));
            }
            let unused = op.results.iter().filter(|r| !used.contains(*r)).copied();
            let mut dying: Vec<Value> = unused.collect_vec();
            for value in reads {
                if used.insert(value) && defined.contains(&value) {
                    dying.push(value);
                }
            }
            self.dying[id.index()] = dying;
        }
        used.retain(|value| !defined.contains(value));
        used
    }
}
