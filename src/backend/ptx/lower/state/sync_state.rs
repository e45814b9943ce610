//! State of asynchronous operations: TMA pipelines, MMAs in flight, order barriers, the peer CTA.

use crate::util::collect::CollectVec as _;
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::values::Tile;
use crate::backend::ptx::isa::inst::{Operand, Reg};
use crate::backend::ptx::plan::planned_kernel::StageBuffers;
use crate::backend::ptx::schedule::{CLUSTER_SIZE, ClusterMulticast, OrderPoint, WarpRole, WarpSpecialization};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};

/// State of asynchronous operations, and of the partition that is lowered.
pub struct SyncState {
    /// Role of the partition.
    pub role: WarpRole,
    /// The TMA pipelines of a kernel with warp specialization.
    pub pipelines: Option<PipelineStates>,
    /// MMAs in flight, and waits for them.
    pub mmas: MmaQueue,
    /// The consumer group that is lowered: a ping-pong group, or number 0.
    pub group: ConsumerGroupState,
    /// Named barriers of the consumer group, if they are in registers.
    pub order: Option<NamedOrderBarriers>,
    /// The other CTA of the cluster.
    pub peer: ClusterPeer,
    /// Offset in shared memory of the mbarriers that replace named barriers, with a wait limit.
    pub limited_barriers: Option<u32>,
}

impl SyncState {
    /// The state of a kernel without warp specialization.
    pub fn new() -> SyncState {
        SyncState {
            role: WarpRole::All,
            pipelines: None,
            mmas: MmaQueue::default(),
            group: ConsumerGroupState::default(),
            order: None,
            peer: ClusterPeer::default(),
            limited_barriers: None,
        }
    }

    /// Returns true if the partition needs a carried value or a result of a region op.
    pub fn is_live_in_partition(&self, value: Value) -> bool {
        match &self.pipelines {
            Some(pipelines) if self.role == WarpRole::Producer => pipelines.warp_spec.producer_live.contains(&value),
            _ => true,
        }
    }

    /// Returns the number of stages of a pipeline.
    pub fn num_stages(&self, pipeline: usize) -> u32 {
        self.pipelines.as_ref().map_or(1, |pipelines| pipelines.warp_spec.pipelines[pipeline].num_stages)
    }

    /// Returns the predicate of one thread of each consumer warp.
    pub fn warp_leader(&self) -> Option<Reg> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.warp_leader)
    }

    /// Returns the address of the acquired stage of a channel.
    pub fn acquired_smem(&self, channel: u32) -> Option<Operand> {
        self.pipelines.as_ref()?.acquired.get(channel as usize)?.map(|acquired| acquired.smem)
    }

    /// Returns a predicate that is never true. ptxas cannot prove it.
    pub fn opaque_false(&self) -> Option<Reg> {
        self.pipelines.as_ref()?.opaque_false
    }

    /// Returns the channel of a load whose stage is not waited for yet.
    pub fn unwaited(&self, load: OpId) -> Option<usize> {
        let pipelines = self.pipelines.as_ref()?;
        let channel = pipelines.warp_spec.operand_channel(load)? as usize;
        pipelines.acquired[channel]?.parity.map(|_| channel)
    }

    /// Returns the multicast plan of a kernel with clusters.
    pub fn multicast(&self) -> Option<&ClusterMulticast> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.warp_spec.multicast.as_ref())
    }

    /// Returns the number of CTAs of a cluster.
    pub fn cluster_size(&self) -> u32 {
        if self.multicast().is_some() { CLUSTER_SIZE } else { 1 }
    }

    /// Returns the number of CTAs that may share the tile of a load.
    pub fn multicast_blocks(&self, load: OpId) -> u32 {
        if self.multicast().is_some_and(|multicast| multicast.can_multicast(load)) { CLUSTER_SIZE } else { 1 }
    }

    /// Returns the releases of the acquired stages of these channels, which are no longer acquired.
    pub fn take_releases(&mut self, channels: &[u32]) -> Vec<StageRelease> {
        let Some(pipelines) = self.pipelines.as_mut() else { return Vec::new() };
        let PipelineStates { warp_spec, acquired, .. } = pipelines;
        let release = |&channel: &u32| {
            let acquired = acquired[channel as usize].take()?;
            let clustered = warp_spec.pipelines[warp_spec.channels[channel as usize].pipeline].clustered;
            Some(StageRelease { barrier: ReleaseBarrier::Now(acquired.full_barrier), cluster: clustered })
        };
        channels.iter().filter_map(release).collect_vec()
    }

    /// Returns true if both CTAs of a cluster fill the stages of a channel.
    pub fn is_clustered(&self, channel: u32) -> bool {
        let warp_spec = self.pipelines.as_ref().map(|pipelines| &pipelines.warp_spec);
        warp_spec.is_some_and(|warp_spec| warp_spec.pipelines[warp_spec.channels[channel as usize].pipeline].clustered)
    }

    /// Returns the warp-uniform values of consumers.
    pub fn warp_uniform(&self) -> Option<WarpUniform> {
        self.pipelines.as_ref().and_then(|pipelines| pipelines.uniform)
    }

    /// Returns the number of the warp group, if it is in a register.
    pub fn warp_group(&self) -> Option<Reg> {
        self.warp_uniform().map(|uniform| uniform.warp_group)
    }
}

impl MmaQueue {
    /// Returns the number of MMA groups that a wait completes, if any.
    pub fn num_completed_by(&self, pending: usize) -> Option<usize> {
        self.in_flight.len().checked_sub(pending).filter(|&completed| completed > 0)
    }

    /// Returns the MMAs in flight.
    pub fn snapshot(&self) -> Vec<EmittedMmaGroup> {
        self.in_flight.clone()
    }

    /// Sets the MMAs in flight at the start of another arm. Returns their number at the end of the
    /// previous one.
    pub fn replace(&mut self, running: Vec<EmittedMmaGroup>) -> usize {
        std::mem::replace(&mut self.in_flight, running).len()
    }
}

/// Stage index and parity of a partition in a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct PipelineState {
    pub index: Reg,
    pub parity: Reg,
}

/// Addresses and parity of one stage of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct StageHandle {
    /// Address of the full barrier.
    pub full_barrier: Operand,
    /// Address of the data.
    pub smem: Operand,
    /// Parity of the phase in which the full barrier completes.
    pub parity: Operand,
}

/// A stage that consumers have acquired.
#[derive(Clone, Copy, Debug)]
pub struct AcquiredStage {
    /// Address of the full barrier.
    pub full_barrier: Reg,
    /// Address of the data.
    pub smem: Operand,
    /// Phase to wait for, until the wait is emitted.
    pub parity: Option<Reg>,
}

/// State of a try-wait in a loop.
#[derive(Clone, Copy, Debug)]
pub struct TryWaitState {
    /// Predicate: the try-wait has succeeded.
    pub is_full: Reg,
    /// Address of the full barrier of the next stage.
    pub full_barrier: Reg,
    /// Address of its data.
    pub smem: Reg,
}

/// The TMA pipelines of a kernel and their state.
#[derive(Default)]
pub struct PipelineStates {
    pub warp_spec: Rc<WarpSpecialization>,
    /// By pipeline.
    pub buffers: Vec<StageBuffers>,
    /// By pipeline.
    pub states: Vec<PipelineState>,
    /// By channel.
    pub acquired: Vec<Option<AcquiredStage>>,
    /// By channel: the try-wait of the current loop.
    pub try_wait: Vec<Option<TryWaitState>>,
    /// One thread of each consumer warp.
    pub warp_leader: Option<Reg>,
    /// A predicate that is never true. ptxas cannot prove it.
    pub opaque_false: Option<Reg>,
    /// Rank of the peer CTA in the cluster.
    pub peer_rank: Option<Reg>,
    /// The thread of each consumer warp that arrives on barriers of the peer CTA.
    pub remote_leader: Option<Reg>,
    /// Warp-uniform values of consumers.
    pub uniform: Option<WarpUniform>,
    /// Data partition of the consumer.
    pub data_partition: Option<Reg>,
}

/// The release of a stage: an arrival on its empty barrier.
#[derive(Clone, Copy, Debug)]
pub struct StageRelease {
    pub barrier: ReleaseBarrier,
    /// Both CTAs of the cluster fill the stage, so the release is for both producers.
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

/// MMAs in flight, and pending waits.
#[derive(Default)]
pub struct MmaQueue {
    /// In the order of issue.
    pub in_flight: Vec<EmittedMmaGroup>,
    /// Sunk MMA waits of the current step: the number of MMA groups that may stay in flight.
    pub sunk_mma_waits: VecDeque<usize>,
    /// Channels of sunk stage waits of the current step.
    pub sunk_stage_waits: VecDeque<usize>,
    /// Releases of completed MMAs that a later wait emits.
    pub deferred_releases: Vec<StageRelease>,
    /// The order wait before the MMAs, or the wait for MMAs, of the current step.
    pub sunk_order_wait: Option<OrderPoint>,
}

/// MMA group whose instructions are emitted and whose wait is not: a `wgmma-group` of PTX.
#[derive(Clone, Debug)]
pub struct EmittedMmaGroup {
    /// Results of the MMAs.
    pub results: Vec<Value>,
    /// Releases of the stages that they read.
    pub releases: Vec<StageRelease>,
    /// Buffers that they read, as named by the steps of this iteration.
    pub reads: Vec<Buffer>,
    /// Source location.
    pub loc: u32,
}

/// The consumer group that is lowered: a ping-pong group, or number 0.
#[derive(Clone, Debug, Default)]
pub struct ConsumerGroupState {
    /// Number of the group.
    pub index: u32,
    /// Offset of the order barriers in shared memory.
    pub order_mbarriers: u32,
    /// Parities of the next wait, by order point.
    pub parities: Vec<Reg>,
    /// By pipeline: stages that an iteration consumes, modulo two rounds.
    pub stages_per_iteration: Vec<Operand>,
}

/// Named barriers of a consumer group: its own, and that of the next group.
#[derive(Clone, Copy, Debug)]
pub struct NamedOrderBarriers {
    pub own: Reg,
    pub next: Reg,
}

/// Values that are equal in all lanes of a consumer warp.
///
/// They are computed once by shuffle. Recomputed before each MMA, they would dominate the time
/// between two MMAs.
#[derive(Clone, Copy, Debug)]
pub struct WarpUniform {
    /// Address of shared memory.
    pub smem_base: Reg,
    /// Number of the warp group.
    pub warp_group: Reg,
    /// Number of the first thread of the warp, if warps issue TMA stores.
    pub first_thread: Option<Reg>,
}

/// State of the peer CTA, in the producer.
#[derive(Default)]
pub struct ClusterPeer {
    /// Results of ops that are computed for the peer. While the peer is active: those of this
    /// CTA.
    pub tiles: FxHashMap<Value, Option<Tile>>,
    /// Ops are lowered for the peer CTA.
    pub is_active: bool,
    /// Predicates: an index is equal in both CTAs.
    pub equal_indices: FxHashMap<Value, Reg>,
    /// Predicate: the CTAs advance in lockstep. `None`: always.
    pub in_lockstep: Option<Reg>,
}
