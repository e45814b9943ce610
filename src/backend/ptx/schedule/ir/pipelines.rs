//! Pipelines, channels and TMA loads of a warp-specialized kernel, as data.

use std::collections::{HashMap, HashSet};

use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::{BlockId, OpId, Value};

/// Groups of warps that iterations are dealt to.
pub const PINGPONG_GROUPS: u32 = 2;

/// What is streamed.
#[derive(Clone)]
pub struct WarpSpecialization {
    /// Loads that arrive together, in program order.
    pub channels: Vec<Channel>,
    /// The rings.
    pub pipelines: Vec<PipelineDesc>,
    /// Channel of each streamed load whose tile products read.
    pub operand_channel: HashMap<OpId, usize>,
    /// Channel of each small tile that threads read, which rides along.
    pub aux_channel: HashMap<OpId, usize>,
    /// Ops that the producer runs.
    pub producer_ops: HashSet<OpId>,
    /// Carried values and results of region ops that the producer needs.
    pub producer_live: HashSet<Value>,
    /// What pairs of tile blocks share, if they are launched in pairs.
    pub multicast: Option<ClusterMulticast>,
    /// How iterations are dealt to teams of those that multiply, if there are any.
    pub pingpong: Option<PingPong>,
    /// Groups of those that multiply, of which each has rows of its own.
    pub data_partitions: u32,
}

impl WarpSpecialization {
    /// Groups that go through the program of those that multiply.
    #[cfg(any(test, feature = "_suite"))]
    pub fn consumer_groups(&self) -> u32 {
        self.pingpong_groups() * self.data_partitions
    }

    /// Teams of those that multiply.
    pub fn pingpong_groups(&self) -> u32 {
        if self.pingpong.is_some() { PINGPONG_GROUPS } else { 1 }
    }

    /// Where the tile of a load stands, if it is streamed to products.
    pub fn operand_slot(&self, load: OpId) -> Option<StageSlot> {
        self.slot_in_channel(*self.operand_channel.get(&load)?, load)
    }

    /// Where the tile of a load stands that threads read.
    #[cfg(any(test, feature = "_suite"))]
    pub fn aux_slot(&self, load: OpId) -> Option<StageSlot> {
        self.slot_in_channel(*self.aux_channel.get(&load)?, load)
    }

    /// Does the producer make this load?
    pub fn is_producer_load(&self, load: OpId) -> bool {
        self.operand_channel.contains_key(&load) || self.aux_channel.contains_key(&load)
    }

    /// The load at whose place the stage of a channel is taken: the first one for products.
    pub fn consumer_anchor(&self, channel: u32) -> Option<OpId> {
        let loads = &self.channels.get(channel as usize)?.loads;
        loads.iter().map(|load| load.load).find(|load| !self.aux_channel.contains_key(load))
    }

    /// The load at whose place the stage of a channel is filled: the last one.
    pub fn producer_anchor(&self, channel: u32) -> Option<OpId> {
        self.channels.get(channel as usize)?.loads.last().map(|load| load.load)
    }

    /// The channel whose stage is lent to a store.
    pub fn staging_channel_of(&self, store: OpId) -> Option<u32> {
        let lent = self.channels.iter().position(|channel| channel.staging_for == Some(store));
        lent.map(|channel| channel as u32)
    }

    /// Is the stage of a channel lent to a store?
    pub fn is_staging(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.staging_for.is_some())
    }

    /// The op for which the stage of a channel is taken.
    pub fn consumer_anchor_or_store(&self, channel: u32) -> Option<OpId> {
        self.consumer_anchor(channel).or_else(|| self.channels.get(channel as usize)?.staging_for)
    }

    /// The op for which the stage of a channel is filled.
    pub fn producer_anchor_or_store(&self, channel: u32) -> Option<OpId> {
        self.producer_anchor(channel).or_else(|| self.channels.get(channel as usize)?.staging_for)
    }

    fn slot_in_channel(&self, channel: usize, load: OpId) -> Option<StageSlot> {
        let streamed = self.channels[channel].loads.iter().find(|streamed| streamed.load == load)?;
        Some(StageSlot {
            channel,
            smem_offset: streamed.smem_offset,
            panel_rows: streamed.panel_rows,
            #[cfg(any(test, feature = "_suite"))]
            partition_stride: if streamed.partitions > 1 { streamed.bytes / streamed.partitions } else { 0 },
        })
    }

    /// Has the ring of a channel one stage alone?
    pub fn is_single_stage(&self, channel: u32) -> bool {
        let channel = self.channels.get(channel as usize);
        channel.is_some_and(|channel| self.pipelines[channel.pipeline].num_stages == 1)
    }

    /// The channels that are done with their stages after this op of a block.
    pub fn released_by(&self, id: OpId) -> Vec<u32> {
        let given = self.channels.iter().enumerate().filter(|(_, channel)| channel.last_use == id);
        given.map(|(index, _)| index as u32).collect()
    }
}

/// What the blocks of a pair share.
#[derive(Clone)]
pub struct ClusterMulticast {
    /// Loads that may be the same in both blocks, and those of their indices that decide it.
    pub multicast_loads: HashMap<OpId, Vec<Value>>,
    /// Ops that the producer computes for the peer, too.
    pub peer_ops: HashSet<OpId>,
    /// Outermost loops that do not start alike.
    pub outer_loops: Vec<OpId>,
    /// Ops that their bounds come from.
    pub bound_ops: HashSet<OpId>,
}

impl ClusterMulticast {
    /// May both blocks need the tile of this load?
    pub fn can_multicast(&self, load: OpId) -> bool {
        self.multicast_loads.contains_key(&load)
    }
}

/// Iterations of a loop, dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// The loop.
    pub loop_op: OpId,
    /// What an iteration takes of each ring.
    pub stages_per_iteration: Vec<StageCount>,
}

/// Stages of a ring that an iteration of a loop takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// So many, by channels of the iteration itself.
    pub fixed: u32,
    /// One in each iteration of these loops within it, of which each goes round equally often in all of them.
    pub per_iteration_of: Vec<OpId>,
}

/// Loads that arrive together.
#[derive(Clone)]
pub struct Channel {
    /// The block that they stand in.
    pub block: BlockId,
    /// In program order.
    pub loads: Vec<TmaLoad>,
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// The ring that they go through.
    pub pipeline: usize,
    /// The last op of the block that uses them (or has a region that does).
    pub last_use: OpId,
    /// Some use is in a region of its own: the tile is waited for where it is loaded.
    pub wait_at_acquire: bool,
    /// Nothing is loaded: the boxes of this store stand in the stage (`warp_specialize/epilogue_smem_reuse`).
    pub staging_for: Option<OpId>,
}

/// Stages of shared memory. Channels of loops that follow each other share a ring: the producer may then
/// fill stages for the next loop before the one before has ended.
#[derive(Clone, Copy, Debug)]
pub struct PipelineDesc {
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// Number of stages.
    pub num_stages: u32,
    /// A pair of tile blocks fills them together.
    pub clustered: bool,
    /// How often its loads are made.
    pub nesting: LoopNesting,
}

/// How often the loads of a ring are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopNesting {
    /// Once.
    NotInLoop,
    /// In each iteration of a loop that contains other loops with loads.
    Outer,
    /// Again and again while others stay.
    Innermost,
}

/// A load that the producer makes.
#[derive(Clone)]
pub struct TmaLoad {
    /// The op.
    pub load: OpId,
    /// Where its tile stands in a stage.
    pub smem_offset: u32,
    /// What the copy engine is told.
    pub map: TensorMap,
    /// The parts of its tile, and of those that stand with it; none of a tile that stands with another one.
    pub boxes: Vec<TmaBox>,
    /// Bytes of these boxes.
    pub bytes: u32,
    /// Rows of the panels that it stands in.
    pub panel_rows: i64,
    /// Tiles that stand one after another: one for each band, or one for all.
    pub partitions: u32,
}

/// Where a streamed tile stands in a stage.
pub struct StageSlot {
    /// The loads that it arrives with.
    pub channel: usize,
    /// Its first byte.
    pub smem_offset: u32,
    /// Rows of its panels.
    pub panel_rows: i64,
    /// From the tile of a band to that of the next one; 0: all have the same.
    #[cfg(any(test, feature = "_suite"))]
    pub partition_stride: u32,
}

/// A box that the copy engine moves at once.
#[derive(Clone, PartialEq, Eq)]
pub struct TmaBox {
    /// Its first element in the tile, by tile dimension.
    pub coord: Vec<i64>,
    /// Its first byte within the tile's place in the stage.
    pub smem_offset: u32,
}

impl Channel {
    /// The first op that it is for.
    pub fn first(&self) -> OpId {
        self.loads.first().map_or(self.last_use, |load| load.load)
    }

    /// Bytes that arrive in a stage.
    pub fn bytes(&self) -> u32 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    /// Do both load the same boxes of the same arrays?
    pub fn loads_same_boxes(&self, other: &Channel) -> bool {
        let same = |(a, b): (&TmaLoad, &TmaLoad)| a.map == b.map && a.boxes == b.boxes;
        self.loads.len() == other.loads.len() && self.loads.iter().zip(&other.loads).all(same)
    }
}
