//! Stage counts: how many stages each pipeline gets.

use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::analysis::smem_budget::{CONVERSION_BYTES, LEAST_CONVERSION_BYTES};
use crate::backend::ptx::schedule::ir::pipelines::{LoopNesting, PipelineDesc, WarpSpecialization};
use crate::backend::ptx::schedule::ir::rejected_loads::Reason;
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::ir::BlockId;

/// Stages, of all rings together, with which innermost loops run far enough ahead that other loads may have theirs.
const AHEAD_STAGES: u32 = 4;
/// Stages of what a loop around loads: one that is at work, and the next one.
const OUTER_STAGES: u32 = 2;
/// Most stages of a ring; more do not hide more.
const MOST_STAGES: u32 = 8;
/// Shared memory for barriers, and lost to alignment.
const SLACK_BYTES: u32 = 2 << 10;

/// Bytes of all stages.
fn used_bytes(rings: &[PipelineDesc]) -> u32 {
    rings.iter().map(|ring| ring.num_stages * ring.stage_bytes).sum()
}

/// Stages of all rings of innermost loops.
fn inner_stages(rings: &[PipelineDesc]) -> u32 {
    rings.iter().filter(|ring| ring.nesting == LoopNesting::Innermost).map(|ring| ring.num_stages).sum()
}

impl KernelInfo<'_> {
    /// Divides shared memory among the rings.
    ///
    /// What innermost loops load gets stages until it runs far enough ahead; then what a loop around them
    /// loads gets a second one, so that it is there when its next iteration begins; then innermost loops
    /// get the rest.
    ///
    /// # Errors
    /// If shared memory is too small for one stage of each ring.
    pub fn assign_stage_counts(
        &self,
        body: BlockId,
        roles: &mut WarpSpecialization,
        structure: &RegionTree,
        shared: &SharedMemory,
    ) -> Result<(), Reason> {
        let streamed = |load| roles.operand_channel.contains_key(&load);
        let beside = |boxes: bool, most: u32| {
            let crews = self.crews();
            let rest = crews * self.other_shared_bytes(body, &streamed, boxes, most / crews) + SLACK_BYTES;
            self.smem_for_stages(shared).checked_sub(rest)
        };
        let rooms = [CONVERSION_BYTES, LEAST_CONVERSION_BYTES].map(|most| beside(true, most));
        let without_boxes = beside(false, LEAST_CONVERSION_BYTES);
        self.assign_pipelines(roles, structure);
        for ring in &mut roles.pipelines {
            ring.num_stages = if ring.nesting == LoopNesting::Innermost { 2 } else { 1 };
        }
        let fits = |room: Option<u32>| room.is_some_and(|room| used_bytes(&roles.pipelines) <= room);
        let found = rooms.into_iter().find(|&room| fits(room));
        let lent = match found {
            None if fits(without_boxes) => self.staging_channel(roles, structure),
            _ => None,
        };
        let room = match (found, lent) {
            (Some(room), _) => room,
            (None, Some(lent)) => {
                roles.channels.push(lent);
                without_boxes
            }
            (None, None) => {
                roles.pipelines.iter_mut().for_each(|ring| ring.num_stages = 1);
                rooms[0]
            }
        };
        let (needed, free) = (used_bytes(&roles.pipelines), room.unwrap_or(0));
        let room = room.filter(|&room| needed <= room).ok_or(Reason::Room { needed, free })?;
        let rings = 0..roles.pipelines.len();
        let wishes: Vec<Option<u32>> = rings.clone().map(|ring| self.wish_for_ring(roles, ring, structure)).collect();
        let wanted: Vec<u32> =
            rings.map(|ring| wishes[ring].unwrap_or_else(|| self.stages_of_ring(roles, ring))).collect();
        // Until innermost loops have so many.
        let turns = [
            (LoopNesting::Innermost, AHEAD_STAGES),
            (LoopNesting::Outer, u32::MAX),
            (LoopNesting::Innermost, u32::MAX),
        ];
        for (repeats, together) in turns {
            let mut grown = true;
            while std::mem::take(&mut grown) {
                for (index, &wanted) in wanted.iter().enumerate() {
                    let fits = used_bytes(&roles.pipelines) + roles.pipelines[index].stage_bytes <= room;
                    let grows = fits && inner_stages(&roles.pipelines) < together;
                    let ring = &mut roles.pipelines[index];
                    let most =
                        if repeats == LoopNesting::Outer && wishes[index].is_none() { OUTER_STAGES } else { wanted };
                    if ring.nesting == repeats && ring.num_stages < most && grows {
                        ring.num_stages += 1;
                        grown = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Stages that the loops of a ring wish for: two at least, for loads without any are not streamed.
    fn wish_for_ring(&self, roles: &WarpSpecialization, ring: usize, structure: &RegionTree) -> Option<u32> {
        let channels =
            roles.channels.iter().filter(|channel| channel.pipeline == ring && channel.staging_for.is_none());
        channels.filter_map(|channel| self.own_stages(self.enclosing_loop(channel.block, structure))).max()
    }

    /// Stages that a ring in an innermost loop should have.
    fn stages_of_ring(&self, roles: &WarpSpecialization, ring: usize) -> u32 {
        let channels = roles.channels.iter().filter(|channel| channel.pipeline == ring);
        let loads = channels.flat_map(|channel| channel.loads.iter().map(|streamed| streamed.load));
        self.options.num_stages.or_else(|| self.stages_by_latency(loads)).unwrap_or(MOST_STAGES).max(2)
    }
}
