//! Device asserts: a thread with a false element writes a note with the values of the message.
//!
//! No thread waits for another one, so nothing here is uniform: the first thread that claims the
//! note writes it.

use crate::backend::ptx::device_assert::{Assertion, NoteField};
use crate::backend::ptx::isa::inst::{
    Addr, AtomOp, Cmp, MemMods, Operand, Reg, RegClass, Scope, Sem, Space, Special, Ty,
};
use crate::backend::ptx::layout_inference::thread_bases;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId};

/// States of a note.
const CLAIMED: u32 = 1;
const COMPLETE: u32 = 2;

impl Lowering<'_> {
    /// Lowers `assert`.
    pub fn assert(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (condition, args) = (op.group(0)[0], op.group(1));
        // A condition that is always true has no requirements.
        if self.values.operands.is_empty() {
            return Ok(());
        }
        let Tile { layout, regs: holds } = self.operand()?;
        // Values are materialized before the branch, because conversions may need all threads.
        let mut values = self.operands()?;
        for (regs, _) in values.iter_mut().zip(args).filter(|(_, arg)| self.info.inference.num_elements(**arg) == 1) {
            *regs = vec![regs[0]; holds.len()].into();
        }
        let thread = self.linear_in_thread(&thread_bases(&layout));
        let all = self.all_true(&holds);
        let done = self.b.new_label();
        self.b.bra_if(all, false, done, false);
        // The first false element of this thread, and the values of the message for it.
        let first = self.b.fresh(RegClass::B32);
        let shown: Vec<Reg> = args.iter().map(|&arg| self.b.fresh(repr::class(self.info.element_type(arg)))).collect();
        for (register, &hold) in holds.iter().enumerate().rev() {
            let hold = self.b.reg(hold, RegClass::Pred);
            let offset = layout.element(register, 0, 0);
            self.b.guarded(hold, true, |b| b.mov_to(first, offset));
            for (values, &shown) in values.iter().zip(&shown) {
                let value = self.b.reg(values[register], shown.class);
                self.b.guarded(hold, true, |b| b.mov_to(shown, value));
            }
        }
        let element = self.b.xor(Ty::B32, thread, first);
        let dtypes: Vec<DType> = args.iter().map(|&arg| self.info.element_type(arg)).collect();
        let shown: Vec<(Reg, DType)> = shown.into_iter().zip(dtypes.iter().copied()).collect();
        self.write_note(element, &shown, done)?;
        self.b.place(done);
        self.b.bar_warp_sync();
        let message = match op.attr(AttrKind::Text) {
            Some(Attr::Text(text)) => text.to_string().into(),
            _ => "".into(),
        };
        let location = self.module.location(op.loc).cloned();
        let shape = self.module.shape(condition).to_vec();
        self.report.assertions.push(Assertion { message, location, values: dtypes, shape });
        Ok(())
    }

    fn all_true(&mut self, holds: &[Operand]) -> Reg {
        let mut all = self.b.reg(holds[0], RegClass::Pred);
        for &hold in &holds[1..] {
            let hold = self.b.reg(hold, RegClass::Pred);
            all = self.b.and(Ty::Pred, all, hold).reg();
        }
        all
    }

    /// Claims the note, unless another thread has claimed it, and writes it.
    fn write_note(
        &mut self,
        element: Operand,
        values: &[(Reg, DType)],
        done: crate::backend::ptx::isa::inst::Label,
    ) -> Lowered {
        let parameter = self.params.assert_note.ok_or("an assertion in a kernel without a note")?;
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
        Ok(())
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
