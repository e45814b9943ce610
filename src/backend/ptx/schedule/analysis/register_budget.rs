//! Register budget: warps and registers per partition, CTAs per SM.

use crate::backend::ptx::hardware::{MAX_REGISTERS_PER_THREAD, REGISTERS_PER_SM, WARP_SIZE};
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps::products_behind;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{Elem, Type, Value};

/// Registers of a producer thread once it has given up the others.
pub const PRODUCER_REGISTERS: u32 = 24;
/// Most registers of a consumer thread.
const CONSUMER_REGISTERS: u32 = 240;
/// Registers beside those of an accumulator that matrix instructions need.
const SPARE_REGISTERS: u32 = 32;
impl KernelInfo<'_> {
    /// The request for blocks that share a multiprocessor, as far as their warps and the registers
    /// of MMAs allow it: with fewer, the assembler refuses MMAs that are asynchronous, or spills
    /// most of what there is.
    pub fn possible_occupancy(&self) -> Option<u32> {
        let most = self.inference.target.multiprocessor();
        let most = most.fitting_blocks(self.consumer_warps(), self.mma_registers(), 0);
        self.options.occupancy.map(|requested| requested.clamp(1, most.max(1)))
    }

    /// Registers of a thread without which MMAs are refused, or most of what there is spilled; 0
    /// where there is no MMA.
    pub fn mma_registers(&self) -> u32 {
        let inference = &self.inference;
        let registers = inference.products.keys().map(|&id| {
            let operands = &self.module.op(id).operands[..2];
            let computed = operands.iter().filter(|&&operand| self.source_load(operand).is_none());
            let words = computed.map(|&operand| inference.words_of(operand)).sum::<u32>();
            let behind = products_behind(self.module, operands);
            self.accumulator_registers(id) + words + self.total_accumulator_registers(&behind) + SPARE_REGISTERS
        });
        registers.max().unwrap_or(0)
    }

    /// About as many registers as a thread needs: for MMAs, or for its part of the largest tile and
    /// what is made of it.
    pub fn min_registers(&self) -> u32 {
        let is_in_registers = |&value: &Value| {
            matches!(self.module.ty(value), Type::Tile { elem: Elem::Num(_), .. })
                && self.inference.source(value) == ValueOrigin::Register
        };
        let results = self.regions.ops().iter().flat_map(|&id| &self.module.op(id).results).copied();
        let largest = results.filter(is_in_registers).map(|value| self.inference.words_of(value)).max().unwrap_or(0);
        self.mma_registers().max(2 * largest + SPARE_REGISTERS).min(MAX_REGISTERS_PER_THREAD)
    }

    /// Most registers of a thread that computes, where so many blocks share a multiprocessor,
    /// beside a producer or not.
    pub fn consumer_registers(&self, streams: bool, blocks: u32) -> u32 {
        match streams {
            true => self.registers_per_thread(blocks).1,
            false => (REGISTERS_PER_SM / (blocks * self.consumer_warps() * WARP_SIZE)).min(MAX_REGISTERS_PER_THREAD),
        }
    }

    /// Warps of the producer, of which one thread works. Only whole warpgroups can hand over
    /// registers, and where there is one warpgroup of consumers, a single warp beside it leaves
    /// them as many without that.
    pub fn producer_warps(&self) -> u32 {
        if self.consumer_warps() > 4 { 4 } else { 1 }
    }

    /// Groups of the warps that layouts speak of.
    pub fn consumer_groups(&self) -> u32 {
        self.pingpong_groups * self.data_partitions
    }

    /// Warps of all of them.
    pub fn consumer_warps(&self) -> u32 {
        self.inference.num_warps as u32 * self.consumer_groups()
    }

    /// Registers of a thread at entry, and of a consumer once the producer has given up its own, if
    /// this many blocks run on a multiprocessor.
    pub fn registers_per_thread(&self, blocks: u32) -> (u32, u32) {
        let (consumers, producers) = (self.consumer_warps(), self.producer_warps());
        let all = REGISTERS_PER_SM / blocks / WARP_SIZE;
        let at_entry = (all / (consumers + producers)).min(MAX_REGISTERS_PER_THREAD) / 8 * 8;
        // What a block has is what it got at entry: a thread that asked for more would wait for
        // ever.
        let pool = at_entry * (consumers + producers);
        let kept = pool.saturating_sub(producers * PRODUCER_REGISTERS);
        (at_entry, (kept / consumers).min(CONSUMER_REGISTERS) / 8 * 8)
    }

    /// Blocks that shall run on a multiprocessor: as many as requested, but not more than leave
    /// registers for an accumulator. What counts is a thread's share at entry: ptxas goes by it
    /// when it decides whether matrix instructions may be asynchronous.
    pub fn warp_specialized_occupancy(&self) -> u32 {
        let mmas = self.inference.products.keys();
        let least = mmas.map(|&id| self.accumulator_registers(id) + SPARE_REGISTERS).max().unwrap_or(0);
        let requested = self.options.occupancy.unwrap_or(1).max(1);
        (1..=requested).rev().find(|&blocks| self.registers_per_thread(blocks).0 >= least).unwrap_or(1)
    }
}
