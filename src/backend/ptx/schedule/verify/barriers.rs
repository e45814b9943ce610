//! Verifies barriers: every required barrier is there and none is redundant.
//!
//! The verifier tracks the accesses since the last barrier: reads and writes of shared memory,
//! pending reads of TMA and of MMAs, and elements of arrays. It walks a loop once, from a state in
//! which everything may have been accessed. Conditions are uniform, so all threads reach the same
//! barriers.

use super::VerifyResult;
use super::double_buffers::DoubleBuffers;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::MemoryEffect;
use crate::backend::ptx::schedule::ir::program::{For, HoistedOperand, Partition, Schedule, SeqId, Step, WarpRole};
use crate::backend::ptx::schedule::ir::sub_step::{
    ConversionKind, ConversionPlan, ConvertLayout, LayoutId, SubStep, operand_reads,
};
use crate::backend::ptx::schedule::ir::walk::{ProgramPoint, Visitor};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Opcode, Value};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// All of shared memory.
const ALL: Buffer = Buffer { offset: 0, bytes: u32::MAX };

/// Accesses that may have been executed since the last barrier.
#[derive(Clone, Default)]
pub struct Accessed {
    written: Vec<Buffer>,
    read: Vec<Buffer>,
    /// Buffers that TMA may still read. A barrier does not change them.
    tma_store_reads: Vec<Buffer>,
    /// Buffers that each MMA group in flight reads, in order of issue. A barrier does not change
    /// them.
    mma_reads: Vec<Vec<Buffer>>,
    effects: Vec<MemoryEffect>,
}

impl Accessed {
    fn after_barrier(&mut self) {
        let (tma_store_reads, mma_reads) =
            (std::mem::take(&mut self.tma_store_reads), std::mem::take(&mut self.mma_reads));
        *self = Accessed { tma_store_reads, mma_reads, ..Accessed::default() };
    }

    /// Completes all MMA groups but the last `pending` ones. Those of other warps are complete
    /// after the next barrier.
    fn after_mma_wait(&mut self, pending: usize) {
        let completed = self.mma_reads.len().saturating_sub(pending);
        self.read.extend(self.mma_reads.drain(..completed).flatten());
    }

    fn join(mut self, other: Accessed) -> Accessed {
        self.written.extend(other.written);
        self.read.extend(other.read);
        self.tma_store_reads.extend(other.tma_store_reads);
        // Both arms wait for the same groups.
        self.mma_reads.iter_mut().zip(other.mma_reads).for_each(|(reads, more)| reads.extend(more));
        self.effects.extend(other.effects);
        self
    }
}

/// Verifier of the barriers of one partition.
pub struct BarrierVerifier<'a, 'm> {
    info: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    accessed: Accessed,
    /// The sub-steps of the next step.
    sub_steps: Vec<SubStep>,
    /// Buffers that MMAs of the sequence have written, with the operands of these MMAs.
    stored_operands: Vec<(Buffer, Vec<Value>)>,
    /// Stages of multistage copies, by enclosing loop.
    cp_async_buffers: Vec<Option<Buffer>>,
    /// The operands that the enclosing loops have hoisted, by loop.
    hoisted_operands: Vec<Vec<(Buffer, HoistedOperand)>>,
    /// Both slots of the operands that threads write, by enclosing loop.
    double_buffers: DoubleBuffers,
}

impl KernelInfo<'_> {
    /// Verifies the sub-steps of all steps and their barriers.
    ///
    /// # Errors
    /// The first fault: a missing, wrong or misplaced sub-step, a missing barrier, or a redundant
    /// one.
    pub fn verify_barriers(&self, schedule: &Schedule) -> VerifyResult {
        self.verify_sub_step_shapes(schedule)?;
        for Partition { role, body, .. } in &schedule.partitions {
            if *role == WarpRole::Producer {
                // The producer is one lane, and needs no barriers.
                if schedule.steps_with_nested(*body).into_iter().any(|step| matches!(step, Step::Sub(_))) {
                    return Err("the producer has sub-steps".to_owned());
                }
                continue;
            }
            let mut verifier = BarrierVerifier {
                info: self,
                schedule,
                accessed: Accessed::default(),
                sub_steps: Vec::new(),
                stored_operands: Vec::new(),
                cp_async_buffers: Vec::new(),
                hoisted_operands: Vec::new(),
                double_buffers: DoubleBuffers::default(),
            };
            schedule.walk(*body, None, &mut verifier).map_err(|problem| format!("program {role}: {problem}"))?;
        }
        Ok(())
    }

    /// Verifies that each step has the sub-steps that its op requires, without regard to buffer
    /// offsets and to barriers that depend on hazards.
    fn verify_sub_step_shapes(&self, schedule: &Schedule) -> VerifyResult {
        let mut rebuilt = schedule.clone();
        rebuilt.conversions.clear();
        self.insert_sub_steps(&mut rebuilt, &schedule.smem);
        for (have, want) in schedule.sequences.iter().zip(&rebuilt.sequences) {
            let mut have = have.iter().filter_map(|step| SubStepShape::of(schedule, step));
            let mut want = want.iter().filter_map(|step| SubStepShape::of(&rebuilt, step));
            loop {
                match (have.next(), want.next()) {
                    (None, None) => break,
                    (have, want) if have == want => {}
                    (have, want) => return Err(format!("a step has the sub-step {have:?} instead of {want:?}")),
                }
            }
        }
        Ok(())
    }
}

/// A step or sub-step without the offset of its buffer, for the comparison with a new insertion.
/// Barriers that depend on hazards are excluded.
#[derive(Debug, PartialEq)]
enum SubStepShape<'a> {
    SmemWrite(u32),
    SmemRead(u32),
    ConvertLayout(Value, LayoutId, ConversionKind, Option<&'a ConversionPlan>),
    Other(&'a SubStep),
    /// The step itself, which ends the list of its sub-steps.
    Step(Option<OpId>),
}

impl<'a> SubStepShape<'a> {
    fn of(schedule: &'a Schedule, step: &'a Step) -> Option<SubStepShape<'a>> {
        Some(match step {
            Step::Sub(SubStep::MmaReadWait { .. } | SubStep::Barrier { required: false }) => return None,
            Step::Sub(SubStep::SmemWrite(buffer)) => SubStepShape::SmemWrite(buffer.bytes),
            Step::Sub(SubStep::SmemRead(buffer)) => SubStepShape::SmemRead(buffer.bytes),
            &Step::Sub(SubStep::ConvertLayout(ConvertLayout { value, to, kind, plan })) => SubStepShape::ConvertLayout(
                value,
                to,
                kind,
                schedule.conversions.get(plan as usize).map(|conversion| &**conversion),
            ),
            Step::Sub(sub_step) => SubStepShape::Other(sub_step),
            step if step.is_wait() => return None,
            step => SubStepShape::Step(step.op()),
        })
    }
}

fn last_smem_write(sub_steps: &[SubStep]) -> Option<Buffer> {
    sub_steps.iter().rev().find_map(|one| if let SubStep::SmemWrite(buffer) = one { Some(*buffer) } else { None })
}

impl BarrierVerifier<'_, '_> {
    fn is_hoisted(&self, buffer: Buffer) -> bool {
        self.hoisted_operands.iter().flatten().any(|(hoisted, _)| hoisted.contains(buffer))
    }

    /// Returns the buffers that each MMA group of the previous iteration may read: the other slot,
    /// or without slots all memory that threads write in the loop.
    fn carried_mma_reads(&self, plan: &For) -> Vec<Vec<Buffer>> {
        let reads = plan.carried_mmas.iter().map(|carried| match self.double_buffers.innermost() {
            Some(slots) => vec![slots.halves()[1]],
            None => {
                let mut reads = self.schedule.mma_reads(plan.body, carried.mma).into_iter();
                if reads.any(|buffer| !self.is_hoisted(buffer)) { self.outside_hoisted_operands() } else { Vec::new() }
            }
        });
        reads.collect_vec()
    }

    /// Verifies the sub-steps of a step in order, then its own accesses.
    fn sub_steps(&mut self, step: &Step, sub_steps: &[SubStep]) -> VerifyResult {
        for (at, one) in sub_steps.iter().enumerate() {
            match one {
                SubStep::Barrier { required: always } => {
                    if !always && self.is_safe_without_barrier(&sub_steps[at + 1..]) {
                        return Err("a barrier is redundant".to_owned());
                    }
                    self.accessed.after_barrier();
                }
                SubStep::TmaStoreWait { .. } => {
                    let tma_store_reads = std::mem::take(&mut self.accessed.tma_store_reads);
                    self.accessed.read.extend(tma_store_reads);
                }
                &SubStep::MmaReadWait { pending } => self.accessed.after_mma_wait(pending as usize),
                part => {
                    self.is_allocated(part, &sub_steps[..at])?;
                    self.is_safe(part)?;
                    match part {
                        SubStep::SmemWrite(buffer) => {
                            self.stored_operands.retain(|(stored, _)| !stored.overlaps(*buffer));
                            self.accessed.written.push(*buffer);
                        }
                        SubStep::SmemRead(buffer) | SubStep::StoredOperand { buffer, .. } => {
                            self.accessed.read.push(*buffer);
                        }
                        &SubStep::GlobalAccess(id) => self.add_effect(id),
                        _ => {}
                    }
                }
            }
        }
        self.hoisted_operands_are_read(step, sub_steps)?;
        self.add_stored_operands(step, sub_steps);
        if let Step::Mma(group) = step
            && self.info.is_async(&group.ops)
        {
            self.accessed.mma_reads.push(operand_reads(sub_steps));
        }
        self.accesses(step, sub_steps)
    }

    /// Adds the buffers that an MMA step has written.
    fn add_stored_operands(&mut self, step: &Step, sub_steps: &[SubStep]) {
        let Step::Mma(group) = step else { return };
        let operands = group.ops.iter().flat_map(|&id| &self.info.module.op(id).operands[..2]);
        let operands: Vec<Value> = operands.copied().collect_vec();
        for one in sub_steps {
            if let SubStep::SmemRead(buffer) = one {
                self.stored_operands.push((*buffer, operands.clone()));
            }
        }
    }

    /// Returns true if the next accesses of a step are safe without a barrier. Consecutive reads
    /// share one barrier.
    fn is_safe_without_barrier(&self, rest: &[SubStep]) -> bool {
        let mut sub_steps = rest.iter().filter(|next| !next.synchronizes()).peekable();
        let reads = matches!(sub_steps.peek(), Some(SubStep::SmemRead(_)));
        let count =
            if reads { sub_steps.clone().take_while(|next| matches!(next, SubStep::SmemRead(_))).count() } else { 1 };
        sub_steps.take(count).all(|next| self.is_safe(next).is_ok())
    }

    /// Verifies that a write is to shared memory that is free for it, and that a read follows a
    /// write of the same step to its buffer.
    fn is_allocated(&self, part: &SubStep, before: &[SubStep]) -> VerifyResult {
        let memory = &self.schedule.smem;
        let [own, pingpong_groups] = [self.schedule.smem_bytes_per_group, self.info.pingpong_groups];
        let share = if own > 0 { memory.share(0, pingpong_groups) } else { memory.clone() };
        let most = share.budget().min(self.schedule.smem_bytes.saturating_sub((pingpong_groups - 1) * own));
        match part {
            SubStep::SmemWrite(buffer) if buffer.offset < share.start() || buffer.end() > most => {
                Err(format!("nothing may be written from {} to {}", buffer.offset, buffer.end()))
            }
            SubStep::SmemWrite(buffer) if buffer.overlaps_any(self.cp_async_buffers.iter().flatten()) => {
                Err(format!("stages of a loop are overwritten from {} to {}", buffer.offset, buffer.end()))
            }
            SubStep::SmemWrite(buffer) if buffer.overlaps_any(self.hoisted().map(|(hoisted, _)| hoisted)) => {
                Err(format!("operands of a loop are overwritten from {} to {}", buffer.offset, buffer.end()))
            }
            SubStep::SmemWrite(buffer) if !self.double_buffers.is_current_slot(*buffer) => {
                Err(format!("a slot of another iteration is overwritten from {} to {}", buffer.offset, buffer.end()))
            }
            SubStep::DoubleBuffer(slots) => {
                let others = self.buffers_of_loops(before);
                self.double_buffers.verify_slots(*slots, (share.start(), most), &others)
            }
            SubStep::SmemRead(buffer) if !before.contains(&SubStep::SmemWrite(*buffer)) => {
                Err(format!("no thread has written from {} to {}", buffer.offset, buffer.end()))
            }
            SubStep::StoredOperand { value, buffer }
                if !self.stored_operands.iter().any(|(stored, of)| stored == buffer && of.contains(value))
                    && !self.hoisted().any(|(hoisted, operand)| (hoisted, operand.value) == (buffer, *value)) =>
            {
                Err(format!("no operand %{} is stored from {} to {}", value.index(), buffer.offset, buffer.end()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the buffers that live as long as a loop. `before`: the earlier sub-steps of the next
    /// loop.
    fn buffers_of_loops(&self, before: &[SubStep]) -> Vec<Buffer> {
        let kept = before.iter().filter_map(|one| match one {
            SubStep::SmemWrite(buffer) if !before.contains(&SubStep::SmemRead(*buffer)) => Some(*buffer),
            _ => None,
        });
        let hoisted = self.hoisted().map(|&(buffer, _)| buffer);
        kept.chain(hoisted).chain(self.cp_async_buffers.iter().flatten().copied()).collect_vec()
    }

    /// Verifies and adds the accesses of a step that no sub-step announces, and the buffer that TMA
    /// reads after the step.
    fn accesses(&mut self, step: &Step, sub_steps: &[SubStep]) -> VerifyResult {
        let tma_stores =
            sub_steps.iter().any(|one| matches!(one, SubStep::Split { .. } | SubStep::TmaStoreWait { .. }));
        let ops = match step {
            Step::TmaStore(_) if tma_stores => {
                self.accessed.tma_store_reads.extend(last_smem_write(sub_steps));
                return Ok(());
            }
            Step::Exec(_) | Step::TmaStore(_) | Step::PrivatizedAtomic(_) | Step::StripMine(_) => step.ops(),
            _ => return Ok(()),
        };
        let is_recorded = |id: &OpId| sub_steps.contains(&SubStep::GlobalAccess(*id));
        ops.iter().filter(|id| !is_recorded(id)).try_for_each(|&id| self.is_safe(&SubStep::GlobalAccess(id)))?;
        // Later strip iterations access global memory again, after all of the sub-steps.
        let repeats = matches!(step, Step::StripMine(_));
        ops.into_iter().filter(|id| repeats || !is_recorded(id)).for_each(|id| self.add_effect(id));
        Ok(())
    }

    /// Verifies that a sub-step has no hazard with the accesses since the last barrier.
    fn is_safe(&self, sub_step: &SubStep) -> VerifyResult {
        let Accessed { written, read, tma_store_reads, mma_reads, effects } = &self.accessed;
        let fault = |buffer: &Buffer, what: &str| Err(format!("{what} from {} to {}", buffer.offset, buffer.end()));
        match sub_step {
            SubStep::SmemWrite(buffer) if buffer.overlaps_any(tma_store_reads) => {
                fault(buffer, "TMA may still read shared memory")
            }
            SubStep::SmemWrite(buffer) if buffer.overlaps_any(mma_reads.iter().flatten()) => {
                fault(buffer, "MMAs in flight may still read shared memory")
            }
            SubStep::SmemWrite(buffer) if buffer.overlaps_any(written) || buffer.overlaps_any(read) => {
                fault(buffer, "others may be at work where shared memory is written,")
            }
            SubStep::SmemRead(buffer) | SubStep::StoredOperand { buffer, .. } if buffer.overlaps_any(written) => {
                fault(buffer, "others may still write where shared memory is read,")
            }
            &SubStep::GlobalAccess(id) => match self.info.memory_effect_of(id) {
                Some(effect) if effects.iter().any(|other| other.may_race(&effect)) => {
                    Err(format!("others may be at work on what op {} accesses", id.index()))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn hoisted(&self) -> impl Iterator<Item = &(Buffer, HoistedOperand)> {
        self.hoisted_operands.iter().flatten()
    }

    /// Returns shared memory without the buffers of hoisted operands, which no step of their loop
    /// writes.
    fn outside_hoisted_operands(&self) -> Vec<Buffer> {
        let mut buffers: Vec<Buffer> = self.hoisted().map(|&(buffer, _)| buffer).collect_vec();
        buffers.push(Buffer { offset: ALL.bytes, bytes: 0 });
        sort::by_key(&mut buffers, |buffer| buffer.offset);
        let mut next = 0;
        let gap =
            |buffer: Buffer| Buffer { offset: next, bytes: buffer.offset - std::mem::replace(&mut next, buffer.end()) };
        buffers.into_iter().map(gap).filter(|gap| gap.bytes > 0).collect_vec()
    }

    /// Verifies the buffers of the operands that a loop hoists, and adds them: written and
    /// published before the loop, apart from each other and from other buffers of loops.
    fn hoist_operands(&mut self, step: &Step, sub_steps: &[SubStep]) -> VerifyResult {
        let is_read = |buffer: &Buffer, after: &[SubStep]| after.contains(&SubStep::SmemRead(*buffer));
        let kept = sub_steps.iter().enumerate().filter_map(|(at, one)| match one {
            SubStep::SmemWrite(buffer) if !is_read(buffer, &sub_steps[at + 1..]) => Some(*buffer),
            _ => None,
        });
        let (kept, operands): (Vec<Buffer>, _) = (kept.collect_vec(), step.hoisted_operands());
        let mut hoisted: Vec<(Buffer, HoistedOperand)> = Vec::new();
        for (at, &operand) in operands.iter().enumerate() {
            let Some(&buffer) = kept.get(at) else {
                return Err(format!("%{} is hoisted, and not written before the loop", operand.value.index()));
            };
            let others = kept.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, other)| other);
            if buffer.overlaps_any(others) {
                return Err(format!("operands of a loop overlap from {} to {}", buffer.offset, buffer.end()));
            }
            if buffer.overlaps_any(&self.accessed.written) {
                return Err(format!("%{} is hoisted without a barrier before the loop", operand.value.index()));
            }
            hoisted.push((buffer, operand));
        }
        self.hoisted_operands.push(hoisted);
        Ok(())
    }

    /// Verifies that MMAs read hoisted operands in the form in which they were written.
    fn hoisted_operands_are_read(&self, step: &Step, sub_steps: &[SubStep]) -> VerifyResult {
        let Step::Mma(group) = step else { return Ok(()) };
        let read_operands = self.info.smem_operands_of(&group.ops);
        for one in sub_steps {
            let SubStep::StoredOperand { value, buffer } = one else { continue };
            let Some((_, operand)) = self.hoisted().find(|(hoisted, _)| hoisted == buffer) else { continue };
            let form = self.info.hoisted_plan(operand);
            let fits = read_operands.iter().any(|&(read, is_left, plan)| {
                (read, is_left) == (*value, operand.is_left) && form.is_some_and(|form| form.is_same(plan))
            });
            if !fits {
                return Err(format!("%{} is read in another form than it is hoisted in", value.index()));
            }
        }
        Ok(())
    }

    fn add_effect(&mut self, id: OpId) {
        let effect = self.info.memory_effect_of(id).filter(|effect| !self.info.written_memory.does_not_modify(effect));
        self.accessed.effects.extend(effect.filter(|effect| !self.accessed.effects.contains(effect)));
    }

    /// Adds all accesses of a loop. The back edge leads to its head, and the loop may be skipped.
    fn assume_all_accessed(&mut self, parent: &Step) {
        let (Step::For(_) | Step::Loop(_), Some(loop_op)) = (parent, parent.op()) else { return };
        let info = self.info;
        let others = self.outside_hoisted_operands();
        self.accessed.written.clone_from(&others);
        self.accessed.read = others;
        let tma_stores: Vec<OpId> = self
            .schedule
            .tma_stores()
            .filter(|tma_store| tma_store.staging.is_none())
            .map(|tma_store| tma_store.op)
            .collect_vec();
        info.module.walk(info.module.op(loop_op).regions[0], &mut |id| {
            self.add_effect(id);
            if tma_stores.contains(&id) {
                self.accessed.tma_store_reads = vec![ALL];
            }
        });
    }
}

impl<'a> Visitor<'a> for BarrierVerifier<'a, '_> {
    type State = Accessed;
    type Error = String;

    fn state(&mut self) -> &mut Accessed {
        &mut self.accessed
    }

    fn step(&mut self, step: &'a Step, _: ProgramPoint<'a>) -> VerifyResult {
        if let Step::MmaWait(wait) = step {
            self.accessed.after_mma_wait(wait.pending);
        }
        if step.is_wait() {
            return Ok(());
        }
        if let Step::Sub(one) = step {
            self.sub_steps.push(*one);
            return Ok(());
        }
        let sub_steps = std::mem::take(&mut self.sub_steps);
        self.sub_steps(step, &sub_steps)?;
        if matches!(step, Step::For(_) | Step::Loop(_)) {
            self.hoist_operands(step, &sub_steps)?;
            let slots = sub_steps.iter().find_map(|one| match one {
                SubStep::DoubleBuffer(slots) => Some(*slots),
                _ => None,
            });
            self.double_buffers.push(slots);
        }
        let is_return = |id: OpId| self.info.module.op(id).code == Opcode::Return;
        match step {
            &Step::End(id) if is_return(id) && !self.accessed.tma_store_reads.is_empty() => {
                return Err("TMA may still read shared memory when the tile block ends".to_owned());
            }
            Step::For(plan) => {
                self.cp_async_buffers.push(plan.cp_async.as_ref().and_then(|_| last_smem_write(&sub_steps)));
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, parent: &'a Step) -> VerifyResult {
        self.stored_operands.clear();
        self.assume_all_accessed(parent);
        if let Step::For(plan) = parent {
            self.accessed.mma_reads = self.carried_mma_reads(plan);
            if plan.has_barrier_at_head() {
                self.accessed.after_mma_wait(0);
                self.accessed.after_barrier();
            }
        }
        Ok(())
    }

    fn leave(&mut self, point: ProgramPoint<'a>, before: Accessed) -> VerifyResult {
        self.stored_operands.clear();
        if !self.sub_steps.is_empty() {
            return Err("sub-steps without a step".to_owned());
        }
        let Some(parent) = point.parent else { return Ok(()) };
        if matches!(parent, Step::For(_) | Step::Loop(_)) {
            let reads = self.accessed.mma_reads.iter().flatten();
            self.double_buffers.verify_carried_reads(reads.filter(|buffer| !self.is_hoisted(**buffer)))?;
            self.accessed.mma_reads.clear();
            self.double_buffers.pop();
            self.hoisted_operands.pop();
        }
        self.assume_all_accessed(parent);
        if matches!(parent, Step::For(_)) {
            self.cp_async_buffers.pop();
        }
        if !matches!(parent, Step::If { .. }) {
            // A loop without iterations skips its waits.
            self.accessed.tma_store_reads.extend(before.tma_store_reads);
        }
        Ok(())
    }

    fn join(&mut self, _: &'a [SeqId], ends: Vec<Accessed>) -> Result<Accessed, String> {
        Ok(ends.into_iter().reduce(Accessed::join).unwrap_or_default())
    }
}
