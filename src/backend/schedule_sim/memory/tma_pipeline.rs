//! Pipelines: stages, with positions of the producer and of each consumer group.

use super::stage::{Stage, Tile};
use crate::backend::ptx::schedule::WarpSpecialization;
use crate::backend::schedule_sim::error::{Fault, broken};

/// Position of the tiles of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StageSlot {
    pub pipeline: usize,
    pub stage: usize,
    pub tile: Tile,
}

#[derive(Clone, Hash)]
struct Pipeline {
    stages: Vec<Stage>,
    produced: u64,
    acquired: u64,
    /// Position of each consumer group.
    positions: Vec<u64>,
    /// Data partitions or warp groups that have released a stage.
    released_by: Vec<Vec<usize>>,
}

/// Pipelines of a CTA.
#[derive(Clone, Default, Hash)]
pub struct Pipelines {
    pipelines: Vec<Pipeline>,
    /// Number of data partitions or warp groups, each of which reads all stages.
    sharing_groups: usize,
}

impl Pipelines {
    /// Returns the pipelines for `groups` consumer groups, of which `sharing_groups` read each
    /// stage.
    pub fn new(warp_spec: &WarpSpecialization, [groups, sharing_groups]: [usize; 2]) -> Pipelines {
        let pipeline = |plan: &crate::backend::ptx::schedule::PipelineDesc| Pipeline {
            stages: (0..plan.num_stages).map(|_| Stage::new(plan.stage_bytes as usize)).collect(),
            produced: 0,
            acquired: 0,
            positions: vec![0; groups],
            released_by: vec![Vec::new(); plan.num_stages as usize],
        };
        Pipelines { pipelines: warp_spec.pipelines.iter().map(pipeline).collect(), sharing_groups }
    }

    fn slot_at(&self, pipeline: usize, channel: u32, number: u64) -> Result<StageSlot, Fault> {
        let stages = self.pipelines.get(pipeline).map_or(0, |pipeline| pipeline.stages.len() as u64);
        match number.checked_rem(stages) {
            Some(stage) => Ok(StageSlot { pipeline, stage: stage as usize, tile: Tile { of: channel, number } }),
            None => Err(broken(format!("pipeline {pipeline} has no stages"))),
        }
    }

    /// Returns the next stage to be filled.
    ///
    /// # Errors
    /// The pipeline has none.
    pub fn next_to_produce(&self, pipeline: usize, channel: u32) -> Result<StageSlot, Fault> {
        self.slot_at(pipeline, channel, self.pipelines.get(pipeline).map_or(0, |pipeline| pipeline.produced))
    }

    /// Returns the next stage to be read by a consumer group.
    ///
    /// # Errors
    /// The pipeline has none.
    pub fn next_to_acquire(&self, pipeline: usize, channel: u32, group: usize) -> Result<StageSlot, Fault> {
        self.slot_at(pipeline, channel, self.pipelines.get(pipeline).map_or(0, |pipeline| pipeline.positions[group]))
    }

    /// Skips stages of the other ping-pong group.
    pub fn skip(&mut self, pipeline: usize, group: usize, count: u64) {
        self.pipelines[pipeline].positions[group] += count;
    }

    /// Begins to fill the next stage with `boxes` boxes, of which `announced` bytes are expected.
    ///
    /// # Errors
    /// It is in use.
    pub fn produce(&mut self, slot: StageSlot, boxes: usize, announced: u32) -> Result<(), Fault> {
        self.pipelines[slot.pipeline].produced += 1;
        self.stage(slot).fill(slot.tile, boxes, announced)
    }

    /// Acquires a stage.
    pub fn acquire(&mut self, slot: StageSlot) {
        self.pipelines[slot.pipeline].acquired += 1;
    }

    /// Advances a consumer group to the next stage.
    pub fn advance(&mut self, pipeline: usize, group: usize) {
        self.pipelines[pipeline].positions[group] += 1;
    }

    pub fn stage(&mut self, slot: StageSlot) -> &mut Stage {
        &mut self.pipelines[slot.pipeline].stages[slot.stage]
    }

    /// Returns true if the stage can be filled.
    pub fn is_free(&self, slot: StageSlot) -> bool {
        self.pipelines[slot.pipeline].stages[slot.stage].is_free()
    }

    /// Returns true if the stage has been filled in this phase, by any channel.
    pub fn is_there(&self, slot: StageSlot) -> bool {
        let stage = &self.pipelines[slot.pipeline].stages[slot.stage];
        stage.tile().is_some_and(|tile| tile.number == slot.tile.number) && stage.is_full()
    }

    /// Returns true if the tiles have arrived.
    ///
    /// # Errors
    /// The stage has other tiles.
    pub fn is_full_for(&self, slot: StageSlot) -> Result<bool, Fault> {
        let stages = &self.pipelines[slot.pipeline].stages;
        let stage = &stages[slot.stage];
        // The parity of a barrier distinguishes adjacent phases only.
        if stage.full_count() < slot.tile.number / stages.len() as u64 {
            let what = format!("{:?} are waited for before those of the previous phase have arrived", slot.tile);
            return Err(broken(what));
        }
        match stage.tile() {
            Some(tile) if tile == slot.tile => Ok(stage.is_full()),
            Some(tile) if tile.number >= slot.tile.number => {
                Err(broken(format!("{:?} are waited for in a stage that was filled with {tile:?}", slot.tile)))
            }
            _ => Ok(false),
        }
    }

    /// Releases a stage. It is free after the release by the last data partition or warp group, or
    /// by the ping-pong group that has acquired it.
    ///
    /// # Errors
    /// It has other tiles, or is in use.
    pub fn release(&mut self, slot: StageSlot, group: usize) -> Result<(), Fault> {
        let sharing_groups = self.sharing_groups;
        let stage = self.stage(slot);
        if stage.tile() != Some(slot.tile) {
            let other = stage.tile();
            return Err(broken(format!("the stage of {:?} is released, which holds {other:?}", slot.tile)));
        }
        stage.is_left_by(group)?;
        let released = &mut self.pipelines[slot.pipeline].released_by[slot.stage];
        if released.contains(&group) {
            return Err(broken(format!("the stage of {:?} is released twice by group {group}", slot.tile)));
        }
        released.push(group);
        if released.len() < sharing_groups {
            return Ok(());
        }
        released.clear();
        self.stage(slot).free()
    }

    /// Checks that all filled stages have been acquired and released.
    ///
    /// # Errors
    /// The first one that has not.
    pub fn verify_released(&self) -> Result<(), Fault> {
        for (number, pipeline) in self.pipelines.iter().enumerate() {
            if pipeline.produced * self.sharing_groups as u64 != pipeline.acquired {
                let Pipeline { produced: filled, acquired: taken, .. } = pipeline;
                return Err(broken(format!(
                    "of pipeline {number} {filled} stages were produced, and {taken} acquired"
                )));
            }
            if let Some(tile) = pipeline.stages.iter().find_map(Stage::tile) {
                return Err(broken(format!("the stage of {tile:?} is never released")));
            }
        }
        Ok(())
    }
}
