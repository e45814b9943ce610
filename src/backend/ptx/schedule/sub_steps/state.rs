//! Barrier-insertion state: shared-memory buffers, available conversions and MMAs in flight.
//!
//! The state holds the layouts in which each value is available, the accesses since the last
//! barrier, and the MMAs in flight. A barrier precedes three kinds of steps: a read of shared
//! memory that other threads have written; a write that overlaps reads or writes of other threads;
//! a global access that may race. After a back edge all accesses of the loop count. All MMAs are
//! complete before a barrier, because shared memory after it may overwrite their operands.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::global_hazards::GlobalHazards;
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, SeqId, Step};
use crate::backend::ptx::schedule::ir::sub_step::{ConversionKind, ConversionPlan, ConvertLayout, SubStep};
use crate::backend::ptx::schedule::requirements::conversion_cache::ConversionCache;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory, shared_type};
use crate::ir::{OpId, Value};
use crate::layout::{AffinePlan, Conversion, Layout};

/// Minimum number of shared-memory accesses of a conversion with affine addresses, which need no
/// instruction per access.
const MIN_AFFINE_ACCESSES: usize = 16;

/// An MMA wait, and whether MMAs are in flight at its place.
pub struct MmaWaitUse {
    pub body: SeqId,
    /// Position in `body`.
    pub position: usize,
    pub is_needed: bool,
}

/// State of the membar walk through one partition.
pub struct MembarState<'a, 'm> {
    pub info: &'a KernelInfo<'m>,
    pub schedule: &'a mut Schedule,
    pub smem: SharedMemory,
    pub global_hazards: GlobalHazards,
    /// The own layout of each defined value.
    pub own_layouts: Vec<Option<Layout>>,
    pub available: ConversionCache<()>,
    /// The TMA stores, each with its array.
    pub tma_stores: FxHashMap<OpId, Value>,
    /// TMA stores of the whole tile block, through shared memory that other steps use, too.
    pub block_tma_stores: FxHashSet<OpId>,
    /// True if some TMA stores are per warp.
    pub has_warp_tma_stores: bool,
    /// Arrays that TMA may have stored to.
    pub tma_stored_arrays: FxHashSet<Value>,
    /// Results of the MMA groups that may be in flight, in the order of issue.
    pub in_flight: Vec<Vec<Value>>,
    /// Sunk waits that have not been emitted: the number of groups that remain in flight, and the
    /// index in `mma_waits`.
    pub sunk_waits: VecDeque<(usize, usize)>,
    pub mma_waits: Vec<MmaWaitUse>,
    /// The current sequence, and its steps so far.
    pub seq: SeqId,
    pub steps: Vec<Step>,
    /// The sub-steps of the next step.
    pub sub_steps: Vec<SubStep>,
}

impl<'a, 'm> MembarState<'a, 'm> {
    /// Returns the state at the start of a partition.
    pub fn new(info: &'a KernelInfo<'m>, schedule: &'a mut Schedule, smem: SharedMemory) -> MembarState<'a, 'm> {
        let has_warp_tma_stores = schedule.tma_stores().any(|tma_store| tma_store.staging.is_some());
        MembarState {
            info,
            tma_stores: schedule
                .tma_stores()
                .map(|tma_store| (tma_store.op, info.stored_array(tma_store.op)))
                .collect(),
            block_tma_stores: schedule
                .tma_stores()
                .filter(|tma_store| tma_store.staging.is_none())
                .map(|tma_store| tma_store.op)
                .collect(),
            has_warp_tma_stores,
            schedule,
            smem,
            global_hazards: GlobalHazards::default(),
            own_layouts: vec![None; info.module.num_values()],
            available: ConversionCache::default(),
            tma_stored_arrays: FxHashSet::default(),
            in_flight: Vec::new(),
            sunk_waits: VecDeque::new(),
            mma_waits: Vec::new(),
            seq: SeqId(0),
            steps: Vec::new(),
            sub_steps: Vec::new(),
        }
    }

    /// Defines a value in its own layout.
    pub fn define(&mut self, value: Value) {
        if self.info.inference.num_elements(value) > 1 {
            self.own_layouts[value.index()] = Some(self.info.inference.own_layout(value));
        }
    }

    fn is_available(&self, value: Value, wanted: &Layout) -> bool {
        let own = self.own_layouts[value.index()].as_ref();
        own.is_some_and(|own| own.is_same(wanted)) || self.available.find(value, wanted).is_some()
    }

    /// Makes a value available in a layout.
    pub fn require(&mut self, value: Value, wanted: &Layout) {
        self.wait_for_value(value);
        if self.info.inference.num_elements(value) == 1 || self.is_available(value, wanted) {
            return;
        }
        let is_available = |value: Value, layout: &Layout| self.is_available(value, layout);
        for (operand, layout) in self.info.missing_inputs(value, wanted, &is_available) {
            self.require(operand, &layout);
        }
        match self.info.inference.source(value) {
            ValueOrigin::Register => {
                let Some(own) = self.own_layouts[value.index()].clone() else { return };
                self.convert_layout(value, &own, wanted);
            }
            ValueOrigin::View | ValueOrigin::Rematerialized => {
                let Some(id) = self.info.module.defining_op(value) else { return };
                for (operand, layout) in self.info.inputs_in_layout(id, wanted) {
                    self.require(operand, &layout);
                }
            }
        }
        self.available.push(value, wanted.clone(), ());
    }

    /// Returns the bytes of shared memory that one conversion or exchange may use.
    pub fn scratch_capacity(&self) -> usize {
        (self.smem.budget() / 2).min(self.smem.free()) as usize
    }

    /// Selects and records the conversion of a value to a layout.
    fn convert_layout(&mut self, value: Value, own: &Layout, wanted: &Layout) {
        let bits = shared_type(self.info.element_type(value)).storage_bits();
        let capacity = self.scratch_capacity();
        let conversion = match Conversion::plan(own, wanted, bits, capacity) {
            None => ConversionPlan::Unsupported,
            Some(Conversion::Shared(plan)) => {
                let many = plan.store.accesses.len() + plan.load.accesses.len() >= MIN_AFFINE_ACCESSES;
                let sums =
                    (plan.rounds == 1 && many).then(|| AffinePlan::new(own, wanted, bits, capacity & !1023)).flatten();
                sums.map_or(ConversionPlan::Layout(Conversion::Shared(plan)), ConversionPlan::Affine)
            }
            Some(plan) => ConversionPlan::Layout(plan),
        };
        self.record_conversion(value, wanted, conversion);
    }

    /// Records a layout conversion, with its accesses to shared memory.
    pub fn record_conversion(&mut self, value: Value, wanted: &Layout, conversion: ConversionPlan) {
        let (bytes, rounds) = match &conversion {
            ConversionPlan::Layout(Conversion::Shared(plan)) => (plan.bytes, plan.rounds),
            ConversionPlan::Affine(plan) => (plan.bytes, 1),
            ConversionPlan::Layout(_) | ConversionPlan::Unsupported => (0, 0),
        };
        let kind = conversion.kind();
        let (to, plan) = (self.schedule.layout_id(wanted), self.schedule.conversions.len() as u32);
        self.schedule.conversions.push(std::rc::Rc::new(conversion));
        self.sub_steps.push(SubStep::ConvertLayout(ConvertLayout { value, to, kind, plan }));
        let buffer = match kind {
            ConversionKind::SmemAffine => self.smem.allocate_for_trip(bytes as u32),
            ConversionKind::Smem(_) => self.smem.allocate(bytes as u32, 1),
            ConversionKind::Registers | ConversionKind::Shuffle | ConversionKind::Unsupported => None,
        };
        if rounds > 0 && buffer.is_none() {
            self.smem_overflow(bytes as u32);
        }
        for _ in 0..rounds {
            self.smem_write(buffer);
            self.smem_read(&[buffer]);
        }
    }

    /// Records that shared memory has no space for a buffer.
    pub fn smem_overflow(&mut self, bytes: u32) {
        self.sub_steps.push(SubStep::SmemOverflow { bytes, of: self.smem.free() });
    }

    /// Records a write to a buffer, after a barrier if there is a hazard.
    pub fn smem_write(&mut self, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else { return };
        if self.smem.write(buffer) {
            self.barrier(false);
            self.smem.write(buffer);
        }
        self.sub_steps.push(SubStep::SmemWrite(buffer));
    }

    /// Records reads of buffers, after a barrier if there is a hazard.
    pub fn smem_read(&mut self, buffers: &[Option<Buffer>]) {
        for &buffer in buffers.iter().flatten() {
            if self.smem.read(buffer) {
                self.barrier(false);
            }
        }
        for &buffer in buffers.iter().flatten() {
            self.smem.read(buffer);
            self.sub_steps.push(SubStep::SmemRead(buffer));
        }
    }

    /// Inserts a barrier, with the waits for MMAs and TMA stores that precede it. `always`: a step
    /// needs the barrier, independent of hazards.
    pub fn barrier(&mut self, always: bool) {
        if !self.in_flight.is_empty() {
            self.complete_mmas(0);
            self.sunk_waits.clear();
            self.sub_steps.push(SubStep::MmaWaitAll);
        }
        if self.smem.bulk_wait_wanted() {
            self.sub_steps.push(SubStep::TmaStoreWait { complete: false });
        }
        self.sub_steps.push(SubStep::Barrier { required: always });
        self.after_barrier();
    }

    /// Clears the hazards that a barrier has ordered.
    pub fn after_barrier(&mut self) {
        self.smem.barrier();
        self.global_hazards.after_barrier();
    }

    /// Begins the global access of an op, after a barrier if the access may race.
    pub fn global_access(&mut self, id: OpId) {
        let Some(effect) = self.info.memory_effect_of(id) else { return };
        if self.sub_steps.last() == Some(&SubStep::GlobalAccess(id)) {
            // The access has already begun, and no sub-step follows it.
            return;
        }
        if self.global_hazards.may_race(&effect) {
            self.barrier(false);
        }
        if !self.info.written_memory.does_not_modify(&effect) {
            self.sub_steps.push(SubStep::GlobalAccess(id));
        }
        self.global_hazards.add(&self.info.written_memory, [effect]);
    }

    /// Adds the global access of an op to the hazards.
    pub fn add_global_access(&mut self, id: OpId) {
        self.global_hazards.add(&self.info.written_memory, self.info.memory_effect_of(id));
    }

    /// Emits sunk waits until the MMA that computes the value is complete.
    fn wait_for_value(&mut self, value: Value) {
        while self.in_flight.iter().any(|results| results.contains(&value)) {
            let Some((pending, wait)) = self.sunk_waits.pop_front() else { return };
            self.emit_sunk_wait(pending, wait);
        }
    }

    /// Emits the remaining sunk waits.
    pub fn flush_sunk_waits(&mut self) {
        while let Some((pending, wait)) = self.sunk_waits.pop_front() {
            self.emit_sunk_wait(pending, wait);
        }
    }

    fn emit_sunk_wait(&mut self, pending: usize, wait: usize) {
        let is_needed = self.in_flight.len() > pending;
        self.mma_waits[wait].is_needed |= is_needed;
        self.complete_mmas(pending);
    }

    fn complete_mmas(&mut self, pending: usize) {
        self.in_flight.drain(..self.in_flight.len().saturating_sub(pending));
    }
}
