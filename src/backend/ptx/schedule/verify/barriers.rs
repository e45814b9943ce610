//! Verifies barriers: every required barrier is there and none is redundant.
//!
//! The walk knows what may have been touched since the threads of the agent have met: places in shared memory that they have
//! written and read, or that the copy engine still reads, and elements of arrays. A loop is gone through once, from a state in
//! which everything may have been touched. Conditions are the same in all threads, so that all of them come to each meeting, and
//! equally often, whatever way they go.

use super::VerifyResult;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::memory_effects::MemoryEffect;
use crate::backend::ptx::schedule::ir::program::{Partition, Schedule, SeqId, Step, WarpRole};
use crate::backend::ptx::schedule::ir::sub_step::{ConversionKind, ConversionPlan, ConvertLayout, LayoutId, SubStep};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// All of shared memory.
const ALL: Buffer = Buffer { offset: 0, bytes: u32::MAX };

/// What may have been touched since threads have met.
#[derive(Clone, Default)]
struct Touched {
    written: Vec<Buffer>,
    read: Vec<Buffer>,
    /// The copy engine may still be reading these, whoever has met.
    sent: Vec<Buffer>,
    arrays: Vec<MemoryEffect>,
}

impl Touched {
    fn meet(&mut self) {
        *self = Touched { sent: std::mem::take(&mut self.sent), ..Touched::default() };
    }

    fn join(&mut self, other: Touched) {
        self.written.extend(other.written);
        self.read.extend(other.read);
        self.sent.extend(other.sent);
        self.arrays.extend(other.arrays);
    }
}

/// One agent's way through its program.
struct Walk<'a, 'm> {
    context: &'a KernelInfo<'m>,
    schedule: &'a Schedule,
    touched: Touched,
    /// Stages of copies ahead, in the loops around.
    stages: Vec<Buffer>,
}

impl KernelInfo<'_> {
    /// Does each step do within what it has to, and do threads meet where they must and nowhere else?
    pub fn verify_barriers(&self, schedule: &Schedule) -> VerifyResult {
        self.has_forms(schedule)?;
        for Partition { role: acts, body, .. } in &schedule.partitions {
            if *acts == WarpRole::Producer {
                // Who loads meets nobody: there is one lane of it.
                meets_nobody(schedule, *body)?;
                continue;
            }
            let mut walk = Walk { context: self, schedule, touched: Touched::default(), stages: Vec::new() };
            walk.body(*body).map_err(|problem| format!("program {acts}: {problem}"))?;
        }
        Ok(())
    }

    /// Does each step do what its op asks for, but for where that lies and which meetings make it safe?
    fn has_forms(&self, schedule: &Schedule) -> VerifyResult {
        let mut wanted = schedule.clone();
        wanted.conversions.clear();
        self.insert_barriers(&mut wanted, &schedule.smem);
        for (have, want) in schedule.sequences.iter().zip(&wanted.sequences) {
            let mut have = have.iter().filter_map(|step| Form::of(schedule, step));
            let mut want = want.iter().filter_map(|step| Form::of(&wanted, step));
            loop {
                match (have.next(), want.next()) {
                    (None, None) => break,
                    (have, want) if have == want => {}
                    (have, want) => return Err(format!("a step does {have:?} within where it has to do {want:?}")),
                }
            }
        }
        Ok(())
    }
}

/// What a step of a body asks for within: without places, and without meetings that others may make needless.
#[derive(Debug, PartialEq)]
enum Form<'a> {
    Write(u32),
    Read(u32),
    Bring(Value, LayoutId, ConversionKind, Option<&'a ConversionPlan>),
    Other(&'a SubStep),
    /// The step itself: what comes before it belongs to it.
    Step(Option<OpId>),
}

impl<'a> Form<'a> {
    fn of(schedule: &'a Schedule, step: &'a Step) -> Option<Form<'a>> {
        Some(match step {
            Step::Sub(SubStep::MmaWaitAll | SubStep::Barrier { always: false }) => return None,
            Step::Sub(SubStep::SmemWrite(place)) => Form::Write(place.bytes),
            Step::Sub(SubStep::SmemRead(place)) => Form::Read(place.bytes),
            &Step::Sub(SubStep::ConvertLayout(ConvertLayout { value, to, kind: how, plan })) => {
                Form::Bring(value, to, how, schedule.conversions.get(plan as usize).map(|change| &**change))
            }
            Step::Sub(within) => Form::Other(within),
            step if step.is_wait() => return None,
            step => Form::Step(step.op()),
        })
    }
}

/// Does no step of a body do anything within?
fn meets_nobody(schedule: &Schedule, body: SeqId) -> VerifyResult {
    for step in schedule.steps(body) {
        if matches!(step, Step::Sub(_)) {
            return Err("one lane meets others".to_owned());
        }
        step.bodies().iter().try_for_each(|&body| meets_nobody(schedule, body))?;
    }
    Ok(())
}

fn meets(places: &[Buffer], place: Buffer) -> bool {
    places.iter().any(|other| other.offset < place.offset + place.bytes && place.offset < end(*other))
}

fn written_last(within: &[SubStep]) -> Option<Buffer> {
    within.iter().rev().find_map(|one| if let SubStep::SmemWrite(place) = one { Some(*place) } else { None })
}

fn end(place: Buffer) -> u32 {
    place.offset.saturating_add(place.bytes)
}

impl Walk<'_, '_> {
    fn body(&mut self, body: SeqId) -> VerifyResult {
        let mut within: Vec<SubStep> = Vec::new();
        for step in self.schedule.steps(body) {
            match step {
                Step::Sub(one) => within.push(*one),
                step if step.is_wait() => {}
                step => {
                    let within = std::mem::take(&mut within);
                    self.parts(step, &within)?;
                    let slab =
                        matches!(step, Step::For(plan) if plan.cp_async.is_some()).then(|| written_last(&within));
                    self.stages.extend(slab.flatten());
                    self.step(step)?;
                    if slab.flatten().is_some() {
                        self.stages.pop();
                    }
                }
            }
        }
        if within.is_empty() { Ok(()) } else { Err("something is done within a step that does not come".to_owned()) }
    }

    /// What a step does within.
    fn parts(&mut self, step: &Step, within: &[SubStep]) -> VerifyResult {
        for (at, one) in within.iter().enumerate() {
            match one {
                SubStep::Barrier { always } => {
                    if !always && self.goes_on(&within[at + 1..]) {
                        return Err("threads meet for nothing".to_owned());
                    }
                    self.touched.meet();
                }
                SubStep::TmaStoreWait { .. } => {
                    let sent = std::mem::take(&mut self.touched.sent);
                    self.touched.read.extend(sent);
                }
                part => {
                    self.has_room(part, &within[..at])?;
                    self.is_safe(part)?;
                    match part {
                        SubStep::SmemWrite(place) => self.touched.written.push(*place),
                        SubStep::SmemRead(place) => self.touched.read.push(*place),
                        &SubStep::GlobalAccess(id) => self.note(id),
                        _ => {}
                    }
                }
            }
        }
        self.accesses(step, within)
    }

    /// May what comes next within a step be done without meeting? Several places are read together.
    fn goes_on(&self, rest: &[SubStep]) -> bool {
        let mut parts = rest.iter().filter(|next| !next.synchronizes()).peekable();
        let reads = matches!(parts.peek(), Some(SubStep::SmemRead(_)));
        let count =
            if reads { parts.clone().take_while(|next| matches!(next, SubStep::SmemRead(_))).count() } else { 1 };
        parts.take(count).all(|next| self.is_safe(next).is_ok())
    }

    /// Is there memory where a part of a step writes, that is nobody else's, and does it read what has been written?
    fn has_room(&self, part: &SubStep, before: &[SubStep]) -> VerifyResult {
        let memory = &self.schedule.smem;
        let [own, teams] = [self.schedule.smem_bytes_per_group, self.context.teams];
        let share = if own > 0 { memory.share(0, teams) } else { memory.clone() };
        let most = share.budget().min(self.schedule.shared_bytes.saturating_sub((teams - 1) * own));
        match part {
            SubStep::SmemWrite(place) if place.offset < share.start() || end(*place) > most => {
                Err(format!("nothing may be written from {} to {}", place.offset, end(*place)))
            }
            SubStep::SmemWrite(place) if meets(&self.stages, *place) => {
                Err(format!("stages of a loop are overwritten from {} to {}", place.offset, end(*place)))
            }
            SubStep::SmemRead(place) if !before.contains(&SubStep::SmemWrite(*place)) => {
                Err(format!("nobody has written from {} to {}", place.offset, end(*place)))
            }
            _ => Ok(()),
        }
    }

    /// What a step accesses without saying when, and what it does to the end.
    fn accesses(&mut self, step: &Step, within: &[SubStep]) -> VerifyResult {
        let sends = within.iter().any(|one| matches!(one, SubStep::Split { .. } | SubStep::TmaStoreWait { .. }));
        let ops = match step {
            Step::TmaStore(_) if sends => {
                self.touched.sent.extend(written_last(within));
                return Ok(());
            }
            Step::Exec(_) | Step::TmaStore(_) | Step::PrivatizedAtomic(_) | Step::StripMine(_) => step.ops(),
            _ => return Ok(()),
        };
        let said = |id: &OpId| within.contains(&SubStep::GlobalAccess(*id));
        ops.iter().filter(|id| !said(id)).try_for_each(|&id| self.is_safe(&SubStep::GlobalAccess(id)))?;
        // Pieces of a strip go on behind what came between its beginning and them.
        let goes_on = matches!(step, Step::StripMine(_));
        ops.into_iter().filter(|id| goes_on || !said(id)).for_each(|id| self.note(id));
        Ok(())
    }

    /// May this be done without meeting before it?
    fn is_safe(&self, within: &SubStep) -> VerifyResult {
        let Touched { written, read, sent, arrays } = &self.touched;
        let fault = |place: &Buffer, what: &str| Err(format!("{what} from {} to {}", place.offset, end(*place)));
        match within {
            SubStep::SmemWrite(place) if meets(sent, *place) => {
                fault(place, "the copy engine may still read shared memory")
            }
            SubStep::SmemWrite(place) if meets(written, *place) || meets(read, *place) => {
                fault(place, "others may be at work where shared memory is written,")
            }
            SubStep::SmemRead(place) if meets(written, *place) => {
                fault(place, "others may still write where shared memory is read,")
            }
            &SubStep::GlobalAccess(id) => match self.context.memory_effect_of(id) {
                Some(touch) if arrays.iter().any(|other| other.conflicts(&touch)) => {
                    Err(format!("others may be at work on what op {} accesses", id.index()))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn note(&mut self, id: OpId) {
        let touch = self.context.memory_effect_of(id).filter(|touch| !self.context.written.does_not_modify(touch));
        self.touched.arrays.extend(touch.filter(|touch| !self.touched.arrays.contains(touch)));
    }

    fn step(&mut self, step: &Step) -> VerifyResult {
        let module = self.context.module;
        match step {
            Step::For(plan) => {
                let meets = plan.cp_async.as_ref().is_some_and(|ahead| ahead.barrier_at_head);
                self.rounds((plan.op, plan.body), meets)?;
            }
            Step::Loop(plan) => self.rounds((plan.op, plan.body), false)?,
            Step::If { arms, .. } => {
                let before = self.touched.clone();
                let mut after = Touched::default();
                for &arm in arms {
                    self.touched = before.clone();
                    self.body(arm)?;
                    after.join(std::mem::take(&mut self.touched));
                }
                self.touched = after;
                if arms.len() < 2 {
                    self.touched.join(before);
                }
            }
            &Step::End(id) if module.op(id).code == Opcode::Return && !self.touched.sent.is_empty() => {
                return Err("the copy engine may still read shared memory when the tile block ends".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// A loop; `meets`: its threads meet at the head of each round.
    fn rounds(&mut self, (id, body): (OpId, SeqId), meets: bool) -> VerifyResult {
        let block = self.context.module.op(id).regions[0];
        let before = self.touched.sent.clone();
        self.anything(block);
        if meets {
            self.touched.meet();
        }
        self.body(body)?;
        self.anything(block);
        // It may have been skipped, with its waits.
        self.touched.sent.extend(before);
        Ok(())
    }

    /// Code that a back edge reaches, or that may have been skipped: all that the loop does may have been done.
    fn anything(&mut self, block: BlockId) {
        let context = self.context;
        self.touched.written = vec![ALL];
        self.touched.read = vec![ALL];
        let sends: Vec<OpId> =
            self.schedule.sends().filter(|send| send.staging.is_none()).map(|send| send.op).collect();
        context.module.walk(block, &mut |id| {
            self.note(id);
            if sends.contains(&id) {
                self.touched.sent = vec![ALL];
            }
        });
    }
}
