//! Register budget: warps and registers per partition, CTAs per SM.

use crate::backend::ptx::hardware::{
    MAX_REGISTERS_PER_THREAD, REGISTERS_PER_SM, SCHEDULERS_PER_SM, WARP_GROUP_WARPS, WARP_SIZE,
};
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps::producer_mmas_of;
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{Elem, OpId, Type, Value};

/// Registers of a producer thread after it has released the other ones (PTX `setmaxnreg`).
pub const PRODUCER_REGISTERS: u32 = 24;
/// Maximum number of registers of a consumer thread.
const CONSUMER_REGISTERS: u32 = 240;
/// Registers that a thread with MMAs needs in addition to its accumulators.
const SPARE_REGISTERS: u32 = 32;

/// Maximum number of registers of a thread for partial sums, in addition to its accumulators.
const MAX_PARTIAL_SUM_REGISTERS: u32 = 64;

/// Minimum number of registers of a thread with f64 MMAs of 16 rows.
const MIN_F64_MMA_REGISTERS: u32 = 64;

impl KernelInfo<'_> {
    /// Returns the requested number of CTAs per SM, limited by warps and by the registers of MMAs.
    /// With fewer registers, ptxas rejects asynchronous MMAs or spills most values.
    pub fn possible_occupancy(&self) -> Option<u32> {
        let most = self.inference.target.multiprocessor();
        let most = most.fitting_blocks(self.consumer_warps(), self.mma_registers(), 0);
        self.options.occupancy.map(|requested| requested.clamp(1, most.max(1)))
    }

    /// Returns the number of registers that a thread needs for MMAs; 0 without MMAs. With fewer,
    /// ptxas rejects the MMAs or spills most values.
    pub fn mma_registers(&self) -> u32 {
        let inference = &self.inference;
        let registers = inference.mma_plans.keys().map(|&id| {
            let operands = &self.module.op(id).operands[..2];
            let computed =
                operands.iter().filter(|&&operand| self.source_load(operand).is_none() || self.is_joined(operand));
            let words = computed.map(|&operand| inference.words_of(operand)).sum::<u32>();
            let behind = producer_mmas_of(self.module, operands);
            let all = self.accumulator_registers(id) + words + self.total_accumulator_registers(&behind);
            let is_f64 = self.element_type(self.module.op(id).results[0]) == DType::F64;
            // ptxas rejects the MMAs of f64 of 16 rows with few registers.
            let least = if is_f64 && inference.target.arch >= 90 { MIN_F64_MMA_REGISTERS } else { 0 };
            (all + SPARE_REGISTERS).max(least)
        });
        registers.max().unwrap_or(0)
    }

    /// Returns the number of registers that a thread needs for MMAs, including partial sums that it
    /// adds to the accumulators.
    pub fn mma_registers_with_partial_sums(&self) -> u32 {
        let sums = self.inference.mma_plans.keys().map(|&id| self.partial_sum_registers(id)).max();
        self.mma_registers() + sums.unwrap_or(0)
    }

    /// Returns the number of registers of partial sums that a thread adds to the accumulators of an
    /// MMA.
    pub fn partial_sum_registers(&self, mma: OpId) -> u32 {
        match self.inference.mma_plans.get(&mma) {
            Some(Ok(plan)) if plan.effort().additions > 0 => {
                (plan.acc.num_registers() as u32).min(MAX_PARTIAL_SUM_REGISTERS)
            }
            _ => 0,
        }
    }

    /// Returns an estimate of the registers of a thread: for MMAs, or for its part of the largest
    /// tile and a result of the same size.
    pub fn min_registers(&self) -> u32 {
        let is_in_registers = |&value: &Value| {
            matches!(self.module.ty(value), Type::Tile { elem: Elem::Num(_), .. })
                && self.inference.origin(value) == ValueOrigin::Register
        };
        let results = self.regions.ops().iter().flat_map(|&id| &self.module.op(id).results).copied();
        let largest = results.filter(is_in_registers).map(|value| self.inference.words_of(value)).max().unwrap_or(0);
        self.mma_registers().max(2 * largest + SPARE_REGISTERS).min(MAX_REGISTERS_PER_THREAD)
    }

    /// Returns the maximum number of registers of a consumer thread with `ctas_per_sm` CTAs per SM.
    /// `with_producer`: the kernel has a producer.
    pub fn consumer_registers(&self, with_producer: bool, ctas_per_sm: u32) -> u32 {
        match with_producer {
            true => self.registers_per_thread(ctas_per_sm).1,
            false => {
                (REGISTERS_PER_SM / (ctas_per_sm * self.consumer_warps() * WARP_SIZE)).min(MAX_REGISTERS_PER_THREAD)
            }
        }
    }

    /// Returns the number of producer warps, of which one thread issues loads. Only whole warp
    /// groups can transfer registers. With one consumer warp group, a single producer warp leaves
    /// the consumers equally many registers without a transfer.
    pub fn producer_warps(&self) -> u32 {
        if self.consumer_warps() > 4 { 4 } else { 1 }
    }

    /// Returns the number of consumer groups, each with the warps of the layouts.
    pub fn consumer_groups(&self) -> u32 {
        self.pingpong_groups * self.data_partitions
    }

    /// Returns the number of warps of all consumer groups.
    pub fn consumer_warps(&self) -> u32 {
        self.inference.num_warps as u32 * self.consumer_groups()
    }

    /// Returns the number of registers of a thread at entry, and of a consumer thread after the
    /// producer has released its own. `ctas_per_sm`: the number of CTAs per SM.
    pub fn registers_per_thread(&self, ctas_per_sm: u32) -> (u32, u32) {
        let (consumers, producers) = (self.consumer_warps(), self.producer_warps());
        let warps_per_scheduler = (ctas_per_sm * (consumers + producers)).div_ceil(SCHEDULERS_PER_SM);
        let of_warp = REGISTERS_PER_SM / SCHEDULERS_PER_SM / warps_per_scheduler;
        let at_entry = (of_warp / WARP_SIZE).min(MAX_REGISTERS_PER_THREAD) / 8 * 8;
        if !self.transfers_registers() {
            return (at_entry, at_entry.min(CONSUMER_REGISTERS));
        }
        // A CTA has only the registers allocated at entry. A thread that requests more waits
        // forever.
        let pool = at_entry * (consumers + producers);
        let kept = pool.saturating_sub(producers * PRODUCER_REGISTERS);
        (at_entry, (kept / consumers).min(CONSUMER_REGISTERS) / 8 * 8)
    }

    /// Returns true if producer and consumers are whole warp groups, which can transfer registers
    /// (PTX `setmaxnreg`).
    pub fn transfers_registers(&self) -> bool {
        self.producer_warps() == WARP_GROUP_WARPS && self.consumer_warps().is_multiple_of(WARP_GROUP_WARPS)
    }

    /// Returns the number of CTAs per SM of a warp-specialized kernel: the request, reduced until a
    /// thread has registers for its accumulator. The limit applies to registers at entry, by which
    /// ptxas decides whether MMAs can be asynchronous.
    pub fn warp_specialized_occupancy(&self) -> u32 {
        let mmas = self.inference.mma_plans.keys();
        let least = mmas.map(|&id| self.accumulator_registers(id) + SPARE_REGISTERS).max().unwrap_or(0);
        let requested = self.options.occupancy.unwrap_or(1).max(1);
        (1..=requested).rev().find(|&ctas_per_sm| self.registers_per_thread(ctas_per_sm).0 >= least).unwrap_or(1)
    }
}
