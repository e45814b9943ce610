//! Pipelines, channels and TMA loads of a warp-specialized kernel, as data.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::load_path::LoadPath;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::ir::{BlockId, OpId, Value};

/// The number of ping-pong groups.
pub const PINGPONG_GROUPS: u32 = 2;

/// The warp specialization of a kernel: its pipelines, channels and TMA loads.
#[derive(Clone, Default)]
pub struct WarpSpecialization {
    /// The channels, in program order.
    pub channels: Vec<Channel>,
    /// The pipelines.
    pub pipelines: Vec<PipelineDesc>,
    /// The paths of the TMA loads.
    pub load_paths: FxHashMap<OpId, LoadPath>,
    /// The tiles that the producer prefetches to L2 for loads of the consumers.
    pub prefetches: FxHashMap<OpId, TensorMap>,
    /// The ops that the producer executes.
    pub producer_ops: FxHashSet<OpId>,
    /// Loop-carried values and results of region ops that the producer needs.
    pub producer_live: FxHashSet<Value>,
    /// Multicast loads, if the kernel is launched in clusters.
    pub multicast: Option<ClusterMulticast>,
    /// Ping-pong of the consumer groups, if it is used.
    pub pingpong: Option<PingPong>,
    /// The number of data partitions.
    pub data_partitions: u32,
}

impl WarpSpecialization {
    /// Returns the number of consumer groups.
    #[cfg(any(test, feature = "_suite"))]
    pub fn consumer_groups(&self) -> u32 {
        self.pingpong_groups() * self.data_partitions
    }

    /// Returns the number of ping-pong groups, 1 without ping-pong.
    pub fn pingpong_groups(&self) -> u32 {
        if self.pingpong.is_some() { PINGPONG_GROUPS } else { 1 }
    }

    /// Returns the channel of a TMA load of an MMA operand.
    pub fn operand_channel(&self, load: OpId) -> Option<u32> {
        if let Some(&LoadPath::TmaOperand { channel }) = self.load_paths.get(&load) { Some(channel) } else { None }
    }

    /// Returns the channel of an auxiliary load.
    pub fn aux_channel(&self, load: OpId) -> Option<u32> {
        if let Some(&LoadPath::TmaAux { channel }) = self.load_paths.get(&load) { Some(channel) } else { None }
    }

    /// Returns the offset of the tile of an MMA operand in its stage.
    pub fn operand_slot(&self, load: OpId) -> Option<StageSlot> {
        self.slot_in_channel(self.operand_channel(load)? as usize, load)
    }

    /// Returns the offset of the tile of an auxiliary load in its stage.
    #[cfg(any(test, feature = "_suite"))]
    pub fn aux_slot(&self, load: OpId) -> Option<StageSlot> {
        self.slot_in_channel(self.aux_channel(load)? as usize, load)
    }

    /// Returns true if the producer issues this load.
    pub fn is_producer_load(&self, load: OpId) -> bool {
        self.load_paths.contains_key(&load)
    }

    /// Returns the load at whose position the consumer advances to the stage: the first one of an
    /// MMA operand.
    pub fn consumer_anchor(&self, channel: u32) -> Option<OpId> {
        let loads = &self.channels.get(channel as usize)?.loads;
        loads.iter().map(|load| load.load).find(|&load| self.aux_channel(load).is_none())
    }

    /// Returns the load at whose position the producer issues the loads of a channel: the last one.
    pub fn producer_anchor(&self, channel: u32) -> Option<OpId> {
        self.channels.get(channel as usize)?.loads.last().map(|load| load.load)
    }

    /// Returns the channel whose stage is the staging buffer of a store.
    pub fn staging_channel_of(&self, store: OpId) -> Option<u32> {
        let index = self.channels.iter().position(|channel| channel.staging_for == Some(store));
        index.map(|channel| channel as u32)
    }

    /// Returns true if the stage of a channel is the staging buffer of a store.
    pub fn is_staging(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.staging_for.is_some())
    }

    /// Returns the load of [`WarpSpecialization::consumer_anchor`], or the store that uses the
    /// stage.
    pub fn consumer_anchor_or_store(&self, channel: u32) -> Option<OpId> {
        self.consumer_anchor(channel).or_else(|| self.channels.get(channel as usize)?.staging_for)
    }

    /// Returns the load of [`WarpSpecialization::producer_anchor`], or the store that uses the
    /// stage.
    pub fn producer_anchor_or_store(&self, channel: u32) -> Option<OpId> {
        self.producer_anchor(channel).or_else(|| self.channels.get(channel as usize)?.staging_for)
    }

    fn slot_in_channel(&self, channel: usize, load: OpId) -> Option<StageSlot> {
        let tma_load = self.channels[channel].loads.iter().find(|tma_load| tma_load.load == load)?;
        Some(StageSlot {
            channel,
            smem_offset: tma_load.smem_offset,
            panel_rows: tma_load.panel_rows,
            #[cfg(any(test, feature = "_suite"))]
            partition_stride: if tma_load.partitions > 1 { tma_load.bytes / tma_load.partitions } else { 0 },
        })
    }

    /// Returns true if the pipeline of a channel has one stage.
    pub fn is_single_stage(&self, channel: u32) -> bool {
        let channel = self.channels.get(channel as usize);
        channel.is_some_and(|channel| self.pipelines[channel.pipeline].num_stages == 1)
    }

    /// Returns the channels whose last use is this op.
    pub fn released_by(&self, id: OpId) -> Vec<u32> {
        let released = self.channels.iter().enumerate().filter(|(_, channel)| channel.last_use == id);
        released.map(|(index, _)| index as u32).collect_vec()
    }
}

/// The multicast loads of a cluster.
#[derive(Clone)]
pub struct ClusterMulticast {
    /// Loads that may be equal in both CTAs, each with the indices that decide it.
    pub multicast_loads: FxHashMap<OpId, Vec<Value>>,
    /// Ops that the producer also computes for the peer.
    pub peer_ops: FxHashSet<OpId>,
    /// Outermost loops with different starts in the two CTAs.
    pub outer_loops: Vec<OpId>,
    /// Ops that compute the bounds of these loops.
    pub bound_ops: FxHashSet<OpId>,
}

impl ClusterMulticast {
    /// Returns true if both CTAs may need the tile of this load.
    pub fn can_multicast(&self, load: OpId) -> bool {
        self.multicast_loads.contains_key(&load)
    }
}

/// Ping-pong over the iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// The loop.
    pub loop_op: OpId,
    /// The number of stages of one iteration, by pipeline.
    pub stages_per_iteration: Vec<StagesPerIteration>,
}

/// The number of stages of a pipeline that one iteration uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagesPerIteration {
    /// Stages of the channels of the iteration itself.
    pub direct: u32,
    /// Loops inside the iteration that use one stage in each of their iterations. Their trip counts
    /// are equal in all iterations.
    pub per_trip_of: Vec<OpId>,
}

/// Loads into one stage, with a common full barrier.
#[derive(Clone)]
pub struct Channel {
    /// The block of the loads.
    pub block: BlockId,
    /// The loads, in program order.
    pub loads: Vec<TmaLoad>,
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// The index of the pipeline.
    pub pipeline: usize,
    /// The last op of the block that uses the tiles, itself or in a region.
    pub last_use: OpId,
    /// True if a use is in a region: the wait for the tile follows the advance to the stage.
    pub wait_at_acquire: bool,
    /// The store whose staging buffer is the stage. The channel has no loads then
    /// (`warp_specialize/epilogue_smem_reuse`).
    pub staging_for: Option<OpId>,
}

/// A ring buffer of stages in shared memory. Channels of consecutive loops share a pipeline, so the
/// producer can load for the next loop before the previous one has ended.
#[derive(Clone, Copy, Debug)]
pub struct PipelineDesc {
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// Number of stages.
    pub num_stages: u32,
    /// True if both CTAs of a cluster load into the stages.
    pub clustered: bool,
    /// The position of the loads in the loops of the kernel.
    pub nesting: LoopNesting,
}

/// The position of the loads of a pipeline in the loops of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopNesting {
    /// Outside of all loops.
    NotInLoop,
    /// In each iteration of a loop that contains other loops with loads.
    Outer,
    /// In each iteration of an innermost loop.
    Innermost,
}

/// A TMA load of the producer.
#[derive(Clone)]
pub struct TmaLoad {
    /// The op.
    pub load: OpId,
    /// Offset of the tile in the stage, in bytes.
    pub smem_offset: u32,
    /// The tensor map.
    pub map: TensorMap,
    /// The boxes of the tile, and of the tiles that are loaded together with it. A tile that is
    /// loaded with another one has none.
    pub boxes: Vec<TmaBox>,
    /// Bytes of the boxes.
    pub bytes: u32,
    /// The number of rows of its swizzle panels.
    pub panel_rows: i64,
    /// The number of consecutive tiles: one for each data partition, or one for all.
    pub partitions: u32,
}

/// The offset and the panels of a tile in a stage.
pub struct StageSlot {
    /// The index of the channel.
    pub channel: usize,
    /// Offset in the stage, in bytes.
    pub smem_offset: u32,
    /// The number of rows of its swizzle panels.
    pub panel_rows: i64,
    /// Distance in bytes between the tiles of two data partitions; 0 if all use the same.
    #[cfg(any(test, feature = "_suite"))]
    pub partition_stride: u32,
}

/// The box of one TMA instruction.
#[derive(Clone, PartialEq, Eq)]
pub struct TmaBox {
    /// First element of the box in the tile, by tile dimension.
    pub coord: Vec<i64>,
    /// Offset relative to the tile in the stage, in bytes.
    pub smem_offset: u32,
}

impl Channel {
    /// Returns the first load, or the last use of a channel without loads.
    pub fn first(&self) -> OpId {
        self.loads.first().map_or(self.last_use, |load| load.load)
    }

    /// Returns the bytes that arrive in a stage.
    pub fn bytes(&self) -> u32 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    /// Returns true if both load the same boxes of the same arrays.
    pub fn loads_same_boxes(&self, other: &Channel) -> bool {
        let same = |(a, b): (&TmaLoad, &TmaLoad)| a.map == b.map && a.boxes == b.boxes;
        self.loads.len() == other.loads.len() && self.loads.iter().zip(&other.loads).all(same)
    }
}
