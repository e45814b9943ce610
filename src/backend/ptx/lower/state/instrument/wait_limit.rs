//! Waits with a time limit (`Hints::wait_limit`), and the note of a failure that the host reads.
//!
//! A wait for an mbarrier, and a loop that waits for other tile blocks, reads the global timer. A
//! wait beyond the limit writes a note and ends its thread. Warps that wait for an ended warp reach
//! their own limits. So the kernel ends, and the context remains usable.
//!
//! The note is that of assertions ([`Assertion`]): the first thread that claims it writes the
//! number of the wait, the tile block, and the values of the message.

use crate::backend::HUNG;
use crate::backend::ptx::device_assert::{Assertion, NoteField};
use crate::backend::ptx::isa::inst::{
    Addr, AtomOp, Cmp, Label, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty,
};
use crate::backend::ptx::lower::state::core::Lowering;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::WarpRole;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, MemOrder, OpId};

/// States of a note.
const CLAIMED: u32 = 1;
const COMPLETE: u32 = 2;

/// Nanoseconds of a millisecond.
const MILLISECOND: i64 = 1_000_000;

impl Lowering<'_> {
    /// Waits until the phase of an mbarrier with this parity is complete. `op`: the op that needs
    /// it; `step`: the step of the schedule and the barrier, for the report.
    pub fn wait_for_phase(&mut self, bar: &Addr, parity: impl Into<Operand>, op: Option<OpId>, step: &str) {
        let parity = parity.into();
        let Some(limit) = self.info.options.wait_limit else { return self.b.mbarrier_wait(bar, parity) };
        let parity = self.b.reg(parity, RegClass::B32);
        let start = self.b.special(Special::GlobalTimer);
        let (again, done) = (self.b.new_label(), self.b.new_label());
        self.b.place(again);
        let seen = self.b.fresh(RegClass::Pred);
        self.b.mbarrier_test(seen, bar, parity);
        self.b.bra_if(seen, false, done, false);
        self.bra_within(start, limit, again);
        let role = match self.sync.role {
            WarpRole::All => "all warps",
            WarpRole::Consumer => "the consumer warps",
            WarpRole::Producer => "the producer warp",
        };
        let at = self.b.add(Ty::U32, bar.base, bar.offset as u32);
        let shared = self.b.reg(Operand::Smem, RegClass::B32);
        let at = self.b.sub(Ty::U32, at, shared);
        let at = self.b.reg(at, RegClass::B32);
        let text = format!("{step} in {role}: the phase of parity %d of the mbarrier at byte %d of shared memory");
        self.end_hung(op, &text, &[parity, at], limit);
        self.b.place(done);
    }

    /// Returns the start time of a loop without a range that waits for other tile blocks: its body
    /// has an atomic or ordered access. `None` without a limit, and for other loops.
    pub fn waiting_since(&mut self, body: BlockId) -> Option<(Reg, OpId)> {
        self.info.options.wait_limit?;
        let module = self.module;
        let mut access = None;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            let is_exchange = op.code.spec().effect == Effect::ReadWrite || op.mem_order() != MemOrder::Weak;
            access = access.or(is_exchange.then_some(id));
        });
        let access = access?;
        let start = self.b.special(Special::GlobalTimer);
        Some((self.b.copy(start, RegClass::B64), access))
    }

    /// Ends a thread whose loop has waited beyond the limit.
    pub fn limit_loop(&mut self, (start, access): (Reg, OpId)) {
        let Some(limit) = self.info.options.wait_limit else { return };
        let within = self.b.new_label();
        self.bra_within(start.into(), limit, within);
        self.end_hung(Some(access), "a loop around this access, which waits for another tile block", &[], limit);
        self.b.place(within);
    }

    /// Jumps to a label if the limit after `start` is not over.
    fn bra_within(&mut self, start: Operand, limit: u32, label: Label) {
        let now = self.b.special(Special::GlobalTimer);
        let waited = self.b.sub(Ty::U64, now, start);
        let is_over = self.b.setp(Cmp::Gt, Ty::U64, waited, i64::from(limit) * MILLISECOND);
        self.b.bra_if(is_over, true, label, false);
    }

    /// Emits the note of a wait that does not end, and the end of the thread.
    fn end_hung(&mut self, op: Option<OpId>, what: &str, values: &[Reg], limit: u32) {
        let warp = self.b.special(Special::TidX);
        let warp = self.b.shr(Ty::U32, warp, 5u32);
        let warp = self.b.reg(warp, RegClass::B32);
        let shown: Vec<(Reg, DType)> = values.iter().chain([&warp]).map(|&value| (value, DType::I32)).collect();
        let end = self.b.new_label();
        if let Some(parameter) = self.params.assert_note {
            self.write_note(parameter, Operand::Imm(0), &shown, end);
        }
        self.b.place(end);
        self.b.ret();
        let message = format!("{HUNG}{what} did not end in {limit} ms (warp %d)").into();
        let location = op.and_then(|op| self.module.location(self.module.op(op).loc).cloned());
        let values = shown.iter().map(|&(_, dtype)| dtype).collect();
        self.report.assertions.push(Assertion { message, location, values, shape: Vec::new() });
    }

    /// Claims the note at the address in a parameter, unless another thread has claimed it, and
    /// writes it. Jumps to `done` otherwise. The assertion is the next one of the report.
    pub fn write_note(&mut self, parameter: Operand, element: Operand, values: &[(Reg, DType)], done: Label) {
        let plain = MemMods::default();
        let note = self.b.ld(Space::Param, Ty::U64, &parameter.into(), plain);
        let nobody = self.b.setp(Cmp::Eq, Ty::U64, note, 0i64);
        self.b.bra_if(nobody, false, done, false);
        let place = |field: NoteField| Addr::new(note, 4 * field.word() as i64);
        let order = (Sem::Relaxed, Scope::Gpu);
        let claim = [Operand::Imm(0), CLAIMED.into()];
        let before = self.b.atom(AtomOp::Cas, Ty::B32, Space::Global, order, &place(NoteField::State), &claim);
        let taken = self.b.setp(Cmp::Ne, Ty::U32, before, 0);
        self.b.bra_if(taken, false, done, false);
        let site = self.report.assertions.len() as u32;
        self.b.st(Space::Global, Ty::B32, &place(NoteField::Site), site, plain);
        for (axis, special) in [Special::CtaIdX, Special::CtaIdY, Special::CtaIdZ].into_iter().enumerate() {
            let block = self.b.special(special);
            self.b.st(Space::Global, Ty::B32, &place(NoteField::Block(axis)), block, plain);
        }
        self.b.st(Space::Global, Ty::B32, &place(NoteField::Element), element, plain);
        for (index, &(value, dtype)) in values.iter().enumerate() {
            let value = match value.class {
                RegClass::Pred => self.b.pred_to_int(value),
                _ => value.into(),
            };
            let ty = if dtype == DType::I1 { Ty::B32 } else { note_ty(dtype) };
            self.b.st(Space::Global, ty, &place(NoteField::Value(index)), value, plain);
        }
        self.b.fence(Sem::AcqRel, Scope::Sys);
        let relaxed = MemMods { sem: Sem::Relaxed, scope: Scope::Sys, ..plain };
        self.b.st(Space::Global, Ty::B32, &place(NoteField::State), COMPLETE, relaxed);
    }
}

/// Returns the type of a store of the complete register: elements are in its low bits.
fn note_ty(dtype: DType) -> Ty {
    match repr::class(dtype) {
        RegClass::B64 => Ty::B64,
        RegClass::F64 => Ty::F64,
        RegClass::F32 => Ty::F32,
        RegClass::B16 => Ty::B16,
        RegClass::B32 | RegClass::Pred => Ty::B32,
    }
}
