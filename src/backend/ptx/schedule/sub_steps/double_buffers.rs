//! Double buffers: two slots for the operands that threads write in a loop with carried MMAs.
//!
//! With one buffer, threads write an operand after the MMAs of the previous iteration are complete.
//! With two slots, they write it while these MMAs are in flight. Consecutive iterations alternate
//! between the slots. The steps of an iteration name the first slot: lowering adds the offset of
//! the iteration. MMAs that the previous iteration has issued read the slot that is then the second
//! one.

use super::state::{DoubledOperand, MembarMmaGroup, SubStepBuilder};
use crate::backend::ptx::hardware::SWIZZLE_ATOM_BYTES;
use crate::backend::ptx::mma::OperandPlan;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::ir::program::{CarriedMma, For, Schedule, Step};
use crate::backend::ptx::schedule::ir::sub_step::SubStep;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};
use crate::util::collect::CollectVec as _;

/// Minimum extent of an MMA along the axis that its written operand does not have. At 32, the MMA
/// takes as long as the write of the operand to shared memory (2048 multiplications of f16 and 128
/// bytes a cycle). With less work there is nothing to overlap (H200: weights of i8 by 16 rows are
/// 8 % slower with two slots).
const MIN_FREE_EXTENT: i64 = 128;

/// State of the enclosing loop, and the slots of the current one.
pub struct DoubleBuffer<'a> {
    outer: Vec<DoubledOperand<'a>>,
    pub slots: Option<Buffer>,
}

impl KernelInfo<'_> {
    /// Returns the extent of the MMAs of a group along the axis that an operand does not have.
    fn free_extent(&self, mma: OpId, value: Value, is_left: bool) -> i64 {
        let members = self.mma_groups.group_of(mma);
        let of_mma = |&id: &OpId| {
            let operands = &self.module.op(id).operands;
            let [own, other] = if is_left { [0, 1] } else { [1, 0] };
            let shape = self.module.shape(operands[other]);
            let axis = if is_left { shape.len() - 1 } else { shape.len() - 2 };
            (operands[own] == value).then(|| shape[axis])
        };
        members.iter().filter_map(of_mma).sum()
    }

    /// Returns true if loops may have double buffers. Data partitions share no operands that
    /// threads write.
    pub fn may_double_buffer(&self) -> bool {
        self.is_enabled(Optimization::DoubleBuffer) && self.data_partitions == 1
    }
}

impl Schedule {
    /// Returns true if a loop has a double buffer.
    pub fn has_double_buffer(&self) -> bool {
        self.sequences.iter().flatten().any(|step| matches!(step, Step::Sub(SubStep::DoubleBuffer(_))))
    }
}

impl<'a> SubStepBuilder<'a, '_> {
    /// Reserves the double buffer of a loop, if its carried MMAs read operands that threads write
    /// and shared memory has space for both slots.
    pub fn enter_double_buffer(&mut self, plan: &For) -> DoubleBuffer<'a> {
        let outer = std::mem::take(&mut self.doubled_operands);
        if !self.schedule.double_buffers || plan.has_barrier_at_head() {
            return DoubleBuffer { outer, slots: None };
        }
        let mut written = Vec::new();
        let mut bytes = 0;
        for carried in &plan.carried_mmas {
            for (value, is_left, plan) in self.written_operands(carried) {
                if self.info.free_extent(carried.mma, value, is_left) < MIN_FREE_EXTENT {
                    return DoubleBuffer { outer, slots: None };
                }
                let buffer = Buffer { offset: bytes, bytes: plan.shared.bytes() as u32 };
                bytes += buffer.bytes.next_multiple_of(plan.align.max(SWIZZLE_ATOM_BYTES));
                written.push(DoubledOperand { mma: carried.mma, value, is_left, plan, buffer });
            }
        }
        let align = written.iter().map(|operand| operand.plan.align).fold(SWIZZLE_ATOM_BYTES, u32::max);
        let bytes = bytes.next_multiple_of(align);
        let slots = if bytes > 0 { self.smem.reserve(2 * bytes, align) } else { None };
        if let Some(slots) = slots {
            for operand in &mut written {
                operand.buffer.offset += slots.offset;
            }
            self.doubled_operands = written;
            self.sub_steps.push(SubStep::DoubleBuffer(slots));
        }
        DoubleBuffer { outer, slots }
    }

    /// Ends the life of the double buffer of a loop.
    pub fn leave_double_buffer(&mut self, DoubleBuffer { outer, slots }: DoubleBuffer<'a>) {
        self.doubled_operands = outer;
        if let Some(slots) = slots {
            self.smem.release(slots);
        }
    }

    /// Returns the MMA groups that the previous iteration has issued. `sum` returns the value of an
    /// accumulator.
    pub fn carried_mmas(&self, plan: &For, slots: Option<Buffer>, sum: impl Fn(usize) -> Value) -> Vec<MembarMmaGroup> {
        let carried = plan.carried_mmas.iter().map(|carried| MembarMmaGroup {
            results: carried.accumulators.iter().map(|&carried| sum(carried)).collect_vec(),
            reads: match slots {
                Some(slots) => vec![slots.halves()[1]],
                // The buffers of this iteration are not allocated yet.
                None if !self.written_operands(carried).is_empty() => vec![self.smem.unreserved()],
                None => Vec::new(),
            },
        });
        carried.collect_vec()
    }

    /// Returns the operands of a group that threads write to shared memory in each iteration.
    fn written_operands(&self, carried: &CarriedMma) -> Vec<(Value, bool, &'a OperandPlan)> {
        let info = self.info;
        let members = info.mma_groups.group_of(carried.mma);
        let mut operands = info.smem_operands_of(&members);
        operands.retain(|&(value, is_left, plan)| {
            let layout = || info.inference.natural_or_default(value);
            !self.is_fetched(value)
                && self.hoisted_operand(value, is_left, plan).is_none()
                && plan.in_registers(&layout()).is_none()
        });
        operands
    }
}
