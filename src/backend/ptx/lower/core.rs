//! Core state of the lowering of one kernel.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::async_state::{Flights, KnownTurns, Peer, Rings, Team};
use super::values::{Cache, OwnTile, TensorView, ThreadCache, Tile};
use crate::backend::ptx::assertion::Assertion;
use crate::backend::ptx::builder::Builder;
use crate::backend::ptx::compiled::ParamKind;
use crate::backend::ptx::inst::{Label, Operand, Reg, Space};
use crate::backend::ptx::remarks::CodeRemarks;
use crate::backend::ptx::schedule::{KernelInfo, Schedule, SeqId, SubStep, WarpRole};
use crate::backend::ptx::shared::{Buffer, SharedMemory};
use crate::backend::ptx::tensor_map::TensorMap;
use crate::error::Diagnostic;
use crate::ir::{Module, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Why an op could not be lowered: a sentence; the place is added by the caller.
pub type Lowered<T = ()> = Result<T, String>;

/// State of the lowering of one entry.
pub struct Lowering<'m> {
    pub module: &'m Module,
    pub context: KernelInfo<'m>,
    /// What is lowered.
    pub schedule: Rc<Schedule>,
    pub b: Builder,
    /// Concrete values, by value index.
    pub tiles: Vec<Option<Tile>>,
    /// Values in further layouts; cut back when the region that made them ends.
    pub cached: Cache,
    pub views: HashMap<Value, Rc<TensorView>>,
    pub shared: SharedMemory,
    /// What the step that is lowered does within, and has not come to.
    pub within: VecDeque<SubStep>,
    /// Memory of the block's own, and where data is in this kernel.
    pub own: HashMap<OpId, Buffer>,
    pub data_space: Space,
    pub loops: Vec<Frame>,
    /// Loads whose tile is in a stage of shared memory, by address.
    pub staged: HashMap<Value, Operand>,
    /// Loads whose elements their threads have in a stage.
    pub own_tiles: HashMap<OpId, OwnTile>,
    /// Products that may still be running.
    pub flights: Flights,
    /// Who is being lowered.
    pub role: WarpRole,
    /// Streamed loads, if there are any.
    pub rings: Option<Rings>,
    /// The team of warps, where there are several.
    pub team: Team,
    /// What a band of rows, or a group that works in turn, knows of its turns.
    pub turns: Option<KnownTurns>,
    /// The other tile block of a pair.
    pub peer: Peer,
    pub params: Vec<ParamKind>,
    /// Tensor maps that the kernel takes, and their parameters.
    pub tensor_maps: Vec<(TensorMap, Operand)>,
    pub thread: ThreadCache,
    /// The parameter that names the note of a failed assertion, in a kernel that has some, and these so far.
    pub failure: Option<Operand>,
    pub assertions: Vec<Assertion>,
    pub errors: Vec<Diagnostic>,
    /// Only the schedule is wanted.
    pub plans_only: bool,
    /// There is too much code: no more is made. And that has been said.
    pub gave_up: bool,
    pub gave_up_said: bool,
    pub remarks: CodeRemarks,
    /// How ops with regions lower the ops of these.
    pub dispatch: Dispatch,
}

/// Entry points of `dispatch`, which knows all lowering functions, for the functions that it calls.
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// Lowers one op.
    pub op: fn(&mut Lowering<'_>, OpId) -> Lowered,
    /// Lowers the steps of a sequence.
    pub sequence: fn(&mut Lowering<'_>, SeqId),
}

/// Registers of a value that several places write: one for each slot, or a word for each four of them.
pub type Fixed = (Layout, Vec<Reg>);

/// A region that is being lowered, and where its terminators go.
pub struct Frame {
    pub op: Opcode,
    /// `continue`: carried registers and label.
    pub next: Option<(Vec<Option<Fixed>>, Label)>,
    /// `break` or `yield`: result registers and label.
    pub exit: Option<(Vec<Option<Fixed>>, Label)>,
    /// A branch that products run on beside: the waits of its end come behind it, as parts of what it stands in.
    pub quiet: bool,
    /// The first of several branches, which says where their results stand.
    pub leads: bool,
}

impl Frame {
    pub fn of_loop(op: Opcode, next: (Vec<Option<Fixed>>, Label), exit: Option<(Vec<Option<Fixed>>, Label)>) -> Frame {
        Frame { op, next: Some(next), exit, quiet: false, leads: false }
    }
}

/// A point to which the memory of computed values can be cut back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub cached: usize,
    pub thread: usize,
}

/// What is said of a step that does not do what its schedule says.
pub const OTHERWISE: &str = "a step and its schedule do not say the same, which is a defect of this crate";

/// What is known before an agent does anything.
pub struct Before {
    pub tiles: Vec<Option<Tile>>,
    pub views: HashMap<Value, Rc<TensorView>>,
    pub mark: Mark,
}

impl<'m> Lowering<'m> {
    /// Notes what is known now.
    pub fn mark(&self) -> Mark {
        Mark { cached: self.cached.len(), thread: self.thread.mark() }
    }

    /// Forgets what has been computed since.
    pub fn release(&mut self, mark: Mark) {
        self.cached.truncate(mark.cached);
        self.thread.truncate(mark.thread);
    }

    /// Is the code that is emitted now the body of a loop, and no branch in it?
    pub fn is_in_loop(&self) -> bool {
        self.loops.last().is_some_and(|frame| matches!(frame.op, Opcode::For | Opcode::Loop))
    }

    /// What `work` emits comes from the place of this op.
    pub fn for_op<T>(&mut self, id: OpId, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.b.come_from(self.module.op(id).loc.0);
        let result = work(self);
        self.b.come_from(before);
        result
    }

    pub fn single(&mut self, value: Value, operand: Operand) {
        let layout = Layout::replicated(self.module.shape(value), self.context.inference.num_warps);
        self.tiles[value.index()] = Some(Tile { layout, slots: Rc::from([operand]) });
    }

    pub fn report(&mut self, id: OpId, message: String) {
        let op = self.module.op(id);
        // That there is too much code is said once, of the op that it came to; all others fail, too. Behind what failed,
        // steps do other things than their schedule says.
        let follows = message == OTHERWISE && !self.errors.is_empty();
        if !(follows || self.gave_up && std::mem::replace(&mut self.gave_up_said, true)) {
            let message = format!("{message} (op `{}`, target {})", op.code.spec().name, self.b.target);
            self.errors.push(Diagnostic::new(message, self.module.location(op.loc).cloned()));
        }
        for &result in &op.results {
            self.poison(result);
        }
    }

    /// Gives a failed op's result some value, so that the rest can be checked too.
    pub fn poison(&mut self, value: Value) {
        if matches!(self.module.ty(value), Type::Tile { .. }) && self.tiles[value.index()].is_none() {
            let layout = self.context.inference.layout(value).cloned();
            let layout = layout.unwrap_or_else(|| self.context.inference.default_layout(value));
            let slots = vec![Operand::Imm(0); layout.num_registers()].into();
            self.tiles[value.index()] = Some(Tile { layout, slots });
        }
    }

    /// What is known before an agent does anything.
    pub fn state(&self) -> Before {
        Before { tiles: self.tiles.clone(), views: self.views.clone(), mark: self.mark() }
    }

    /// Knows what was known then.
    pub fn go_back(&mut self, before: &Before) {
        self.tiles.clone_from(&before.tiles);
        self.views.clone_from(&before.views);
        self.release(before.mark);
    }

    /// Lowers an op that is a part of a step.
    pub fn nested_op(&mut self, id: OpId) -> Lowered {
        (self.dispatch.op)(self, id)
    }

    /// Lowers the steps of a region.
    pub fn nested_sequence(&mut self, sequence: SeqId) {
        (self.dispatch.sequence)(self, sequence);
    }
}
