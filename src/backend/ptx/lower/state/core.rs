//! Core state of the lowering of one kernel.

use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::instrument::stamp_state::Stamps;
use super::sync_state::SyncState;
use super::values::{CacheMark, Tile, Values};
use crate::backend::ptx::compiled::ParamKind;
use crate::backend::ptx::device_assert::{Assertion, WaitSite};
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{Label, Operand, Reg, Space};
use crate::backend::ptx::mma::CarriedStep;
use crate::backend::ptx::remarks::CodeRemarks;
use crate::backend::ptx::schedule::{KernelInfo, Schedule, SeqId, SubStep};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::backend::ptx::tensor_map::TensorMap;
use crate::error::Diagnostic;
use crate::ir::{Module, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Result of a lowering function. The error is a sentence; the caller adds the source location.
pub type Lowered<T = ()> = Result<T, String>;

/// State of the lowering of one kernel.
pub struct Lowering<'m> {
    pub module: &'m Module,
    pub info: KernelInfo<'m>,
    /// The schedule that is lowered.
    pub schedule: Rc<Schedule>,
    pub b: Builder,
    pub params: Params,
    pub values: Values,
    pub smem: Smem,
    pub sync: SyncState,
    pub report: Report,
    /// The regions that contain the current step, outermost first.
    pub regions: Vec<RegionFrame>,
    /// The carried step of the innermost loop that has one.
    pub carried_step: Option<CarriedMmaStep>,
    /// Time stamps, if the kernel is traced.
    pub stamps: Option<Stamps>,
    /// Dispatch, for ops with regions.
    pub dispatch: Dispatch,
}

/// An emission that a later step calls.
pub type DeferredEmission = Box<dyn FnOnce(&mut Lowering<'_>) -> Lowered>;

/// The carried step of the only MMA of a loop.
pub struct CarriedMmaStep {
    pub mma: OpId,
    pub fragments: CarriedStep,
    /// The copies of a later iteration, which are emitted between the steps of the MMA.
    pub refill: Option<DeferredEmission>,
}

/// Kernel parameters.
#[derive(Default)]
pub struct Params {
    /// The parameters of the entry, in order.
    pub kinds: Vec<ParamKind>,
    /// Tensor maps, and their parameters.
    pub tensor_maps: Vec<(TensorMap, Operand)>,
    /// The parameter with the address of the note, in a kernel that reports failures.
    pub assert_note: Option<Operand>,
}

/// Shared memory of the CTA.
pub struct Smem {
    /// Block-local arrays, by `alloca`.
    pub arrays: FxHashMap<OpId, Buffer>,
    /// State space of arrays: generic if some of them are block-local.
    pub data_space: Space,
    /// Sub-steps of the current step that are not lowered yet.
    pub sub_steps: VecDeque<SubStep>,
    /// The double buffers of the enclosing loops, each with the offset of the current slot.
    pub double_buffers: Vec<(Buffer, Reg)>,
}

/// Messages of the lowering.
#[derive(Default)]
pub struct Report {
    pub errors: Vec<Diagnostic>,
    pub remarks: CodeRemarks,
    /// Assertions, by their number in a note.
    pub assertions: Vec<Assertion>,
    /// Waits with a limit, by their number in a note.
    pub waits: Vec<WaitSite>,
    /// The code is too long for the assembler: no more ops are lowered.
    pub over_code_limit: bool,
    /// `over_code_limit` is reported once.
    pub over_code_limit_reported: bool,
}

/// Entry points of `dispatch` for lowering functions below it.
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// Lowers one op.
    pub op: fn(&mut Lowering<'_>, OpId) -> Lowered,
    /// Lowers the steps of a sequence.
    pub sequence: fn(&mut Lowering<'_>, SeqId),
}

/// Registers of a value with several definitions: one for each element, or packed words of four
/// bytes.
pub type FixedRegisters = (Layout, Vec<Reg>);

/// A region that is being lowered, and the targets of its terminators.
pub struct RegionFrame {
    pub op: Opcode,
    /// Target of `continue`: carried registers and label.
    pub next: Option<(Vec<Option<FixedRegisters>>, Label)>,
    /// Target of `break` or `yield`: result registers and label.
    pub exit: Option<(Vec<Option<FixedRegisters>>, Label)>,
    /// A branch without side effects. MMAs stay in flight across it, so its sunk waits are emitted
    /// after it.
    pub is_pure: bool,
    /// The first arm of a branch, which determines the result registers.
    pub is_first_arm: bool,
}

impl RegionFrame {
    pub fn new_loop(
        op: Opcode,
        next: (Vec<Option<FixedRegisters>>, Label),
        exit: Option<(Vec<Option<FixedRegisters>>, Label)>,
    ) -> RegionFrame {
        RegionFrame { op, next: Some(next), exit, is_pure: false, is_first_arm: false }
    }
}

/// Error of a step that differs from its schedule.
pub const SCHEDULE_MISMATCH: &str =
    "internal error: the lowering of this op does not follow its schedule; please report it";

impl Smem {
    /// Returns the number of parts of a transfer through shared memory, and the number that fits
    /// into the buffer.
    pub fn split(&mut self) -> Option<[u32; 2]> {
        let parts = self.next_if(|sub_step| matches!(sub_step, SubStep::Split { .. }));
        parts.map(|parts| if let SubStep::Split { count, in_flight } = parts { [count, in_flight] } else { [1, 1] })
    }

    /// Returns the bytes that operands need and the free bytes, if they do not fit.
    pub fn smem_overflow(&self) -> Option<[u32; 2]> {
        match self.sub_steps.front() {
            Some(&SubStep::SmemOverflow { bytes, of }) => Some([bytes, of]),
            _ => None,
        }
    }

    pub fn next_if(&mut self, is_it: impl FnOnce(&SubStep) -> bool) -> Option<SubStep> {
        if self.sub_steps.front().is_some_and(is_it) { self.sub_steps.pop_front() } else { None }
    }
}

impl<'m> Lowering<'m> {
    /// Returns a mark to which [`Self::release`] can reset the computed values.
    pub fn mark(&self) -> CacheMark {
        self.values.mark()
    }

    /// Forgets the values that were computed since the mark.
    pub fn release(&mut self, mark: CacheMark) {
        self.values.release(mark);
    }

    /// Attributes the code that `work` emits to the source location of an op.
    pub fn for_op<T>(&mut self, id: OpId, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.b.set_loc(self.module.op(id).loc.0);
        let result = work(self);
        self.b.set_loc(before);
        result
    }

    /// Defines a scalar, which is equal in all threads.
    pub fn define_scalar(&mut self, value: Value, operand: Operand) {
        let layout = Layout::replicated(self.module.shape(value), self.info.inference.num_warps);
        self.values.define(value, Tile { layout, regs: Rc::from([operand]) });
    }

    /// Reports the error of an op, and defines its results.
    pub fn report(&mut self, id: OpId, message: String) {
        let op = self.module.op(id);
        // The code limit is reported once, for the first op beyond it. After an error, mismatches
        // with the schedule are its consequences.
        let follows = message == SCHEDULE_MISMATCH && !self.report.errors.is_empty();
        if !(follows
            || self.report.over_code_limit && std::mem::replace(&mut self.report.over_code_limit_reported, true))
        {
            let message = format!("{message} (op `{}`, target {})", op.code.spec().name, self.b.target);
            self.report.errors.push(Diagnostic::new(message, self.module.location(op.loc).cloned()));
        }
        for &result in &op.results {
            self.define_poison(result);
        }
    }

    /// Defines the result of a failed op, so that the remaining ops can be checked.
    pub fn define_poison(&mut self, value: Value) {
        if matches!(self.module.ty(value), Type::Tile { .. }) && self.values.tiles[value.index()].is_none() {
            let layout = self.info.inference.own_layout(value);
            let regs = vec![Operand::Imm(0); layout.num_registers()].into();
            self.values.define(value, Tile { layout, regs });
        }
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
