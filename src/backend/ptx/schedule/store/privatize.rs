//! Selects atomics to privatize in shared memory.
//!
//! Candidates are relaxed integer atomics in loops, with unused results, at scattered elements of
//! an array that the kernel does not access otherwise. Atomics on the first elements of the array
//! update a privatized array (`ir/privatized_array`), and all other atomics update the array
//! itself. The extent of the array and the meaning of its elements need not be known. The gain is
//! large if many atomics access few elements.

use rustc_hash::FxHashMap;

use crate::backend::ptx::hardware::{SWIZZLE_ROW_BYTES, WARP_SIZE};
use crate::backend::ptx::layout_inference::{ValueOrigin, mask_of};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::privatized_array::PrivatizedArray;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{AtomicMode, Attr, AttrKind, Def, MemOrder, MemScope, Module, Op, OpId, Opcode, Value};

/// Maximum number of copies of an element: one a lane.
pub const MAX_REPLICAS: u32 = WARP_SIZE;

/// Number of copies of an element per warp of the CTA. The total of all CTAs on an
/// SM is thus independent of their size.
const REPLICAS_PER_WARP: u32 = 4;

/// Minimum number of elements of a tile of atomics. For fewer elements, initialization and final
/// addition of the copies cost more than they save.
const MIN_ELEMENTS: usize = 512;

/// Returns the mode of an integer atomic for which zero is the neutral value.
fn privatizable_mode(module: &Module, id: OpId) -> Option<AtomicMode> {
    let op = module.op(id);
    match (op.code, op.attr(AttrKind::AtomicMode)) {
        (Opcode::AtomicRmw, Some(Attr::AtomicMode(mode)))
            if matches!(mode, AtomicMode::Add | AtomicMode::Or | AtomicMode::Xor | AtomicMode::UMax)
                && module.dtype(op.operands[1]) == DType::I32 =>
        {
            Some(*mode)
        }
        _ => None,
    }
}

/// Returns true if an atomic is relaxed, with the scope of the CTA or the device.
fn is_relaxed_on_device(op: &Op) -> bool {
    let relaxed = op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Relaxed));
    relaxed && op.attr(AttrKind::MemScope) != Some(&Attr::MemScope(MemScope::System))
}

/// Returns the array and the 32-bit offsets of pointers that are one address plus an offset per
/// element.
pub fn array_and_offsets(module: &Module, pointers: Value) -> Option<(Value, Value)> {
    let op = module.op(module.defining_op(pointers)?);
    if op.code != Opcode::Offset || module.dtype(op.operands[1]) != DType::I32 {
        return None;
    }
    let mut base = op.operands[0];
    while let Def::Result(id, _) = module.def(base) {
        let inner = module.op(id);
        match inner.code {
            code if code.has_operand_elements() => base = inner.operands[0],
            _ => return None,
        }
    }
    // The base is a kernel parameter. A pointer that a loop carries differs between iterations, and
    // is unavailable at the end of the kernel.
    let Def::Arg(block, _) = module.def(base) else { return None };
    module.block(block).parent.is_none().then_some((base, op.operands[1]))
}

impl KernelInfo<'_> {
    /// Selects the privatized atomics of the kernel, if any, and reserves shared memory for the
    /// copies.
    pub fn select_privatized_atomics(&mut self, smem: &mut SharedMemory) {
        if !self.is_enabled(Optimization::PrivatizedAtomics) {
            return;
        }
        let Some((first, root, mode)) = self.find_privatizable() else { return };
        let replicas = (REPLICAS_PER_WARP * self.inference.num_warps as u32).min(MAX_REPLICAS);
        let privatized = PrivatizedArray { first, array: root, mode, buffer: Buffer::default(), replicas };
        let Some(buffer) = smem.reserve(privatized.bytes(), SWIZZLE_ROW_BYTES) else { return };
        let mut ops = self.regions.ops().to_vec();
        ops.retain(|&id| self.is_privatizable(id, root, mode) && !self.inference.pointer_contiguity.contains_key(&id));
        for &id in &ops {
            let mask = mask_of(self.module.op(id));
            if mask.is_none_or(|mask| self.can_imply(mask)) {
                self.rematerialize_inputs(id);
            }
        }
        self.privatized_atomics = ops.into_iter().collect();
        self.privatized = Some(PrivatizedArray { buffer, ..privatized });
    }

    /// Returns the first privatizable atomic, its array and its mode.
    fn find_privatizable(&self) -> Option<(OpId, Value, AtomicMode)> {
        let module = self.module;
        let ops = self.regions.ops();
        if ops.iter().any(|&id| module.op(id).code.is_mma()) {
            return None;
        }
        ops.iter().find_map(|&id| {
            let mode = privatizable_mode(module, id)?;
            let pointers = module.op(id).operands[0];
            let (root, _) = array_and_offsets(module, pointers)?;
            let worth = self.inference.num_elements(pointers) >= MIN_ELEMENTS
                && !self.inference.pointer_contiguity.contains_key(&id)
                && self.is_in_loop(id);
            (worth && self.is_only_privatizable(root, mode)).then_some((id, root, mode))
        })
    }

    /// Returns true if all accesses of the kernel to an array are privatizable atomics of this
    /// mode.
    pub fn is_only_privatizable(&self, root: Value, mode: AtomicMode) -> bool {
        let is_alike = |&id: &OpId| self.does_not_access(id, root) || self.is_privatizable(id, root, mode);
        self.regions.ops().iter().all(is_alike)
    }

    /// Returns true if an op does not access the array.
    fn does_not_access(&self, id: OpId, root: Value) -> bool {
        let op = self.module.op(id);
        match op.code.spec().effect {
            Effect::Pure | Effect::Region | Effect::Terminator => true,
            Effect::Other => matches!(op.code, Opcode::Assert | Opcode::Print),
            Effect::Read | Effect::Write | Effect::ReadWrite => op.address().is_some_and(|address| {
                let other = self.module.base(address);
                let known =
                    matches!(self.module.def(other), Def::Arg(block, _) if self.module.block(block).parent.is_none());
                known && other != root
            }),
        }
    }

    /// Returns true if an op is a privatizable atomic of this mode on the array.
    pub fn is_privatizable(&self, id: OpId, root: Value, mode: AtomicMode) -> bool {
        let op = self.module.op(id);
        privatizable_mode(self.module, id) == Some(mode)
            && array_and_offsets(self.module, op.operands[0]).is_some_and(|(base, _)| base == root)
            && is_relaxed_on_device(op)
            && !self.is_result_used(id)
    }

    /// Marks elementwise ops as rematerialized if they are in the block of this op and it alone
    /// uses their results, directly or through other such ops.
    fn rematerialize_inputs(&mut self, id: OpId) {
        let module = self.module;
        let Some(block) = self.regions.block_of(id) else { return };
        let mut uses: FxHashMap<Value, usize> = FxHashMap::default();
        module.op(id).operands.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
        let before = module.block(block).ops.iter().rev().skip_while(|&&other| other != id).skip(1);
        for &other in before {
            let op = module.op(other);
            let [result] = *op.results else { continue };
            let is_ours = uses.get(&result).is_some_and(|&uses| uses == self.uses.count(result));
            if is_ours && op.code.is_elementwise() && self.inference.origin(result) == ValueOrigin::Register {
                self.rematerialized.insert(other);
                op.operands.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
            }
        }
    }
}
