//! Sub-step requirements of each op: operand layouts and shared-memory scratch.
//!
//! In the order in which lowering comes to it. Scalars are the same in all threads, and ask for
//! nothing.

use super::reduction_steps::LayoutBases;
use super::scratch::smem_element_bytes;
use super::state::MembarState;
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::{
    ValueOrigin, ViewShape, block_layout, mask_of, pointers_of, replica_bits, stored,
};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::schedule::ir::tma_store::{StoreSplit, TmaStore};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Elem, MemOrder, Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// The order of an access.
pub fn mem_order(op: &Op) -> MemOrder {
    match op.attr(AttrKind::MemOrder) {
        Some(Attr::MemOrder(order)) => *order,
        _ => MemOrder::Weak,
    }
}

fn acquires(op: &Op) -> bool {
    matches!(mem_order(op), MemOrder::Acquire | MemOrder::AcqRel)
}

fn releases(op: &Op) -> bool {
    matches!(mem_order(op), MemOrder::Release | MemOrder::AcqRel)
}

/// The layout of the first elements of the vectors: without the register bits of a vector.
pub fn first_of_vectors(layout: &Layout, vector: usize) -> Layout {
    let bits = vector.trailing_zeros() as usize;
    let register = layout.register_bases()[bits..].to_vec();
    Layout::new(layout.shape(), register, layout.lane_bases().to_vec(), layout.warp_bases().to_vec())
}

impl MembarState<'_, '_> {
    /// What an op asks for that is a part of a step.
    pub fn op(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let inference = &info.inference;
        let access = inference.accesses.get(&id);
        match op.code {
            code if code.is_elementwise() => {
                let layout = inference.layout(op.results[0]);
                let concrete = layout.filter(|_| inference.source(op.results[0]) != ValueOrigin::Rematerialized);
                if let Some(layout) = concrete {
                    op.operands.iter().for_each(|&operand| self.require(operand, layout));
                }
            }
            Opcode::WithLayout => {
                let chosen = inference.chosen(op).filter(|_| inference.source(op.results[0]) == ValueOrigin::Register);
                if let Some(layout) = chosen {
                    self.require(op.operands[0], &layout);
                }
            }
            Opcode::LoadView => {
                self.begin_load(id);
                if mem_order(op) != MemOrder::Weak && access.is_some() {
                    let dtype = ViewShape::of(info.module, op.group(0)[0]).map(|shape| shape.elem);
                    self.ordered_access(id, dtype);
                }
            }
            Opcode::StoreView => self.store_view(id),
            Opcode::AtomicRedView => {
                if let Some(layout) = access {
                    self.require(op.group(2)[0], layout);
                    self.index_tile(id, op.group(0)[0], op.group(1));
                    self.global_access(id);
                }
            }
            Opcode::LoadPtr => self.load_ptr(id),
            Opcode::StorePtr => {
                let Some(layout) = access else { return };
                self.require(op.group(1)[0], layout);
                if self.pointer_operands(id) {
                    self.ordered_access(id, None);
                }
            }
            Opcode::AtomicRmw => self.atomic(id),
            Opcode::AtomicCas => {
                let Some(layout) = access else { return };
                self.require(op.group(1)[0], layout);
                self.require(op.group(2)[0], layout);
                if self.pointer_operands(id) {
                    self.ordered_access(id, pointee(info.module, op));
                }
            }
            Opcode::Reduce => {
                let Some(layout) = access else { return };
                op.operands.iter().for_each(|&operand| self.require(operand, layout));
                self.reduction_steps(id, LayoutBases::of(layout));
            }
            Opcode::Scan => self.scan(id),
            Opcode::Cat => {
                let Some(layout) = access else { return };
                op.operands[..2].iter().for_each(|&operand| self.require(operand, layout));
            }
            Opcode::Pack | Opcode::Unpack => {
                let Some(layout) = access else { return };
                self.require(op.operands[0], layout);
            }
            Opcode::Extract => self.extract(id),
            Opcode::Insert => {
                let Some(layout) = access else { return };
                let (source, destination) = (op.group(0)[0], op.group(1)[0]);
                self.require(source, &block_layout(layout, info.module.shape(source)).canonical());
                self.require(destination, layout);
            }
            Opcode::Gather => self.gather(id),
            Opcode::Histogram => self.histogram(id),
            Opcode::Print => self.print(id),
            Opcode::MemoryFenceAlias => self.barrier(true),
            Opcode::Assert => self.assertion(id),
            _ => {}
        }
    }

    /// Positions that an access has listed.
    fn index_tile(&mut self, id: OpId, view: Value, indices: &[Value]) {
        let info = self.info;
        let shape = ViewShape::at(info.module, &info.inference.facts, view, indices);
        let layout = info.inference.accesses.get(&id);
        let Some((shape, layout)) = shape.zip(layout) else { return };
        if let Some((axis, list)) = shape.sparse.zip(shape.list_layout(layout)) {
            self.require(indices[axis], &list);
        }
    }

    /// What all vectors of a load share.
    pub fn begin_load(&mut self, id: OpId) {
        let op = self.info.module.op(id);
        if self.info.inference.accesses.contains_key(&id) {
            self.index_tile(id, op.group(0)[0], op.group(1));
            self.global_access(id);
        }
    }

    /// What all vectors of a store share.
    pub fn begin_store(&mut self, id: OpId) {
        let op = self.info.module.op(id);
        self.index_tile(id, op.group(1)[0], op.group(2));
        self.global_access(id);
    }

    fn store_view(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        self.require(op.group(0)[0], layout);
        self.begin_store(id);
        self.ordered_access(id, None);
    }

    /// An access with its memory order. `broadcast_dtype`: the type of the values that one of
    /// several threads with the same element reads and passes to the others.
    fn ordered_access(&mut self, id: OpId, broadcast_dtype: Option<DType>) {
        let op = self.info.module.op(id);
        if releases(op) {
            self.barrier(true);
        }
        self.global_access(id);
        let layout = self.info.inference.accesses.get(&id).filter(|layout| replica_bits(layout) != 0);
        match broadcast_dtype.zip(layout) {
            Some((dtype, layout)) => {
                let buffer = self.scratch(layout.num_elements() * smem_element_bytes(dtype));
                self.smem_write(buffer);
                if buffer.is_some() {
                    self.barrier(true);
                }
                self.smem_read(&[buffer]);
            }
            None if acquires(op) => self.barrier(true),
            None => {}
        }
    }

    /// Addresses and masks of an access through pointers; false if there are none.
    fn pointer_operands(&mut self, id: OpId) -> bool {
        let info = self.info;
        let (op, inference) = (info.module.op(id), &info.inference);
        let (Some(pointers), Some(layout)) = (pointers_of(op), inference.accesses.get(&id)) else { return false };
        if pointee(info.module, op).is_none_or(|dtype| dtype.storage_bits() < 8) {
            return false;
        }
        let run = inference.pointer_contiguity.get(&id).copied();
        let vector = run.map_or(1, |run| run.vector.min(layout.vector_len(run.axis)).min(layout.num_registers()));
        let leaders = first_of_vectors(layout, vector);
        self.require(pointers, &leaders);
        let known = |mask: &Value| inference.facts.constant(*mask).is_some_and(|value| value != 0);
        if let Some(mask) = mask_of(op).filter(|mask| !known(mask)) {
            let together = inference.is_same_in_groups(mask, run.map_or(0, |run| run.axis), vector);
            self.require(mask, if together { &leaders } else { layout });
        }
        true
    }

    fn load_ptr(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        if !self.pointer_operands(id) {
            return;
        }
        let broadcast_dtype = pointee(info.module, op).filter(|_| mem_order(op) != MemOrder::Weak);
        self.ordered_access(id, broadcast_dtype);
        let padding = op.operand_group("padding_value").first().copied();
        if let (Some(padding), Some(layout)) = (padding, info.inference.accesses.get(&id))
            && info.constant_padding(Some(padding)).is_none()
        {
            self.require(padding, layout);
        }
    }

    fn atomic(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        self.require(op.operands[1], layout);
        if self.pointer_operands(id) {
            let broadcast_dtype = pointee(info.module, op).filter(|_| info.is_result_used(id));
            self.ordered_access(id, broadcast_dtype);
        }
    }

    /// An atomic that goes to the copy of its array.
    pub fn privatized_atomic(&mut self, id: OpId) {
        let info = self.info;
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        self.require(info.module.op(id).operands[1], layout);
        info.deferred_inputs(id).into_iter().for_each(|value| self.require(value, layout));
        self.global_access(id);
    }

    fn assertion(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let condition = op.group(0)[0];
        if info.is_always_true(condition) {
            return;
        }
        let layout = info.inference.natural_or_default(condition);
        self.require(condition, &layout);
        let tiles = op.group(1).iter().filter(|&&arg| info.inference.num_elements(arg) > 1);
        tiles.for_each(|&arg| self.require(arg, &layout));
    }

    /// A store by TMA, or by the threads where there is no room for it.
    pub fn tma_store(&mut self, tma_store: &TmaStore) {
        let op = self.info.module.op(tma_store.op);
        let (value, root) = (stored(op), self.info.stored_array(tma_store.op));
        let ordered = !self.info.has_only_reductions(tma_store.op, self.tma_stores.keys().copied());
        let layout = self.schedule.layout(tma_store.layout).clone();
        if tma_store.staging.is_some() {
            self.require(value, &layout);
            let is_repeated = !self.tma_stored_arrays.insert(root);
            self.sub_steps.push(SubStep::TmaStoreWait { complete: is_repeated && ordered });
            return;
        }
        if let Some(split) = StoreSplit::for_block(&tma_store.tile, &self.smem) {
            let at = self.sub_steps.len();
            self.require(value, &layout);
            if let Some(buffer) = self.smem.allocate(split.in_flight * split.bytes, SWIZZLE_ATOM_BYTES) {
                self.sub_steps.insert(at, SubStep::Split { count: split.count, in_flight: split.in_flight });
                if !self.tma_stored_arrays.insert(root) && ordered {
                    self.sub_steps.push(SubStep::TmaStoreWait { complete: true });
                    self.smem.bulk_waited();
                }
                if self.smem.write(buffer) {
                    self.barrier(false);
                }
                self.sub_steps.push(SubStep::SmemWrite(buffer));
                let barriers = if split.in_flight == 1 { 2 * split.count - 1 } else { split.count };
                (0..barriers).for_each(|_| self.barrier(true));
                self.smem.bulk_read(buffer);
                return;
            }
        }
        // What threads store and what the engine stores has no order.
        if ordered && self.tma_stores.values().filter(|&&other| other == root).count() > 1 {
            self.smem_overflow(tma_store.tile.part_bytes(tma_store.tile.split_bits));
        }
        self.op(tma_store.op);
    }

    /// Releases stages. A staging buffer is released after TMA has read it.
    pub fn consumer_release(&mut self, channels: &[u32]) {
        let warp_spec = self.schedule.warp_spec.as_ref();
        if warp_spec.is_some_and(|warp_spec| channels.iter().any(|&channel| warp_spec.is_staging(channel))) {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
    }

    /// The end of the kernel.
    pub fn leave_kernel(&mut self) {
        if self.schedule.privatized.is_some() {
            self.barrier(true);
        }
        if self.smem.is_bulk_reading() || self.has_warp_tma_stores {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
    }
}

/// The type of what an access by pointers touches.
fn pointee(module: &Module, op: &Op) -> Option<DType> {
    match module.ty(pointers_of(op)?) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => Some(*pointee),
        _ => None,
    }
}
