//! Region tree: the loops and branches that contain each op, and facts about nested ops.
//!
//! Ops are numbered in program order, an op before the ops of its regions. The nested ops of an op
//! are thus a range of numbers, and all queries are lookups.

use super::handle::{BlockId, OpId, Value};
use super::module::Module;
use super::op_table::{Effect, Opcode};

/// Place of each op in the regions of an entry. Invariant: the module has not changed since
/// [`RegionTree::new`].
#[derive(Clone, Debug)]
pub struct RegionTree {
    /// Ops in program order.
    ops: Vec<OpId>,
    /// By op.
    nodes: Vec<Option<Node>>,
    /// By block: the op that it is a region of, and the innermost loop that contains it.
    blocks: Vec<(Option<OpId>, Option<OpId>)>,
    /// Terminators in program order, with their numbers.
    terminators: Vec<(usize, OpId)>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    block: BlockId,
    /// Op whose values a terminator sets.
    target: Option<OpId>,
    /// Number of the op, and the number after its nested ops.
    start: usize,
    end: usize,
    /// Facts about the op and its nested ops.
    has_mma: bool,
    has_exit: bool,
}

impl RegionTree {
    /// Returns the region tree of a block and its nested blocks.
    pub fn new(module: &Module, body: BlockId) -> RegionTree {
        let (nodes, blocks) = (vec![None; module.num_ops()], vec![(None, None); module.num_blocks()]);
        let mut tree = RegionTree { ops: Vec::with_capacity(nodes.len()), nodes, blocks, terminators: Vec::new() };
        tree.add_block(module, body, None, None);
        tree
    }

    /// Adds a block, and returns true if it has MMAs, and exits.
    fn add_block(
        &mut self,
        module: &Module,
        block: BlockId,
        parent: Option<OpId>,
        enclosing_loop: Option<OpId>,
    ) -> (bool, bool) {
        self.blocks[block.index()] = (parent, enclosing_loop);
        let mut facts = (false, false);
        for &id in &module.block(block).ops {
            let op = module.op(id);
            let start = self.ops.len();
            self.ops.push(id);
            let (target, mut exits) = match op.code {
                Opcode::Continue | Opcode::Break => (enclosing_loop, true),
                Opcode::Return => (None, true),
                Opcode::Yield => (parent, false),
                _ => (None, false),
            };
            if op.code.spec().effect == Effect::Terminator {
                self.terminators.push((start, id));
            }
            let mut has_mma = op.code.is_mma();
            let inner_loop = if op.code.is_loop() { Some(id) } else { enclosing_loop };
            for &region in &op.regions {
                let nested = self.add_block(module, region, Some(id), inner_loop);
                has_mma |= nested.0;
                exits |= nested.1 && op.code == Opcode::If;
            }
            let end = self.ops.len();
            let node = Node { block, target, start, end, has_mma, has_exit: exits };
            self.nodes[id.index()] = Some(node);
            facts = (facts.0 | has_mma, facts.1 | exits);
        }
        facts
    }

    fn node(&self, op: OpId) -> Option<&Node> {
        self.nodes.get(op.index())?.as_ref()
    }

    /// Returns all ops in program order.
    pub fn ops(&self) -> &[OpId] {
        &self.ops
    }

    /// Returns an op and its nested ops in program order.
    pub fn with_nested(&self, op: OpId) -> &[OpId] {
        self.node(op).map_or(&[], |node| &self.ops[node.start..node.end])
    }

    /// Returns the ops in the regions of an op, also nested ones, in program order.
    pub fn nested(&self, op: OpId) -> &[OpId] {
        self.with_nested(op).get(1..).unwrap_or_default()
    }

    /// Returns the block that contains an op.
    pub fn block_of(&self, op: OpId) -> Option<BlockId> {
        self.node(op).map(|node| node.block)
    }

    /// Returns the op that a block is a region of.
    pub fn parent(&self, block: BlockId) -> Option<OpId> {
        self.blocks[block.index()].0
    }

    /// Returns the innermost loop that contains an op.
    pub fn enclosing_loop(&self, op: OpId) -> Option<OpId> {
        self.loop_of_block(self.block_of(op)?)
    }

    /// Returns the innermost loop that contains a block.
    pub fn loop_of_block(&self, block: BlockId) -> Option<OpId> {
        self.blocks[block.index()].1
    }

    /// Returns the op of a block that is `op` or contains it.
    pub fn ancestor_in(&self, block: BlockId, mut op: OpId) -> Option<OpId> {
        loop {
            let inner = self.block_of(op)?;
            if inner == block {
                return Some(op);
            }
            op = self.parent(inner)?;
        }
    }

    /// Returns the op of block `outer` whose regions contain block `inner`.
    pub fn ancestor_of_block(&self, outer: BlockId, inner: BlockId) -> Option<OpId> {
        self.ancestor_in(outer, self.parent(inner)?)
    }

    /// Returns true if a region of `outer` contains `inner`.
    pub fn contains(&self, outer: OpId, inner: OpId) -> bool {
        self.node(outer).zip(self.node(inner)).is_some_and(|(a, b)| (a.start + 1..a.end).contains(&b.start))
    }

    /// Returns true if the op or a nested one is an MMA.
    pub fn has_mma(&self, op: OpId) -> bool {
        self.node(op).is_some_and(|node| node.has_mma)
    }

    /// Returns true if a branch contains a terminator of the loop or kernel around it.
    pub fn has_exit(&self, branch: OpId) -> bool {
        self.node(branch).is_some_and(|node| node.has_exit)
    }

    /// Returns true if more than one `continue` targets a `for` (LLVM: latches): an iteration may
    /// end before the last op of the body. A `for` has neither `break` nor `return`
    /// (`verify/scope`).
    pub fn has_multiple_latches(&self, counted_loop: OpId) -> bool {
        self.terminators(counted_loop).nth(1).is_some()
    }

    /// Returns the op whose values a terminator sets: the loop of `continue` and `break`, and the
    /// parent of `yield`.
    pub fn target(&self, terminator: OpId) -> Option<OpId> {
        self.node(terminator)?.target
    }

    /// Returns the terminators that set carried values or results of an op, in program order.
    pub fn terminators(&self, op: OpId) -> impl Iterator<Item = OpId> + '_ {
        let numbers = self.node(op).map_or(0..0, |node| node.start..node.end);
        let first = self.terminators.partition_point(|&(number, _)| number < numbers.start);
        let inside = self.terminators[first..].iter().take_while(move |(number, _)| *number < numbers.end);
        inside.map(|&(_, id)| id).filter(move |&id| self.target(id) == Some(op))
    }

    /// Returns the operands of each of these terminators that has an opcode, in program order.
    pub fn exits<'m>(&self, module: &'m Module, op: OpId, code: Opcode) -> impl Iterator<Item = &'m [Value]> {
        let exits = self.terminators(op).map(|id| module.op(id)).filter(move |exit| exit.code == code);
        exits.map(|exit| &*exit.operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_branches_and_terminators_are_found() {
        let text = "entry @k(%n: tile<i32>, %c: tile<i1>) {\n  for %i in (%n to %n, step %n) : tile<i32> {\n    \
                    if %c {\n      continue\n    } else {\n    }\n    loop {\n      if %c {\n        break\n      } else \
                    {\n      }\n      continue\n    }\n    continue\n  }\n  return\n}\n";
        let module = Module::parse("k", text).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"));
        let body = module.entries[0].body;
        let regions = RegionTree::new(&module, body);
        let find = |code: Opcode| -> Vec<OpId> {
            regions.ops().iter().copied().filter(|&id| module.op(id).code == code).collect()
        };
        let (outer, inner) = (find(Opcode::For)[0], find(Opcode::Loop)[0]);
        let ([early, leave], continues) = (find(Opcode::If)[..].try_into().unwrap(), find(Opcode::Continue));
        assert_eq!([outer, inner, early].map(|id| regions.enclosing_loop(id)), [None, Some(outer), Some(outer)]);
        assert_eq!(regions.terminators(outer).collect::<Vec<_>>(), [continues[0], continues[2]]);
        assert_eq!(regions.target(find(Opcode::Break)[0]), Some(inner));
        assert!(regions.has_multiple_latches(outer) && regions.has_exit(early) && regions.has_exit(leave));
        assert!(regions.contains(outer, leave) && regions.contains(inner, leave) && !regions.contains(early, leave));
        assert_eq!(regions.ancestor_in(module.op(outer).regions[0], leave), Some(inner));
        assert_eq!(regions.nested(early).first(), continues.first());
    }
}
