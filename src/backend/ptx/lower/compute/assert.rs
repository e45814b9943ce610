//! Device asserts: a thread with a false element writes a note with the values of the message.
//!
//! No thread waits for another one, so nothing here is uniform: the first thread that claims the
//! note writes it.

use crate::backend::ptx::device_assert::Assertion;
use crate::backend::ptx::isa::inst::{Operand, Reg, RegClass, Ty};
use crate::backend::ptx::layout_inference::thread_bases;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId};
use crate::util::collect::CollectVec as _;

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
        let shown: Vec<Reg> =
            args.iter().map(|&arg| self.b.fresh(repr::class(self.info.element_type(arg)))).collect_vec();
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
        let dtypes: Vec<DType> = args.iter().map(|&arg| self.info.element_type(arg)).collect_vec();
        let shown: Vec<(Reg, DType)> = shown.into_iter().zip(dtypes.iter().copied()).collect_vec();
        let parameter = self.params.assert_note.ok_or("an assertion in a kernel without a note")?;
        self.write_note(parameter, element, &shown, done);
        self.b.emit_label(done);
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
}
