//! Pipelines of stages: who fills them and who uses them up, each counting for itself.

use super::stage::{Stage, Tile};
use crate::backend::ptx::schedule::WarpSpecialization;
use crate::backend::schedule_sim::error::{Fault, broken};

/// The place of the tiles of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSlot {
    pub pipeline: usize,
    pub stage: usize,
    pub tile: Tile,
}

struct Pipeline {
    stages: Vec<Stage>,
    produced: u64,
    acquired: u64,
    /// Where each ping-pong group, data partition or group is.
    positions: Vec<u64>,
    /// The data partitions or groups that have released a stage.
    released_by: Vec<Vec<usize>>,
}

/// The pipelines of a tile block.
#[derive(Default)]
pub struct Pipelines {
    pipelines: Vec<Pipeline>,
    /// Data partitions or groups, each of which takes all stages.
    sharing_groups: usize,
}

impl Pipelines {
    /// Pipelines for so many that go through the program of the consumers, of which so many take each stage.
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

    /// The next stage to be filled.
    ///
    /// # Errors
    /// The pipeline has none.
    pub fn next_to_produce(&self, pipeline: usize, channel: u32) -> Result<StageSlot, Fault> {
        self.slot_at(pipeline, channel, self.pipelines.get(pipeline).map_or(0, |pipeline| pipeline.produced))
    }

    /// The next stage to be taken by a ping-pong group.
    ///
    /// # Errors
    /// The pipeline has none.
    pub fn next_to_acquire(&self, pipeline: usize, channel: u32, group: usize) -> Result<StageSlot, Fault> {
        self.slot_at(pipeline, channel, self.pipelines.get(pipeline).map_or(0, |pipeline| pipeline.positions[group]))
    }

    /// A ping-pong group goes past stages that the other one takes.
    pub fn skip(&mut self, pipeline: usize, group: usize, count: u64) {
        self.pipelines[pipeline].positions[group] += count;
    }

    /// The next one is filled, with so many boxes, of which so many bytes are announced.
    ///
    /// # Errors
    /// It is still used.
    pub fn produce(&mut self, slot: StageSlot, boxes: usize, announced: u32) -> Result<(), Fault> {
        self.pipelines[slot.pipeline].produced += 1;
        self.stage(slot).fill(slot.tile, boxes, announced)
    }

    /// The next one is taken.
    pub fn acquire(&mut self, slot: StageSlot) {
        self.pipelines[slot.pipeline].acquired += 1;
    }

    /// A ping-pong group goes on to the next one.
    pub fn advance(&mut self, pipeline: usize, group: usize) {
        self.pipelines[pipeline].positions[group] += 1;
    }

    pub fn stage(&mut self, slot: StageSlot) -> &mut Stage {
        &mut self.pipelines[slot.pipeline].stages[slot.stage]
    }

    /// May it be filled?
    pub fn is_free(&self, slot: StageSlot) -> bool {
        self.pipelines[slot.pipeline].stages[slot.stage].is_free()
    }

    /// Has the stage been filled in this turn, by whomever?
    pub fn is_there(&self, slot: StageSlot) -> bool {
        let stage = &self.pipelines[slot.pipeline].stages[slot.stage];
        stage.tile().is_some_and(|tile| tile.number == slot.tile.number) && stage.is_full()
    }

    /// Have the tiles arrived?
    ///
    /// # Errors
    /// Others were brought in their stead.
    pub fn is_full_for(&self, slot: StageSlot) -> Result<bool, Fault> {
        let stages = &self.pipelines[slot.pipeline].stages;
        let stage = &stages[slot.stage];
        // A barrier tells one round from the next, and no more.
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

    /// Gives a stage back: the last data partition or group does, and of ping-pong groups the one that took it.
    ///
    /// # Errors
    /// It does not hold these tiles, or somebody uses them.
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

    /// Has everything that was filled been taken and released?
    ///
    /// # Errors
    /// What has not.
    pub fn verify_released(&self) -> Result<(), Fault> {
        for (number, pipeline) in self.pipelines.iter().enumerate() {
            if pipeline.produced * self.sharing_groups as u64 != pipeline.acquired {
                let Pipeline { produced: filled, acquired: taken, .. } = pipeline;
                return Err(broken(format!("of ring {number} {filled} stages were filled, and {taken} taken")));
            }
            if let Some(tile) = pipeline.stages.iter().find_map(Stage::tile) {
                return Err(broken(format!("the stage of {tile:?} is never released")));
            }
        }
        Ok(())
    }
}
