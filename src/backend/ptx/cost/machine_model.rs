//! Machine models: rates and latencies of a multiprocessor, one table for each target.
//!
//! Sources of the numbers:
//! * *guide*: table of arithmetic throughput, CUDA programming guide 12.9;
//! * *sheet*: data sheets of A100 and H200; rates are divided by multiprocessors and boost clock;
//! * *fitted*: chosen such that the order of the configurations in `benches/compare/h200.tune` is
//!   reproduced (H200, driver 580.159, November 2026), as `benches/schedules` prints it;
//! * *estimate*: no measurement.

use crate::target::Target;

/// What the parts of a GPU do in a cycle. Times are cycles.
#[derive(Clone, Copy, Debug)]
pub struct MachineModel {
    /// Cycles in a nanosecond.
    pub clock: f64,
    pub multiprocessors: f64,
    /// Multiply-adds of 16-bit elements.
    pub tensor: f64,
    /// Lanes of warps that get an instruction: all of what threads do.
    pub issue: f64,
    /// Lanes of those that compare, select, convert or compute integers.
    pub alu: f64,
    /// Lanes of `ex2`, `rcp` and their like.
    pub special: f64,
    /// Bytes of shared memory, read and written.
    pub shared: f64,
    /// Bytes that a multiprocessor gets from the second-level cache, when all of them want some.
    pub l2: f64,
    /// Bytes of memory: the share of a multiprocessor.
    pub memory: f64,
    /// How much of what products read is not in the second-level cache.
    pub misses: f64,
    /// From an access of a thread to its number.
    pub load_latency: f64,
    /// From the start of a copy to shared memory to its end, beside its bytes.
    pub copy_latency: f64,
    /// An instruction that waits for the one before.
    pub dependent_issue: f64,
    /// A shuffle that is waited for.
    pub shuffle: f64,
    /// A barrier of warps.
    pub barrier: f64,
    /// From the end of what is waited for to the first instruction behind the wait.
    pub wait_wakeup: f64,
    /// From the last instruction of a product to its result.
    pub mma_latency: f64,
    /// Between two groups of products of the same warps.
    pub mma_group_gap: f64,
    /// A step of k of a product whose left operand threads fetch.
    pub gather: f64,
    /// How much of the issue slots products on their own take, for the registers that they read and
    /// write.
    pub registers: f64,
    /// How much longer instructions take when a block has twice as many warpgroups: they go in
    /// step, and want the same at the same time.
    pub warpgroup_contention: f64,
    /// What a producer does for a stage, beside its boxes; and in a pair, where blocks far away
    /// give stages back.
    pub producer_stage: f64,
    pub producer_stage_cluster: f64,
    /// A box.
    pub tma_box: f64,
    /// Head of a loop.
    pub loop_overhead: f64,
    /// From the start of a tile block to its first instruction, and from its end to the next block.
    pub block_launch: f64,
    /// A launch.
    pub launch: f64,
}

/// A100.
const SM_80: MachineModel = MachineModel {
    clock: 1.41,                  // sheet: boost
    multiprocessors: 108.0,       // sheet
    tensor: 1024.0,               // sheet: 312 TFLOP/s
    issue: 128.0,                 // four schedulers
    alu: 64.0,                    // guide
    special: 16.0,                // guide
    shared: 128.0,                // guide
    l2: 40.0,                     // estimate: 5120 bytes a cycle for all, less what is far
    memory: 13.0,                 // sheet: 2.0 TB/s
    misses: 0.25,                 // estimate
    load_latency: 500.0,          // estimate
    copy_latency: 600.0,          // estimate
    dependent_issue: 5.0,         // estimate
    shuffle: 24.0,                // estimate
    barrier: 30.0,                // estimate
    wait_wakeup: 30.0,            // estimate
    mma_latency: 30.0,            // estimate
    mma_group_gap: 0.0,           // `mma.sync` has no groups
    gather: 0.0,                  // none
    registers: 0.0,               // none
    warpgroup_contention: 0.0,    // estimate
    producer_stage: 40.0,         // no producers
    producer_stage_cluster: 40.0, // no pairs
    tma_box: 12.0,                // no boxes
    loop_overhead: 40.0,          // estimate
    block_launch: 700.0,          // estimate
    launch: 3000.0,               // estimate
};

/// H100 and H200.
const SM_90A: MachineModel = MachineModel {
    clock: 1.5,                    // what products leave of 1.98 GHz: fitted
    multiprocessors: 132.0,        // sheet
    tensor: 2048.0,                // sheet: 989 TFLOP/s at 1.83 GHz
    issue: 128.0,                  // four schedulers
    alu: 64.0,                     // guide
    special: 16.0,                 // guide
    shared: 128.0,                 // guide
    l2: 64.0,                      // fitted
    memory: 22.0,                  // sheet: 4.8 TB/s
    misses: 0.25,                  // fitted
    load_latency: 600.0,           // estimate
    copy_latency: 700.0,           // estimate
    dependent_issue: 4.0,          // estimate
    shuffle: 24.0,                 // estimate
    barrier: 30.0,                 // estimate
    wait_wakeup: 30.0,             // estimate
    mma_latency: 40.0,             // estimate
    mma_group_gap: 12.0,           // fitted
    gather: 160.0,                 // fitted
    registers: 0.2,                // fitted
    warpgroup_contention: 0.23,    // fitted
    producer_stage: 40.0,          // estimate
    producer_stage_cluster: 255.0, // fitted
    tma_box: 12.0,                 // estimate
    loop_overhead: 40.0,           // estimate
    block_launch: 700.0,           // estimate
    launch: 3000.0,                // estimate
};

/// The table of a target: the one that is nearest.
pub fn of(target: Target) -> &'static MachineModel {
    if target.arch >= 90 { &SM_90A } else { &SM_80 }
}
