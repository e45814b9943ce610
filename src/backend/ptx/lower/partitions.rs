//! Partitions: warps branch by their number to the sequences of consumer groups and producer.
//!
//! The consumers receive registers of the producer (`setmaxnreg`). Values that are computed before
//! the branch are known in all partitions; each partition forgets what another one has computed.

use std::rc::Rc;

use super::state::sync_state::PipelineStates;
use super::state::values::{Snapshot, ThreadIndexCache};
use super::{Lowered, Lowering};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Cmp, Operand, Special, Ty};
use crate::backend::ptx::plan::planned_kernel::PipelineBuffers;
use crate::backend::ptx::schedule::{PRODUCER_REGISTERS, WarpRole, WarpSpecialization};
use crate::ir::BlockId;

impl Lowering<'_> {
    /// Lowers the sequence of a partition.
    pub fn lower_partition(&mut self, role: WarpRole) {
        let (module, body) = (self.module, self.module.entries[0].body);
        self.begin_stamps(|schedule| schedule.step_lines(module, body));
        let partition = self.schedule.partition(role).map(|partition| partition.body);
        self.sequence(partition.expect("the schedule has the partition"));
    }

    /// Lowers the partitions of a kernel with warp specialization.
    pub fn lower_partitions(
        &mut self,
        body: BlockId,
        warp_spec: Rc<WarpSpecialization>,
        buffers: PipelineBuffers,
    ) -> Lowered {
        let (warps, groups) = (self.info.inference.num_warps as u32, self.info.pingpong_groups);
        let data_partitions = self.info.data_partitions;
        let consumers = self.info.consumer_warps() * WARP_SIZE;
        let ctas_per_sm = self.info.warp_specialized_occupancy();
        self.b.function().threads = consumers + self.info.producer_warps() * WARP_SIZE;
        self.b.function().min_blocks = Some(ctas_per_sm);
        let count = warp_spec.channels.len();
        let pipelines = buffers.stages;
        self.sync.group.order_mbarriers = buffers.order_mbarriers;
        self.prefetch_store_maps()?;
        self.compare_trip_counts(body, &warp_spec)?;
        self.init_limited_barriers();
        self.init_barriers(&pipelines, &warp_spec, warps * data_partitions);
        let tid = self.b.special(Special::TidX);
        let producer = self.b.new_label();
        let is_producer = self.b.setp(Cmp::Ge, Ty::U32, tid, consumers);
        self.b.bra_if(is_producer, false, producer, true);

        if self.info.consumer_groups() > 1 {
            // Thread indices depend on the consumer group.
            self.values.thread_indices = ThreadIndexCache::default();
        }
        let before = self.values.snapshot();
        self.sync.pipelines = Some(PipelineStates {
            warp_spec,
            buffers: pipelines,
            acquired: vec![None; count],
            try_wait: vec![None; count],
            ..PipelineStates::default()
        });
        self.report.remarks.pingpong_groups = (groups > 1).then_some(groups);
        self.report.remarks.data_partitions = (data_partitions > 1).then_some(data_partitions);
        self.sync.role = WarpRole::Consumer;
        self.lower_consumer_groups(&before, (tid, ctas_per_sm));
        self.values.restore(&before);
        self.sync.role = WarpRole::Producer;
        // The registers of these values belong to the consumers.
        let pipelines = self.sync.pipelines.as_mut().expect("pipelines");
        (pipelines.uniform, pipelines.data_partition) = (None, None);
        self.b.emit_label(producer);
        self.emit_setmaxnreg(false, ctas_per_sm);
        let is_issuer = self.b.setp(Cmp::Eq, Ty::U32, tid, consumers);
        let idle = self.b.new_label();
        self.b.bra_if(is_issuer, true, idle, false);
        self.init_pipeline_states(None);
        self.lower_partition(WarpRole::Producer);
        self.b.emit_label(idle);
        self.b.ret();
        self.sync.role = WarpRole::All;
        Ok(())
    }

    /// Lowers the sequences of the consumer groups.
    pub fn lower_consumer_groups(&mut self, before: &Snapshot, (tid, ctas_per_sm): (Operand, u32)) {
        let (threads, groups) = (self.info.inference.num_warps as u32 * WARP_SIZE, self.info.pingpong_groups);
        if self.info.consumer_groups() == 1 {
            return self.lower_consumer(tid, ctas_per_sm);
        }
        self.b.threads_per_consumer_group = threads;
        if groups == 1 {
            // All data partitions execute the same code.
            self.lower_consumer(tid, ctas_per_sm);
            self.b.threads_per_consumer_group = 0;
            return;
        }
        for group in 0..groups {
            let next = self.b.new_label();
            if group + 1 < groups {
                let is_later = self.b.setp(Cmp::Ge, Ty::U32, tid, (group + 1) * threads);
                self.b.bra_if(is_later, false, next, true);
            }
            self.sync.group.index = group;
            self.lower_consumer(tid, ctas_per_sm);
            self.values.restore(before);
            self.b.emit_label(next);
        }
        self.b.threads_per_consumer_group = 0;
    }

    /// Lowers the sequence of the consumers.
    pub fn lower_consumer(&mut self, tid: Operand, ctas_per_sm: u32) {
        self.emit_setmaxnreg(true, ctas_per_sm);
        let lane = self.b.and(Ty::B32, tid, WARP_SIZE - 1);
        let leader = self.b.setp(Cmp::Eq, Ty::U32, lane, 0);
        self.init_pipeline_states(Some(leader));
        self.init_data_partition(tid);
        let uniform = self.init_warp_uniform();
        self.sync.pipelines.as_mut().expect("pipelines").uniform = Some(uniform);
        let grid = self.b.special(Special::NCtaIdX);
        let opaque_false = self.b.setp(Cmp::Eq, Ty::U32, grid, 0);
        self.sync.pipelines.as_mut().expect("pipelines").opaque_false = Some(opaque_false);
        self.init_order();
        self.lower_partition(WarpRole::Consumer);
    }

    /// Moves registers from the producer to the consumers (`setmaxnreg`).
    pub fn emit_setmaxnreg(&mut self, consumer: bool, ctas_per_sm: u32) {
        let (at_entry, more) = self.info.registers_per_thread(ctas_per_sm);
        if self.info.transfers_registers() && more > at_entry && at_entry > PRODUCER_REGISTERS {
            self.b.setmaxnreg(consumer, if consumer { more } else { PRODUCER_REGISTERS });
        }
    }
}
