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
const MAX_HISTOGRAM_COPIES: usize = 8;

/// Words between the ends of one copy of counts and the next: equal numbers of both are in
/// different banks.
pub const COPY_PADDING_WORDS: usize = 4;

/// Bytes of an element in shared memory.
pub fn smem_element_bytes(dtype: DType) -> usize {
    run_bytes(shared_type(dtype), 1) as usize
}

impl MembarState<'_, '_> {
    /// A buffer of so many bytes.
    pub fn scratch(&mut self, bytes: usize) -> Option<Buffer> {
        let buffer = self.allocate(bytes);
        if buffer.is_none() {
            self.smem_overflow(bytes as u32);
        }
        buffer
    }

    /// The rest of a reduction that has seen its pieces.
    pub fn end_reduction(&mut self, id: OpId) {
        let Some(layout) = self.info.inference.accesses.get(&id) else { return };
        let mut bases = LayoutBases::of(layout);
        bases.keep_off(AxisBits::of(layout.shape(), self.info.module.op(id).dim() as usize));
        self.reduction_steps(id, bases);
    }

    /// A reduction of what is left.
    pub fn reduction_steps(&mut self, id: OpId, mut left: LayoutBases) {
        let info = self.info;
        let op = info.module.op(id);
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        let axis = AxisBits::of(layout.shape(), op.dim() as usize);
        for reduction_step in info.reduction_steps(id, left.clone(), axis) {
            left.reduce(&reduction_step, axis);
            let ReductionStep::CrossWarp(warps) = &reduction_step else { continue };
            let rows = 1usize << left.lane.iter().chain(&left.warp).filter(|&&basis| basis != 0).count();
            let registers = 1usize << left.register.len();
            let parts = 1usize << warps.len();
            let buffers = op.operands.iter().map(|&operand| {
                let buffer = self.scratch(registers * rows * parts * smem_element_bytes(info.element_type(operand)));
                self.smem_write(buffer);
                buffer
            });
            let buffers: Vec<Option<Buffer>> = buffers.collect();
            self.smem_read(&buffers);
        }
    }

    pub fn scan(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        let axis = op.dim() as usize;
        let Some(order) = ScanOrder::of(layout, axis) else { return };
        op.operands.iter().for_each(|&operand| self.require(operand, layout));
        if !order.meets() {
            return;
        }
        let axis = AxisBits::of(layout.shape(), axis);
        let off = |basis: &&u32| **basis != 0 && axis.coordinate(**basis) == 0;
        let rows = 1usize << thread_images(layout).iter().filter(off).count();
        let of_registers = layout.register_images().iter().filter(|&&basis| axis.coordinate(basis) == 0).count();
        let mut buffers = Vec::new();
        for &operand in &op.operands {
            let row = smem_element_bytes(info.element_type(operand)) << order.outer.len();
            let buffer = self.scratch((row * rows) << of_registers);
            self.smem_write(buffer);
            buffers.push(buffer);
        }
        self.smem_read(&buffers);
    }

    pub fn extract(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let Some(layout) = info.inference.accesses.get(&id) else { return };
        self.require(source, layout);
        let part = info.module.shape(result);
        let moves = |&basis: &u32| (0..part.len()).any(|axis| block_number(layout, part, basis, axis) != 0);
        if layout.warp_images().iter().any(moves) {
            let held = block_layout(layout, part).canonical();
            let wanted = info.inference.layout(result).cloned().unwrap_or_else(|| held.clone());
            let bits = shared_type(info.element_type(source)).storage_bits();
            let plan = SharedPlan::new(&held, &wanted, bits, self.scratch_capacity());
            self.record_conversion(result, &wanted, ConversionPlan::Layout(Conversion::Shared(plan)));
        }
    }

    pub fn gather(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let (source, positions, result) = (op.operands[0], op.operands[1], op.results[0]);
        let Some((held, layout)) = info.inference.accesses.get(&id).zip(info.inference.layout(result)) else {
            return;
        };
        self.require(source, held);
        self.require(positions, layout);
        let dtype = info.element_type(source);
        let words = dtype.storage_bits().div_ceil(32) as usize;
        let handing = LaneGather::of(held, layout, op.dim() as usize);
        if handing.is_some_and(|handing| handing.pays(words, held.num_registers())) {
            return;
        }
        let (count, size) = (held.num_elements(), smem_element_bytes(dtype));
        let rounds = (count * size).div_ceil(self.scratch_capacity().max(size)).next_power_of_two().min(count);
        self.sub_steps.push(SubStep::Split { count: rounds as u32, in_flight: 1 });
        let buffer = self.scratch(count / rounds * size);
        for _ in 0..rounds {
            self.smem_write(buffer);
            self.smem_read(&[buffer]);
        }
    }

    pub fn histogram(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let Some((held, layout)) = info.inference.accesses.get(&id).zip(info.inference.layout(result)) else {
            return;
        };
        self.require(source, held);
        let (elements, bins) = (held.num_elements(), layout.num_elements());
        let capacity = self.scratch_capacity().max((1 + COPY_PADDING_WORDS) * 4) / 4;
        let mut rounds = 1;
        while bins / rounds + COPY_PADDING_WORDS > capacity && rounds < bins {
            rounds *= 2;
        }
        let row = bins / rounds + COPY_PADDING_WORDS;
        // Reading the copies costs less than counting.
        let most = (elements / (2 * bins)).min(MAX_HISTOGRAM_COPIES).min(capacity / row).max(1);
        let copies = 1 << most.ilog2();
        self.sub_steps.push(SubStep::Split { count: rounds as u32, in_flight: copies as u32 });
        let buffer = self.scratch(copies * row * 4);
        for _ in 0..rounds {
            // Zeros, then counts.
            self.smem_write(buffer);
            self.smem_write(buffer);
            self.smem_read(&[buffer]);
        }
    }

    /// The operands and accumulators of MMAs that are issued together.
    pub fn mma_operands(&mut self, members: &[OpId]) {
        let info = self.info;
        let module = info.module;
        let plans: Vec<_> = members.iter().map(|id| info.inference.products.get(id)).collect();
        let plans: Vec<_> = plans.into_iter().flatten().flatten().collect();
        if plans.len() != members.len() {
            return;
        }
        let acc = |id: OpId| module.op(id).operands[2];
        // Accumulators that go through shared memory do so before operands lie there.
        let moves: Vec<bool> =
            members.iter().zip(&plans).map(|(&id, plan)| info.moves_accumulator(id, members, plan)).collect();
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| **moves) {
            self.require(acc(id), &plan.acc);
        }
        let bytes = info.operand_bytes(members, &|value| self.is_fetched(value));
        if bytes > 0 && bytes <= self.smem.free() {
            self.smem.begin_run(bytes);
        }
        let mut buffers = Vec::new();
        for (value, _, plan) in info.smem_operands_of(members) {
            if self.is_fetched(value) {
                continue;
            }
            let layout = info.inference.natural_or_default(value);
            self.require(value, &layout);
            if info.is_register_operand(&layout, plan) {
                continue;
            }
            let bytes = plan.shared.bytes() as u32;
            let Some(buffer) = self.smem.allocate(bytes, plan.align) else {
                return self.smem_overflow(bytes);
            };
            self.smem_write(Some(buffer));
            self.smem.hold(buffer);
            buffers.push(Some(buffer));
        }
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| !**moves) {
            let made = members.iter().any(|&other| module.op(other).results[0] == acc(id));
            let stays = info.accumulates_in_place(id) && plan.is_asynchronous();
            if !made && !info.is_zero(acc(id)) && !stays {
                self.require(acc(id), &plan.acc);
            }
        }
        if !self.smem.let_go() {
            self.sub_steps.push(SubStep::SmemOverflow { bytes, of: self.smem.free() });
            return;
        }
        buffers.sort_unstable_by_key(|buffer| buffer.map(|buffer| buffer.offset));
        if plans[0].is_asynchronous() && !buffers.is_empty() {
            self.barrier(true);
        }
        self.smem_read(&buffers);
    }

    /// Has the tile behind this value been fetched to shared memory?
    fn is_fetched(&self, value: Value) -> bool {
        self.info.source_load(value).is_some_and(|load| self.schedule.load_path(load).is_smem_operand())
    }
}
