//! Facts about one kernel that all planning passes read: module, layouts, options, uses.

use std::collections::{HashMap, HashSet};

use super::memory_effects::{MemoryEffect, WrittenMemory};
use crate::backend::ptx::CompileOptions;
use crate::backend::ptx::layout_inference::Inference;
use crate::backend::ptx::schedule::ir::privatized_array::PrivatizedArray;
use crate::backend::ptx::schedule::ir::tma_store::TmaStorePlan;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, BlockId, Elem, Entry, MemOrder, Module, Op, OpId, Opcode, Rounding, Type, Value};
use crate::pass::Bundles;

/// A kernel, as the passes of a schedule see it.
pub struct KernelInfo<'m> {
    pub module: &'m Module,
    /// Layouts of values, and plans of products.
    pub inference: Inference<'m>,
    /// Wishes; fewer blocks than were wished for where they would be too many.
    pub options: CompileOptions,
    /// How often each value is used.
    pub use_counts: Vec<u32>,
    /// The block that each op stands in.
    pub op_blocks: Vec<Option<BlockId>>,
    /// What the kernel writes.
    pub written: WrittenMemory,
    /// Stores that the bulk copy engine does.
    pub boxed: HashMap<OpId, TmaStorePlan>,
    /// Atomics that the block combines in shared memory first, and the copy of their array.
    pub combined: HashSet<OpId>,
    pub private: Option<PrivatizedArray>,
    /// Products that are issued together.
    pub bundles: Bundles,
    /// Ops that are computed where they are used, by an op that may skip them.
    pub deferred: HashSet<OpId>,
    /// Groups of the warps that layouts speak of, which take iterations in turn.
    pub teams: u32,
    /// Groups of such warps of which each has rows of its own (`warp_specialize/data_partition`).
    pub bands: u32,
}

fn use_counts(module: &Module, body: BlockId) -> Vec<u32> {
    let mut counts = vec![0; module.num_values()];
    module.walk(body, &mut |op| {
        for operand in &module.op(op).operands {
            counts[operand.index()] += 1;
        }
    });
    counts
}

fn op_blocks(module: &Module, body: BlockId) -> Vec<Option<BlockId>> {
    let mut blocks = vec![None; module.num_ops()];
    let mut pending = vec![body];
    while let Some(block) = pending.pop() {
        for &op in &module.block(block).ops {
            blocks[op.index()] = Some(block);
            pending.extend(&module.op(op).regions);
        }
    }
    blocks
}

impl<'m> KernelInfo<'m> {
    /// Of an entry whose layouts have been inferred.
    pub fn new(
        module: &'m Module,
        entry: &Entry,
        inference: Inference<'m>,
        options: &CompileOptions,
    ) -> KernelInfo<'m> {
        KernelInfo {
            module,
            bundles: Bundles::of(module, entry.body, &|id| inference.runs_alone(id)),
            inference,
            options: *options,
            use_counts: use_counts(module, entry.body),
            op_blocks: op_blocks(module, entry.body),
            written: WrittenMemory::of(module, entry.body),
            boxed: HashMap::new(),
            combined: HashSet::new(),
            private: None,
            deferred: HashSet::new(),
            teams: 1,
            bands: crate::pass::bands::count(module, entry.body),
        }
    }

    /// Number type of a tile value; pointers count as 64-bit integers.
    pub fn element_type(&self, value: Value) -> DType {
        match self.module.ty(value) {
            Type::Tile { elem: Elem::Num(dtype), .. } => *dtype,
            _ => DType::I64,
        }
    }

    /// Is the access to positions that are listed?
    pub fn is_indexed_access(&self, id: OpId) -> bool {
        let view = self.module.op(id).operand_group("view");
        matches!(view.first().map(|&view| self.module.ty(view)), Some(Type::GatherScatterView { .. }))
    }

    /// Does a load read the same whenever it is done? It is in no order, and of an array that is only read.
    pub fn is_invariant_load(&self, load: OpId) -> bool {
        let op = self.module.op(load);
        is_weak(op) && self.written.is_read_only(self.module, op.group(0)[0])
    }

    /// The access that an op makes, if it makes one.
    pub fn memory_effect_of(&self, id: OpId) -> Option<MemoryEffect> {
        let layout = |tensor: OpId| {
            let layout = self.inference.accesses.get(&id)?;
            // An array that is described anew in each iteration may begin elsewhere.
            (!self.is_repeated(tensor)).then(|| layout.clone())
        };
        MemoryEffect::of(self.module, id, self.is_result_used(id), layout)
    }

    /// Does anybody read a number that this op gives?
    pub fn is_result_used(&self, id: OpId) -> bool {
        let results = self.module.op(id).results.iter();
        let mut numbers = results.filter(|&&result| matches!(self.module.ty(result), Type::Tile { .. }));
        numbers.any(|result| self.use_counts[result.index()] > 0)
    }

    /// Does an op stand in a loop?
    pub fn is_repeated(&self, id: OpId) -> bool {
        let mut block = self.op_blocks[id.index()];
        while let Some(owner) = block.and_then(|block| self.module.block(block).parent) {
            if matches!(self.module.op(owner).code, Opcode::For | Opcode::Loop) {
                return true;
            }
            block = self.op_blocks[owner.index()];
        }
        false
    }

    /// The load that a value is another view of, perhaps rounded to tf32.
    pub fn source_load(&self, value: Value) -> Option<OpId> {
        let mut id = self.module.defining_op(value)?;
        while self.is_operand_view(id) {
            id = self.module.defining_op(self.module.op(id).operands[0])?;
        }
        (self.module.op(id).code == Opcode::LoadView).then_some(id)
    }

    /// Does this op pass its operand on as whoever fetches it can: as it is, or rounded to tf32?
    pub fn is_operand_view(&self, id: OpId) -> bool {
        let renames = matches!(self.module.op(id).code, Opcode::Permute | Opcode::Reshape | Opcode::Assume);
        renames || rounds_to_tf32(self.module, id)
    }

    /// Is there something to print? A call needs more registers than warps with roles leave each other.
    pub fn has_print(&self, body: BlockId) -> bool {
        let mut found = false;
        self.module.walk(body, &mut |id| found |= self.module.op(id).code == Opcode::Print);
        found
    }

    /// Shared memory for stages beside what is reserved already, so that as many blocks as wished fit on a multiprocessor.
    pub fn smem_for_stages(&self, shared: &SharedMemory) -> u32 {
        // Each block takes a kilobyte more than it sees.
        const RESERVED: u32 = 1 << 10;
        let most = self.inference.target.max_shared_bytes();
        let each = (most + RESERVED) / self.options.occupancy.unwrap_or(1).max(1) - RESERVED;
        let free = shared.free();
        free.min(each.saturating_sub(shared.budget() - free))
    }
}

/// Does an access say nothing about the order in which other tile blocks see it?
pub fn is_weak(op: &Op) -> bool {
    matches!(op.attr(AttrKind::MemOrder), None | Some(Attr::MemOrder(MemOrder::Weak)))
}

/// Is this the conversion of f32 that the copy engine and the products make themselves?
pub fn rounds_to_tf32(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    op.code == Opcode::FToF
        && module.dtype(op.operands[0]) == DType::F32
        && module.dtype(op.results[0]) == DType::TF32
        && op.rounding() == Rounding::NearestEven
}
