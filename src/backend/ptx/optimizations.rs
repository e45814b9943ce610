//! Registry of the optimizations of the ptx back end, with a switch for each.
//!
//! An optimization is a transformation or a choice that correct code does not need. With all
//! optimizations on, the code is the usual one. With one of them off, a kernel computes the same;
//! it is slower, and may exceed a limit of the hardware or of the assembler.
//!
//! Purposes:
//! * Bisection of a miscompilation, as by `-opt-bisect-limit` of LLVM: the environment variable
//!   `CUTLET_DISABLE` names optimizations.
//! * Measurement of each gain: `cargo bench --bench kernels -- --disable-each`.
//!
//! A comment on a row names the kernel of an optimization that the comparison does not measure.
//!
//! Workarounds for wrong code of ptxas (`workarounds`) are no optimizations, and neither are the
//! passes over Tile IR, which all back ends share (`pass::PIPELINE`).

use crate::util::collect::CollectVec as _;
use std::fmt;

macro_rules! registry {
    ($($name:ident, $key:literal, $file:literal, $summary:literal;)*) => {
        /// An optimization of the ptx back end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Optimization {
            $(#[doc = $summary] $name,)*
        }

        impl Optimization {
            /// All optimizations, sorted by stage.
            pub const ALL: &[Optimization] = &[$(Optimization::$name,)*];

            /// Returns the name of the optimization in `CUTLET_DISABLE`.
            pub const fn key(self) -> &'static str {
                match self { $(Optimization::$name => $key,)* }
            }

            /// Returns the file with the switch, in `src/backend/ptx` and without extension.
            pub const fn file(self) -> &'static str {
                match self { $(Optimization::$name => $file,)* }
            }

            /// Returns the effect in one line.
            pub const fn summary(self) -> &'static str {
                match self { $(Optimization::$name => $summary,)* }
            }
        }
    };
}

registry! {
    SinkLoads, "sink_loads", "compile", "Loads after loops that do not use them.";
    HoistFactor, "hoist_factor", "compile", "Factors after the maxima of products.";
    SelectToBranch, "select_to_branch", "compile", "Masks in the iterations that need them.";
    Persistent, "persistent", "../../launch/compile/ptx", "CTAs that compute several tile blocks one after another.";
    PlanSearch, "plan_search", "plan/plan_search", "Selection of the number of warps and of TMA by the cost model.";
    DataPartition, "data_partition", "plan/num_warps", "Division of the rows of a tile among consumer groups.";
    // Softmax of rows of 65,536 f32: 268 bytes of spill stores without it.
    RematerializeLoads, "rematerialize_loads", "plan/kernel_plan", "Repeated loads of tiles that fill the registers.";
    ThreadLocalReduction, "thread_local_reduction", "plan/mma_loops", "Partial sums of each thread across iterations.";
    PipelineDependentMma, "pipeline_dependent_mma", "plan/mma_loops", "Dependent MMAs in the next iteration.";
    RegisterOperands, "register_operands", "plan/mma_loops", "Left operands of loops in registers.";
    // A gather of rows by pointers (embedding): one access for each element without it.
    PointerContiguity, "pointer_contiguity", "layout_inference/ops/pointer_access", "Vector accesses through pointer tiles.";
    DeferredLoad, "deferred_load", "layout_inference/ops/view_access", "Loads of small tiles in the layout of their use.";
    StridedReduction, "strided_reduction", "layout_inference/ops/view_access", "Layouts of loads that are reduced along a strided axis.";
    ReducedScan, "reduced_scan", "layout_inference/ops/reduce_scan", "Scans in registers whose results are reduced along another axis.";
    // Products with tiles of 96 columns: twice the number of `wgmma` without it.
    AdjacentOperands, "adjacent_operands", "layout_inference/dispatch", "Common panels of right operands that are adjacent.";
    RequestedLayouts, "requested_layouts", "layout_inference/dispatch", "Layouts of unanchored values by their first use.";
    WarpSpecialization, "warp_specialization", "schedule/warp_specialize/plan", "A producer with TMA loads.";
    FusedBoxes, "fused_boxes", "schedule/warp_specialize/plan", "One TMA load for adjacent tiles.";
    AuxLoads, "aux_loads", "schedule/warp_specialize/aux_loads", "Small tiles in the stages of MMA operands.";
    ClusterMulticast, "cluster_multicast", "schedule/warp_specialize/plan", "Loads that two CTAs of a cluster share.";
    Pingpong, "pingpong", "schedule/warp_specialize/pingpong", "Two consumer groups that alternate iterations.";
    EpilogueSmemReuse, "epilogue_smem_reuse", "schedule/warp_specialize/epilogue_smem_reuse", "TMA stores staged in a pipeline stage.";
    TmaStore, "tma_store", "schedule/store/tma_store", "Stores by TMA through shared memory.";
    WarpStaging, "warp_staging", "schedule/store/tma_store", "A staging buffer of each warp for TMA stores.";
    PrivatizedAtomics, "privatized_atomics", "schedule/store/privatize", "Atomics on a copy of the array in shared memory.";
    ImpliedMask, "implied_mask", "schedule/store/implied_mask", "One comparison for the masks of all elements of a thread.";
    // Softmax of rows of 65,536 f32: 432 bytes of spill stores without it.
    StripMine, "strip_mine", "schedule/strip_mine/find", "Elementwise sequences on some registers at a time.";
    CpAsync, "cp_async", "schedule/pipeline/cp_async", "Multistage copies by `cp.async`.";
    ThreadPrivateCopies, "thread_private_copies", "schedule/copies/thread_private", "Multistage copies of the elements of each thread.";
    Unroll, "unroll", "schedule/pipeline/unroll", "Unrolling by the hint of a loop.";
    // A transposed tile, added to all tiles of a loop: two barriers an iteration without it.
    HoistConversions, "hoist_conversions", "schedule/pipeline/hoist_conversions", "Layout conversions of loop invariants before the loop.";
    HoistOperands, "hoist_operands", "schedule/pipeline/hoist_operands", "Loop-invariant operands of MMAs in shared memory before the loop.";
    DoubleBuffer, "double_buffer", "schedule/sub_steps/double_buffers", "Operands that threads write while MMAs of the previous iteration are in flight.";
    MmaGroups, "mma_groups", "schedule/analysis/kernel_info", "Several MMAs under one commit.";
    WideMma, "wide_mma", "schedule/pipeline/mma_groups", "One MMA instruction for adjacent right operands.";
    MmaCarry, "mma_carry", "schedule/pipeline/mma_carry", "MMAs in flight across a back edge.";
    MmaAcrossBranch, "mma_across_branch", "schedule/pipeline/mma_carry", "MMAs in flight across a branch without side effects.";
    SinkMmaWaits, "sink_mma_waits", "schedule/pipeline/mma_waits", "MMA waits inside the step with the first use.";
    MmaOverlap, "mma_overlap", "schedule/pipeline/mma_overlap", "A part of the work on one MMA before the wait for the next.";
    TryWait, "try_wait", "schedule/pipeline/try_wait", "The test of the next stage during the work on MMAs.";
    MmaOrder, "mma_order", "schedule/pipeline/mma_order", "Consumer groups that issue MMAs one after another.";
    ExpOrder, "exp_order", "schedule/pipeline/exp_order", "Consumer groups that evaluate `exp2` one after another.";
    HoistInvariants, "hoist_invariants", "lower/control_flow", "Invariant instructions before loops with MMAs.";
    PrefetchMaps, "prefetch_maps", "lower/async_ops/tma_store", "Prefetches of the tensor maps of stores.";
    PrefetchBoxes, "prefetch_boxes", "lower/async_ops/tma_pipeline", "Prefetches to L2 of tiles whose pipeline has one stage, and of tiles that consumers load around the main loop.";
    UnalignedLoad, "unaligned_load", "lower/memory/unaligned_load", "Vectors for loads at a known misalignment.";
    VectorAtomics, "vector_atomics", "lower/memory/atomic", "Vector atomic additions (sm_90).";
    PackedHalves, "packed_halves", "lower/state/elementwise", "Two f16 or bf16 elements per instruction.";
    MinMax3, "minmax3", "lower/compute/minmax3", "Float min and max reductions by three-input integer instructions.";
    SharedDivisor, "shared_divisor", "lower/state/elementwise", "One reciprocal for the divisions of a thread by one number.";
    // A normal number by Philox: 34 instead of 30 instructions without it.
    MulWide, "mul_wide", "lower/driver", "One `mul.wide` for both halves of a product.";
    MinBlocks, "min_blocks", "lower/driver", "A register limit by the number of CTAs that fit on an SM.";
}

/// The enabled optimizations of a compilation; by default all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OptimizationSet {
    /// A bit for each disabled optimization, by its discriminant.
    disabled: u64,
}

const _: () = assert!(Optimization::ALL.len() <= u64::BITS as usize);

impl OptimizationSet {
    /// All optimizations.
    pub const ALL: OptimizationSet = OptimizationSet { disabled: 0 };

    /// Returns the set without an optimization.
    #[must_use]
    pub const fn without(self, optimization: Optimization) -> OptimizationSet {
        OptimizationSet { disabled: self.disabled | 1 << optimization as u32 }
    }

    /// Returns true if an optimization is enabled.
    pub const fn contains(self, optimization: Optimization) -> bool {
        self.disabled & 1 << optimization as u32 == 0
    }

    /// Returns the optimizations that are enabled in both sets.
    #[must_use]
    pub const fn intersection(self, other: OptimizationSet) -> OptimizationSet {
        OptimizationSet { disabled: self.disabled | other.disabled }
    }

    /// Returns all optimizations but those of a list of keys with commas between.
    ///
    /// # Errors
    /// A sentence with all keys, if a key is unknown.
    pub fn all_but(keys: &str) -> Result<OptimizationSet, String> {
        let mut set = OptimizationSet::ALL;
        for key in keys.split(',').map(str::trim).filter(|key| !key.is_empty()) {
            let Some(&known) = Optimization::ALL.iter().find(|known| known.key() == key) else {
                let all: Vec<&str> = Optimization::ALL.iter().map(|known| known.key()).collect_vec();
                return Err(format!("`{key}` is no optimization of the ptx back end; there are {}", all.join(", ")));
            };
            set = set.without(known);
        }
        Ok(set)
    }

    /// Returns a number that identifies the set, 0 for all optimizations.
    pub const fn bits(self) -> u64 {
        self.disabled
    }

    /// Returns the set that [`OptimizationSet::bits`] identifies, or `None` for other numbers.
    pub const fn from_bits(bits: u64) -> Option<OptimizationSet> {
        if bits >> Optimization::ALL.len() == 0 { Some(OptimizationSet { disabled: bits }) } else { None }
    }
}

/// The text is part of cache keys.
impl fmt::Debug for OptimizationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disabled = Optimization::ALL.iter().filter(|&&optimization| !self.contains(optimization));
        let disabled: Vec<&str> = disabled.map(|optimization| optimization.key()).collect_vec();
        if disabled.is_empty() { write!(f, "all") } else { write!(f, "all but {}", disabled.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn keys_are_unique_and_files_contain_the_switch() {
        let keys: HashSet<&str> = Optimization::ALL.iter().map(|optimization| optimization.key()).collect();
        assert_eq!(keys.len(), Optimization::ALL.len());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend/ptx");
        for &optimization in Optimization::ALL {
            let file = folder.join(optimization.file()).with_extension("rs");
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains(&format!("Optimization::{optimization:?}")), "{optimization:?}: {}", file.display());
        }
    }

    #[test]
    fn a_list_of_keys_disables_optimizations() {
        let set = OptimizationSet::all_but(" try_wait,exp_order, ").unwrap();
        let off = |&&optimization: &&Optimization| !set.contains(optimization);
        let disabled: Vec<Optimization> = Optimization::ALL.iter().filter(off).copied().collect();
        assert_eq!(disabled, [Optimization::TryWait, Optimization::ExpOrder]);
        assert_eq!(format!("{set:?}"), "all but try_wait, exp_order");
        assert_eq!(OptimizationSet::from_bits(set.bits()), Some(set));
        assert_eq!(OptimizationSet::from_bits(1 << Optimization::ALL.len()), None);
        assert_eq!(OptimizationSet::all_but("").unwrap(), OptimizationSet::default());
        let problem = OptimizationSet::all_but("try_wait,nothing").unwrap_err();
        assert!(problem.starts_with("`nothing` is no optimization"), "{problem}");
        assert!(Optimization::ALL.iter().all(|known| problem.contains(known.key())), "{problem}");
    }
}
