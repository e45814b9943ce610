//! Common subexpression elimination: an op equal to an earlier op in scope is replaced by it.
//!
//! Ops are equal if their opcodes, operands (in any order for commutative ops), attributes and
//! result types are equal. Sound for two reasons:
//! * A pure op depends only on its operands.
//! * Weak loads are merged only if no op between them writes memory or synchronizes. A weak access
//!   guarantees that no other tile block writes its elements. Stores and atomics that do not
//!   acquire change no parameter that the entry never writes: arguments of a launch do not overlap
//!   if one of them is written.
//!
//! A loop or branch that changes memory separates loads of all arrays. Otherwise a tile would
//! occupy registers during the loop.
//!
//! No pass has to run before.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::op_table::Effect;
use crate::ir::{Attr, BlockId, Module, OpId, Opcode, Substitution, TypeId, Value};
use crate::util::sort;

/// Merges common subexpressions of each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
    for body in entries {
        let mut walk = Eliminator {
            read_only: read_only_params(module, body),
            module,
            values: Substitution::new(),
            available: FxHashMap::default(),
            scope: Vec::new(),
            epoch: Epoch::default(),
            next: 1,
        };
        walk.block(body);
    }
}

/// Returns the parameters that no op of an entry writes.
fn read_only_params(module: &Module, body: BlockId) -> FxHashSet<Value> {
    let mut params: FxHashSet<Value> = module.block(body).args.iter().copied().collect();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        match (op.code.spec().effect, op.address()) {
            // Memory with two addresses.
            _ if op.code == Opcode::MemoryFenceAlias => params.clear(),
            (Effect::Write | Effect::ReadWrite, Some(address)) => {
                let base = module.base(address);
                match is_apart_from_params(module, body, base) {
                    true => drop(params.remove(&base)),
                    false => params.clear(),
                }
            }
            (Effect::Write | Effect::ReadWrite, None) => params.clear(),
            _ => {}
        }
    });
    params
}

/// Returns true for a parameter of the entry, and for memory that is no argument.
fn is_apart_from_params(module: &Module, body: BlockId, base: Value) -> bool {
    match module.defining_op(base) {
        Some(id) => matches!(module.op(id).code, Opcode::Alloca | Opcode::GetGlobal),
        None => module.block(body).args.contains(&base),
    }
}

/// State of memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Epoch {
    /// Number of the state of written memory.
    written: u64,
    /// Number of the state of parameters that the entry never writes.
    read_only: u64,
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
    /// Parameters that the entry never writes.
    read_only: FxHashSet<Value>,
    module: &'m mut Module,
    values: Substitution,
    available: FxHashMap<Key, Vec<Value>>,
    /// Keys in order of insertion. Those of a block are removed at its end.
    scope: Vec<Key>,
    /// The current state of memory.
    epoch: Epoch,
    next: u64,
}

impl Eliminator<'_> {
    fn block(&mut self, block: BlockId) {
        let depth = self.scope.len();
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let kept = ops.into_iter().filter(|&id| self.keep(id)).collect();
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
            Effect::Read if op.is_weak_load() => Some(match op.address() {
                Some(address) if self.read_only.contains(&self.module.base(address)) => self.epoch.read_only,
                _ => self.epoch.written,
            }),
            Effect::Region => {
                self.regions(id);
                return true;
            }
            Effect::Terminator => return true,
            Effect::Write | Effect::ReadWrite if !op.mem_order().acquires() && op.address().is_some() => {
                self.epoch.written = self.next_epoch();
                return true;
            }
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
        let next = self.next_epoch();
        self.epoch = Epoch { written: next, read_only: next };
    }

    fn next_epoch(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
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
        let types = op.results.iter().map(|&v| self.module.ty_id(v)).collect();
        Key { code: op.code, operands, segments: op.segments.clone(), attrs: op.attrs.clone(), types, epoch }
    }
}
