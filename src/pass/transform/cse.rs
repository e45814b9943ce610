//! Common subexpression elimination: an op equal to an earlier op in scope is replaced by it.
//!
//! Ops are equal if their opcodes, operands (in any order for commutative ops), attributes and
//! result types are equal. Sound for two reasons:
//! * A pure op depends only on its operands.
//! * Weak loads are merged only if no op between them writes memory or synchronizes. A weak access
//!   guarantees that no other tile block writes its elements.
//!
//! No pass has to run before.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use crate::ir::op_table::Effect;
use crate::ir::{Attr, BlockId, Module, OpId, Opcode, Substitution, TypeId, Value};
use crate::util::sort;

/// Merges common subexpressions of each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    for body in entries {
        let mut walk = Eliminator {
            module,
            values: Substitution::new(),
            available: FxHashMap::default(),
            scope: Vec::new(),
            epoch: 0,
            next: 1,
        };
        walk.block(body);
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    code: Opcode,
    operands: Vec<Value>,
    segments: Vec<u32>,
    attrs: Vec<Attr>,
    types: Vec<TypeId>,
    /// State of memory, for loads.
    epoch: Option<u64>,
}

struct Eliminator<'m> {
    module: &'m mut Module,
    values: Substitution,
    available: FxHashMap<Key, Vec<Value>>,
    /// Keys in order of insertion. Those of a block are removed at its end.
    scope: Vec<Key>,
    /// Number of the current state of memory.
    epoch: u64,
    next: u64,
}

impl Eliminator<'_> {
    fn block(&mut self, block: BlockId) {
        let depth = self.scope.len();
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let kept = ops.into_iter().filter(|&id| self.keep(id)).collect_vec();
        self.module.block_mut(block).ops = kept;
        for key in self.scope.drain(depth..) {
            self.available.remove(&key);
        }
    }

    /// Processes an op. Returns false if an earlier op replaces it.
    fn keep(&mut self, id: OpId) -> bool {
        self.values.apply_to(self.module, id);
        let op = self.module.op(id);
        let epoch = match op.code.spec().effect {
            Effect::Pure => None,
            Effect::Read if op.is_weak_load() => Some(self.epoch),
            Effect::Region => {
                self.regions(id);
                return true;
            }
            Effect::Terminator => return true,
            // A load with a memory order synchronizes.
            Effect::Read | Effect::Write | Effect::ReadWrite | Effect::Other => {
                self.begin_memory_epoch();
                return true;
            }
        };
        let key = self.key(id, epoch);
        if let Some(earlier) = self.available.get(&key) {
            for (&old, &new) in self.module.op(id).results.iter().zip(earlier) {
                self.values.replace(old, new);
            }
            return false;
        }
        let results = self.module.op(id).results.clone();
        self.available.insert(key.clone(), results);
        self.scope.push(key);
        true
    }

    fn begin_memory_epoch(&mut self) {
        self.epoch = self.next;
        self.next += 1;
    }

    /// Processes nested blocks. A block that changes memory begins and ends with a new state of
    /// memory, since its iterations follow each other.
    fn regions(&mut self, id: OpId) {
        let regions = self.module.op(id).regions.clone();
        let changes = regions.iter().any(|&region| self.module.block_changes_memory(region));
        for region in regions {
            if changes {
                self.begin_memory_epoch();
            }
            self.block(region);
        }
        if changes {
            self.begin_memory_epoch();
        }
    }

    fn key(&self, id: OpId, epoch: Option<u64>) -> Key {
        let op = self.module.op(id);
        let mut operands = op.operands.clone();
        if op.code.spec().commutative {
            sort::natural(&mut operands);
        }
        let types = op.results.iter().map(|&v| self.module.ty_id(v)).collect_vec();
        Key { code: op.code, operands, segments: op.segments.clone(), attrs: op.attrs.clone(), types, epoch }
    }
}
