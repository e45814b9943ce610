//! Programs: kernels prepared for the interpreter.

use std::sync::{Arc, Once};

use rustc_hash::{FxHashMap, FxHashSet};

use super::interp::last_use::LastUses;
use super::interp::loop_limit;
use super::memory::global::Globals;
use super::memory::{provenance, tile_budget};
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Attr, AttrKind, BlockId, MemOrder, Module, OpId, Opcode, Value, Written};

impl Code {
    /// Returns true if an access has a memory order. Without one, no tile block can wait for
    /// another one.
    pub(super) fn waits(&self) -> bool {
        let mut waits = false;
        self.module.walk(self.body, &mut |id| {
            let order = self.module.op(id).attr(AttrKind::MemOrder);
            waits |= order.is_some_and(|order| *order != Attr::MemOrder(MemOrder::Weak));
        });
        waits
    }

    /// Returns true if tile blocks exchange tiles within a cluster.
    pub(super) fn has_clusters(&self) -> bool {
        self.module.cluster_size(self.body).is_some()
    }
}

/// A kernel prepared for the interpreter.
#[derive(Debug)]
pub struct Program(pub(super) Arc<Code>);

/// Content of a program. The threads of a launch share it.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) module: Module,
    pub(super) body: BlockId,
    /// Number of data partitions. A tile block executes the body once for each of them.
    pub(super) num_data_partitions: u32,
    pub(super) last_uses: LastUses,
    pub(super) globals: Globals,
    /// Views and pointers of unknown provenance.
    pub(super) foreign: FxHashSet<Value>,
    /// By op: the number of elements for which it claims memory, see [`tile_budget::elements`].
    pub(super) elements: Vec<usize>,
    /// Number of iterations after which a loop without a range is reported as endless.
    pub(super) loop_limit: u64,
    /// Arithmetic that the user wrote, for the requested checks.
    pub(super) written: FxHashMap<OpId, Written>,
    /// The note on tiles outside of their arrays.
    pub(super) noted: Once,
}

impl Program {
    /// Prepares the first entry of a verified module.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no entry, or for each op that a CPU cannot execute
    /// (multimem).
    pub fn compile(module: &Module) -> Result<Program> {
        let Some(entry) = module.entries.first() else {
            return Err(Error::Unsupported(vec![Diagnostic::new("the module has no kernel", None)]));
        };
        let mut refused = Vec::new();
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if matches!(op.code, Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore) {
                let message = format!("{} needs several GPUs; the cpu back end has none", op.code.spec().name);
                refused.push(Diagnostic::new(message, module.location(op.loc).cloned()));
            }
        });
        if !refused.is_empty() {
            return Err(Error::Unsupported(refused));
        }
        Ok(Program(Arc::new(Code {
            module: module.clone(),
            body: entry.body,
            num_data_partitions: crate::pass::data_partition::count(module, entry.body),
            last_uses: LastUses::new(module, entry.body),
            globals: Globals::new(module),
            foreign: provenance::foreign(module, entry.body),
            elements: tile_budget::elements(module),
            loop_limit: loop_limit::LIMIT,
            written: module.written.iter().map(|&written| (written.op, written)).collect(),
            noted: Once::new(),
        })))
    }

    /// Returns the program for [`Frame`](super::Frame)s, which execute its ops in any order.
    #[cfg(any(test, feature = "_suite"))]
    pub(crate) fn in_any_order(mut self) -> Program {
        if let Some(code) = Arc::get_mut(&mut self.0) {
            code.last_uses = LastUses::none(&code.module);
        }
        self
    }

    /// Returns true if sequential runs with equal initial memory have equal results. Excluded are
    /// programs with a memory order, which may wait for other blocks, and those with accesses of
    /// unknown provenance.
    #[cfg(any(test, feature = "_suite"))]
    pub(crate) fn is_repeatable(&self) -> bool {
        !self.0.waits() && self.0.foreign.is_empty()
    }

    /// Sets the number of iterations after which a loop without a range is reported as endless.
    #[must_use]
    pub fn with_loop_limit(mut self, iterations: Option<u32>) -> Program {
        if let (Some(iterations), Some(code)) = (iterations, Arc::get_mut(&mut self.0)) {
            code.loop_limit = iterations.into();
        }
        self
    }

    /// Reads the first bytes of a global between two runs. Returns false if it does not exist or
    /// has fewer bytes.
    pub fn read_global(&self, name: &str, to: &mut [u8]) -> bool {
        let Some(span) = self.0.globals.named(name, to.len()) else { return false };
        to.iter_mut().enumerate().for_each(|(i, byte)| *byte = span.load(i));
        true
    }

    /// Replaces the first bytes of a global. Returns false if it does not exist or has fewer bytes.
    pub fn write_global(&self, name: &str, from: &[u8]) -> bool {
        let Some(span) = self.0.globals.named(name, from.len()) else { return false };
        from.iter().enumerate().for_each(|(i, &byte)| span.store(i, byte));
        true
    }
}
