//! TMA pipelines: mbarrier initialization and the producer (CUTLASS `PipelineTmaAsync`).

use crate::backend::ptx::hardware::MBARRIER_BYTES;
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Special, Ty};
use crate::backend::ptx::lower::Lowered;
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::lower::named_barriers::NamedBarrier;
use crate::backend::ptx::lower::state::sync_state::PipelineState;
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::plan::planned_kernel::{
    EMPTY_BARRIER_OFFSET, ORDER_BARRIERS, STAGE_BARRIER_BYTES, StageBuffers,
};
use crate::backend::ptx::schedule::{CLUSTER_SIZE, LoopNesting, TmaLoad, WarpRole, WarpSpecialization};
use crate::ir::OpId;
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Initializes the mbarriers of all pipelines and order points, in one thread.
    pub fn init_barriers(&mut self, pipelines: &[StageBuffers], warp_spec: &WarpSpecialization, warps: u32) {
        let tid = self.b.special(Special::TidX);
        let is_other = self.b.setp(Cmp::Ne, Ty::U32, tid, 0);
        let base = self.b.reg(Operand::Smem, RegClass::B32);
        let order = self.sync.group.order_mbarriers;
        let both = match self.sync.peer.in_lockstep {
            Some(in_lockstep) => self.b.select(RegClass::B32, in_lockstep, warps * CLUSTER_SIZE, warps),
            None => Operand::from(warps * CLUSTER_SIZE),
        };
        self.b.skip_if(is_other, false, |b| {
            for (pipeline, plan) in pipelines.iter().zip(&warp_spec.pipelines) {
                for stage in 0..plan.num_stages {
                    let full = Addr::new(base, i64::from(pipeline.barriers + stage * STAGE_BARRIER_BYTES));
                    b.mbarrier_init(&full, 1u32);
                    b.mbarrier_init(&full.plus(EMPTY_BARRIER_OFFSET), if plan.clustered { both } else { warps.into() });
                }
            }
            if warp_spec.pingpong.is_some() {
                (0..ORDER_BARRIERS).for_each(|index| {
                    b.mbarrier_init(&Addr::new(base, i64::from(order + MBARRIER_BYTES * index)), warps)
                });
            }
            b.fence_mbarrier_init();
        });
        match warp_spec.multicast {
            Some(_) => self.b.cluster_wait_relaxed(),
            None => self.b.bar_sync(NamedBarrier::Cta.id(), None),
        }
    }

    /// Sets the pipeline states of a partition to the first stage.
    pub fn init_pipeline_states(&mut self, leader: Option<Reg>) {
        let pipelines = self.sync.pipelines.as_mut().expect("pipelines");
        pipelines.warp_leader = leader;
        let b = &mut self.b;
        let zero = |b: &mut Builder| b.copy(Operand::Imm(0), RegClass::B32);
        pipelines.states =
            pipelines.buffers.iter().map(|_| PipelineState { index: zero(b), parity: zero(b) }).collect_vec();
        if pipelines.warp_spec.multicast.is_some() {
            let rank = b.special(Special::ClusterCtaRank);
            pipelines.peer_rank = Some(b.xor(Ty::B32, rank, 1u32).reg());
            pipelines.remote_leader = leader.map(|leader| match self.sync.peer.in_lockstep {
                Some(in_lockstep) => b.and(Ty::Pred, leader, in_lockstep).reg(),
                None => leader,
            });
        }
    }

    /// Acquires an empty stage, and issues the loads of a channel.
    pub fn produce(&mut self, channel: usize) -> Lowered {
        self.remark_channel(channel);
        self.prefetch_boxes(channel)?;
        let (barrier, stage) = self.producer_acquire(channel);
        let pipelines = self.sync.pipelines.take().expect("pipelines");
        let this = &pipelines.warp_spec.channels[channel];
        self.b.mbarrier_expect_tx(&barrier, this.bytes());
        let multicast = pipelines.warp_spec.multicast.as_ref();
        let mut result = Ok(());
        for load in &this.loads {
            let deciding = multicast.and_then(|multicast| multicast.multicast_loads.get(&load.load));
            result = result.and(self.for_op(load.load, |lowering| match (pipelines.peer_rank, deciding) {
                (Some(peer), Some(deciding)) => lowering.issue_multicast(load, deciding, stage, &barrier, peer),
                (peer, _) => lowering.issue_loads(load, stage, &barrier, peer.is_some()),
            }));
        }
        self.sync.pipelines = Some(pipelines);
        result
    }

    /// Prefetches the boxes of a channel to the L2 cache, if its pipeline has one stage in a loop.
    /// The producer then waits for the consumers of the previous tile before it issues the load.
    fn prefetch_boxes(&mut self, channel: usize) -> Lowered {
        let pipelines = self.sync.pipelines.take().expect("pipelines");
        let this = &pipelines.warp_spec.channels[channel];
        let pipeline = &pipelines.warp_spec.pipelines[this.pipeline];
        let waits = pipeline.num_stages == 1 && pipeline.nesting == LoopNesting::Innermost;
        let mut result = Ok(());
        if waits && pipelines.warp_spec.multicast.is_none() && self.info.is_enabled(Optimization::PrefetchBoxes) {
            for load in &this.loads {
                result = result.and(self.for_op(load.load, |lowering| lowering.prefetch_loads(load)));
            }
        }
        self.sync.pipelines = Some(pipelines);
        result
    }

    fn prefetch_loads(&mut self, load: &TmaLoad) -> Lowered {
        let op = self.module.op(load.load);
        let map = self.tensor_map_address(&load.map);
        for part in &load.boxes {
            let coords = self.tma_coords(op.group(0)[0], op.group(1), &part.coord)?;
            self.b.tma_prefetch(map, &coords);
        }
        Ok(())
    }

    /// Prefetches the tile of a load of the consumers to the L2 cache.
    pub fn prefetch_tile(&mut self, load: OpId) -> Lowered {
        let pipelines = self.sync.pipelines.as_ref().expect("pipelines");
        let map = pipelines.warp_spec.prefetches[&load].clone();
        let op = self.module.op(load);
        let address = self.tensor_map_address(&map);
        let coords = self.tma_coords(op.group(0)[0], op.group(1), &vec![0; map.dims.len()])?;
        self.b.tma_prefetch(address, &coords);
        Ok(())
    }

    /// Waits until the consumers of both CTAs have released all stages, before the producer of a
    /// cluster ends.
    ///
    /// After that no other CTA accesses the shared memory of this CTA.
    pub fn drain_pipelines(&mut self) {
        let Some(pipelines) = self.sync.pipelines.as_ref().filter(|_| self.sync.role == WarpRole::Producer) else {
            return;
        };
        let mut channels = Vec::new();
        for (index, pipeline) in
            pipelines.warp_spec.pipelines.iter().enumerate().filter(|(_, pipeline)| pipeline.clustered)
        {
            let channel = pipelines.warp_spec.channels.iter().position(|channel| channel.pipeline == index);
            channels.extend(channel.map(|channel| (channel, pipeline.num_stages)));
        }
        for (channel, stages) in channels {
            (0..stages).for_each(|_| drop(self.producer_acquire(channel)));
        }
    }
}
