//! Shared-memory scratch of reductions, scans, gathers and histograms.

use super::reduction_steps::{LayoutBases, ReductionStep};
use super::state::MembarState;
use crate::backend::ptx::layout_inference::{
    AxisBits, LaneGather, ScanOrder, block_layout, block_number, thread_images,
};
use crate::backend::ptx::schedule::ir::sub_step::{ConversionPlan, SubStep};
use crate::backend::ptx::smem::allocation::{Buffer, run_bytes, shared_type};
use crate::dtype::DType;
use crate::ir::{OpId, Value};
use crate::layout::{Conversion, SharedPlan};

/// Most copies of the counts of a histogram.
const MOST_COPIES: usize = 8;

/// Words between the ends of one copy of counts and the next: equal numbers of both are in different banks.
pub const APART: usize = 4;

/// Bytes of an element in shared memory.
pub fn size_of(dtype: DType) -> usize {
    run_bytes(shared_type(dtype), 1) as usize
}

impl MembarState<'_, '_> {
    /// A buffer of so many bytes.
    pub fn scratch(&mut self, bytes: usize) -> Option<Buffer> {
        let buffer = self.allocate(bytes);
        if buffer.is_none() {
            self.no_room(bytes as u32);
        }
        buffer
    }

    /// The rest of a reduction that has seen its pieces.
    pub fn end_reduction(&mut self, id: OpId) {
        let Some(layout) = self.context.inference.accesses.get(&id) else { return };
        let mut images = LayoutBases::of(layout);
        images.keep_off(AxisBits::of(layout.shape(), self.context.module.op(id).dim() as usize));
        self.folds(id, images);
    }

    /// A reduction of what is left.
    pub fn folds(&mut self, id: OpId, mut left: LayoutBases) {
        let context = self.context;
        let op = context.module.op(id);
        let Some(layout) = context.inference.accesses.get(&id) else { return };
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        for fold in context.folds(id, left.clone(), axis) {
            left.fold(&fold, axis);
            let ReductionStep::CrossWarp(warps) = &fold else { continue };
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

    pub fn scan(&mut self, id: OpId) {
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
        self.read(&buffers);
    }

    pub fn extract(&mut self, id: OpId) {
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
            self.change(result, &wanted, ConversionPlan::Layout(Conversion::Shared(plan)));
        }
    }

    pub fn gather(&mut self, id: OpId) {
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
        let handing = LaneGather::of(held, layout, op.dim() as usize);
        if handing.is_some_and(|handing| handing.pays(words, held.num_registers())) {
            return;
        }
        let (count, size) = (held.num_elements(), size_of(dtype));
        let rounds = (count * size).div_ceil(self.room().max(size)).next_power_of_two().min(count);
        self.within.push(SubStep::Split { count: rounds as u32, beside: 1 });
        let buffer = self.scratch(count / rounds * size);
        for _ in 0..rounds {
            self.write(buffer);
            self.read(&[buffer]);
        }
    }

    pub fn histogram(&mut self, id: OpId) {
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
        self.within.push(SubStep::Split { count: rounds as u32, beside: copies as u32 });
        let buffer = self.scratch(copies * row * 4);
        for _ in 0..rounds {
            // Zeros, then counts.
            self.write(buffer);
            self.write(buffer);
            self.read(&[buffer]);
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
            self.within.push(SubStep::SmemOverflow { bytes, of: self.shared.free() });
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
        let roles = self.schedule.warp_spec.as_deref();
        let streamed = |load: &OpId| roles.is_some_and(|roles| roles.operand_channel.contains_key(load));
        self.context.source_load(value).is_some_and(|load| streamed(&load) || self.staged.contains(&load))
    }
}
