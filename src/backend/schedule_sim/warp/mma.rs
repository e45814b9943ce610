//! MMAs: their operands, issue and completion.

use rustc_hash::FxHashMap;

use super::warp_state::{Accumulator, Partition, Promise, SimulatedMma};
use crate::backend::ptx::OperandPlan;
use crate::backend::ptx::schedule::{MmaGroup, MmaIssue};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::memory::operand_view::{Form, Source};
use crate::backend::schedule_sim::memory::shared_state::{Operand, Shared, Where};
use crate::ir::{OpId, Value};

impl<'a> Partition<'a> {
    /// Issues an MMA group. It completes at once, or is asynchronous.
    ///
    /// # Errors
    /// An operand is not available.
    pub fn mma_group(&mut self, shared: &mut Shared<'a>, plan: &MmaGroup) -> Result<(), Fault> {
        let last = plan.last().ok_or_else(|| broken("a group without MMAs"))?;
        let operands = self.operands(shared, plan)?;
        let complete = plan
            .ops
            .iter()
            .all(|id| matches!(self.kernel.info.inference.mma_plans.get(id), Some(Ok(plan)) if plan.is_complete()));
        let mut made: FxHashMap<Value, Promise> = FxHashMap::default();
        let module = self.kernel.module;
        let mut mmas = Vec::new();
        for issue in &plan.issue {
            let id = plan.ops[issue.op];
            let sum = self.accumulator(id, (plan, &made), complete)?;
            let promise = Promise::default();
            made.insert(module.op(id).results[0], promise.clone());
            mmas.push((id, sum, promise));
        }
        let mut has_release = Vec::new();
        for channel in &plan.releases {
            let slot = self.acquired.remove(channel);
            let acquired = slot.ok_or_else(|| broken(format!("channel {channel} is released, and not acquired")))?;
            has_release.push((*channel, acquired.slot));
        }
        if complete {
            self.barriers.after_step();
            for ((id, sum, promise), [left, right]) in mmas.iter().zip(&operands) {
                let tiles = [shared.read(left, *id)?, shared.read(right, *id)?];
                let content = self.mma(*id, tiles, sum)?;
                *promise.borrow_mut() = content.clone();
                self.frame.set(module.op(*id).results[0], content);
            }
            return has_release.into_iter().try_for_each(|(_, slot)| shared.pipelines.release(slot, self.group));
        }
        let number = shared.number(self.group);
        shared.issue_mmas(number, (last, self.group), operands)?;
        self.barriers.issue_mma(number);
        for (value, promise) in made {
            self.frame.forget(value);
            self.deferred.remove(&value);
            self.in_flight_values.insert(value, (number, promise));
        }
        self.in_flight.push_back(SimulatedMma {
            number,
            last,
            ops: plan.ops.clone(),
            mmas,
            releases: has_release,
            from_previous_iteration: false,
        });
        Ok(())
    }

    /// Returns the accumulator of an MMA. Asynchronous MMAs accumulate in order, so that it may be
    /// in flight.
    fn accumulator(
        &mut self,
        id: OpId,
        (plan, made): (&MmaGroup, &FxHashMap<Value, Promise>),
        complete: bool,
    ) -> Result<Accumulator, Fault> {
        let module = self.kernel.module;
        let value = module.op(id).operands[2];
        if let Some(promise) = made.get(&value) {
            return Ok(Accumulator::Promised(promise.clone()));
        }
        if plan.ops.iter().any(|&other| module.op(other).results[0] == value) {
            return Err(broken(format!("op {} adds to what is not issued yet", id.index())));
        }
        match self.in_flight_values.get(&value) {
            Some((_, promise)) if !complete && self.kernel.info.accumulates_in_place(id) => {
                Ok(Accumulator::Promised(promise.clone()))
            }
            _ => {
                self.require(value)?;
                Ok(Accumulator::Content(self.frame.get(value)))
            }
        }
    }

    /// Returns the operands of MMAs in order of issue.
    fn operands(&mut self, shared: &mut Shared<'a>, plan: &MmaGroup) -> Result<Vec<[Operand; 2]>, Fault> {
        let mut operands: Vec<[Operand; 2]> = Vec::new();
        for (at, issue) in plan.issue.iter().enumerate() {
            let id = *plan.ops.get(issue.op).ok_or_else(|| broken("an MMA without an op"))?;
            let before = at.checked_sub(1).map(|before| (plan.ops[plan.issue[before].op], operands[before].clone()));
            operands.push(match before {
                Some((other, [left, right])) if issue.extends_n => [left, self.adjacent_operand(right, other, id)?],
                None if issue.extends_n => return Err(broken(format!("op {} widens nothing", id.index()))),
                _ => self.mma_operands(shared, id)?,
            });
        }
        match is_each_once(plan) {
            true => Ok(operands),
            false => Err(broken("MMAs are not issued once each")),
        }
    }

    fn mma_operands(&mut self, shared: &mut Shared<'a>, id: OpId) -> Result<[Operand; 2], Fault> {
        let module = self.kernel.module;
        let op = module.op(id);
        let Some(Ok(plan)) = self.kernel.info.inference.mma_plans.get(&id) else {
            return Err(broken(format!("op {} has no plan", id.index())));
        };
        let [a, b] = [op.operands[0], op.operands[1]];
        Ok([self.operand(shared, a, (&plan.a, true))?, self.operand(shared, b, (&plan.b, false))?])
    }

    fn operand(
        &mut self,
        shared: &mut Shared<'a>,
        value: Value,
        (plan, is_left): (&OperandPlan, bool),
    ) -> Result<Operand, Fault> {
        let Some(load) = self.staged_load(value) else { return self.register_operand(value) };
        let module = self.kernel.module;
        let form = (module.shape(value), is_left);
        let result = module.op(load).results[0];
        if let Some(channel) = self.kernel.channel_of(load) {
            let acquired = self.acquired.get(&channel).copied();
            let acquired = acquired.ok_or_else(|| broken(format!("channel {channel} is read, and not acquired")))?;
            if !acquired.is_full {
                return Err(broken(format!("the tiles of channel {channel} are read before they are waited for")));
            }
            let slot = self.kernel.warp_spec().and_then(|warp_spec| warp_spec.operand_slot(load));
            let slot = slot.ok_or_else(|| broken(format!("op {} has no place in a stage", load.index())))?;
            let source = Source::in_panels(
                plan,
                slot.panel_rows,
                slot.smem_offset as usize + slot.partition_stride as usize * self.group,
                form,
            )?;
            return Ok(Operand::At(Where::Pipeline(acquired.slot), source));
        }
        let copies = self.cp_async_loads.get(&load).copied();
        let (number, copy) = copies.ok_or_else(|| broken(format!("op {} has no multistage copy", load.index())))?;
        let copies = shared.copies(number)?;
        let (stage, tile) = copies.current.ok_or_else(|| broken("there are no multistage copies"))?;
        let start = copies.plan.copies[copy].smem_offset;
        let source = Source::in_order(plan, start, form, module.dtype(result));
        Ok(Operand::At(Where::CpAsync(number, stage, tile), source))
    }

    /// Returns the right operand that is adjacent to another one.
    fn adjacent_operand(&self, right: Operand, before: OpId, id: OpId) -> Result<Operand, Fault> {
        let mmas = &self.kernel.info.inference.mma_plans;
        let fault = || broken(format!("op {} cannot be one instruction with the one before", id.index()));
        let (Some(Ok(plan)), Some(Ok(other))) = (mmas.get(&before), mmas.get(&id)) else { return Err(fault()) };
        let Operand::At(at, source) = right else { return Err(fault()) };
        let Form::Panels(_, rows) = source.form else { return Err(fault()) };
        let bytes = plan.widened_by(other, rows).ok_or_else(fault)?;
        let value = self.kernel.module.op(id).operands[1];
        let form = (self.kernel.module.shape(value), false);
        let start = source.start + bytes as usize;
        Ok(Operand::At(at, Source::in_panels(&other.b, rows, start, form)?))
    }
}

fn is_each_once(plan: &MmaGroup) -> bool {
    let mut issued: Vec<usize> = plan.issue.iter().map(|&MmaIssue { op, .. }| op).collect();
    issued.sort_unstable();
    issued.into_iter().eq(0..plan.ops.len())
}
