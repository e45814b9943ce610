//! Stage counts: the number of stages of each pipeline.
//!
//! The maximum is the hint `num_stages` of the loop, else `Hints::num_stages`, else the number for
//! the hint `latency`, else `DEFAULT_STAGES`; at least 2. The capacity is `smem_for_stages`
//! (`analysis/kernel_info`) without conversions and thread-private stages.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::smem_budget::{CONVERSION_BYTES, MIN_CONVERSION_BYTES};
use crate::backend::ptx::schedule::ir::pipelines::{LoopNesting, PipelineDesc, WarpSpecialization};
use crate::backend::ptx::schedule::ir::rejected_loads::ProducerRejection;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::ir::BlockId;
use crate::util::collect::CollectVec as _;

/// Minimum number of stages, of all pipelines of innermost loops together, before other pipelines
/// get more than one.
const MIN_INNERMOST_STAGES: u32 = 4;
/// Number of stages of an outer loop: the current one and the next one.
const OUTER_STAGES: u32 = 2;
/// Maximum number of stages of a pipeline without a hint. More do not hide more latency.
const DEFAULT_STAGES: u32 = 8;
/// Bytes of shared memory for barriers and alignment.
const SLACK_BYTES: u32 = 2 << 10;

/// Returns the bytes of all stages.
fn used_bytes(pipelines: &[PipelineDesc]) -> u32 {
    pipelines.iter().map(|pipeline| pipeline.num_stages * pipeline.stage_bytes).sum()
}

/// Returns the number of stages of all pipelines of innermost loops.
fn innermost_stages(pipelines: &[PipelineDesc]) -> u32 {
    pipelines
        .iter()
        .filter(|pipeline| pipeline.nesting == LoopNesting::Innermost)
        .map(|pipeline| pipeline.num_stages)
        .sum()
}

impl KernelInfo<'_> {
    /// Divides shared memory among the pipelines.
    ///
    /// Pipelines of innermost loops get `MIN_INNERMOST_STAGES` stages first. Then a pipeline of
    /// an outer loop gets a second stage, so that its tile is loaded before the next iteration
    /// begins. Then innermost loops get the rest.
    ///
    /// # Errors
    /// If shared memory is too small for one stage of each pipeline.
    pub fn assign_stage_counts(
        &self,
        body: BlockId,
        warp_spec: &mut WarpSpecialization,
        smem: &SharedMemory,
    ) -> Result<(), ProducerRejection> {
        let is_operand_load = |load| warp_spec.operand_channel(load).is_some();
        let private = self.thread_private_stage_bytes(warp_spec);
        let remaining_capacity = |tma_stores: bool, most: u32| {
            let consumer_groups = self.consumer_groups();
            let rest = consumer_groups
                * self.other_smem_bytes(body, &is_operand_load, tma_stores, most / consumer_groups)
                + private
                + SLACK_BYTES;
            self.smem_for_stages(smem).checked_sub(rest)
        };
        let capacities = [CONVERSION_BYTES, MIN_CONVERSION_BYTES].map(|most| remaining_capacity(true, most));
        let without_tma_stores = remaining_capacity(false, MIN_CONVERSION_BYTES);
        self.assign_pipelines(warp_spec);
        for pipeline in &mut warp_spec.pipelines {
            pipeline.num_stages = if pipeline.nesting == LoopNesting::Innermost { 2 } else { 1 };
        }
        let fits =
            |capacity: Option<u32>| capacity.is_some_and(|capacity| used_bytes(&warp_spec.pipelines) <= capacity);
        let found = capacities.into_iter().find(|&capacity| fits(capacity));
        let staging = match found {
            None if fits(without_tma_stores) => self.staging_channel(warp_spec),
            _ => None,
        };
        let capacity = match (found, staging) {
            (Some(capacity), _) => capacity,
            (None, Some(staging)) => {
                warp_spec.channels.push(staging);
                without_tma_stores
            }
            (None, None) => {
                warp_spec.pipelines.iter_mut().for_each(|pipeline| pipeline.num_stages = 1);
                let fits =
                    |capacity: Option<u32>| capacity.is_some_and(|most| used_bytes(&warp_spec.pipelines) <= most);
                let all = [capacities[0], capacities[1], without_tma_stores];
                all.into_iter().find(|&capacity| fits(capacity)).unwrap_or(capacities[0])
            }
        };
        let (needed, free) = (used_bytes(&warp_spec.pipelines), capacity.unwrap_or(0));
        let capacity =
            capacity.filter(|&capacity| needed <= capacity).ok_or(ProducerRejection::SharedMemory { needed, free })?;
        let pipelines = 0..warp_spec.pipelines.len();
        let requested: Vec<Option<u32>> =
            pipelines.clone().map(|pipeline| self.requested_pipeline_stages(warp_spec, pipeline)).collect_vec();
        let max_stages: Vec<u32> = pipelines
            .map(|pipeline| requested[pipeline].unwrap_or_else(|| self.default_pipeline_stages(warp_spec, pipeline)))
            .collect_vec();
        // Each phase adds stages until innermost loops have this number.
        let phases = [
            (LoopNesting::Innermost, MIN_INNERMOST_STAGES),
            (LoopNesting::Outer, u32::MAX),
            (LoopNesting::Innermost, u32::MAX),
        ];
        for (nesting, max_total) in phases {
            // The pipeline with the fewest stages is first: loads of one iteration have equal
            // stages. The smaller pipelines get the rest of the memory.
            while innermost_stages(&warp_spec.pipelines) < max_total || nesting == LoopNesting::Outer {
                let used = used_bytes(&warp_spec.pipelines);
                let grows = |&index: &usize| {
                    let pipeline = &warp_spec.pipelines[index];
                    let outer = nesting == LoopNesting::Outer && requested[index].is_none();
                    let most = if outer { OUTER_STAGES } else { max_stages[index] };
                    pipeline.nesting == nesting && pipeline.num_stages < most && used + pipeline.stage_bytes <= capacity
                };
                let growing = (0..max_stages.len()).filter(grows);
                let Some(next) = growing.min_by_key(|&index| warp_spec.pipelines[index].num_stages) else { break };
                warp_spec.pipelines[next].num_stages += 1;
            }
        }
        Ok(())
    }

    /// Returns the number of stages that the loops of a pipeline request. It is at least 2, since
    /// loads with one stage are not issued by the producer.
    fn requested_pipeline_stages(&self, warp_spec: &WarpSpecialization, pipeline: usize) -> Option<u32> {
        let channels =
            warp_spec.channels.iter().filter(|channel| channel.pipeline == pipeline && channel.staging_for.is_none());
        channels.filter_map(|channel| self.loop_stages(self.regions.loop_of_block(channel.block))).max()
    }

    /// Returns the number of stages of a pipeline in an innermost loop without a request of the
    /// loop.
    fn default_pipeline_stages(&self, warp_spec: &WarpSpecialization, pipeline: usize) -> u32 {
        let channels = warp_spec.channels.iter().filter(|channel| channel.pipeline == pipeline);
        let loads = channels.flat_map(|channel| channel.loads.iter().map(|tma_load| tma_load.load));
        self.options.num_stages.or_else(|| self.stages_for_latency(loads)).unwrap_or(DEFAULT_STAGES).max(2)
    }
}
