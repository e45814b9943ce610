//! Loops and branches: carried and yielded tiles become one value per box.

use super::state::Splitter;
use crate::ir::{BlockId, Op, OpId, Opcode, TypeId, Value};
use crate::util::collect::CollectVec as _;

/// Function that splits the ops of a block.
pub type SplitBlock = fn(&mut Splitter<'_>, BlockId);

impl Splitter<'_> {
    /// Splits `if`, `for` and `loop`.
    pub fn control(&mut self, op: &Op, walk: SplitBlock) {
        let groups: Vec<Vec<Value>> =
            (0..op.code.spec().operands.len()).map(|group| self.flat(op.group(group))).collect_vec();
        let types: Vec<TypeId> = op.results.iter().flat_map(|&result| self.types(result)).collect_vec();
        let regions: Vec<BlockId> = op.regions.iter().map(|&region| self.region(region, walk)).collect_vec();
        let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect_vec();
        self.ops.begin(op);
        let id = self.ops.emit(op.code, &groups, op.attrs.clone(), regions, &types);
        let mut made = self.ops.module.op(id).results.clone().into_iter();
        for &result in &op.results {
            let count = self.types(result).len();
            let boxes: Vec<Value> = made.by_ref().take(count).collect_vec();
            self.set(result, boxes);
        }
    }

    /// Makes a block with one argument per box of each argument of a region, and splits its ops.
    fn region(&mut self, region: BlockId, walk: SplitBlock) -> BlockId {
        let args = self.ops.module.block(region).args.clone();
        let types: Vec<TypeId> = args.iter().flat_map(|&arg| self.types(arg)).collect_vec();
        let block = self.ops.module.add_block(&types);
        let mut made = self.ops.module.block(block).args.clone().into_iter();
        for arg in args {
            let count = self.types(arg).len();
            let boxes: Vec<Value> = made.by_ref().take(count).collect_vec();
            self.set(arg, boxes);
        }
        self.ops.module.block_mut(block).ops = std::mem::take(&mut self.ops.module.block_mut(region).ops);
        walk(self, block);
        block
    }

    /// Splits the operands of `yield`, `continue` and `break`.
    pub fn terminator(&mut self, id: OpId, op: &Op) {
        let operands = self.flat(&op.operands);
        debug_assert!(matches!(op.code, Opcode::Yield | Opcode::Continue | Opcode::Break), "{}", op.code.spec().name);
        let count = operands.len() as u32;
        let op = self.ops.module.op_mut(id);
        op.segments = vec![count];
        op.operands = operands;
        self.ops.keep(id);
    }
}
