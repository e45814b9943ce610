//! What ops ask for within their steps: tiles in layouts, and shared memory for what goes from thread to thread.
//!
//! In the order in which lowering comes to it. Scalars are the same in all threads, and ask for nothing.

use super::sync::Sync;
use super::within::{Change, Within};
use crate::backend::ptx::infer::{AxisBit, AxisBits, Handing, ScanOrder, ViewShape};
use crate::backend::ptx::infer::{block_layout, block_number, mask_of, pointers_of, replica_bits, thread_images};
use crate::backend::ptx::shared::{Buffer, run_bytes, shared_type};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, ConstData, Elem, MemOrder, Op, OpId, Opcode, Type, Value};
use crate::layout::{Conversion, Layout, SharedPlan};

use super::folds::{Fold, Images};

/// Most copies of the counts of a histogram.
const MOST_COPIES: usize = 8;

/// Words between the ends of one copy of counts and the next: equal numbers of both are in different banks.
pub const APART: usize = 4;

/// Bytes of an element in shared memory.
fn size_of(dtype: DType) -> usize {
    run_bytes(shared_type(dtype), 1) as usize
}

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

impl Sync<'_, '_> {
    /// What an op asks for that is a part of a step.
    pub fn op(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let inference = &context.inference;
        let access = inference.accesses.get(&id);
        match op.code {
            code if code.is_elementwise() => {
                let layout = inference.layout(op.results[0]);
                let concrete =
                    layout.filter(|_| inference.source(op.results[0]) != crate::backend::ptx::infer::Source::Free);
                if let Some(layout) = concrete {
                    op.operands.iter().for_each(|&operand| self.get(operand, layout));
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
                self.folds(id, Images::of(layout));
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

    /// A buffer of so many bytes.
    fn scratch(&mut self, bytes: usize) -> Option<Buffer> {
        let buffer = self.allocate(bytes);
        if buffer.is_none() {
            self.no_room(bytes as u32);
        }
        buffer
    }

    /// Addresses and masks of an access through pointers; false if there are none.
    fn pointers(&mut self, id: OpId) -> bool {
        let context = self.context;
        let (op, inference) = (context.module.op(id), &context.inference);
        let (Some(pointers), Some(layout)) = (pointers_of(op), inference.accesses.get(&id)) else { return false };
        if pointee(context.module, op).is_none_or(|dtype| dtype.storage_bits() < 8) {
            return false;
        }
        let run = inference.pointer_runs.get(&id).copied();
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
        if context.combined.contains(&id) {
            context.leaves_of(id).into_iter().for_each(|value| self.get(value, layout));
            self.order(id);
        } else if self.pointers(id) {
            let told = pointee(context.module, op).filter(|_| context.is_result_read(id));
            self.ordered(id, told);
        }
    }

    /// The rest of a reduction that has seen its pieces.
    pub fn end_reduction(&mut self, id: OpId) {
        let Some(layout) = self.context.inference.accesses.get(&id) else { return };
        let mut images = Images::of(layout);
        images.keep_off(AxisBits::of(layout.shape(), self.context.module.op(id).dim() as usize));
        self.folds(id, images);
    }

    /// A reduction of what is left.
    fn folds(&mut self, id: OpId, mut left: Images) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        for fold in context.folds(id, left.clone(), axis) {
            left.fold(&fold, axis);
            let Fold::Warps(warps) = &fold else { continue };
            let rows = 1usize << left.lane.iter().chain(&left.warp).filter(|&&image| image != 0).count();
            let slots = 1usize << left.register.len();
            let parts = 1usize << warps.len();
            let buffers = op.operands.iter().map(|&operand| {
                let buffer = self.scratch(slots * rows * parts * size_of(context.element_type(operand)));
                self.write(buffer);
                buffer
            });
            let buffers: Vec<Option<Buffer>> = buffers.collect();
            self.read(&buffers);
        }
    }

    fn scan(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        let axis = op.dim() as usize;
        let Some(order) = ScanOrder::of(layout, axis) else { return };
        op.operands.iter().for_each(|&operand| self.get(operand, layout));
        if !order.meets() {
            return;
        }
        let axis = AxisBits::of(layout.shape(), axis);
        let off = |image: &&u32| **image != 0 && axis.coordinate(**image) == 0;
        let rows = 1usize << thread_images(layout).iter().filter(off).count();
        let of_registers = layout.register_images().iter().filter(|&&image| axis.coordinate(image) == 0).count();
        let mut buffers = Vec::new();
        for &operand in &op.operands {
            let row = size_of(context.element_type(operand)) << order.outer.len();
            let buffer = self.scratch((row * rows) << of_registers);
            self.write(buffer);
            buffers.push(buffer);
        }
        debug_assert!(order.outer.iter().any(|bit| matches!(bit, AxisBit::Warp(_))));
        self.read(&buffers);
    }

    fn extract(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        self.get(source, layout);
        let part = context.module.shape(result);
        let moves = |&image: &u32| (0..part.len()).any(|axis| block_number(layout, part, image, axis) != 0);
        if layout.warp_images().iter().any(moves) {
            let held = block_layout(layout, part).canonical();
            let wanted = context.inference.layout(result).cloned().unwrap_or_else(|| held.clone());
            let bits = shared_type(context.element_type(source)).storage_bits();
            let plan = SharedPlan::new(&held, &wanted, bits, self.room());
            self.change(result, &wanted, Change::By(Conversion::Shared(plan)));
        }
    }

    fn gather(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let (source, positions, result) = (op.operands[0], op.operands[1], op.results[0]);
        let Some((held, layout)) = context.inference.accesses.get(&id).zip(context.inference.layout(result)) else {
            return;
        };
        self.get(source, held);
        self.get(positions, layout);
        let dtype = context.element_type(source);
        let words = dtype.storage_bits().div_ceil(32) as usize;
        let handing = Handing::of(held, layout, op.dim() as usize);
        if handing.is_some_and(|handing| handing.pays(words, held.num_registers())) {
            return;
        }
        let (count, size) = (held.num_elements(), size_of(dtype));
        let rounds = (count * size).div_ceil(self.room().max(size)).next_power_of_two().min(count);
        self.within.push(Within::Parts { count: rounds as u32, beside: 1 });
        let buffer = self.scratch(count / rounds * size);
        for _ in 0..rounds {
            self.write(buffer);
            self.read(&[buffer]);
        }
    }

    fn histogram(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let Some((held, layout)) = context.inference.accesses.get(&id).zip(context.inference.layout(result)) else {
            return;
        };
        self.get(source, held);
        let (elements, bins) = (held.num_elements(), layout.num_elements());
        let room = self.room().max((1 + APART) * 4) / 4;
        let mut rounds = 1;
        while bins / rounds + APART > room && rounds < bins {
            rounds *= 2;
        }
        let row = bins / rounds + APART;
        // Reading the copies costs less than counting.
        let most = (elements / (2 * bins)).min(MOST_COPIES).min(room / row).max(1);
        let copies = 1 << most.ilog2();
        self.within.push(Within::Parts { count: rounds as u32, beside: copies as u32 });
        let buffer = self.scratch(copies * row * 4);
        for _ in 0..rounds {
            // Zeros, then counts.
            self.write(buffer);
            self.write(buffer);
            self.read(&[buffer]);
        }
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
    pub fn send(&mut self, id: OpId) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(store) = context.boxed.get(&id) else { return };
        if store.by_warp {
            self.get(op.group(0)[0], &store.layout);
            let written = !self.boxes_stored.insert(store.root);
            self.within.push(Within::Drain { written });
            return;
        }
        if let Some(parts) = context.parts_of_store(store, &self.shared) {
            let at = self.within.len();
            self.get(op.group(0)[0], &store.layout);
            if let Some(buffer) = self.shared.allocate(parts.slots * parts.bytes, super::cut::BOX_ALIGN) {
                self.within.insert(at, Within::Parts { count: parts.count, beside: parts.slots });
                let busy = self.shared.write(buffer);
                if !self.boxes_stored.insert(store.root) {
                    self.within.push(Within::Drain { written: true });
                }
                if busy {
                    self.meet(false);
                }
                self.within.push(Within::Write(buffer));
                let meetings = if parts.slots == 1 { 2 * parts.count - 1 } else { parts.count };
                (0..meetings).for_each(|_| self.meet(true));
                self.shared.bulk_read(buffer);
                return;
            }
        }
        self.store_view(id);
    }

    /// The end of the kernel.
    pub fn leave_kernel(&mut self) {
        if !self.context.combined.is_empty() {
            self.meet(true);
        }
        if self.shared.is_bulk_reading() || self.context.boxed.values().any(|store| store.by_warp) {
            self.within.push(Within::Drain { written: false });
        }
    }

    /// The operands and accumulators of products that are issued together.
    pub fn operands(&mut self, members: &[OpId]) {
        let context = self.context;
        let module = context.module;
        let plans: Vec<_> = members.iter().map(|id| context.inference.products.get(id)).collect();
        let plans: Vec<_> = plans.into_iter().flatten().flatten().collect();
        if plans.len() != members.len() {
            return;
        }
        let acc = |id: OpId| module.op(id).operands[2];
        // Accumulators that go through shared memory do so before operands lie there.
        let moves: Vec<bool> =
            members.iter().zip(&plans).map(|(&id, plan)| context.moves_accumulator(id, members, plan)).collect();
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| **moves) {
            self.get(acc(id), &plan.acc);
        }
        let bytes = context.operand_bytes(members, &|value| self.is_fetched(value));
        if bytes > 0 && bytes <= self.shared.free() {
            self.shared.begin_run(bytes);
        }
        let mut buffers = Vec::new();
        for (value, _, plan) in context.operands_of(members) {
            if self.is_fetched(value) {
                continue;
            }
            let layout = context.inference.natural_or_default(value);
            self.get(value, &layout);
            if context.comes_in_registers(&layout, plan) {
                continue;
            }
            let bytes = plan.shared.bytes() as u32;
            let Some(buffer) = self.shared.allocate(bytes, plan.align) else {
                return self.no_room(bytes);
            };
            self.write(Some(buffer));
            self.shared.hold(buffer);
            buffers.push(Some(buffer));
        }
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| !**moves) {
            let made = members.iter().any(|&other| module.op(other).results[0] == acc(id));
            let stays = context.adds_in_place(id) && plan.is_asynchronous();
            if !made && !context.is_zero(acc(id)) && !stays {
                self.get(acc(id), &plan.acc);
            }
        }
        if !self.shared.let_go() {
            self.within.push(Within::NoRoom { bytes, of: self.shared.free() });
            return;
        }
        buffers.sort_unstable_by_key(|buffer| buffer.map(|buffer| buffer.offset));
        if plans[0].is_asynchronous() && !buffers.is_empty() {
            self.meet(true);
        }
        self.read(&buffers);
    }

    /// Has the tile behind this value been fetched to shared memory?
    fn is_fetched(&self, value: Value) -> bool {
        let roles = self.schedule.roles.as_deref();
        let streamed = |load: &OpId| roles.is_some_and(|roles| roles.members.contains_key(load));
        self.context.load_behind(value).is_some_and(|load| streamed(&load) || self.staged.contains(&load))
    }
}

/// The type of what an access by pointers touches.
fn pointee(module: &crate::ir::Module, op: &Op) -> Option<DType> {
    match module.ty(pointers_of(op)?) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => Some(*pointee),
        _ => None,
    }
}

impl super::Context<'_> {
    /// Is a condition known to hold?
    pub fn always_holds(&self, condition: Value) -> bool {
        let maker = self.module.defining_op(condition).map(|id| self.module.op(id));
        matches!(maker.and_then(|op| op.const_data()), Some(ConstData::Splat(bits)) if bits & 1 == 1)
    }

    /// The bits of a padding value that is the same for all elements; none needed is zero.
    pub fn constant_padding(&self, padding: Option<Value>) -> Option<u64> {
        let Some(mut value) = padding else { return Some(0) };
        loop {
            let op = self.module.op(self.module.defining_op(value)?);
            match op.code {
                Opcode::Broadcast | Opcode::Reshape => value = op.operands[0],
                _ => match op.const_data()? {
                    ConstData::Splat(bits) => return Some(*bits),
                    ConstData::Dense(_) => return None,
                },
            }
        }
    }

    /// What deferred ops of this one are made of, of what is not free: in the order in which it is asked for.
    pub fn leaves_of(&self, id: OpId) -> Vec<Value> {
        let mut leaves = Vec::new();
        let mut pending = self.module.op(id).operands.clone();
        while let Some(value) = pending.pop() {
            match self.deferred_op(value) {
                Some(op) => pending.extend(&self.module.op(op).operands),
                // What is free needs no exchange wherever it is computed.
                None if matches!(self.module.ty(value), Type::Tile { .. })
                    && self.inference.source(value) != crate::backend::ptx::infer::Source::Free =>
                {
                    leaves.push(value);
                }
                None => {}
            }
        }
        leaves
    }

    /// The op of a value that is computed where it is used.
    pub fn deferred_op(&self, value: Value) -> Option<OpId> {
        self.module.defining_op(value).filter(|id| self.deferred.contains(id))
    }
}
