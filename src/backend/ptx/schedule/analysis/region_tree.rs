//! Region tree: the loop, branch and block that enclose each op.

use rustc_hash::FxHashMap;

use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, OpId, Value};

/// Ops by what they stand in and who uses them.
pub struct RegionTree {
    /// The op that a block is a region of.
    pub owners: FxHashMap<BlockId, OpId>,
    pub users: FxHashMap<Value, Vec<OpId>>,
}

impl KernelInfo<'_> {
    /// Returns the region tree of a kernel's body.
    pub fn region_tree(&self, body: BlockId) -> RegionTree {
        let mut region_tree = RegionTree { owners: FxHashMap::default(), users: FxHashMap::default() };
        self.module.walk(body, &mut |id| {
            let op = self.module.op(id);
            region_tree.owners.extend(op.regions.iter().map(|&region| (region, id)));
            for &operand in &op.operands {
                region_tree.users.entry(operand).or_default().push(id);
            }
        });
        region_tree
    }

    /// The innermost loop around a block.
    pub fn enclosing_loop(&self, block: BlockId, region_tree: &RegionTree) -> Option<OpId> {
        let mut block = block;
        loop {
            let owner = *region_tree.owners.get(&block)?;
            if self.module.op(owner).code.is_loop() {
                return Some(owner);
            }
            block = self.op_blocks[owner.index()]?;
        }
    }

    /// The op of block `outer` whose regions lead to block `inner`.
    pub fn parent_op(&self, outer: BlockId, inner: BlockId, region_tree: &RegionTree) -> Option<OpId> {
        let mut block = inner;
        loop {
            let owner = *region_tree.owners.get(&block)?;
            block = self.op_blocks[owner.index()]?;
            if block == outer {
                return Some(owner);
            }
        }
    }

    /// Returns true if a region of an op of block `outer` contains block `inner`.
    pub fn contains_block(&self, outer: BlockId, inner: BlockId, region_tree: &RegionTree) -> bool {
        self.parent_op(outer, inner, region_tree).is_some()
    }

    pub fn contains_op(&self, outer: OpId, inner: OpId) -> bool {
        let mut found = false;
        for &region in &self.module.op(outer).regions {
            self.module.walk(region, &mut |id| found |= id == inner);
        }
        found
    }
}
