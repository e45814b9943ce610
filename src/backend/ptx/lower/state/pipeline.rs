//! Pipeline state: addresses and phases of the stages of TMA pipelines (CUTLASS `PipelineState`).
//!
//! Each stage has two mbarriers. The full barrier completes when the announced bytes have arrived.
//! The empty barrier completes when all consumer warps have released the stage. Producer and
//! consumers advance in program order, each with its own stage index and phase; the phase flips
//! when the index wraps.

use std::rc::Rc;

use super::core::Lowering;
use super::instrument::stamp_state::WaitKey;
use super::sync_state::{AcquiredStage, PipelineState, StageHandle, TryWaitState};
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::plan::planned_kernel::{EMPTY_BARRIER_OFFSET, STAGE_BARRIER_BYTES};
use crate::backend::ptx::remarks::DataPath;
use crate::backend::ptx::schedule::PipelineDesc;
use crate::ir::OpId;

impl Lowering<'_> {
    /// Adds remarks about the loads of a channel.
    pub fn remark_channel(&mut self, channel: usize) {
        let warp_spec = Rc::clone(&self.sync.pipelines.as_ref().expect("pipelines").warp_spec);
        let stages = warp_spec.pipelines[warp_spec.channels[channel].pipeline].num_stages;
        for load in &warp_spec.channels[channel].loads {
            let blocks = self.sync.multicast_blocks(load.load);
            let way = DataPath::TmaPipelined { boxes: load.boxes.len() as u32, stages, multicast: blocks };
            self.report.remarks.access(self.module, load.load, self.module.op(load.load).results[0], way);
        }
    }

    /// Returns the addresses of the current stage: full barrier, then data.
    pub fn stage_addresses(&mut self, pipeline: usize) -> (Operand, Operand) {
        let pipelines = self.sync.pipelines.as_ref().expect("pipelines");
        let (buffers, index) = (pipelines.buffers[pipeline], pipelines.states[pipeline].index);
        let PipelineDesc { num_stages: stages, stage_bytes, .. } = pipelines.warp_spec.pipelines[pipeline];
        let uniform = pipelines.uniform.map(|uniform| uniform.smem_base);
        let b = &mut self.b;
        let base = uniform.unwrap_or_else(|| b.reg(Operand::Smem, RegClass::B32));
        if stages == 1 {
            return (b.add(Ty::U32, base, buffers.barriers), b.add(Ty::U32, base, buffers.smem.offset));
        }
        let barrier = b.mad(Ty::U32, index, i64::from(STAGE_BARRIER_BYTES), base);
        let barrier = b.add(Ty::U32, barrier, buffers.barriers);
        let stage = b.mad(Ty::U32, index, i64::from(stage_bytes), base);
        (barrier, b.add(Ty::U32, stage, buffers.smem.offset))
    }

    /// Returns the current stage of the pipeline of a channel, then advances the pipeline.
    pub fn current_stage_and_advance(&mut self, channel: usize) -> StageHandle {
        let pipelines = self.sync.pipelines.as_ref().expect("pipelines");
        let pipeline = pipelines.warp_spec.channels[channel].pipeline;
        let (parity, state) = (pipelines.states[pipeline].parity, pipelines.try_wait[channel]);
        let parity = self.b.copy(parity, RegClass::B32).into();
        if let Some(TryWaitState { full_barrier, smem, .. }) = state {
            // A loop with try-waits advances there.
            let [full_barrier, smem] = [full_barrier, smem].map(|address| self.b.copy(address, RegClass::B32).into());
            return StageHandle { full_barrier, smem, parity };
        }
        let (full_barrier, smem) = self.stage_addresses(pipeline);
        self.advance(pipeline);
        StageHandle { full_barrier, smem, parity }
    }

    /// Advances to the next stage.
    pub fn advance(&mut self, pipeline: usize) {
        let pipelines = self.sync.pipelines.as_ref().expect("pipelines");
        let (PipelineState { index, parity }, stages) =
            (pipelines.states[pipeline], pipelines.warp_spec.pipelines[pipeline].num_stages);
        let b = &mut self.b;
        if stages == 1 {
            let flipped = b.xor(Ty::B32, parity, 1u32);
            return b.mov_to(parity, flipped);
        }
        let next = b.add(Ty::U32, index, 1u32);
        let wraps = b.setp(Cmp::Eq, Ty::U32, next, stages);
        let next = b.select(RegClass::B32, wraps, 0, next);
        let flipped = b.xor(Ty::B32, parity, 1u32);
        let turned = b.select(RegClass::B32, wraps, flipped, parity);
        b.mov_to(index, next);
        b.mov_to(parity, turned);
    }

    /// Returns the next stage to acquire. `advances`: the previous stage is acquired, so the
    /// pipeline advances first.
    pub fn next_stage(&mut self, channel: usize, advances: bool) -> StageHandle {
        let pipeline = self.sync.pipelines.as_ref().expect("pipelines").warp_spec.channels[channel].pipeline;
        if advances {
            self.advance(pipeline);
        }
        let (full_barrier, smem) = self.stage_addresses(pipeline);
        let parity = self.sync.pipelines.as_ref().expect("pipelines").states[pipeline].parity.into();
        StageHandle { full_barrier, smem, parity }
    }

    /// Advances by `count` stages, less than two rounds of the pipeline.
    pub fn skip_stages(&mut self, pipeline: usize, count: Operand) {
        let stages = self.sync.num_stages(pipeline);
        let PipelineState { index, parity } = self.sync.pipelines.as_ref().expect("pipelines").states[pipeline];
        let all = self.b.add(Ty::U32, index, count);
        let rounds = self.b.div(Ty::U32, all, stages);
        let whole = self.b.mul(Ty::U32, rounds, stages);
        let rest = self.b.sub(Ty::U32, all, whole);
        let odd = self.b.and(Ty::B32, rounds, 1u32);
        let turned = self.b.xor(Ty::B32, parity, odd);
        self.b.mov_to(index, rest);
        self.b.mov_to(parity, turned);
    }

    /// Waits for an empty stage. Returns the address of its full barrier and of its data.
    pub fn producer_acquire(&mut self, channel: usize) -> (Addr, Reg) {
        let StageHandle { full_barrier, smem, parity } = self.current_stage_and_advance(channel);
        let barrier = Addr::new(self.b.reg(full_barrier, RegClass::B32), 0);
        let stage = self.b.reg(smem, RegClass::B32);
        let before = self.b.xor(Ty::B32, parity, 1u32);
        let load = self.first_load(channel);
        let step = format!("the wait for an empty stage of channel {channel}");
        let start = self.stamp_start();
        self.wait_for_phase(&barrier.plus(EMPTY_BARRIER_OFFSET), before, load, &step);
        self.stamp_wait(start, None, load);
        (barrier, stage)
    }

    /// Acquires the next stage of a channel for the consumers, without a wait.
    pub fn consumer_advance(&mut self, channel: usize) {
        self.remark_channel(channel);
        let StageHandle { full_barrier, smem, parity } = self.current_stage_and_advance(channel);
        let full_barrier = self.b.reg(full_barrier, RegClass::B32);
        let parity = Some(self.b.reg(parity, RegClass::B32));
        let pipelines = self.sync.pipelines.as_mut().expect("pipelines");
        let this = &pipelines.warp_spec.channels[channel];
        pipelines.acquired[channel] = Some(AcquiredStage { full_barrier, smem, parity });
        for load in &this.loads {
            let address = self.b.add(Ty::U32, smem, load.smem_offset);
            let address = match pipelines.data_partition {
                Some(partition) if load.partitions > 1 => {
                    self.b.mad(Ty::U32, partition, i64::from(load.bytes / load.partitions), address)
                }
                _ => address,
            };
            self.values.stage_addresses.insert(self.module.op(load.load).results[0], address);
        }
    }

    /// Waits until the tiles of a channel have arrived.
    pub fn consumer_wait(&mut self, channel: usize) {
        let Some(pipelines) = self.sync.pipelines.as_mut() else { return };
        let Some(acquired) = pipelines.acquired[channel].as_mut() else { return };
        let Some(parity) = acquired.parity.take() else { return };
        let barrier = Addr::new(acquired.full_barrier, 0);
        let tried = pipelines.try_wait[channel];
        let load = self.first_load(channel);
        let step = format!("the wait for the tiles of channel {channel}");
        let done = self.b.new_label();
        let key = Some(WaitKey::Stage(channel));
        if self.omits_unblocked_waits() {
            let is_full = match tried {
                Some(state) => state.is_full,
                None => {
                    let is_full = self.b.fresh(RegClass::Pred);
                    self.b.mbarrier_test(is_full, &barrier, parity);
                    is_full
                }
            };
            self.b.bra_if(is_full, false, done, false);
            let start = self.stamp_start();
            self.wait_for_phase(&barrier, parity, load, &step);
            self.stamp_wait(start, key, load);
            return self.b.emit_label(done);
        }
        let start = self.stamp_start();
        if let Some(state) = tried {
            self.b.bra_if(state.is_full, false, done, false);
        }
        self.wait_for_phase(&barrier, parity, load, &step);
        if tried.is_some() {
            self.b.emit_label(done);
        }
        self.stamp_wait(start, key, load);
    }

    /// Returns the op of a channel that a report names.
    fn first_load(&self, channel: usize) -> Option<OpId> {
        self.sync.pipelines.as_ref().map(|pipelines| pipelines.warp_spec.channels[channel].first())
    }
}
