//! Waits with a time limit (`Hints::wait_limit`), and the note of failures that the host reads.
//!
//! A wait for a barrier, and a loop that waits for other tile blocks, reads the global timer. A
//! wait beyond the limit writes a record and ends its thread. Warps that wait for an ended warp
//! reach their own limits. So the kernel ends, and the context remains usable.
//!
//! Records ([`RecordField`]): each warp of the tile block that reports first has one, so that the
//! report has both sides of a deadlock. Other tile blocks have one for each wait in the code. The
//! first thread that claims a record writes it. So does a failed assertion ([`NoteField`]).

use crate::backend::ptx::device_assert::{
    BLOCK_MARK, HangField, NoteField, RECORD_WORDS, RecordField, SITE_RECORDS, WARP_RECORDS, WaitObject, WaitSite,
    assertion_word,
};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::builder::Builder;
use crate::backend::ptx::isa::inst::{
    Addr, AtomOp, Cmp, Label, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty,
};
use crate::backend::ptx::lower::state::core::Lowering;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::WarpRole;
use crate::dtype::DType;
use crate::error::{Location, WaitRole};
use crate::ir::op_table::Effect;
use crate::ir::{BlockId, MemOrder, OpId};

/// States of a note and of a record.
const CLAIMED: u32 = 1;
const COMPLETE: u32 = 2;

/// Nanoseconds of a millisecond.
const MILLISECOND: i64 = 1_000_000;

/// Order of atomics on a note.
const ORDER: (Sem, Scope) = (Sem::Relaxed, Scope::Gpu);

/// A wait that is emitted: its object, the user's source location, and the values of its record.
pub struct LimitedWait<'a> {
    pub step: &'a str,
    pub object: WaitObject,
    pub location: Option<Location>,
    pub values: [Operand; 2],
}

impl Lowering<'_> {
    /// Waits until the phase of an mbarrier with this parity is complete. `op`: the op that needs
    /// it; `step`: the step of the schedule and the barrier, for the report.
    pub fn wait_for_phase(&mut self, bar: &Addr, parity: impl Into<Operand>, op: Option<OpId>, step: &str) {
        let parity = parity.into();
        if self.info.options.wait_limit.is_none() {
            return self.b.mbarrier_wait(bar, parity);
        }
        let parity = self.b.reg(parity, RegClass::B32);
        let at = self.b.add(Ty::U32, bar.base, bar.offset as u32);
        let shared = self.b.reg(Operand::Smem, RegClass::B32);
        let at = self.b.sub(Ty::U32, at, shared);
        let location = self.location_of(op);
        let wait = LimitedWait { step, object: WaitObject::Mbarrier, location, values: [parity.into(), at] };
        self.wait_within(wait, |b, seen| b.mbarrier_test(seen, bar, parity));
    }

    /// Emits a loop that tests a condition until it is true or the limit is over. `test` sets a
    /// predicate.
    pub fn wait_within(&mut self, wait: LimitedWait<'_>, test: impl FnOnce(&mut Builder, Reg)) {
        let limit = self.info.options.wait_limit.expect("a limit");
        let start = self.b.special(Special::GlobalTimer);
        let (again, done) = (self.b.new_label(), self.b.new_label());
        self.b.emit_label(again);
        let seen = self.b.fresh(RegClass::Pred);
        test(&mut self.b, seen);
        self.b.bra_if(seen, false, done, false);
        self.bra_within(start, limit, again);
        self.end_hung(wait);
        self.b.emit_label(done);
    }

    fn location_of(&self, op: Option<OpId>) -> Option<Location> {
        op.and_then(|op| self.module.location(self.module.op(op).loc).cloned())
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
        let step = "a loop around this access, which waits for another tile block";
        let location = self.location_of(Some(access));
        self.end_hung(LimitedWait { step, object: WaitObject::Memory, location, values: [Operand::Imm(0); 2] });
        self.b.emit_label(within);
    }

    /// Jumps to a label if the limit after `start` is not over.
    fn bra_within(&mut self, start: Operand, limit: u32, label: Label) {
        let now = self.b.special(Special::GlobalTimer);
        let waited = self.b.sub(Ty::U64, now, start);
        let is_over = self.b.setp(Cmp::Gt, Ty::U64, waited, i64::from(limit) * MILLISECOND);
        self.b.bra_if(is_over, true, label, false);
    }

    /// Emits the record of a wait that does not end, and the end of the thread.
    fn end_hung(&mut self, wait: LimitedWait<'_>) {
        let end = self.b.new_label();
        if let Some(parameter) = self.params.assert_note {
            self.write_record(parameter, wait.values, end);
        }
        self.b.emit_label(end);
        if self.sync.multicast().is_some() {
            // The shared memory of a CTA must exist until the other CTA no longer accesses it.
            self.b.cluster_wait_relaxed();
        }
        self.b.ret();
        let role = match self.sync.role {
            WarpRole::All => WaitRole::All,
            WarpRole::Consumer => WaitRole::Consumer,
            WarpRole::Producer => WaitRole::Producer,
        };
        let LimitedWait { step, object, location, .. } = wait;
        self.report.waits.push(WaitSite { step: step.into(), role, object, location });
    }

    /// Claims and writes a record of the note at the address in a parameter. Jumps to `done` if it
    /// has been claimed. The site is the next one of the report.
    fn write_record(&mut self, parameter: Operand, values: [Operand; 2], done: Label) {
        let plain = MemMods::default();
        let site = self.report.waits.len() as u32;
        let note = self.note(parameter, done);
        let word = |field: HangField| Addr::new(note, 4 * field.word() as i64);
        let block = [Special::CtaIdX, Special::CtaIdY, Special::CtaIdZ].map(|axis| self.b.special(axis));
        let [columns, rows] = [Special::NCtaIdX, Special::NCtaIdY].map(|axis| self.b.special(axis));
        let row = self.b.mad(Ty::U32, block[2], rows, block[1]);
        let linear = self.b.mad(Ty::U32, row, columns, block[0]);
        let own = self.b.or(Ty::B32, linear, BLOCK_MARK);
        let own = self.b.reg(own, RegClass::B32);
        let claim = [Operand::Imm(0), own.into()];
        let first = self.b.atom(AtomOp::Cas, Ty::B32, Space::Global, ORDER, &word(HangField::Block), &claim);
        let is_free = self.b.setp(Cmp::Eq, Ty::U32, first, 0);
        let is_own = self.b.setp(Cmp::Eq, Ty::U32, first, own);
        let is_own = self.b.or(Ty::Pred, is_free, is_own);
        // The number among all warps of the CTA, also in a consumer group.
        let thread = self.b.copy(Operand::Special(Special::TidX), RegClass::B32);
        let warp = self.b.shr(Ty::U32, thread, WARP_SIZE.trailing_zeros());
        let other = WARP_RECORDS + site % SITE_RECORDS;
        let slot = self.b.select(RegClass::B32, is_own, warp, other);
        let slot = self.b.reg(slot, RegClass::B32);
        let record = self.b.mad_wide(Ty::U32, slot, 4 * RECORD_WORDS as u32, note);
        let first_word = HangField::Record(0).word();
        let field = |field: RecordField| Addr::new(record, 4 * (first_word + field.word()) as i64);
        let claim = [Operand::Imm(0), CLAIMED.into()];
        let before = self.b.atom(AtomOp::Cas, Ty::B32, Space::Global, ORDER, &field(RecordField::State), &claim);
        let taken = self.b.setp(Cmp::Ne, Ty::U32, before, 0);
        self.b.bra_if(taken, false, done, false);
        let order =
            self.b.atom(AtomOp::Add, Ty::U32, Space::Global, ORDER, &word(HangField::Count), &[Operand::Imm(1)]);
        let mut words =
            vec![(RecordField::Site, site.into()), (RecordField::Warp, warp), (RecordField::Order, order.into())];
        words.extend(block.into_iter().enumerate().map(|(axis, block)| (RecordField::Block(axis), block)));
        words.extend(values.into_iter().enumerate().map(|(index, value)| (RecordField::Value(index), value)));
        for (name, value) in words {
            let value = self.b.reg(value, RegClass::B32);
            self.b.st(Space::Global, Ty::B32, &field(name), value, plain);
        }
        self.complete(&field(RecordField::State));
    }

    /// Returns the address of the note in a parameter. Jumps to `done` if it is 0.
    fn note(&mut self, parameter: Operand, done: Label) -> Reg {
        let note = self.b.ld(Space::Param, Ty::U64, &parameter.into(), MemMods::default());
        let is_unreported = self.b.setp(Cmp::Eq, Ty::U64, note, 0i64);
        self.b.bra_if(is_unreported, false, done, false);
        note
    }

    /// Marks a note or record as complete, after its other words.
    fn complete(&mut self, state: &Addr) {
        self.b.fence(Sem::AcqRel, Scope::Sys);
        let relaxed = MemMods { sem: Sem::Relaxed, scope: Scope::Sys, ..MemMods::default() };
        self.b.st(Space::Global, Ty::B32, state, COMPLETE, relaxed);
    }

    /// Claims the note at the address in a parameter, unless another thread has claimed it, and
    /// writes it. Jumps to `done` otherwise. The assertion is the next one of the report.
    pub fn write_note(&mut self, parameter: Operand, element: Operand, values: &[(Reg, DType)], done: Label) {
        let plain = MemMods::default();
        let note = self.note(parameter, done);
        let first_word = assertion_word(self.info.options.wait_limit);
        let field_address = |field: NoteField| Addr::new(note, 4 * (first_word + field.word()) as i64);
        let claim = [Operand::Imm(0), CLAIMED.into()];
        let before = self.b.atom(AtomOp::Cas, Ty::B32, Space::Global, ORDER, &field_address(NoteField::State), &claim);
        let taken = self.b.setp(Cmp::Ne, Ty::U32, before, 0);
        self.b.bra_if(taken, false, done, false);
        let site = self.report.assertions.len() as u32;
        self.b.st(Space::Global, Ty::B32, &field_address(NoteField::Site), site, plain);
        for (axis, special) in [Special::CtaIdX, Special::CtaIdY, Special::CtaIdZ].into_iter().enumerate() {
            let block = self.b.special(special);
            self.b.st(Space::Global, Ty::B32, &field_address(NoteField::Block(axis)), block, plain);
        }
        self.b.st(Space::Global, Ty::B32, &field_address(NoteField::Element), element, plain);
        for (index, &(value, dtype)) in values.iter().enumerate() {
            let value = match value.class {
                RegClass::Pred => self.b.pred_to_int(value),
                _ => value.into(),
            };
            let ty = if dtype == DType::I1 { Ty::B32 } else { note_ty(dtype) };
            self.b.st(Space::Global, ty, &field_address(NoteField::Value(index)), value, plain);
        }
        self.complete(&field_address(NoteField::State));
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
