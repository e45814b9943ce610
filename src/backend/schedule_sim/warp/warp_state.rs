//! State of a partition: its position in the program, and its values.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::backend::cpu::{Frame, LoopLimit, SlotContent};
use crate::backend::ptx::schedule::{
    For, Loop, MmaWait, OrderBarrierKind, OrderPoint, PINGPONG_GROUPS, SeqId, Step, WarpRole,
};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::backend::schedule_sim::kernel::{Kernel, OrderingEffect};
use crate::backend::schedule_sim::memory::barrier_race::BarrierChecker;
use crate::backend::schedule_sim::memory::shared_state::{Operand, Shared};
use crate::backend::schedule_sim::memory::tma_pipeline::StageSlot;
use crate::ir::{BlockId, OpId, Opcode, Value};

/// A result that is available after an MMA wait.
pub type Promise = Rc<RefCell<SlotContent>>;

/// Accumulator of an MMA.
#[derive(Clone)]
pub enum Accumulator {
    Content(SlotContent),
    /// The result of earlier MMAs.
    Promised(Promise),
}

/// MMAs in flight.
#[derive(Clone)]
pub struct SimulatedMma {
    pub number: u64,
    /// Last MMA of the group.
    pub last: OpId,
    /// In program order.
    pub ops: Vec<OpId>,
    /// In order of issue, each with its accumulator and result.
    pub mmas: Vec<(OpId, Accumulator, Promise)>,
    /// Stages that are released at completion.
    pub releases: Vec<(u32, StageSlot)>,
    /// Issued in the previous iteration.
    pub from_previous_iteration: bool,
}

/// An acquired stage.
#[derive(Clone, Copy, Hash)]
pub struct AcquiredStage {
    pub slot: StageSlot,
    /// The full barrier has been waited for.
    pub is_full: bool,
}

/// A TMA store in flight.
#[derive(Clone)]
pub struct PendingStore {
    pub id: OpId,
    pub operands: Vec<Option<SlotContent>>,
}

/// A value that is passed at a back edge or at the end of a branch.
#[derive(Clone)]
pub enum Passed {
    Content(SlotContent),
    /// The MMA group with this number still computes it.
    InFlight(u64, Promise),
}

/// Kind of an entered sequence.
pub enum LevelKind<'a> {
    Entry,
    For { plan: &'a For, at: i128, range: [i128; 3], iteration: u64, copies: Option<usize> },
    Loop { plan: &'a Loop, iterations: LoopLimit },
    If { op: OpId },
}

impl LevelKind<'_> {
    /// Returns a copy; `None` of a loop without a range.
    pub fn fork(&self) -> Option<Self> {
        match *self {
            LevelKind::Entry => Some(LevelKind::Entry),
            LevelKind::For { plan, at, range, iteration, copies } => {
                Some(LevelKind::For { plan, at, range, iteration, copies })
            }
            LevelKind::If { op } => Some(LevelKind::If { op }),
            LevelKind::Loop { .. } => None,
        }
    }
}

/// Position in an entered sequence.
pub struct Level<'a> {
    pub kind: LevelKind<'a>,
    pub block: BlockId,
    pub body: SeqId,
    pub next: usize,
    /// Number of block-local allocations at entry.
    pub allocations: usize,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOutcome {
    Done,
    /// Waits for other CTAs.
    Blocked,
}

/// State of a partition.
pub struct Partition<'a> {
    pub role: WarpRole,
    pub kernel: &'a Kernel<'a>,
    pub frame: Frame<'a>,
    pub levels: Vec<Level<'a>>,
    /// In order of issue.
    pub in_flight: VecDeque<SimulatedMma>,
    /// Values that MMAs in flight compute.
    pub in_flight_values: FxHashMap<Value, (u64, Promise)>,
    /// Values that are computed at their uses.
    pub deferred: FxHashMap<Value, OpId>,
    /// Acquired stages, by channel.
    pub acquired: FxHashMap<u32, AcquiredStage>,
    /// Slots whose try-wait succeeded, by channel.
    pub try_waited: FxHashMap<u32, StageSlot>,
    /// Stages of complete MMAs that are not released yet.
    pub deferred_releases: Vec<StageSlot>,
    /// Loads that are multistage copies: the copies, and the index in them.
    pub cp_async_loads: FxHashMap<OpId, (usize, usize)>,
    pub tma_stores: VecDeque<PendingStore>,
    /// Index among the consumer groups that execute this program.
    pub group: usize,
    /// Another group executes ops with side effects.
    pub is_silent: bool,
    /// For each pipeline, the stages of one iteration of the other ping-pong group.
    pub skipped_stages: Vec<u64>,
    /// Number of critical sections so far, by set of barriers.
    pub order_counts: [u64; OrderPoint::BARRIER_SETS],
    /// Number of barriers of the consumer groups so far.
    pub barrier_count: u64,
    /// Races between its threads in shared memory.
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
    /// The section belongs to another group.
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
            frame.set_data_partition(group as u32);
        }
        let entry = Level { kind: LevelKind::Entry, block: kernel.body, body, next: 0, allocations: 0 };
        Partition {
            role,
            kernel,
            frame,
            levels: vec![entry],
            in_flight: VecDeque::new(),
            in_flight_values: FxHashMap::default(),
            deferred: FxHashMap::default(),
            acquired: FxHashMap::default(),
            try_waited: FxHashMap::default(),
            deferred_releases: Vec::new(),
            cp_async_loads: FxHashMap::default(),
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

    /// Returns the next step.
    ///
    /// # Errors
    /// A sequence ends without a terminator.
    pub fn next_step(&self) -> Result<Option<&'a Step>, Fault> {
        let Some(level) = self.levels.last() else { return Ok(None) };
        let step = self.kernel.schedule.steps(level.body).get(level.next);
        step.map(Some).ok_or_else(|| broken("a body does not end"))
    }

    // Values.

    /// Computes a value if it is deferred.
    ///
    /// # Errors
    /// MMAs in flight compute it; errors of the ops.
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

    /// Computes all operands of an op like [`Partition::require`].
    ///
    /// # Errors
    /// Errors of [`Partition::require`].
    pub fn require_operands(&mut self, id: OpId) -> Result<(), Fault> {
        let module = self.kernel.module;
        module.op(id).operands.iter().try_for_each(|&value| self.require(value))
    }

    /// Returns true if the value is in flight or deferred.
    pub fn is_open(&self, value: Value) -> bool {
        self.in_flight_values.contains_key(&value) || self.deferred.contains_key(&value)
    }

    /// Removes the values of a block at its entry.
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

    /// Sets a passed value.
    pub fn receive(&mut self, value: Value, passed: Passed) {
        self.deferred.remove(&value);
        self.in_flight_values.remove(&value);
        match passed {
            Passed::Content(content) => self.frame.set(value, content),
            Passed::InFlight(mma_group, promise) => {
                self.frame.forget(value);
                self.in_flight_values.insert(value, (mma_group, promise));
            }
        }
    }

    // MMAs in flight.

    /// Executes an MMA wait.
    ///
    /// # Errors
    /// Other MMAs complete than those of the wait; errors of [`Partition::complete_oldest`].
    pub fn mma_wait(&mut self, shared: &mut Shared<'a>, wait: &MmaWait) -> Result<(), Fault> {
        let Some(count) = self.in_flight.len().checked_sub(wait.pending).filter(|&count| count > 0) else {
            return Ok(());
        };
        let youngest = &self.in_flight[count - 1];
        if (youngest.last, youngest.from_previous_iteration) != (wait.mma, wait.from_previous_iteration) {
            let [required, completed] = [wait.mma, youngest.last].map(|id| id.index());
            return Err(broken(format!(
                "the wait is for op {required}, and op {completed} is the last one that completes"
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

    /// Waits for all MMAs.
    ///
    /// # Errors
    /// Errors of [`Partition::complete_oldest`].
    pub fn mma_wait_all(&mut self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        self.mma_wait_operands(shared, 0)
    }

    /// Waits for all MMA groups but the `pending` latest ones.
    ///
    /// # Errors
    /// Errors of [`Partition::complete_oldest`].
    pub fn mma_wait_operands(&mut self, shared: &mut Shared<'a>, pending: usize) -> Result<(), Fault> {
        while self.in_flight.len() > pending {
            self.complete_oldest(shared, false)?;
        }
        Ok(())
    }

    /// Completes the oldest MMA group: sets its results and releases its stages.
    ///
    /// # Errors
    /// A stage has other tiles, or cannot be released.
    fn complete_oldest(&mut self, shared: &mut Shared<'a>, defer_release: bool) -> Result<(), Fault> {
        let Some(mma_group) = self.in_flight.pop_front() else { return Ok(()) };
        self.barriers.complete_mma(mma_group.number);
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

    /// Computes one MMA.
    ///
    /// # Errors
    /// An operand is not available.
    pub fn mma(&mut self, id: OpId, [left, right]: [SlotContent; 2], sum: &Accumulator) -> Result<SlotContent, Fault> {
        let sum = match sum {
            Accumulator::Content(content) => content.clone(),
            Accumulator::Promised(promise) => promise.borrow().clone(),
        };
        self.frame.step_with(id, &[Some(left), Some(right), Some(sum)])
    }

    // Stores by TMA.

    /// Completes the oldest TMA store.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn complete_first_store(&mut self) -> Result<(), Fault> {
        let Some(PendingStore { id, operands }) = self.tma_stores.pop_front() else { return Ok(()) };
        self.frame.step_with(id, &operands).map(drop)
    }

    /// Completes the TMA stores that must precede an op.
    ///
    /// # Errors
    /// Errors of the stores.
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

    /// Returns the load whose tile is in a stage, if the value is this tile or a view of it.
    pub fn staged_load(&self, value: Value) -> Option<OpId> {
        let load = self.kernel.info.source_load(value)?;
        self.kernel.schedule.load_path(load).is_smem_operand().then_some(load)
    }

    /// Returns true if the op is a view of a tile in a stage.
    pub fn names_staged_tile(&self, id: OpId) -> bool {
        let op = self.kernel.module.op(id);
        let names = matches!(op.code, Opcode::LoadView | Opcode::Cat) || self.kernel.info.is_operand_view(id);
        names && op.results.first().is_some_and(|&result| self.staged_load(result).is_some())
    }

    /// Returns an operand in registers.
    ///
    /// # Errors
    /// Errors of [`Partition::require`].
    pub fn register_operand(&mut self, value: Value) -> Result<Operand, Fault> {
        self.require(value)?;
        Ok(Operand::Content(self.frame.get(value)))
    }
}
