//! Pipelines, channels and TMA loads of a warp-specialized kernel, as data.

use std::collections::{HashMap, HashSet};

use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::{BlockId, OpId, Value};

/// Groups of warps that iterations are dealt to.
pub const TEAMS: u32 = 2;

/// What is streamed.
#[derive(Clone)]
pub struct Roles {
    /// Loads that arrive together, in program order.
    pub channels: Vec<Channel>,
    /// The rings.
    pub rings: Vec<RingPlan>,
    /// Channel of each streamed load whose tile products read.
    pub members: HashMap<OpId, usize>,
    /// Channel of each small tile that threads read, which rides along.
    pub riders: HashMap<OpId, usize>,
    /// Ops that the producer runs.
    pub slice: HashSet<OpId>,
    /// Carried values and results of region ops that the producer needs.
    pub carried: HashSet<Value>,
    /// What pairs of tile blocks share, if they are launched in pairs.
    pub pairs: Option<Pairs>,
    /// How iterations are dealt to teams of those that multiply, if there are any.
    pub deal: Option<Deal>,
    /// Groups of those that multiply, of which each has rows of its own.
    pub bands: u32,
}

impl Roles {
    /// Groups that go through the program of those that multiply.
    #[cfg(any(test, feature = "_suite"))]
    pub fn crews(&self) -> u32 {
        self.teams() * self.bands
    }

    /// Teams of those that multiply.
    pub fn teams(&self) -> u32 {
        if self.deal.is_some() { TEAMS } else { 1 }
    }

    /// Where the tile of a load stands, if it is streamed to products.
    pub fn place_of(&self, load: OpId) -> Option<Place> {
        self.place_in(*self.members.get(&load)?, load)
    }

    /// Where the tile of a load stands that threads read.
    #[cfg(any(test, feature = "_suite"))]
    pub fn ride_of(&self, load: OpId) -> Option<Place> {
        self.place_in(*self.riders.get(&load)?, load)
    }

    /// Does the producer make this load?
    pub fn brings(&self, load: OpId) -> bool {
        self.members.contains_key(&load) || self.riders.contains_key(&load)
    }

    /// The load at whose place the stage of a channel is taken: the first one for products.
    pub fn taken_at(&self, channel: u32) -> Option<OpId> {
        let loads = &self.channels.get(channel as usize)?.loads;
        loads.iter().map(|load| load.load).find(|load| !self.riders.contains_key(load))
    }

    /// The load at whose place the stage of a channel is filled: the last one.
    pub fn filled_at(&self, channel: u32) -> Option<OpId> {
        self.channels.get(channel as usize)?.loads.last().map(|load| load.load)
    }

    /// The channel whose stage is lent to a store.
    pub fn lent_to(&self, store: OpId) -> Option<u32> {
        let lent = self.channels.iter().position(|channel| channel.lent_to == Some(store));
        lent.map(|channel| channel as u32)
    }

    /// Is the stage of a channel lent to a store?
    pub fn is_lent(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.lent_to.is_some())
    }

    /// The op for which the stage of a channel is taken.
    pub fn taken_for(&self, channel: u32) -> Option<OpId> {
        self.taken_at(channel).or_else(|| self.channels.get(channel as usize)?.lent_to)
    }

    /// The op for which the stage of a channel is filled.
    pub fn filled_for(&self, channel: u32) -> Option<OpId> {
        self.filled_at(channel).or_else(|| self.channels.get(channel as usize)?.lent_to)
    }

    fn place_in(&self, channel: usize, load: OpId) -> Option<Place> {
        let streamed = self.channels[channel].loads.iter().find(|streamed| streamed.load == load)?;
        Some(Place {
            channel,
            offset: streamed.offset,
            rows: streamed.rows,
            #[cfg(any(test, feature = "_suite"))]
            of_bands: if streamed.bands > 1 { streamed.bytes / streamed.bands } else { 0 },
        })
    }

    /// Has the ring of a channel one stage alone?
    pub fn only_stage(&self, channel: u32) -> bool {
        let channel = self.channels.get(channel as usize);
        channel.is_some_and(|channel| self.rings[channel.ring].stages == 1)
    }

    /// The channels that are done with their stages after this op of a block.
    pub fn given_by(&self, id: OpId) -> Vec<u32> {
        let given = self.channels.iter().enumerate().filter(|(_, channel)| channel.last == id);
        given.map(|(index, _)| index as u32).collect()
    }
}

/// What the blocks of a pair share.
#[derive(Clone)]
pub struct Pairs {
    /// Loads that may be the same in both blocks, and those of their indices that decide it.
    pub shared: HashMap<OpId, Vec<Value>>,
    /// Ops that the producer computes for the peer, too.
    pub mirrored: HashSet<OpId>,
    /// Outermost loops that do not start alike.
    pub loops: Vec<OpId>,
    /// Ops that their bounds come from.
    pub bounds: HashSet<OpId>,
}

impl Pairs {
    /// May both blocks need the tile of this load?
    pub fn may_share(&self, load: OpId) -> bool {
        self.shared.contains_key(&load)
    }
}

/// Iterations of a loop, dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// The loop.
    pub around: OpId,
    /// What an iteration takes of each ring.
    pub takes: Vec<Takes>,
}

/// Stages of a ring that an iteration of a loop takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// So many, by channels of the iteration itself.
    pub once: u32,
    /// One in each iteration of these loops within it, of which each goes round equally often in all of them.
    pub loops: Vec<OpId>,
}

/// Loads that arrive together.
#[derive(Clone)]
pub struct Channel {
    /// The block that they stand in.
    pub block: BlockId,
    /// In program order.
    pub loads: Vec<Streamed>,
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// The ring that they go through.
    pub ring: usize,
    /// The last op of the block that uses them (or has a region that does).
    pub last: OpId,
    /// Some use is in a region of its own: the tile is waited for where it is loaded.
    pub early: bool,
    /// Nothing is loaded: the boxes of this store stand in the stage (`warp_specialize/epilogue_smem_reuse`).
    pub lent_to: Option<OpId>,
}

/// Stages of shared memory. Channels of loops that follow each other share a ring: the producer may then
/// fill stages for the next loop before the one before has ended.
#[derive(Clone, Copy, Debug)]
pub struct RingPlan {
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// Number of stages.
    pub stages: u32,
    /// A pair of tile blocks fills them together.
    pub paired: bool,
    /// How often its loads are made.
    pub repeats: Repeats,
}

/// How often the loads of a ring are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Once.
    Once,
    /// In each iteration of a loop that contains other loops with loads.
    Outer,
    /// Again and again while others stay.
    Inner,
}

/// A load that the producer makes.
#[derive(Clone)]
pub struct Streamed {
    /// The op.
    pub load: OpId,
    /// Where its tile stands in a stage.
    pub offset: u32,
    /// What the copy engine is told.
    pub map: TensorMap,
    /// The parts of its tile, and of those that stand with it; none of a tile that stands with another one.
    pub boxes: Vec<Box>,
    /// Bytes of these boxes.
    pub bytes: u32,
    /// Rows of the panels that it stands in.
    pub rows: i64,
    /// Tiles that stand one after another: one for each band, or one for all.
    pub bands: u32,
}

/// Where a streamed tile stands in a stage.
pub struct Place {
    /// The loads that it arrives with.
    pub channel: usize,
    /// Its first byte.
    pub offset: u32,
    /// Rows of its panels.
    pub rows: i64,
    /// From the tile of a band to that of the next one; 0: all have the same.
    #[cfg(any(test, feature = "_suite"))]
    pub of_bands: u32,
}

/// A box that the copy engine moves at once.
#[derive(Clone, PartialEq, Eq)]
pub struct Box {
    /// Its first element in the tile, by tile dimension.
    pub place: Vec<i64>,
    /// Its first byte within the tile's place in the stage.
    pub at: u32,
}

impl Channel {
    /// The first op that it is for.
    pub fn first(&self) -> OpId {
        self.loads.first().map_or(self.last, |load| load.load)
    }

    /// Bytes that arrive in a stage.
    pub fn bytes(&self) -> u32 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    /// Do both load the same boxes of the same arrays?
    pub fn has_loads_of(&self, other: &Channel) -> bool {
        let same = |(a, b): (&Streamed, &Streamed)| a.map == b.map && a.boxes == b.boxes;
        self.loads.len() == other.loads.len() && self.loads.iter().zip(&other.loads).all(same)
    }
}
