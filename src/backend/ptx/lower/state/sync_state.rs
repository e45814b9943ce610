//! State of asynchronous operations: TMA pipelines, MMAs in flight, order barriers, the peer block.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::values::Tile;
use crate::backend::ptx::inst::{Label, Operand, Reg};
use crate::backend::ptx::schedule::{
    CLUSTER_SIZE, ClusterMulticast, OrderPoint, PINGPONG_GROUPS, WarpRole, WarpSpecialization,
};
use crate::backend::ptx::shared::Buffer;
use crate::ir::{OpId, Value};

/// State of asynchronous operations, and of the partition that is lowered.
pub struct SyncState {
    /// Role of the partition.
    pub role: WarpRole,
    /// The TMA pipelines of a kernel with warp specialization.
    pub pipelines: Option<PipelineStates>,
    /// MMAs in mma, and waits for them.
    pub mmas: MmaQueue,
    /// The ping-pong group that is lowered.
    pub group: PingPongGroup,
    /// Named barriers of the consumer group, if they are in registers.
    pub order: Option<OrderBarrier>,
    /// The other tile block of the cluster.
    pub peer: ClusterPeer,
}

impl SyncState {
    /// The state of a kernel without warp specialization.
    pub fn new() -> SyncState {
        SyncState {
            role: WarpRole::All,
            pipelines: None,
            mmas: MmaQueue::default(),
            group: PingPongGroup::default(),
            order: None,
            peer: ClusterPeer::default(),
        }
    }

    /// Is this load the producer's?
    pub fn is_pipeline_load(&self, id: OpId) -> bool {
        self.pipelines.as_ref().is_some_and(|pipelines| pipelines.warp_spec.operand_channel.contains_key(&id))
    }

    /// Does the role that is lowered need this carried value or result of a region op?
    pub fn is_live_in_partition(&self, value: Value) -> bool {
        match &self.pipelines {
            Some(pipelines) if self.role == WarpRole::Producer => pipelines.warp_spec.producer_live.contains(&value),
            _ => true,
        }
    }

    /// Stages of a pipeline.
    pub fn num_stages(&self, pipeline: usize) -> u32 {
        self.pipelines.as_ref().map_or(1, |pipelines| pipelines.warp_spec.pipelines[pipeline].num_stages)
    }

    /// One thread of each warp, beside a producer.
    pub fn warp_leader(&self) -> Option<Reg> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.warp_leader)
    }

    /// Where the stage of a channel begins that is acquired.
    pub fn acquired_smem(&self, channel: u32) -> Option<Operand> {
        self.pipelines.as_ref()?.acquired.get(channel as usize)?.map(|acquired| acquired.smem)
    }

    /// A predicate that never holds, which ptxas does not know.
    pub fn opaque_false(&self) -> Option<Reg> {
        self.pipelines.as_ref()?.opaque_branch.map(|(never, _)| never)
    }

    /// The channel of a load whose tile has not been waited for.
    pub fn unwaited(&self, load: OpId) -> Option<usize> {
        let pipelines = self.pipelines.as_ref()?;
        let channel = *pipelines.warp_spec.operand_channel.get(&load)?;
        pipelines.acquired[channel]?.parity.map(|_| channel)
    }

    pub fn multicast(&self) -> Option<&ClusterMulticast> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.warp_spec.multicast.as_ref())
    }

    /// Tile blocks of a cluster.
    pub fn cluster_size(&self) -> u32 {
        if self.multicast().is_some() { CLUSTER_SIZE } else { 1 }
    }

    /// Blocks of the pair that may share the tile of this load.
    pub fn multicast_blocks(&self, load: OpId) -> u32 {
        if self.multicast().is_some_and(|pairs| pairs.can_multicast(load)) { CLUSTER_SIZE } else { 1 }
    }

    /// The stages that are acquired of these channels, to be given back.
    pub fn take_releases(&mut self, channels: &[u32]) -> Vec<StageRelease> {
        let Some(pipelines) = self.pipelines.as_mut() else { return Vec::new() };
        let PipelineStates { warp_spec: roles, acquired, .. } = pipelines;
        let release = |&channel: &u32| {
            let acquired = acquired[channel as usize].take()?;
            let clustered = roles.pipelines[roles.channels[channel as usize].pipeline].clustered;
            Some(StageRelease { barrier: ReleaseBarrier::Now(acquired.full_barrier), cluster: clustered })
        };
        channels.iter().filter_map(release).collect()
    }

    /// Has the pipeline of a channel stages that a pair of tile blocks fills together?
    pub fn is_clustered(&self, channel: u32) -> bool {
        let roles = self.pipelines.as_ref().map(|pipelines| &pipelines.warp_spec);
        roles.is_some_and(|roles| roles.pipelines[roles.channels[channel as usize].pipeline].clustered)
    }

    pub fn warp_uniform(&self) -> Option<WarpUniform> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.uniform)
    }

    /// The number of a warp's group of four, where that is uniform from the start.
    pub fn warp_group(&self) -> Option<Reg> {
        self.warp_uniform().map(|uniform| uniform.warp_group)
    }

    /// A zero of 64 bits that ptxas takes for another number in each lane.
    pub fn opaque_zero(&self) -> Option<Reg> {
        self.warp_uniform().and_then(|uniform| uniform.opaque_zero)
    }
}

impl MmaQueue {
    /// May a product be running?
    pub fn is_any_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// How many products a wait finds that lets so many run on, if any.
    pub fn num_completed_by(&self, pending: usize) -> Option<usize> {
        self.in_flight.len().checked_sub(pending).filter(|&completed| completed > 0)
    }

    /// The products that may be running.
    pub fn snapshot(&self) -> Vec<InFlightMma> {
        self.in_flight.clone()
    }

    /// At the start of another branch these may be running. How many may be at the end of the one before?
    pub fn replace(&mut self, running: Vec<InFlightMma>) -> usize {
        std::mem::replace(&mut self.in_flight, running).len()
    }
}

/// Where one role is in a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct PipelineState {
    pub index: Reg,
    pub phase: Reg,
}

/// A stage that consumers hold.
#[derive(Clone, Copy, Debug)]
pub struct AcquiredStage {
    /// Address of its full barrier.
    pub full_barrier: Reg,
    /// Its address.
    pub smem: Operand,
    /// Parity to wait for, until it was waited for.
    pub parity: Option<Reg>,
}

/// A pipeline in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct StageBuffers {
    pub smem: Buffer,
    pub barriers: u32,
}

/// The stage that is taken next, as far as a loop has looked ahead.
#[derive(Clone, Copy, Debug)]
pub struct TryWaitState {
    /// A predicate: have its tiles been state to be there?
    pub is_full: Reg,
    /// Address of its full barrier.
    pub full_barrier: Reg,
    /// Its address.
    pub smem: Reg,
}

/// PipelineStates of a kernel and their state.
pub struct PipelineStates {
    pub warp_spec: Rc<WarpSpecialization>,
    pub buffers: Vec<StageBuffers>,
    pub states: Vec<PipelineState>,
    pub acquired: Vec<Option<AcquiredStage>>,
    /// For each channel that a loop looks ahead for: what it has state.
    pub try_wait: Vec<Option<TryWaitState>>,
    /// One thread of each consumer warp.
    pub warp_leader: Option<Reg>,
    /// A predicate that never holds, and where it would lead.
    pub opaque_branch: Option<(Reg, Label)>,
    /// The rank of the other tile block of a pair.
    pub peer_rank: Option<Reg>,
    /// The thread of each consumer warp that tells the other block.
    pub remote_leader: Option<Reg>,
    /// What consumers know from the start.
    pub uniform: Option<WarpUniform>,
    /// The band of rows that a consumer makes.
    pub data_partition: Option<Reg>,
}

/// The release of a stage: an arrival on its empty barrier.
#[derive(Clone, Copy, Debug)]
pub struct StageRelease {
    pub barrier: ReleaseBarrier,
    /// Both tile blocks of the cluster fill the stage, so the release is for both producers.
    pub cluster: bool,
}

/// The full barrier of a stage that is released.
#[derive(Clone, Copy, Debug)]
pub enum ReleaseBarrier {
    /// The address of the full barrier.
    Now(Reg),
    /// A register that a loop carries: the address, or 0 if there is nothing to release.
    Carried(Reg),
}

/// What runs, and the waits that are to come.
#[derive(Default)]
pub struct MmaQueue {
    /// In the order in which they were issued.
    pub in_flight: Vec<InFlightMma>,
    /// Late waits of the step that is lowered: how many products may still run then.
    pub sunk_mma_waits: VecDeque<usize>,
    /// Channels whose tiles it waits for.
    pub sunk_stage_waits: VecDeque<usize>,
    /// What products that have completed keep.
    pub deferred_releases: Vec<StageRelease>,
    /// A turn to work begins where the next late wait stands.
    pub sunk_order_wait: bool,
}

/// A product that may still be running, or several that were issued together.
#[derive(Clone, Debug)]
pub struct InFlightMma {
    /// What it computes.
    pub results: Vec<Value>,
    /// What it reads.
    pub releases: Vec<StageRelease>,
    /// Lines of code before it was issued; none where no block of code may end before the wait.
    pub issued_at: usize,
    /// The user's place of it.
    pub loc: u32,
}

/// The team that is lowered.
#[derive(Clone, Debug, Default)]
pub struct PingPongGroup {
    /// Which one.
    pub index: u32,
    /// Where the barriers of turns are in shared memory.
    pub order_barriers: u32,
    /// The parities to wait for in the next turn of each kind.
    pub phases: Vec<Reg>,
    /// For each pipeline what an iteration takes of it, but for what brings it to the same stage and parity.
    pub stages_per_iteration: Vec<Operand>,
}

/// What a band, or a group that works in turn, knows from the start: its own barrier, and that of the next one.
#[derive(Clone, Copy, Debug)]
pub struct OrderBarrier {
    pub own: Reg,
    pub next: Reg,
}

/// What is the same in all lanes of a warp of consumers. It comes from a shuffle, so that ptxas computes it once: made anew before
/// each product, it would be most of the way from one product to the next.
#[derive(Clone, Copy, Debug)]
pub struct WarpUniform {
    /// Address of shared memory.
    pub smem_base: Reg,
    /// Number of the group of four warps.
    pub warp_group: Reg,
    /// Number of the warp's first thread, where warps send boxes of their own.
    pub first_thread: Option<Reg>,
    /// Zero, which ptxas does not know and takes for another number in each lane; of 64 bits, where numbers are loaded one by one
    /// beside products.
    pub opaque_zero: Option<Reg>,
}

/// What the producer knows of its peer.
#[derive(Default)]
pub struct ClusterPeer {
    /// Results of mirrored ops; while the peer is computed for, the own ones.
    pub tiles: HashMap<Value, Option<Tile>>,
    /// Is the peer computed for?
    pub is_active: bool,
    /// Is this index the peer's, too?
    pub equal_indices: HashMap<Value, Reg>,
    /// Do the blocks of the pair go the same way? `None`: always.
    pub in_lockstep: Option<Reg>,
}

/// Bytes of the two barriers of a stage: full, empty.
pub const BARRIER_BYTES: u32 = 16;

/// Barriers of turns: of each kind one for each team.
pub const ORDER_BARRIERS: u32 = PINGPONG_GROUPS * OrderPoint::ALL.len() as u32;

/// Bytes of the barriers of turns.
pub const ORDER_BARRIER_BYTES: u32 = 8 * ORDER_BARRIERS;

/// From a full barrier to the empty one.
pub const EMPTY: i64 = 8;
