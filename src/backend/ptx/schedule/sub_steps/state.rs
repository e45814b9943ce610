//! State of the insertion of sub-steps: the layouts in which each value is available, the accesses
//! to memory since the last barrier, and the MMAs in flight.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::global_hazards::GlobalHazards;
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{Schedule, SeqId, Step};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::schedule::requirements::conversion_cache::ConversionCache;
use crate::backend::ptx::smem::allocation::{Buffer, SharedMemory};
use crate::ir::{OpId, Value};
use crate::layout::Layout;

/// An operand that threads write in each iteration, with its buffer in the first slot.
pub struct DoubledOperand<'a> {
    /// The last MMA of its group.
    pub mma: OpId,
    pub value: Value,
    pub is_left: bool,
    pub plan: &'a OperandPlan,
    pub buffer: Buffer,
}

/// An MMA wait, and whether MMAs are in flight at its position.
pub struct MmaWaitUse {
    pub body: SeqId,
    /// Position in `body`.
    pub position: usize,
    pub is_needed: bool,
}

/// An operand of MMAs in shared memory.
pub struct StoredOperand<'a> {
    pub value: Value,
    pub is_left: bool,
    pub plan: &'a OperandPlan,
    pub buffer: Buffer,
}

/// MMA group in flight at a sub-step, with the shared memory that it reads, for membar.
#[derive(Clone)]
pub struct MembarMmaGroup {
    /// Results of the group.
    pub results: Vec<Value>,
    /// Buffers that the group reads.
    pub reads: Vec<Buffer>,
}

/// Builder of the sub-steps of one partition.
pub struct SubStepBuilder<'a, 'm> {
    pub info: &'a KernelInfo<'m>,
    pub schedule: &'a mut Schedule,
    pub smem: SharedMemory,
    pub global_hazards: GlobalHazards,
    /// The own layout of each defined value.
    pub own_layouts: Vec<Option<Layout>>,
    pub available: ConversionCache<()>,
    /// Operands of MMAs of the current sequence that are still in shared memory.
    pub stored_operands: Vec<StoredOperand<'a>>,
    /// Operands of MMAs that the enclosing loops have hoisted.
    pub hoisted_operands: Vec<StoredOperand<'a>>,
    /// The TMA stores, each with its array.
    pub tma_stores: FxHashMap<OpId, Value>,
    /// TMA stores of the whole CTA, through shared memory that other steps use, too.
    pub block_tma_stores: FxHashSet<OpId>,
    /// True if some TMA stores are per warp.
    pub has_warp_tma_stores: bool,
    /// Arrays that TMA may have stored to.
    pub tma_stored_arrays: FxHashSet<Value>,
    /// Operands that threads write, in the slots of the enclosing loop that has two of them.
    pub doubled_operands: Vec<DoubledOperand<'a>>,
    /// The MMA groups that may be in flight, in the order of issue.
    pub in_flight: Vec<MembarMmaGroup>,
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

impl<'a, 'm> SubStepBuilder<'a, 'm> {
    /// Returns the builder at the start of a partition.
    pub fn new(info: &'a KernelInfo<'m>, schedule: &'a mut Schedule, smem: SharedMemory) -> SubStepBuilder<'a, 'm> {
        let has_warp_tma_stores = schedule.tma_stores().any(|tma_store| tma_store.staging.is_some());
        SubStepBuilder {
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
            stored_operands: Vec::new(),
            hoisted_operands: Vec::new(),
            tma_stored_arrays: FxHashSet::default(),
            doubled_operands: Vec::new(),
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

    /// Returns the buffer of an operand of an MMA group, if the loop has two slots for it.
    pub fn doubled_operand(&self, members: &[OpId], value: Value, is_left: bool, plan: &OperandPlan) -> Option<Buffer> {
        let is_it = |other: &&DoubledOperand<'_>| {
            members.last() == Some(&other.mma)
                && (other.value, other.is_left) == (value, is_left)
                && other.plan.is_same(plan)
        };
        self.doubled_operands.iter().find(is_it).map(|operand| operand.buffer)
    }

    /// Records that shared memory has no space for a buffer.
    pub fn smem_overflow(&mut self, bytes: u32) {
        self.sub_steps.push(SubStep::SmemOverflow { bytes, of: self.smem.free() });
    }

    /// Emits sunk waits until the MMA that computes the value is complete.
    pub fn wait_for_value(&mut self, value: Value) {
        while self.in_flight.iter().any(|mma| mma.results.contains(&value)) {
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

    /// Removes completed MMA groups: all but the last `pending` ones. Those of other warps may
    /// still be in flight until the next barrier.
    pub fn complete_mmas(&mut self, pending: usize) {
        for mma in self.in_flight.drain(..self.in_flight.len().saturating_sub(pending)) {
            self.smem.reads_ended(&mma.reads);
        }
    }
}
