//! Time stamps of the steps of a traced kernel (`Hints::trace`).
//!
//! The leader of a recorder, which is a warp role or a warp group of the consumers, writes a record
//! after each step: the number of the site, and `%clock` before and after it
//! ([`crate::backend::ptx::measured`]). All threads of a role execute the stamps, so that control
//! flow stays uniform. Only the store has a predicate.
//!
//! * The counter of records is in a register. Threads that do not record begin at
//!   [`NOT_RECORDING`], which no record has.
//! * Records are stored to global memory at once. A store of one lane needs no wait, and the plan
//!   of shared memory is that of the untraced kernel.
//! * ptxas moves no instruction across a read of the clock. Computations that ptxas overlaps with
//!   MMAs in flight are one run: between its clocks are no others, so waits for MMAs, order waits
//!   and arrivals inside of it have no records ([`StampedSteps`]).
//! * A read of the clock takes about 15 cycles, and ptxas repeats it for each use. A sum with an
//!   unknown zero is not repeated. A step begins at the last read before it, and a
//!   consumer's wait for a stage that has arrived has no record.
//! * A stamp has no dependence on the step. The time of an asynchronous operation is the time of
//!   its issue.

use rustc_hash::FxHashMap;

use super::stamp_state::{ClockRead, Run, StampRegisters, Stamps, WaitKey};
use crate::backend::ptx::compiled::ParamKind;
use crate::backend::ptx::hardware::{WARP_GROUP_WARPS, WARP_SIZE};
use crate::backend::ptx::isa::emit::Param;
use crate::backend::ptx::isa::inst::{Addr, Cmp, CvtMods, MemMods, Operand, Reg, RegClass, Space, Special, Ty};
use crate::backend::ptx::lower::state::core::Lowering;
use crate::backend::ptx::measured::{
    EVENTS, FIRST_BLOCKS, HEADER_BYTES, HeaderField, KernelStamps, RECORD_BYTES, SAMPLED_MULTIPROCESSORS, SLOT_BYTES,
    SLOTS, StampKind, StampSite,
};
use crate::backend::ptx::options::StampedSteps;
use crate::backend::ptx::schedule::{OrderPoint, Schedule, SeqId, Step, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{OpId, Opcode, Type};

/// Value of the counter of a thread that does not record. As a signed number it is negative.
const NOT_RECORDING: u32 = 1 << 31;

/// Elements of a thread from which a computation begins a run.
const MIN_ELEMENTS: i64 = 8;

/// Recording of a step.
enum StampClass {
    /// The step has no code.
    None,
    /// The step belongs to a run of computations: its op, and the number of elements.
    Computation(OpId, i64),
    /// The step ends a run and has no record as a whole.
    Other,
    Whole(StampKind),
}

impl WaitKey {
    fn of(step: &Step) -> Option<WaitKey> {
        match step {
            Step::ConsumerWait(wait) => Some(WaitKey::Stage(wait.channel as usize)),
            Step::MmaWait(_) => Some(WaitKey::Mma),
            Step::OrderWait { .. } => Some(WaitKey::Order),
            _ => None,
        }
    }
}

impl Lowering<'_> {
    /// Declares the parameter with the address of the records, if the kernel is traced.
    pub fn declare_stamps(&mut self, kinds: &mut Vec<ParamKind>) {
        if self.info.options.stamped == StampedSteps::None {
            return;
        }
        let address = self.b.param(Param::Scalar(Ty::U64));
        kinds.push(ParamKind::Trace);
        self.stamps = Some(Stamps {
            address,
            lines: FxHashMap::default(),
            sites: Vec::new(),
            recorders: 1,
            registers: None,
            line: 0,
            waits: FxHashMap::default(),
            run: None,
            has_all: self.info.options.stamped == StampedSteps::All,
            last: None,
        });
    }

    /// Begins the records of a role, before its first step. `lines`: the lines of the steps in the
    /// printed schedule.
    pub fn begin_stamps(&mut self, lines: impl FnOnce(&Schedule) -> FxHashMap<(SeqId, usize), u32>) {
        let Some(mut stamps) = self.stamps.take() else { return };
        if stamps.lines.is_empty() {
            stamps.lines = lines(&self.schedule);
        }
        let consumers = self.info.consumer_warps();
        let groups = consumers.div_ceil(WARP_GROUP_WARPS);
        let b = &mut self.b;
        // Not `special`: the number of the thread in the CTA.
        let thread = b.copy(Operand::Special(Special::TidX), RegClass::B32);
        let (is_leader, recorder) = match self.sync.role {
            WarpRole::All => (Some(b.setp(Cmp::Eq, Ty::U32, thread, 0)), Operand::from(0u32)),
            WarpRole::Consumer => {
                let group_threads = WARP_GROUP_WARPS * WARP_SIZE;
                let in_group = b.and(Ty::B32, thread, group_threads - 1);
                let group = b.shr(Ty::U32, thread, group_threads.trailing_zeros());
                (Some(b.setp(Cmp::Eq, Ty::U32, in_group, 0)), group)
            }
            // One lane executes the program.
            WarpRole::Producer => (None, Operand::from(groups)),
        };
        stamps.recorders = if self.sync.role == WarpRole::All { 1 } else { groups + 1 };
        let [x, y, z] = [Special::CtaIdX, Special::CtaIdY, Special::CtaIdZ].map(|id| b.special(id));
        let [width, height] = [Special::NCtaIdX, Special::NCtaIdY].map(|extent| b.special(extent));
        let number = b.mad(Ty::U32, z, height, y);
        let number = b.mad(Ty::U32, number, width, x);
        let multiprocessor = b.special(Special::SmId);
        let is_first = b.setp(Cmp::Lt, Ty::U32, number, FIRST_BLOCKS);
        let has_slot = b.setp(Cmp::Lt, Ty::U32, number, SLOTS);
        let rest = b.and(Ty::B32, multiprocessor, SAMPLED_MULTIPROCESSORS - 1);
        let on_sampled = b.setp(Cmp::Eq, Ty::U32, rest, 0);
        let records = b.ld(Space::Param, Ty::U64, &stamps.address.into(), MemMods::default());
        let has_records = b.setp(Cmp::Ne, Ty::U64, records, 0i64);
        let mut is_recorded = b.and(Ty::Pred, on_sampled, has_slot);
        is_recorded = b.or(Ty::Pred, is_recorded, is_first);
        is_recorded = b.and(Ty::Pred, is_recorded, has_records);
        if let Some(is_leader) = is_leader {
            is_recorded = b.and(Ty::Pred, is_recorded, is_leader);
        }
        let is_recorded = b.reg(is_recorded, RegClass::Pred);
        let count = b.select(RegClass::B32, is_recorded, 0, NOT_RECORDING);
        let slot = b.mad(Ty::U32, number, i64::from(stamps.recorders), recorder);
        let slot = b.mad_wide(Ty::U32, slot, SLOT_BYTES, records);
        let slot = b.copy(slot, RegClass::B64);
        let warp = b.shr(Ty::U32, thread, WARP_SIZE.trailing_zeros());
        let clock = b.copy(Operand::Special(Special::Clock), RegClass::B32);
        let count = b.copy(count, RegClass::B32);
        let time = b.special(Special::GlobalTimer);
        let head = Addr::new(slot, 0);
        let begun: [Operand; 4] = [1u32.into(), x, y, z].map(|word| b.reg(word, RegClass::B32).into());
        let origin: [Operand; 3] = [multiprocessor, warp, clock.into()].map(|word| b.reg(word, RegClass::B32).into());
        let plain = MemMods::default();
        b.guarded(is_recorded, false, |b| {
            let at = |field: HeaderField| head.plus(4 * field.word() as i64);
            b.st_vec(Space::Global, Ty::B32, &at(HeaderField::Begun), &begun, plain);
            for (word, value) in origin.into_iter().enumerate() {
                b.st(Space::Global, Ty::B32, &at(HeaderField::Multiprocessor).plus(4 * word as i64), value, plain);
            }
            b.st(Space::Global, Ty::B64, &at(HeaderField::StartTime), time, plain);
        });
        // Records are aligned, which ptxas does not know.
        let address = b.cvt(Ty::U32, Ty::U64, CvtMods::default(), records);
        let zero = b.and(Ty::B32, address, 1u32);
        let zero = b.copy(zero, RegClass::B32);
        let clock = b.copy(Operand::Special(Special::Clock), RegClass::B32);
        let now = b.add(Ty::U32, clock, zero);
        let now = b.copy(now, RegClass::B32);
        stamps.registers = Some(StampRegisters { count, slot, now, zero });
        self.stamps = Some(stamps);
    }

    /// Ends the records of a role, before a thread ends.
    pub fn end_stamps(&mut self) {
        let Some(Stamps { registers: Some(StampRegisters { count, slot, .. }), .. }) = self.stamps else { return };
        let b = &mut self.b;
        let plain = MemMods::default();
        let is_recorded = b.setp(Cmp::Ge, Ty::S32, count, 0);
        let clock = b.copy(Operand::Special(Special::Clock), RegClass::B32);
        let time = b.special(Special::GlobalTimer);
        let ended = b.reg(Operand::from(1u32), RegClass::B32);
        let head = Addr::new(slot, 0);
        b.guarded(is_recorded, false, |b| {
            let at = |field: HeaderField| head.plus(4 * field.word() as i64);
            b.st(Space::Global, Ty::B32, &at(HeaderField::Ended), ended, plain);
            b.st(Space::Global, Ty::B32, &at(HeaderField::Count), count, plain);
            b.st(Space::Global, Ty::B32, &at(HeaderField::EndClock), clock, plain);
            b.st(Space::Global, Ty::B64, &at(HeaderField::EndTime), time, plain);
        });
    }

    /// Begins a step of a sequence. Returns the start and the kind of its record, unless the step
    /// is a wait, which records itself, a region, or part of a run of computations.
    pub fn begin_step(&mut self, sequence: SeqId, index: usize, step: &Step) -> Option<(Reg, StampKind)> {
        let stamps = self.stamps.as_mut()?;
        let line = stamps.lines.get(&(sequence, index)).copied().unwrap_or(0);
        stamps.line = line;
        if let Some(key) = WaitKey::of(step) {
            stamps.waits.insert(key, line);
        }
        let stamps = self.stamps.as_mut()?;
        if let Some(run) = stamps.run.as_mut().filter(|_| !stamps.has_all && is_inside_of_runs(step)) {
            run.steps[1] = line;
            return None;
        }
        match self.stamp_class(step) {
            StampClass::None => None,
            StampClass::Computation(op, elements) => {
                self.extend_run(line, op, elements);
                None
            }
            StampClass::Other => {
                self.end_run();
                None
            }
            StampClass::Whole(kind) => {
                self.end_run();
                Some((self.step_start()?.clock, kind))
            }
        }
    }

    /// Adds a computation to the run, or begins a run. Short computations begin none. The record
    /// names the largest computation.
    fn extend_run(&mut self, line: u32, op: OpId, elements: i64) {
        let is_long = elements >= MIN_ELEMENTS * i64::from(WARP_SIZE) * self.info.inference.num_warps as i64;
        let run = match self.stamps.as_ref().and_then(|stamps| stamps.run) {
            Some(run) if run.elements >= elements => Run { steps: [run.steps[0], line], ..run },
            Some(run) => Run { steps: [run.steps[0], line], line, op, elements, ..run },
            None if !is_long => return,
            None => match self.step_start() {
                Some(start) => Run { start, steps: [line; 2], line, op, elements },
                None => return,
            },
        };
        self.stamps.as_mut().expect("stamps of a run").run = Some(run);
    }

    /// Records the run of computations before the current step, if there is one.
    pub fn end_run(&mut self) {
        if let Some(Run { start, steps, line, op, .. }) = self.stamps.as_mut().and_then(|stamps| stamps.run.take()) {
            self.stamp_at(Some(start.clock), StampKind::Compute, Some((line, Some(steps))), Some(op));
        }
    }

    fn stamp_class(&self, step: &Step) -> StampClass {
        match step {
            Step::Deferred(_) | Step::Prefetch(_) | Step::Sub(_) => StampClass::None,
            Step::Mma(_) => StampClass::Whole(StampKind::Mma),
            Step::Produce(_) | Step::LocalLoad(_) => StampClass::Whole(StampKind::Copy),
            Step::TmaStore(_) | Step::PrivatizedAtomic(_) => StampClass::Whole(StampKind::Store),
            Step::ConsumerRelease(_) | Step::OrderArrive(_) => StampClass::Whole(StampKind::Arrive),
            Step::StripMine(strip_mine) => {
                let elements = |id: OpId| self.num_computed(id);
                let largest = strip_mine.ops().max_by_key(|&id| elements(id));
                largest.map_or(StampClass::Other, |id| StampClass::Computation(id, elements(id)))
            }
            &Step::Exec(id) => match self.module.op(id).code.spec().effect {
                Effect::Read => StampClass::Whole(StampKind::Copy),
                Effect::Write | Effect::ReadWrite => StampClass::Whole(StampKind::Store),
                Effect::Pure | Effect::Region => StampClass::Computation(id, self.num_computed(id)),
                Effect::Other | Effect::Terminator => StampClass::Other,
            },
            _ => StampClass::Other,
        }
    }

    /// Returns the number of elements that an op computes or reduces.
    fn num_computed(&self, id: OpId) -> i64 {
        let op = self.module.op(id);
        let values = if matches!(op.code, Opcode::Reduce | Opcode::Scan) { &op.operands } else { &op.results };
        let elements = values.iter().filter_map(|&value| match self.module.ty(value) {
            Type::Tile { shape, .. } => Some(shape.iter().product::<i64>()),
            _ => None,
        });
        elements.max().unwrap_or(0)
    }

    /// Reads the clock before a part of a step; `None` if the kernel is not traced.
    pub fn stamp_start(&mut self) -> Option<Reg> {
        self.read_clock().map(|read| read.clock)
    }

    /// Returns the time before a step: the last read of the clock, or a new one if all steps have
    /// stamps.
    fn step_start(&mut self) -> Option<ClockRead> {
        let stamps = self.stamps.as_ref()?;
        let StampRegisters { now, .. } = stamps.registers?;
        if stamps.has_all {
            return self.read_clock();
        }
        let clock = self.b.copy(now, RegClass::B32);
        Some(ClockRead { clock, lines: self.b.num_lines() })
    }

    /// Returns true if a wait without blocking has no record.
    pub fn omits_unblocked_waits(&self) -> bool {
        self.stamps.as_ref().is_some_and(|stamps| stamps.registers.is_some() && !stamps.has_all)
    }

    /// Reads the clock. Adjacent steps have one read.
    fn read_clock(&mut self) -> Option<ClockRead> {
        let stamps = self.stamps.as_mut()?;
        let StampRegisters { now, zero, .. } = stamps.registers?;
        if let Some(last) = stamps.last.filter(|last| last.lines == self.b.num_lines()) {
            return Some(last);
        }
        // ptxas executes a read again for each use, at other times. It does not so with a sum.
        let clock = self.b.copy(Operand::Special(Special::Clock), RegClass::B32);
        let clock = self.b.add(Ty::U32, clock, zero);
        let clock = self.b.reg(clock, RegClass::B32);
        self.b.mov_to(now, clock);
        stamps.last = Some(ClockRead { clock, lines: self.b.num_lines() });
        stamps.last
    }

    /// Begins a wait that ptxas overlaps with computations: one for MMAs or an order wait. Inside
    /// of a run it has no record. A wait at the begin of a run precedes it.
    pub fn begin_overlapped_wait(&mut self) -> Option<Reg> {
        match self.stamps.as_ref()? {
            Stamps { run: Some(run), has_all: false, .. } => {
                (run.start.lines == self.b.num_lines()).then_some(run.start.clock)
            }
            _ => self.step_start().map(|read| read.clock),
        }
    }

    /// Records a wait that [`Self::begin_overlapped_wait`] began. The run, if there is one, begins
    /// after it.
    pub fn end_overlapped_wait(&mut self, start: Option<Reg>, key: Option<WaitKey>, op: Option<OpId>) {
        self.stamp_wait(start, key, op);
        let Some(stamps) = self.stamps.as_mut().filter(|stamps| start.is_some() && !stamps.has_all) else { return };
        if let (Some(run), Some(last)) = (&mut stamps.run, stamps.last) {
            run.start = last;
        }
    }

    /// Records a wait. `key`: the step of the wait, if it is one.
    pub fn stamp_wait(&mut self, start: Option<Reg>, key: Option<WaitKey>, op: Option<OpId>) {
        let Some(stamps) = &self.stamps else { return };
        let line = key.and_then(|key| stamps.waits.get(&key)).copied();
        self.stamp_at(start, StampKind::Wait, line.map(|line| (line, None)), op);
    }

    /// Records the time since `start` as part of the current step.
    pub fn stamp(&mut self, start: Option<Reg>, kind: StampKind, op: Option<OpId>) {
        self.stamp_at(start, kind, None, op);
    }

    /// `position`: the line of the step, if it is not the current one, and the steps of a run.
    fn stamp_at(
        &mut self,
        start: Option<Reg>,
        kind: StampKind,
        position: Option<(u32, Option<[u32; 2]>)>,
        op: Option<OpId>,
    ) {
        let (Some(start), Some(end)) = (start, self.read_clock()) else { return };
        let Some(stamps) = &mut self.stamps else { return };
        let Some(StampRegisters { count, slot, .. }) = stamps.registers else { return };
        let location = op.and_then(|op| self.module.location(self.module.op(op).loc));
        let (step, run) = position.unwrap_or((stamps.line, None));
        let line = location.map(ToString::to_string);
        let site = StampSite { step, run, kind, op: op.map(|op| op.index() as u32), line };
        let known = stamps.sites.iter().rposition(|known| *known == site);
        let number = known.unwrap_or_else(|| {
            stamps.sites.push(site);
            stamps.sites.len() - 1
        });
        let b = &mut self.b;
        let has_space = b.setp(Cmp::Lt, Ty::U32, count, EVENTS);
        let number = b.reg(Operand::from(number as u32), RegClass::B32);
        let record = b.mad_wide(Ty::U32, count, RECORD_BYTES, slot);
        let record = Addr::new(b.reg(record, RegClass::B64), i64::from(HEADER_BYTES));
        let words = [number, start, end.clock, count].map(Operand::from);
        b.guarded(has_space, false, |b| b.st_vec(Space::Global, Ty::B32, &record, &words, MemMods::default()));
        let next = b.add(Ty::U32, count, 1u32);
        b.mov_to(count, next);
        stamps.last = Some(ClockRead { lines: self.b.num_lines(), ..end });
    }

    /// Returns the sites of the stamps, if the kernel is traced.
    pub fn take_stamps(&mut self) -> Option<KernelStamps> {
        self.stamps.take().map(|stamps| KernelStamps {
            sites: stamps.sites,
            recorders: stamps.recorders,
            is_specialized: self.schedule.warp_spec.is_some(),
        })
    }
}

/// Returns true if a run of computations continues over a step, which has no record then.
fn is_inside_of_runs(step: &Step) -> bool {
    matches!(
        step,
        Step::Advance(_)
            | Step::ConsumerTryWait(_)
            | Step::ConsumerRelease(_)
            | Step::MmaWait(_)
            | Step::OrderArrive(_)
            | Step::OrderWait { point: OrderPoint::Exp(_), .. }
    )
}
