//! Ping-pong groups: their iterations and pipeline advance (CUTLASS ping-pong kernels).
//!
//! The producer loads the stages of all iterations, so each group counts all stages: after its own
//! iteration it advances past the stages of the other group.

use crate::backend::ptx::isa::inst::{Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::lower::loop_counter::{counter_type, num_iterations, unsigned};
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::schedule::{OrderPoint, PingPong, StagesPerIteration};
use crate::ir::Flag;
use crate::util::collect::CollectVec as _;

/// Iterations of a ping-pong group: first counter, step, and whether there is one.
pub struct PingPongRange {
    pub first: Operand,
    pub step: Operand,
    pub is_some: Reg,
}

impl Lowering<'_> {
    /// Computes the iterations of this group, before a ping-pong loop.
    pub fn begin_pingpong(
        &mut self,
        plan: &PingPong,
        [lower, upper, step]: [Operand; 3],
        ty: Ty,
    ) -> Lowered<PingPongRange> {
        let index = self.sync.group.index;
        self.sync.group.stages_per_iteration = plan
            .stages_per_iteration
            .iter()
            .enumerate()
            .map(|(pipeline, count)| self.stages_of_iteration(pipeline, count))
            .collect::<Lowered<_>>()?;
        // Group 0 enters first: its order barriers have no earlier phase to wait for.
        let first = Operand::from(u32::from(index == 0));
        self.sync.group.parities = OrderPoint::PINGPONG.iter().map(|_| self.b.copy(first, RegClass::B32)).collect_vec();
        let some = self.b.setp(Cmp::Lt, ty, lower, upper);
        let twice = self.b.add(ty, step, step);
        if index == 0 {
            return Ok(PingPongRange { first: lower, step: twice, is_some: some });
        }
        self.skip_peer_iteration();
        // The second counter may overflow its type: the rest of the range is compared.
        let left = self.b.sub(ty, upper, lower);
        let second = self.b.setp(Cmp::Gt, unsigned(ty), left, step);
        let some = self.b.and(Ty::Pred, some, second).reg();
        Ok(PingPongRange { first: self.b.add(ty, lower, step), step: twice, is_some: some })
    }

    /// Returns the number of stages that an iteration consumes, modulo two rounds of the pipeline.
    fn stages_of_iteration(&mut self, pipeline: usize, count: &StagesPerIteration) -> Lowered<Operand> {
        let module = self.module;
        let period = 2 * self.sync.num_stages(pipeline);
        let mut all = Operand::from(count.direct);
        for &id in &count.per_trip_of {
            let op = module.op(id);
            let ty = counter_type(module.dtype(op.group(0)[0]), op.flag(Flag::UnsignedCmp))?;
            let [lower, upper, step] = [0, 1, 2].map(|group| self.scalar(op.group(group)[0]));
            let count = num_iterations(&mut self.b, lower?, upper?, step?, ty);
            let rest = self.remainder(count, period, unsigned(ty));
            let rest = if unsigned(ty) == Ty::U64 { self.b.unpack(rest).0 } else { rest };
            all = self.b.add(Ty::U32, all, rest);
        }
        Ok(self.remainder(all, period, Ty::U32))
    }

    fn remainder(&mut self, value: Operand, of: u32, ty: Ty) -> Operand {
        let whole = self.b.div(ty, value, of);
        let whole = self.b.mul(ty, whole, of);
        self.b.sub(ty, value, whole)
    }

    /// Advances all pipelines past the stages of the next iteration, which belongs to the other
    /// group.
    pub fn skip_peer_iteration(&mut self) {
        for pipeline in 0..self.sync.group.stages_per_iteration.len() {
            let count = self.sync.group.stages_per_iteration[pipeline];
            self.skip_stages(pipeline, count);
        }
    }
}
