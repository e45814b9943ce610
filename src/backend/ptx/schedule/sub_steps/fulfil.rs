//! Fulfils the requirements of steps: selects conversions, allocates buffers, inserts barriers.

use super::state::{StoredOperand, SubStepBuilder};
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::layout_inference::stored;
use crate::backend::ptx::schedule::analysis::step_uses::AccumulatorSource;
use crate::backend::ptx::schedule::ir::sub_step::{ConversionPlan, SubStep};
use crate::backend::ptx::schedule::ir::tma_store::{StoreSplit, TmaStore};
use crate::backend::ptx::schedule::requirements::requirement::Requirement;
use crate::backend::ptx::smem::allocation::{Buffer, shared_type};
use crate::ir::{OpId, Value};
use crate::layout::{Conversion, SharedPlan};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

impl SubStepBuilder<'_, '_> {
    /// Fulfils the requirements of an op in order.
    pub fn fulfil(&mut self, id: OpId, requirements: Vec<Requirement>) {
        for requirement in requirements {
            match requirement {
                Requirement::Operand(value, layout) => self.require(value, &layout),
                Requirement::GlobalAccess => self.global_access(id),
                Requirement::Barrier => self.barrier(true),
                // `smem_write` and `smem_read` insert a barrier if there is a hazard (`membar`).
                Requirement::SmemExchange(bytes) => {
                    let write = |bytes| {
                        let buffer = self.scratch(bytes);
                        self.smem_write(buffer);
                        buffer
                    };
                    let buffers: Vec<Option<Buffer>> = bytes.into_iter().map(write).collect_vec();
                    self.smem_read(&buffers);
                }
                Requirement::Rounds(rounds) => {
                    let [count, copies, bytes] = rounds.split(self.scratch_capacity());
                    self.sub_steps.push(SubStep::Split { count: count as u32, in_flight: copies as u32 });
                    let buffer = self.scratch(bytes);
                    for _ in 0..count {
                        (0..rounds.writes()).for_each(|_| self.smem_write(buffer));
                        self.smem_read(&[buffer]);
                    }
                }
                Requirement::SmemGatherToLeader(bytes) => {
                    if let Some(buffer) = self.scratch(bytes) {
                        self.wait_for_mma_reads(buffer);
                        self.smem.record_write(buffer);
                        self.barrier(true);
                        self.smem_write(Some(buffer));
                        self.barrier(true);
                        self.smem_read(&[Some(buffer)]);
                    }
                }
                Requirement::Redistribute { value, source_layout, required } => {
                    let bits = shared_type(self.info.element_type(value)).storage_bits();
                    let plan = SharedPlan::new(&source_layout, &required, bits, self.scratch_capacity());
                    self.record_conversion(value, &required, ConversionPlan::Layout(Conversion::Shared(plan)));
                }
            }
        }
    }

    /// Allocates a buffer of `bytes` bytes.
    fn scratch(&mut self, bytes: usize) -> Option<Buffer> {
        let buffer = self.smem.allocate(bytes as u32, 1);
        if buffer.is_none() {
            self.smem_overflow(bytes as u32);
        }
        buffer
    }

    /// Fulfils a TMA store, or a store by the threads if shared memory has no space for it.
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
                    self.smem.record_bulk_wait();
                }
                self.wait_for_mma_reads(buffer);
                if self.smem.record_write(buffer) {
                    self.barrier(false);
                }
                self.record_smem_write(buffer);
                let barriers = if split.in_flight == 1 { 2 * split.count - 1 } else { split.count };
                (0..barriers).for_each(|_| self.barrier(true));
                self.smem.record_tma_store_read(buffer);
                return;
            }
        }
        // Stores by threads and stores by TMA to one array have no order.
        if ordered && self.tma_stores.values().filter(|&&other| other == root).count() > 1 {
            self.smem_overflow(tma_store.tile.part_bytes(tma_store.tile.split_bits));
        }
        self.fulfil(tma_store.op, self.info.requirements(tma_store.op));
    }

    /// Releases stages. A staging buffer is released after TMA has read it.
    pub fn consumer_release(&mut self, channels: &[u32]) {
        let warp_spec = self.schedule.warp_spec.as_ref();
        if warp_spec.is_some_and(|warp_spec| channels.iter().any(|&channel| warp_spec.is_staging(channel))) {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
    }

    /// Inserts the barrier and the wait before the end of the kernel.
    pub fn leave_kernel(&mut self) {
        if self.schedule.privatized.is_some() {
            self.barrier(true);
        }
        if self.smem.is_bulk_reading() || self.has_warp_tma_stores {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
    }

    /// Fulfils the operands and accumulators of an MMA group. Returns the buffers that it reads.
    pub fn mma_operands(&mut self, members: &[OpId]) -> Vec<Buffer> {
        let info = self.info;
        let module = info.module;
        let plans: Vec<_> = members.iter().map(|id| info.inference.mma_plans.get(id)).collect_vec();
        let plans: Vec<_> = plans.into_iter().flatten().flatten().collect_vec();
        let mut reads = Vec::new();
        if plans.len() != members.len() {
            return reads;
        }
        let acc = |id: OpId| module.op(id).operands[2];
        // Accumulators that use shared memory are converted before operands occupy it.
        let moves: Vec<bool> =
            members.iter().zip(&plans).map(|(&id, plan)| info.moves_accumulator(id, members, plan)).collect_vec();
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| **moves) {
            self.require(acc(id), &plan.acc);
        }
        let stored = self.stored_buffers(members);
        let hoisted = |value: Value| self.hoisted_operands.iter().any(|operand| operand.value == value);
        let is_there = |value: Value| self.is_fetched(value) || stored.is_some() || hoisted(value);
        let bytes = info.operand_bytes(members, &is_there);
        if bytes > 0 && bytes <= self.smem.free() {
            self.smem.start_contiguous(bytes);
        }
        let mut stored = stored.map(Vec::into_iter);
        let mut buffers = Vec::new();
        let mut written = Vec::new();
        for (value, is_left, plan) in info.smem_operands_of(members) {
            if self.is_fetched(value) {
                continue;
            }
            if let Some(buffer) = self.hoisted_operand(value, is_left, plan) {
                self.smem.record_read(buffer);
                self.sub_steps.push(SubStep::StoredOperand { value, buffer });
                reads.push(buffer);
                continue;
            }
            if let Some(stored) = &mut stored {
                let Some((value, buffer)) = stored.next() else { continue };
                self.smem.record_read(buffer);
                self.sub_steps.push(SubStep::StoredOperand { value, buffer });
                reads.push(buffer);
                continue;
            }
            let layout = info.inference.natural_or_default(value);
            self.require(value, &layout);
            if plan.in_registers(&layout).is_some() {
                continue;
            }
            let bytes = plan.shared.bytes() as u32;
            let doubled = self.doubled_operand(members, value, is_left, plan);
            let Some(buffer) = doubled.or_else(|| self.smem.allocate(bytes, plan.align)) else {
                self.smem_overflow(bytes);
                return reads;
            };
            self.smem_write(Some(buffer));
            self.smem.pin(buffer);
            buffers.push(Some(buffer));
            written.push(StoredOperand { value, is_left, plan, buffer });
        }
        for ((&id, plan), _) in members.iter().zip(&plans).zip(&moves).filter(|(_, moves)| !**moves) {
            if info.accumulator_source(id, members) == AccumulatorSource::Value {
                self.require(acc(id), &plan.acc);
            }
        }
        if !self.smem.unpin_all() {
            self.sub_steps.push(SubStep::SmemOverflow { bytes, of: self.smem.free() });
            return reads;
        }
        sort::by_key(&mut buffers, |buffer| buffer.map(|buffer| buffer.offset));
        if plans[0].is_asynchronous() && !buffers.is_empty() {
            self.barrier(true);
        }
        self.smem_read(&buffers);
        self.stored_operands.extend(written);
        reads.extend(buffers.into_iter().flatten());
        reads
    }

    /// Returns the operands of an MMA group without a pipeline that no loop has hoisted, with their
    /// buffers. `None` unless earlier MMAs of the sequence have written all of them. With another
    /// operand in registers, whose conversion may need shared memory, there are none.
    fn stored_buffers(&self, members: &[OpId]) -> Option<Vec<(Value, Buffer)>> {
        if self.stored_operands.is_empty() {
            return None;
        }
        let is_there =
            |(value, is_left, plan)| self.is_fetched(value) || self.hoisted_operand(value, is_left, plan).is_some();
        let required = self.info.smem_operands_of(members).into_iter().filter(|&operand| !is_there(operand));
        let buffers = required.map(|(value, is_left, plan)| {
            let is_it = |other: &&StoredOperand<'_>| {
                (other.value, other.is_left) == (value, is_left) && other.plan.is_same(plan)
            };
            self.stored_operands.iter().find(is_it).map(|operand| (value, operand.buffer))
        });
        buffers.collect()
    }

    /// Returns true if the tile of this value is loaded into shared memory for MMAs.
    pub fn is_fetched(&self, value: Value) -> bool {
        self.info.source_load(value).is_some_and(|load| self.schedule.load_path(load).is_smem_operand())
    }
}
