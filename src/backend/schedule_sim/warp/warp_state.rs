//! A partition of a tile block: where it stands in its program, and the values that it has.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::backend::cpu::{Frame, Held, LoopTurns};
use crate::backend::ptx::schedule::{
    For, Loop, MmaWait, OrderBarrierKind, OrderPoint, PINGPONG_GROUPS, SeqId, Step, WarpRole,
};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::kernel::{Kernel, OrderingEffect};
use crate::backend::schedule_sim::memory::barrier_race::BarrierChecker;
use crate::backend::schedule_sim::memory::shared_state::{Operand, Shared};
use crate::backend::schedule_sim::memory::tma_pipeline::StageSlot;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// A result that comes when its MMAs land.
pub type Promise = Rc<RefCell<Held>>;

/// What an MMA adds to.
#[derive(Clone)]
pub enum Accumulator {
    Held(Held),
    /// What MMAs before it make.
    Promised(Promise),
}

/// MMAs that are asynchronous.
pub struct InFlightMma {
    pub number: u64,
    /// The last one of those that are issued together.
    pub last: OpId,
    /// In the order of the program.
    pub ops: Vec<OpId>,
    /// In the order in which they are issued, with what they add to and what they make.
    pub mmas: Vec<(OpId, Accumulator, Promise)>,
    /// Stages that they release when they land.
    pub releases: Vec<(u32, StageSlot)>,
    /// A round before this one has issued them.
    pub from_previous_iteration: bool,
}

/// A stage that was taken.
#[derive(Clone, Copy)]
pub struct AcquiredStage {
    pub slot: StageSlot,
    /// Its tiles have been waited for.
    pub is_full: bool,
}

/// A store that TMA makes.
pub struct PendingStore {
    pub id: OpId,
    pub operands: Vec<Option<Held>>,
}

/// What a value is where a loop goes round or a branch ends.
#[derive(Clone)]
pub enum Passed {
    Held(Held),
    /// It is still being computed by the MMAs of this number.
    InFlight(u64, Promise),
}

/// A body that a partition is in.
pub enum LevelKind<'a> {
    Entry,
    For { plan: &'a For, at: i128, range: [i128; 3], iteration: u64, copies: Option<usize> },
    Loop { plan: &'a Loop, order_counts: LoopTurns },
    If { op: OpId },
}

/// Where a partition is in a body.
pub struct Level<'a> {
    pub kind: LevelKind<'a>,
    pub block: BlockId,
    pub body: SeqId,
    pub next: usize,
    /// Memory of its own that was there before.
    pub allocations: usize,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOutcome {
    Done,
    /// It waits for what other tile blocks do.
    Blocked,
}

/// A partition.
pub struct Partition<'a> {
    pub role: WarpRole,
    pub kernel: &'a Kernel<'a>,
    pub frame: Frame<'a>,
    pub levels: Vec<Level<'a>>,
    /// In the order in which they were issued.
    pub in_flight: VecDeque<InFlightMma>,
    /// Values that MMAs in flight make.
    pub in_flight_values: HashMap<Value, (u64, Promise)>,
    /// Values that are computed where they are used.
    pub deferred: HashMap<Value, OpId>,
    /// Stages that were taken, by channel.
    pub acquired: HashMap<u32, AcquiredStage>,
    /// The places of tiles that a look has found there, by channel.
    pub try_waited: HashMap<u32, StageSlot>,
    /// Stages that MMAs which are complete keep.
    pub deferred_releases: Vec<StageSlot>,
    /// Loads whose tiles are copied ahead: by which copies, and which of them.
    pub cp_async_loads: HashMap<OpId, (usize, usize)>,
    pub tma_stores: VecDeque<PendingStore>,
    /// Which ping-pong group, data partition or group it is of those that run this program.
    pub group: usize,
    /// Another group does what others may notice.
    pub is_silent: bool,
    /// Of each pipeline what an iteration takes that is another ping-pong group's.
    pub skipped_stages: Vec<u64>,
    /// The number of ordered sections that it has begun, by set of barriers.
    pub order_counts: [u64; OrderPoint::BARRIER_SETS],
    /// How often it has met the other groups.
    pub barrier_count: u64,
    /// Its threads in shared memory.
    pub barriers: BarrierChecker,
}

impl<'a> Partition<'a> {
    /// The number of groups that enter this section one after another.
    fn groups_of_order(&self, point: OrderPoint) -> u64 {
        match point.barrier() {
            OrderBarrierKind::Mbarrier => u64::from(PINGPONG_GROUPS),
            OrderBarrierKind::Named => self.kernel.sharing_groups() as u64,
        }
    }

    /// The number of this group's next ordered section, among those of all groups.
    pub fn next_section(&self, point: OrderPoint) -> u64 {
        self.order_counts[point.barrier_set()] * self.groups_of_order(point) + self.group as u64
    }

    /// Ends the ordered section of this group; the next group can enter.
    ///
    /// # Errors
    /// The section that ends is that of another group.
    pub fn order_arrive(&mut self, shared: &mut Shared<'a>, point: OrderPoint) -> Result<(), Fault> {
        let ended = &mut shared.order_counts[point.barrier_set()];
        if self.next_section(point).checked_sub(self.groups_of_order(point)) != Some(*ended) {
            return Err(broken(format!(
                "group {} ends section {ended} of {point}, which it has not begun",
                self.group
            )));
        }
        *ended += 1;
        Ok(())
    }

    pub fn new(kernel: &'a Kernel<'a>, (role, group): (WarpRole, usize), body: SeqId, id: [u32; 3]) -> Partition<'a> {
        let mut frame = Frame::new(kernel.program, kernel.memory, (kernel.grid, id), kernel.params);
        if role == WarpRole::Consumer && kernel.info.data_partitions > 1 {
            frame.set_band(group as u32);
        }
        let entry = Level { kind: LevelKind::Entry, block: kernel.body, body, next: 0, allocations: 0 };
        Partition {
            role,
            kernel,
            frame,
            levels: vec![entry],
            in_flight: VecDeque::new(),
            in_flight_values: HashMap::new(),
            deferred: HashMap::new(),
            acquired: HashMap::new(),
            try_waited: HashMap::new(),
            deferred_releases: Vec::new(),
            cp_async_loads: HashMap::new(),
            tma_stores: VecDeque::new(),
            group,
            is_silent: kernel.groups > 1 && group > 0,
            skipped_stages: Vec::new(),
            order_counts: [0; OrderPoint::BARRIER_SETS],
            barrier_count: 0,
            barriers: BarrierChecker::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.levels.is_empty()
    }

    /// The step that comes next.
    ///
    /// # Errors
    /// A body has come to its end without a step that ends it.
    pub fn next_step(&self) -> Result<Option<&'a Step>, Fault> {
        let Some(level) = self.levels.last() else { return Ok(None) };
        let step = self.kernel.schedule.steps(level.body).get(level.next);
        step.map(Some).ok_or_else(|| broken("a body does not end"))
    }

    // Values.

    /// Has a value at hand: what is computed where it is used is.
    ///
    /// # Errors
    /// MMAs still compute it; those of the ops.
    pub fn require(&mut self, value: Value) -> Result<(), Fault> {
        if let Some((number, _)) = self.in_flight_values.get(&value) {
            let mma_group = self.in_flight.iter().find(|mma_group| mma_group.number == *number);
            let mma = mma_group.map_or(0, |mma_group| mma_group.last.index());
            return Err(broken(format!("%{} is read while op {mma} is in flight", value.index())));
        }
        let Some(id) = self.deferred.remove(&value) else { return Ok(()) };
        self.require_operands(id)?;
        self.frame.step(id)
    }

    /// As [`Partition::require`], for all that an op reads.
    ///
    /// # Errors
    /// Those of [`Partition::require`].
    pub fn require_operands(&mut self, id: OpId) -> Result<(), Fault> {
        let module = self.kernel.module;
        module.op(id).operands.iter().try_for_each(|&value| self.require(value))
    }

    /// Is there nothing in it yet, but will be when somebody needs it?
    pub fn is_open(&self, value: Value) -> bool {
        self.in_flight_values.contains_key(&value) || self.deferred.contains_key(&value)
    }

    /// Forgets what the ops of a block have made before: a body begins.
    pub fn forget(&mut self, block: BlockId) {
        let module = self.kernel.module;
        for &id in &module.block(block).ops {
            for value in &module.op(id).results {
                self.frame.forget(*value);
                self.in_flight_values.remove(value);
                self.deferred.remove(value);
            }
        }
    }

    /// Gives a value what was passed.
    pub fn receive(&mut self, value: Value, passed: Passed) {
        self.deferred.remove(&value);
        self.in_flight_values.remove(&value);
        match passed {
            Passed::Held(held) => self.frame.set(value, held),
            Passed::InFlight(mma_group, promise) => {
                self.frame.forget(value);
                self.in_flight_values.insert(value, (mma_group, promise));
            }
        }
    }

    // MMAs in flight.

    /// A wait for MMAs.
    ///
    /// # Errors
    /// It is for others than those that land; those of [`Partition::complete_oldest`].
    pub fn mma_wait(&mut self, shared: &mut Shared<'a>, wait: &MmaWait) -> Result<(), Fault> {
        let Some(count) = self.in_flight.len().checked_sub(wait.pending).filter(|&count| count > 0) else {
            return Ok(());
        };
        let youngest = &self.in_flight[count - 1];
        if (youngest.last, youngest.from_previous_iteration) != (wait.mma, wait.from_previous_iteration) {
            let [wanted, completed] = [wait.mma, youngest.last].map(|id| id.index());
            return Err(broken(format!(
                "the wait is for op {wanted}, and op {completed} is the last one that completes"
            )));
        }
        let (defer_release, has_release) = (wait.defer_release, wait.release_after.is_some());
        if has_release {
            std::mem::take(&mut self.deferred_releases)
                .into_iter()
                .try_for_each(|slot| shared.pipelines.release(slot, self.group))?;
        }
        (0..count).try_for_each(|_| self.complete_oldest(shared, defer_release))
    }

    /// All MMAs land.
    ///
    /// # Errors
    /// Those of [`Partition::complete_oldest`].
    pub fn mma_wait_all(&mut self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        while !self.in_flight.is_empty() {
            self.complete_oldest(shared, false)?;
        }
        Ok(())
    }

    /// The MMAs that were issued first are complete: their results are there, and their stages come back.
    ///
    /// # Errors
    /// They have read what they should not, or a stage does not come back.
    fn complete_oldest(&mut self, shared: &mut Shared<'a>, defer_release: bool) -> Result<(), Fault> {
        let Some(mma_group) = self.in_flight.pop_front() else { return Ok(()) };
        let operands = shared.complete_mmas(mma_group.number)?;
        for ((id, sum, promise), operands) in mma_group.mmas.iter().zip(operands) {
            let made = self.mma(*id, operands, sum)?;
            *promise.borrow_mut() = made;
        }
        for (_, slot) in mma_group.releases {
            match defer_release {
                true => self.deferred_releases.push(slot),
                false => shared.pipelines.release(slot, self.group)?,
            }
        }
        let completed: Vec<Value> = self
            .in_flight_values
            .iter()
            .filter(|(_, (number, _))| *number == mma_group.number)
            .map(|(&value, _)| value)
            .collect();
        for value in completed {
            let (_, promise) = self.in_flight_values.remove(&value).expect("it was running");
            self.frame.set(value, promise.borrow().clone());
        }
        Ok(())
    }

    /// One MMA.
    ///
    /// # Errors
    /// What it reads is not there.
    pub fn mma(&mut self, id: OpId, [left, right]: [Held; 2], sum: &Accumulator) -> Result<Held, Fault> {
        let sum = match sum {
            Accumulator::Held(held) => held.clone(),
            Accumulator::Promised(promise) => promise.borrow().clone(),
        };
        self.frame.step_with(id, &[Some(left), Some(right), Some(sum)])
    }

    // Stores by TMA.

    /// Makes the store that was sent first.
    ///
    /// # Errors
    /// Those of the store.
    pub fn complete_first_store(&mut self) -> Result<(), Fault> {
        let Some(PendingStore { id, operands }) = self.tma_stores.pop_front() else { return Ok(()) };
        self.frame.step_with(id, &operands).map(drop)
    }

    /// Makes the stores that were sent and that this op may not overtake.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn complete_stores_before(&mut self, id: OpId) -> Result<(), Fault> {
        if self.tma_stores.is_empty() {
            return Ok(());
        }
        let conflicts =
            |sent: &PendingStore| match (self.kernel.ordering_effect(sent.id), self.kernel.ordering_effect(id)) {
                (_, OrderingEffect::Nothing) => false,
                (OrderingEffect::Access(sent), OrderingEffect::Access(effect)) => sent.may_race(effect),
                _ => true,
            };
        let last = self.tma_stores.iter().rposition(conflicts);
        (0..last.map_or(0, |last| last + 1)).try_for_each(|_| self.complete_first_store())
    }

    // Operands.

    /// The load whose tile stands in a stage, if this value is one, perhaps under another name.
    pub fn staged_load(&self, value: Value) -> Option<OpId> {
        let load = self.kernel.info.source_load(value)?;
        self.kernel.schedule.load_path(load).is_smem_operand().then_some(load)
    }

    /// Is it an op that only names a tile in a stage?
    pub fn names_staged_tile(&self, id: OpId) -> bool {
        let op = self.kernel.module.op(id);
        let names = op.code == Opcode::LoadView || self.kernel.info.is_operand_view(id);
        names && op.results.first().is_some_and(|&result| self.staged_load(result).is_some())
    }

    /// An operand that stands in no stage.
    ///
    /// # Errors
    /// Those of [`Partition::require`].
    pub fn register_operand(&mut self, value: Value) -> Result<Operand, Fault> {
        self.require(value)?;
        Ok(Operand::Held(self.frame.get(value)))
    }
}
