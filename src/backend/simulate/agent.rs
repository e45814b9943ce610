//! An agent of a tile block: where it stands in its program, and the values that it has.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::fault::{Fault, broken};
use super::kernel::{Kernel, Meets};
use super::meetings::Meetings;
use super::rings::Place;
use super::shared::{Operand, Shared};
use crate::backend::cpu::{Frame, Held, LoopTurns};
use crate::backend::ptx::schedule::{For, Loop, MmaWait, OrderPoint as TeamTurn, SeqId, Step, WarpRole};
use crate::ir::{BlockId, OpId, Opcode, Value};

/// A result that comes when its products land.
pub type Promise = Rc<RefCell<Held>>;

/// What a product adds to.
#[derive(Clone)]
pub enum Sum {
    Held(Held),
    /// What products before it make.
    Promised(Promise),
}

/// Products that run on their own.
pub struct Flight {
    pub number: u64,
    /// The last one of those that are issued together.
    pub last: OpId,
    /// In the order of the program.
    pub ops: Vec<OpId>,
    /// In the order in which they are issued, with what they add to and what they make.
    pub products: Vec<(OpId, Sum, Promise)>,
    /// Stages that they give back when they land.
    pub gives: Vec<(u32, Place)>,
    /// A round before this one has issued them.
    pub carried: bool,
}

/// A stage that was taken.
#[derive(Clone, Copy)]
pub struct Taken {
    pub place: Place,
    /// Its tiles have been waited for.
    pub arrived: bool,
}

/// A store that the copy engine makes.
pub struct Sent {
    pub id: OpId,
    pub operands: Vec<Option<Held>>,
}

/// What a value is where a loop goes round or a branch ends.
#[derive(Clone)]
pub enum Passed {
    Held(Held),
    /// It is still being computed by the products of this number.
    Running(u64, Promise),
}

/// A body that an agent is in.
pub enum Kind<'a> {
    Entry,
    For { plan: &'a For, at: i128, range: [i128; 3], turn: u64, copies: Option<usize> },
    Loop { plan: &'a Loop, turns: LoopTurns },
    If { op: OpId },
}

/// Where an agent is in a body.
pub struct Level<'a> {
    pub kind: Kind<'a>,
    pub block: BlockId,
    pub body: SeqId,
    pub next: usize,
    /// Memory of its own that was there before.
    pub allocations: usize,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Turn {
    Went,
    /// It waits for what other tile blocks do.
    Waits,
}

/// An agent.
pub struct Agent<'a> {
    pub acts: WarpRole,
    pub kernel: &'a Kernel<'a>,
    pub frame: Frame<'a>,
    pub levels: Vec<Level<'a>>,
    /// In the order in which they were issued.
    pub flights: VecDeque<Flight>,
    /// Values that products in flight make.
    pub running: HashMap<Value, (u64, Promise)>,
    /// Values that are computed where they are used.
    pub deferred: HashMap<Value, OpId>,
    /// Stages that were taken, by channel.
    pub held: HashMap<u32, Taken>,
    /// The places of tiles that a look has found there, by channel.
    pub seen: HashMap<u32, Place>,
    /// Stages that products which have landed keep.
    pub kept: Vec<Place>,
    /// Loads whose tiles are copied ahead: by which copies, and which of them.
    pub ahead: HashMap<OpId, (usize, usize)>,
    pub sends: VecDeque<Sent>,
    /// Which team, band or group it is of those that run this program.
    pub team: usize,
    /// Another group does what others may notice.
    pub is_silent: bool,
    /// Of each ring what an iteration takes that is another team's.
    pub skips: Vec<u64>,
    /// Turns of each kind that it had.
    pub turns: [u64; TeamTurn::ALL.len()],
    /// Turns that it had, of bands or groups.
    pub had: u64,
    /// How often it has met the other groups.
    pub met: u64,
    /// Its threads in shared memory.
    pub meetings: Meetings,
}

impl<'a> Agent<'a> {
    pub fn new(kernel: &'a Kernel<'a>, (acts, team): (WarpRole, usize), body: SeqId, id: [u32; 3]) -> Agent<'a> {
        let mut frame = Frame::new(kernel.program, kernel.memory, (kernel.grid, id), kernel.params);
        if acts == WarpRole::Consumer && kernel.context.data_partitions > 1 {
            frame.set_band(team as u32);
        }
        let entry = Level { kind: Kind::Entry, block: kernel.body, body, next: 0, allocations: 0 };
        Agent {
            acts,
            kernel,
            frame,
            levels: vec![entry],
            flights: VecDeque::new(),
            running: HashMap::new(),
            deferred: HashMap::new(),
            held: HashMap::new(),
            seen: HashMap::new(),
            kept: Vec::new(),
            ahead: HashMap::new(),
            sends: VecDeque::new(),
            team,
            is_silent: kernel.groups > 1 && team > 0,
            skips: Vec::new(),
            turns: [0; TeamTurn::ALL.len()],
            had: 0,
            met: 0,
            meetings: Meetings::default(),
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
    /// Products still compute it; those of the ops.
    pub fn need(&mut self, value: Value) -> Result<(), Fault> {
        if let Some((number, _)) = self.running.get(&value) {
            let flight = self.flights.iter().find(|flight| flight.number == *number);
            let product = flight.map_or(0, |flight| flight.last.index());
            return Err(broken(format!("%{} is read before op {product} has landed", value.index())));
        }
        let Some(id) = self.deferred.remove(&value) else { return Ok(()) };
        self.need_operands(id)?;
        self.frame.step(id)
    }

    /// As [`Agent::need`], for all that an op reads.
    ///
    /// # Errors
    /// Those of [`Agent::need`].
    pub fn need_operands(&mut self, id: OpId) -> Result<(), Fault> {
        let module = self.kernel.module;
        module.op(id).operands.iter().try_for_each(|&value| self.need(value))
    }

    /// Is there nothing in it yet, but will be when somebody needs it?
    pub fn is_open(&self, value: Value) -> bool {
        self.running.contains_key(&value) || self.deferred.contains_key(&value)
    }

    /// Forgets what the ops of a block have made before: a body begins.
    pub fn forget(&mut self, block: BlockId) {
        let module = self.kernel.module;
        for &id in &module.block(block).ops {
            for value in &module.op(id).results {
                self.frame.forget(*value);
                self.running.remove(value);
                self.deferred.remove(value);
            }
        }
    }

    /// Gives a value what was passed.
    pub fn receive(&mut self, value: Value, passed: Passed) {
        self.deferred.remove(&value);
        self.running.remove(&value);
        match passed {
            Passed::Held(held) => self.frame.set(value, held),
            Passed::Running(flight, promise) => {
                self.frame.forget(value);
                self.running.insert(value, (flight, promise));
            }
        }
    }

    // Products in flight.

    /// A wait for products.
    ///
    /// # Errors
    /// It is for others than those that land; those of [`Agent::land_one`].
    pub fn land(&mut self, shared: &mut Shared<'a>, land: &MmaWait) -> Result<(), Fault> {
        let Some(count) = self.flights.len().checked_sub(land.pending).filter(|&count| count > 0) else {
            return Ok(());
        };
        let youngest = &self.flights[count - 1];
        if (youngest.last, youngest.carried) != (land.mma, land.from_previous_iteration) {
            let [wanted, landed] = [land.mma, youngest.last].map(|id| id.index());
            return Err(broken(format!("op {wanted} is waited for, and op {landed} is the last one that lands")));
        }
        let (keeps, gives) = (land.defer_release, land.release_after.is_some());
        if gives {
            std::mem::take(&mut self.kept).into_iter().try_for_each(|place| shared.rings.give(place, self.team))?;
        }
        (0..count).try_for_each(|_| self.land_one(shared, keeps))
    }

    /// All products land.
    ///
    /// # Errors
    /// Those of [`Agent::land_one`].
    pub fn land_all(&mut self, shared: &mut Shared<'a>) -> Result<(), Fault> {
        while !self.flights.is_empty() {
            self.land_one(shared, false)?;
        }
        Ok(())
    }

    /// The products that were issued first have landed: their results are there, and their stages come back.
    ///
    /// # Errors
    /// They have read what they should not, or a stage does not come back.
    fn land_one(&mut self, shared: &mut Shared<'a>, keeps: bool) -> Result<(), Fault> {
        let Some(flight) = self.flights.pop_front() else { return Ok(()) };
        let operands = shared.land(flight.number)?;
        for ((id, sum, promise), operands) in flight.products.iter().zip(operands) {
            let made = self.product(*id, operands, sum)?;
            *promise.borrow_mut() = made;
        }
        for (_, place) in flight.gives {
            match keeps {
                true => self.kept.push(place),
                false => shared.rings.give(place, self.team)?,
            }
        }
        let landed: Vec<Value> =
            self.running.iter().filter(|(_, (number, _))| *number == flight.number).map(|(&value, _)| value).collect();
        for value in landed {
            let (_, promise) = self.running.remove(&value).expect("it was running");
            self.frame.set(value, promise.borrow().clone());
        }
        Ok(())
    }

    /// One product.
    ///
    /// # Errors
    /// What it reads is not there.
    pub fn product(&mut self, id: OpId, [left, right]: [Held; 2], sum: &Sum) -> Result<Held, Fault> {
        let sum = match sum {
            Sum::Held(held) => held.clone(),
            Sum::Promised(promise) => promise.borrow().clone(),
        };
        self.frame.step_with(id, &[Some(left), Some(right), Some(sum)])
    }

    // Stores by the copy engine.

    /// Makes the store that was sent first.
    ///
    /// # Errors
    /// Those of the store.
    pub fn store_first(&mut self) -> Result<(), Fault> {
        let Some(Sent { id, operands }) = self.sends.pop_front() else { return Ok(()) };
        self.frame.step_with(id, &operands).map(drop)
    }

    /// Makes the stores that were sent and that this op may not overtake.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn store_before(&mut self, id: OpId) -> Result<(), Fault> {
        if self.sends.is_empty() {
            return Ok(());
        }
        let conflicts = |sent: &Sent| match (self.kernel.meets(sent.id), self.kernel.meets(id)) {
            (_, Meets::Nothing) => false,
            (Meets::Touch(sent), Meets::Touch(touch)) => sent.may_race(touch),
            _ => true,
        };
        let last = self.sends.iter().rposition(conflicts);
        (0..last.map_or(0, |last| last + 1)).try_for_each(|_| self.store_first())
    }

    // Operands.

    /// The load whose tile stands in a stage, if this value is one, perhaps under another name.
    pub fn fetched(&self, value: Value) -> Option<OpId> {
        let load = self.kernel.context.source_load(value)?;
        let in_ring = self.kernel.channel_of(load).is_some();
        let ahead = self.ahead.contains_key(&load) && !self.is_own(load);
        (in_ring || ahead).then_some(load)
    }

    /// Has each thread copied its own elements of this load?
    pub fn is_own(&self, load: OpId) -> bool {
        self.levels.iter().any(|level| match &level.kind {
            Kind::For { plan, .. } => plan
                .cp_async
                .as_ref()
                .is_some_and(|ahead| ahead.copies.iter().any(|copy| copy.thread_private && copy.load == load)),
            _ => false,
        })
    }

    /// Is it an op that only names a tile in a stage?
    pub fn names_fetched(&self, id: OpId) -> bool {
        let op = self.kernel.module.op(id);
        let names = op.code == Opcode::LoadView || self.kernel.context.is_operand_view(id);
        names && op.results.first().is_some_and(|&result| self.fetched(result).is_some())
    }

    /// An operand that stands in no stage.
    ///
    /// # Errors
    /// Those of [`Agent::need`].
    pub fn in_registers(&mut self, value: Value) -> Result<Operand, Fault> {
        self.need(value)?;
        Ok(Operand::Held(self.frame.get(value)))
    }
}
