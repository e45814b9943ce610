//! Sub-step requirements of each op: operand layouts and shared-memory scratch.
//!
//! In the order in which lowering comes to it. Scalars are the same in all threads, and ask for nothing.

use super::reduction_steps::LayoutBases;
use super::scratch::size_of;
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
pub fn order_of(op: &Op) -> MemOrder {
    match op.attr(AttrKind::MemOrder) {
        Some(Attr::MemOrder(order)) => *order,
        _ => MemOrder::Weak,
    }
}

fn acquires(op: &Op) -> bool {
    matches!(order_of(op), MemOrder::Acquire | MemOrder::AcqRel)
}

fn releases(op: &Op) -> bool {
    matches!(order_of(op), MemOrder::Release | MemOrder::AcqRel)
}

/// The layout of the first elements of the vectors: without the register bits of a vector.
pub fn leaders(layout: &Layout, vector: usize) -> Layout {
    let bits = vector.trailing_zeros() as usize;
    let register = layout.register_images()[bits..].to_vec();
    Layout::new(layout.shape(), register, layout.lane_images().to_vec(), layout.warp_images().to_vec())
}

impl MembarState<'_, '_> {
    /// What an op asks for that is a part of a step.
    pub fn op(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let inference = &context.inference;
        let access = inference.accesses.get(&id);
        match op.code {
            code if code.is_elementwise() => {
                let layout = inference.layout(op.results[0]);
                let concrete = layout.filter(|_| inference.source(op.results[0]) != ValueOrigin::Rematerialized);
                if let Some(layout) = concrete {
                    op.operands.iter().for_each(|&operand| self.get(operand, layout));
                }
            }
            Opcode::WithLayout => {
                let chosen = inference.chosen(op).filter(|_| inference.source(op.results[0]) == ValueOrigin::Register);
                if let Some(layout) = chosen {
                    self.get(op.operands[0], &layout);
                }
            }
            Opcode::LoadView => {
                self.begin_load(id);
                if order_of(op) != MemOrder::Weak && access.is_some() {
                    let dtype = ViewShape::of(context.module, op.group(0)[0]).map(|shape| shape.elem);
                    self.ordered(id, dtype);
                }
            }
            Opcode::StoreView => self.store_view(id),
            Opcode::AtomicRedView => {
                if let Some(layout) = access {
                    self.get(op.group(2)[0], layout);
                    self.list(id, op.group(0)[0], op.group(1));
                    self.order(id);
                }
            }
            Opcode::LoadPtr => self.load_ptr(id),
            Opcode::StorePtr => {
                let Some(layout) = access else { return };
                self.get(op.group(1)[0], layout);
                if self.pointers(id) {
                    self.ordered(id, None);
                }
            }
            Opcode::AtomicRmw => self.atomic(id),
            Opcode::AtomicCas => {
                let Some(layout) = access else { return };
                self.get(op.group(1)[0], layout);
                self.get(op.group(2)[0], layout);
                if self.pointers(id) {
                    self.ordered(id, pointee(context.module, op));
                }
            }
            Opcode::Reduce => {
                let Some(layout) = access else { return };
                op.operands.iter().for_each(|&operand| self.get(operand, layout));
                self.folds(id, LayoutBases::of(layout));
            }
            Opcode::Scan => self.scan(id),
            Opcode::Cat => {
                let Some(layout) = access else { return };
                op.operands[..2].iter().for_each(|&operand| self.get(operand, layout));
            }
            Opcode::Pack | Opcode::Unpack => {
                let Some(layout) = access else { return };
                self.get(op.operands[0], layout);
            }
            Opcode::Extract => self.extract(id),
            Opcode::Insert => {
                let Some(layout) = access else { return };
                let (source, destination) = (op.group(0)[0], op.group(1)[0]);
                self.get(source, &block_layout(layout, context.module.shape(source)).canonical());
                self.get(destination, layout);
            }
            Opcode::Gather => self.gather(id),
            Opcode::Histogram => self.histogram(id),
            Opcode::Print => self.print(id),
            Opcode::MemoryFenceAlias => self.meet(true),
            Opcode::Assert => self.assertion(id),
            _ => {}
        }
    }

    /// Positions that an access has listed.
    fn list(&mut self, id: OpId, view: Value, indices: &[Value]) {
        let context = self.context;
        let shape = ViewShape::at(context.module, &context.inference.facts, view, indices);
        let layout = context.inference.accesses.get(&id);
        let Some((shape, layout)) = shape.zip(layout) else { return };
        if let Some((axis, list)) = shape.sparse.zip(shape.list_layout(layout)) {
            self.get(indices[axis], &list);
        }
    }

    /// What all vectors of a load share.
    pub fn begin_load(&mut self, id: OpId) {
        let op = self.context.module.op(id);
        if self.context.inference.accesses.contains_key(&id) {
            self.list(id, op.group(0)[0], op.group(1));
            self.order(id);
        }
    }

    /// What all vectors of a store share.
    pub fn begin_store(&mut self, id: OpId) {
        let op = self.context.module.op(id);
        self.list(id, op.group(1)[0], op.group(2));
        self.order(id);
    }

    fn store_view(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        self.get(op.group(0)[0], layout);
        self.begin_store(id);
        self.ordered(id, None);
    }

    /// An access in its order. `told`: of threads that hold the same element one accesses it, and tells the others what it
    /// has read, of this type.
    fn ordered(&mut self, id: OpId, told: Option<DType>) {
        let op = self.context.module.op(id);
        if releases(op) {
            self.meet(true);
        }
        self.order(id);
        let layout = self.context.inference.accesses.get(&id).filter(|layout| replica_bits(layout) != 0);
        match told.zip(layout) {
            Some((dtype, layout)) => {
                let buffer = self.scratch(layout.num_elements() * size_of(dtype));
                self.write(buffer);
                if buffer.is_some() {
                    self.meet(true);
                }
                self.read(&[buffer]);
            }
            None if acquires(op) => self.meet(true),
            None => {}
        }
    }

    /// Addresses and masks of an access through pointers; false if there are none.
    fn pointers(&mut self, id: OpId) -> bool {
        let context = self.context;
        let (op, inference) = (context.module.op(id), &context.inference);
        let (Some(pointers), Some(layout)) = (pointers_of(op), inference.accesses.get(&id)) else { return false };
        if pointee(context.module, op).is_none_or(|dtype| dtype.storage_bits() < 8) {
            return false;
        }
        let run = inference.pointer_contiguity.get(&id).copied();
        let vector = run.map_or(1, |run| run.vector.min(layout.vector_len(run.axis)).min(layout.num_registers()));
        let leaders = leaders(layout, vector);
        self.get(pointers, &leaders);
        let known = |mask: &Value| inference.facts.constant(*mask).is_some_and(|value| value != 0);
        if let Some(mask) = mask_of(op).filter(|mask| !known(mask)) {
            let together = inference.is_same_in_groups(mask, run.map_or(0, |run| run.axis), vector);
            self.get(mask, if together { &leaders } else { layout });
        }
        true
    }

    fn load_ptr(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        if !self.pointers(id) {
            return;
        }
        let told = pointee(context.module, op).filter(|_| order_of(op) != MemOrder::Weak);
        self.ordered(id, told);
        let padding = op.operand_group("padding_value").first().copied();
        if let (Some(padding), Some(layout)) = (padding, context.inference.accesses.get(&id))
            && context.constant_padding(Some(padding)).is_none()
        {
            self.get(padding, layout);
        }
    }

    fn atomic(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        self.get(op.operands[1], layout);
        if self.pointers(id) {
            let told = pointee(context.module, op).filter(|_| context.is_result_used(id));
            self.ordered(id, told);
        }
    }

    /// An atomic that goes to the copy of its array.
    pub fn combine(&mut self, id: OpId) {
        let context = self.context;
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        self.get(context.module.op(id).operands[1], layout);
        context.leaves_of(id).into_iter().for_each(|value| self.get(value, layout));
        self.order(id);
    }

    fn assertion(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let condition = op.group(0)[0];
        if context.always_holds(condition) {
            return;
        }
        let layout = context.inference.natural_or_default(condition);
        self.get(condition, &layout);
        let tiles = op.group(1).iter().filter(|&&arg| context.inference.num_elements(arg) > 1);
        tiles.for_each(|&arg| self.get(arg, &layout));
    }

    /// A store by the copy engine, or by the threads where there is no room for it.
    pub fn send(&mut self, send: &TmaStore) {
        let op = self.context.module.op(send.op);
        let (value, root) = (stored(op), self.context.stored_array(send.op));
        let ordered = !self.context.only_adds(send.op, self.sent.keys().copied());
        let layout = self.schedule.layout(send.layout).clone();
        if send.staging.is_some() {
            self.get(value, &layout);
            let again = !self.boxes_stored.insert(root);
            self.within.push(SubStep::TmaStoreWait { written: again && ordered });
            return;
        }
        if let Some(parts) = StoreSplit::of_block(&send.tile, &self.shared) {
            let at = self.within.len();
            self.get(value, &layout);
            if let Some(buffer) = self.shared.allocate(parts.in_flight * parts.bytes, SWIZZLE_ATOM_BYTES) {
                self.within.insert(at, SubStep::Split { count: parts.count, beside: parts.in_flight });
                if !self.boxes_stored.insert(root) && ordered {
                    self.within.push(SubStep::TmaStoreWait { written: true });
                    self.shared.bulk_waited();
                }
                if self.shared.write(buffer) {
                    self.meet(false);
                }
                self.within.push(SubStep::SmemWrite(buffer));
                let meetings = if parts.in_flight == 1 { 2 * parts.count - 1 } else { parts.count };
                (0..meetings).for_each(|_| self.meet(true));
                self.shared.bulk_read(buffer);
                return;
            }
        }
        // What threads store and what the engine stores has no order.
        if ordered && self.sent.values().filter(|&&other| other == root).count() > 1 {
            self.no_room(send.tile.part_bytes(send.tile.split_bits));
        }
        self.op(send.op);
    }

    /// Stages come back: of one that is lent to a store, its boxes have been read.
    pub fn give(&mut self, channels: &[u32]) {
        let roles = self.schedule.warp_spec.as_ref();
        if roles.is_some_and(|roles| channels.iter().any(|&channel| roles.is_staging(channel))) {
            self.within.push(SubStep::TmaStoreWait { written: false });
        }
    }

    /// The end of the kernel.
    pub fn leave_kernel(&mut self) {
        if self.schedule.privatized.is_some() {
            self.meet(true);
        }
        if self.shared.is_bulk_reading() || self.sent_by_warps {
            self.within.push(SubStep::TmaStoreWait { written: false });
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
