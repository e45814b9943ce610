//! Properties of one kernel that all planning passes read: module, layouts, options, uses.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::memory_effects::WrittenMemory;
use crate::backend::ptx::layout_inference::Inference;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::options::CompileOptions;
use crate::backend::ptx::schedule::ir::privatized_array::PrivatizedArray;
use crate::backend::ptx::schedule::ir::tma_store::TmaStorePlan;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::dtype::DType;
use crate::ir::{Elem, Entry, MemOrder, Module, Op, OpId, Opcode, RegionTree, Rounding, Type, Uses, Value};
use crate::pass::MmaGroups;

/// A kernel with its analyses, as input of the planning passes.
pub struct KernelInfo<'m> {
    pub module: &'m Module,
    /// Layouts of values, and plans of MMAs.
    pub inference: Inference<'m>,
    /// Options of the compilation. The occupancy is reduced if the requested one is impossible.
    pub options: CompileOptions,
    /// Uses of the values of the entry.
    pub uses: Rc<Uses>,
    /// Regions of the entry.
    pub regions: Rc<RegionTree>,
    /// Memory that the kernel writes.
    pub written_memory: WrittenMemory,
    /// TMA stores.
    pub tma_stores: FxHashMap<OpId, TmaStorePlan>,
    /// Privatized atomics, and the copy of their array.
    pub privatized_atomics: FxHashSet<OpId>,
    pub privatized: Option<PrivatizedArray>,
    /// MMA groups.
    pub mma_groups: MmaGroups,
    /// Ops that are rematerialized at their use, by an op that may skip them.
    pub rematerialized: FxHashSet<OpId>,
    /// Number of ping-pong groups, each with the warps of the layouts.
    pub pingpong_groups: u32,
    /// Number of data partitions, each with separate rows (`warp_specialize/data_partition`).
    pub data_partitions: u32,
}

impl<'m> KernelInfo<'m> {
    /// Returns the analyses of an entry whose layouts have been inferred.
    pub fn new(
        module: &'m Module,
        entry: &Entry,
        inference: Inference<'m>,
        options: &CompileOptions,
    ) -> KernelInfo<'m> {
        let is_grouped = options.optimizations.contains(Optimization::MmaGroups);
        KernelInfo {
            module,
            mma_groups: MmaGroups::new(module, entry.body, &|id| is_grouped && inference.is_async_mma(id)),
            uses: inference.uses.clone(),
            regions: inference.regions.clone(),
            inference,
            options: *options,
            written_memory: WrittenMemory::new(module, entry.body),
            tma_stores: FxHashMap::default(),
            privatized_atomics: FxHashSet::default(),
            privatized: None,
            rematerialized: FxHashSet::default(),
            pingpong_groups: 1,
            data_partitions: crate::pass::data_partition::count(module, entry.body),
        }
    }

    /// Returns true if an optimization is enabled.
    pub fn is_enabled(&self, optimization: Optimization) -> bool {
        self.options.optimizations.contains(optimization)
    }

    /// Returns the element type of a tile. Pointers count as 64-bit integers.
    pub fn element_type(&self, value: Value) -> DType {
        match self.module.ty(value) {
            Type::Tile { elem: Elem::Num(dtype), .. } => *dtype,
            _ => DType::I64,
        }
    }

    /// Returns true if the access is to a list of positions (a gather-scatter view).
    pub fn is_indexed_access(&self, id: OpId) -> bool {
        let view = self.module.op(id).operand_group("view");
        matches!(view.first().map(|&view| self.module.ty(view)), Some(Type::GatherScatterView { .. }))
    }

    /// Returns true if a load reads the same values at all times: it is weak, and the kernel only
    /// reads its array.
    pub fn is_invariant_load(&self, load: OpId) -> bool {
        let op = self.module.op(load);
        is_weak(op) && self.written_memory.is_read_only(self.module, op.group(0)[0])
    }

    /// Returns true if a tile result of the op is used.
    pub fn is_result_used(&self, id: OpId) -> bool {
        let results = self.module.op(id).results.iter();
        let mut numbers = results.filter(|&&result| matches!(self.module.ty(result), Type::Tile { .. }));
        numbers.any(|result| self.uses.count(*result) > 0)
    }

    /// Returns true if a loop contains the op.
    pub fn is_in_loop(&self, id: OpId) -> bool {
        self.regions.enclosing_loop(id).is_some()
    }

    /// Returns true if an op is in a loop body with an MMA.
    pub fn is_in_mma_loop(&self, id: OpId) -> bool {
        let block = self.regions.block_of(id).filter(|&block| self.regions.loop_of_block(block).is_some());
        block.is_some_and(|block| self.module.block(block).ops.iter().any(|&other| self.module.op(other).code.is_mma()))
    }

    /// Returns the index of the parameter of the entry that a value is, possibly through
    /// assumptions.
    pub fn entry_param(&self, mut value: Value) -> Option<u32> {
        while let Some(id) = self.module.defining_op(value) {
            let op = self.module.op(id);
            if op.code != Opcode::Assume {
                return None;
            }
            value = op.operands[0];
        }
        let entry = self.module.entries.first()?;
        let index = self.module.block(entry.body).args.iter().position(|&arg| arg == value)?;
        Some(index as u32)
    }

    /// Returns the load of which a value is another view, possibly rounded to tf32. For tiles that
    /// `cat` concatenates, it is the load of the first part.
    pub fn source_load(&self, value: Value) -> Option<OpId> {
        let mut id = self.module.defining_op(value)?;
        while self.is_operand_view(id) || self.module.op(id).code == Opcode::Cat {
            id = self.module.defining_op(self.module.op(id).operands[0])?;
        }
        (self.module.op(id).code == Opcode::LoadView).then_some(id)
    }

    /// Returns the loads of an operand: one, or the parts that `cat` concatenates.
    pub fn operand_loads(&self, value: Value) -> Vec<OpId> {
        let Some(id) = self.module.defining_op(value) else { return Vec::new() };
        let operands = &self.module.op(id).operands;
        match self.module.op(id).code {
            Opcode::LoadView => vec![id],
            Opcode::Cat => operands.iter().flat_map(|&operand| self.operand_loads(operand)).collect_vec(),
            _ if self.is_operand_view(id) => self.operand_loads(operands[0]),
            _ => Vec::new(),
        }
    }

    /// Returns true if a value is a result of `cat`s.
    pub fn is_joined(&self, value: Value) -> bool {
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        op.code == Opcode::Cat || self.is_operand_view(id) && self.is_joined(op.operands[0])
    }

    /// Returns true if a load can supply the result of the op: it renames its operand or rounds it
    /// to tf32.
    pub fn is_operand_view(&self, id: OpId) -> bool {
        self.module.op(id).code.is_bijective_alias() || rounds_to_tf32(self.module, id)
    }

    /// Returns true if the kernel prints. The call needs more registers than warp specialization
    /// leaves to a partition.
    pub fn has_print(&self) -> bool {
        self.regions.ops().iter().any(|&id| self.module.op(id).code == Opcode::Print)
    }

    /// Returns the bytes of shared memory for stages, in addition to the reserved ones. With them,
    /// the requested number of CTAs fits on an SM.
    pub fn smem_for_stages(&self, smem: &SharedMemory) -> u32 {
        // The hardware reserves 1 KiB for each CTA.
        const RESERVED: u32 = 1 << 10;
        let most = self.inference.target.max_shared_bytes();
        let each = (most + RESERVED) / self.options.occupancy.unwrap_or(1).max(1) - RESERVED;
        let free = smem.free();
        free.min(each.saturating_sub(smem.budget() - free))
    }
}

/// Returns true if an access has no order with respect to other CTAs.
pub fn is_weak(op: &Op) -> bool {
    op.mem_order() == MemOrder::Weak
}

/// Returns true if the op is the conversion of f32 to tf32 that TMA and the MMAs do implicitly.
pub fn rounds_to_tf32(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    op.code == Opcode::FToF
        && module.dtype(op.operands[0]) == DType::F32
        && module.dtype(op.results[0]) == DType::TF32
        && op.rounding() == Rounding::NearestEven
}
