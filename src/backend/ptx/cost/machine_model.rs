//! Machine models: rates and latencies of an SM, one table for each target.
//!
//! Sources of the numbers:
//! * *guide*: table of arithmetic throughput, CUDA programming guide 12.9;
//! * *sheet*: data sheets of A100 and H200; rates are divided by SMs and boost clock;
//! * *fitted*: chosen such that the order of the configurations in `benches/compare/h200.tune` is
//!   reproduced (H200, driver 580.159, November 2026), as `benches/schedules` prints it;
//! * *paper*: Luo et al., "Benchmarking and dissecting the Nvidia Hopper GPU architecture via
//!   microbenchmarking", 2024;
//! * *estimate*: no measurement.

use crate::target::Target;

/// Rates of an SM per cycle, and latencies in cycles.
#[derive(Clone, Copy, Debug)]
pub struct MachineModel {
    /// Cycles per nanosecond.
    pub clock: f64,
    pub num_sms: f64,
    /// Multiply-adds of 16-bit elements on tensor cores, per cycle.
    pub tensor: f64,
    /// Issued lanes per cycle, of any instruction.
    pub issue: f64,
    /// Lanes per cycle of comparisons, selections, conversions and integer arithmetic.
    pub alu: f64,
    /// Lanes per cycle of `ex2`, `rcp` and other special functions.
    pub special: f64,
    /// Bytes of shared memory per cycle, read or written.
    pub shared: f64,
    /// Bytes from the L2 cache per cycle, if all SMs access it.
    pub l2: f64,
    /// Bytes of memory per cycle: the share of one SM.
    pub memory: f64,
    /// Fraction of the operand bytes of MMAs that miss the L2 cache.
    pub misses: f64,
    /// Cycles from a load of a thread to its result.
    pub load_latency: f64,
    /// Cycles of a copy to shared memory, without the transfer of its bytes.
    pub copy_latency: f64,
    /// Cycles between an instruction and a dependent one.
    pub dependent_issue: f64,
    /// Cycles of a shuffle with a dependent instruction.
    pub shuffle: f64,
    /// Cycles of a barrier.
    pub barrier: f64,
    /// Cycles of a barrier of a cluster.
    pub cluster_barrier: f64,
    /// Cycles of a load from the shared memory of another CTA, and bytes of them per cycle.
    pub cluster_latency: f64,
    pub cluster: f64,
    /// Cycles from the completion of an mbarrier phase to the first instruction after the wait.
    pub wait_wakeup: f64,
    /// Cycles from the last instruction of an MMA to its result.
    pub mma_latency: f64,
    /// Cycles between two MMA groups of the same warps.
    pub mma_group_gap: f64,
    /// Cycles per step of k of an MMA whose left operand is loaded into registers.
    pub gather: f64,
    /// Fraction of the issue slots that asynchronous MMAs use, for their register accesses.
    pub registers: f64,
    /// Relative slowdown of instructions per doubling of the warp groups of a CTA: warp groups
    /// execute the same code at the same time and compete for the same resource.
    pub warpgroup_contention: f64,
    /// Cycles of a producer per stage, without its boxes; and in a cluster, where a remote CTA
    /// releases stages.
    pub producer_stage: f64,
    pub producer_stage_cluster: f64,
    /// Cycles of a producer per TMA box.
    pub tma_box: f64,
    /// Cycles of the head of a loop.
    pub loop_overhead: f64,
    /// Cycles from the start of a CTA to its first instruction, plus those from its end to
    /// the next CTA.
    pub cta_launch: f64,
    /// Cycles of a launch.
    pub launch: f64,
}

/// A100.
const SM_80: MachineModel = MachineModel {
    clock: 1.41,                  // sheet: boost
    num_sms: 108.0,               // sheet
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
    cluster_barrier: 30.0,        // no clusters
    cluster_latency: 30.0,        // no clusters
    cluster: 128.0,               // no clusters
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
    cta_launch: 700.0,            // estimate
    launch: 3000.0,               // estimate
};

/// H100 and H200.
const SM_90A: MachineModel = MachineModel {
    clock: 1.5,                    // what products leave of 1.98 GHz: fitted
    num_sms: 132.0,                // sheet
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
    cluster_barrier: 250.0,        // estimate
    cluster_latency: 180.0,        // paper
    cluster: 14.0,                 // paper: 3.3 TB/s, pairs
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
    cta_launch: 700.0,             // estimate
    launch: 3000.0,                // estimate
};

/// Returns the table of the nearest target.
pub fn nearest(target: Target) -> &'static MachineModel {
    if target.arch >= 90 { &SM_90A } else { &SM_80 }
}
