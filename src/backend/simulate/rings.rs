//! Rings of stages: who fills them and who uses them up, each counting for itself.

use super::fault::{Fault, broken};
use super::stage::{Stage, Tile};
use crate::backend::ptx::schedule::WarpSpecialization;

/// The place of the tiles of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub ring: usize,
    pub stage: usize,
    pub tile: Tile,
}

struct Ring {
    stages: Vec<Stage>,
    filled: u64,
    taken: u64,
    /// Where each team, band or group is.
    at: Vec<u64>,
    /// The bands or groups that have given back a stage.
    given: Vec<Vec<usize>>,
}

/// The rings of a tile block.
#[derive(Default)]
pub struct Rings {
    rings: Vec<Ring>,
    /// Bands or groups, each of which takes all stages.
    sharers: usize,
}

impl Rings {
    /// Rings for so many that go through the program of those that multiply, of which so many take each stage.
    pub fn of(roles: &WarpSpecialization, [crews, sharers]: [usize; 2]) -> Rings {
        let ring = |plan: &crate::backend::ptx::schedule::PipelineDesc| Ring {
            stages: (0..plan.num_stages).map(|_| Stage::new(plan.stage_bytes as usize)).collect(),
            filled: 0,
            taken: 0,
            at: vec![0; crews],
            given: vec![Vec::new(); plan.num_stages as usize],
        };
        Rings { rings: roles.pipelines.iter().map(ring).collect(), sharers }
    }

    fn at(&self, ring: usize, channel: u32, turn: u64) -> Result<Place, Fault> {
        let stages = self.rings.get(ring).map_or(0, |ring| ring.stages.len() as u64);
        match turn.checked_rem(stages) {
            Some(stage) => Ok(Place { ring, stage: stage as usize, tile: Tile { of: channel, turn } }),
            None => Err(broken(format!("ring {ring} has no stages"))),
        }
    }

    /// The next stage to be filled.
    ///
    /// # Errors
    /// The ring has none.
    pub fn to_fill(&self, ring: usize, channel: u32) -> Result<Place, Fault> {
        self.at(ring, channel, self.rings.get(ring).map_or(0, |ring| ring.filled))
    }

    /// The next stage to be taken by a team.
    ///
    /// # Errors
    /// The ring has none.
    pub fn to_take(&self, ring: usize, channel: u32, team: usize) -> Result<Place, Fault> {
        self.at(ring, channel, self.rings.get(ring).map_or(0, |ring| ring.at[team]))
    }

    /// A team goes past stages that the other one takes.
    pub fn skip(&mut self, ring: usize, team: usize, count: u64) {
        self.rings[ring].at[team] += count;
    }

    /// The next one is filled, with so many boxes, of which so many bytes are announced.
    ///
    /// # Errors
    /// It is still used.
    pub fn fill(&mut self, place: Place, boxes: usize, announced: u32) -> Result<(), Fault> {
        self.rings[place.ring].filled += 1;
        self.stage(place).fill(place.tile, boxes, announced)
    }

    /// The next one is taken.
    pub fn take(&mut self, place: Place) {
        self.rings[place.ring].taken += 1;
    }

    /// A team goes on to the next one.
    pub fn move_on(&mut self, ring: usize, team: usize) {
        self.rings[ring].at[team] += 1;
    }

    pub fn stage(&mut self, place: Place) -> &mut Stage {
        &mut self.rings[place.ring].stages[place.stage]
    }

    /// May it be filled?
    pub fn is_free(&self, place: Place) -> bool {
        self.rings[place.ring].stages[place.stage].is_free()
    }

    /// Has the stage been filled in this turn, by whomever?
    pub fn is_there(&self, place: Place) -> bool {
        let stage = &self.rings[place.ring].stages[place.stage];
        stage.tile().is_some_and(|tile| tile.turn == place.tile.turn) && stage.is_full()
    }

    /// Have the tiles arrived?
    ///
    /// # Errors
    /// Others were brought in their stead.
    pub fn has_arrived(&self, place: Place) -> Result<bool, Fault> {
        let stages = &self.rings[place.ring].stages;
        let stage = &stages[place.stage];
        // A barrier tells one round from the next, and no more.
        if stage.arrived() < place.tile.turn / stages.len() as u64 {
            let what = format!("{:?} are waited for before those of the round before have arrived", place.tile);
            return Err(broken(what));
        }
        match stage.tile() {
            Some(tile) if tile == place.tile => Ok(stage.is_full()),
            Some(tile) if tile.turn >= place.tile.turn => {
                Err(broken(format!("{:?} are waited for in a stage that was filled with {tile:?}", place.tile)))
            }
            _ => Ok(false),
        }
    }

    /// Gives a stage back: the last band or group does, and of teams the one that took it.
    ///
    /// # Errors
    /// It does not hold these tiles, or somebody uses them.
    pub fn give(&mut self, place: Place, crew: usize) -> Result<(), Fault> {
        let sharers = self.sharers;
        let stage = self.stage(place);
        if stage.tile() != Some(place.tile) {
            let other = stage.tile();
            return Err(broken(format!("the stage of {:?} is given back, which holds {other:?}", place.tile)));
        }
        stage.is_left_by(crew)?;
        let given = &mut self.rings[place.ring].given[place.stage];
        if given.contains(&crew) {
            return Err(broken(format!("the stage of {:?} is given back twice by number {crew}", place.tile)));
        }
        given.push(crew);
        if given.len() < sharers {
            return Ok(());
        }
        given.clear();
        self.stage(place).free()
    }

    /// Has everything that was filled been taken and given back?
    ///
    /// # Errors
    /// What has not.
    pub fn are_done(&self) -> Result<(), Fault> {
        for (number, ring) in self.rings.iter().enumerate() {
            if ring.filled * self.sharers as u64 != ring.taken {
                let Ring { filled, taken, .. } = ring;
                return Err(broken(format!("of ring {number} {filled} stages were filled, and {taken} taken")));
            }
            if let Some(tile) = ring.stages.iter().find_map(Stage::tile) {
                return Err(broken(format!("the stage of {tile:?} is never given back")));
            }
        }
        Ok(())
    }
}
