//! 16-bit atomics by compare-and-swap, for modes without an instruction. Each thread has its own
//! loop.

use crate::backend::ptx::isa::inst::{
    Addr, AtomOp, Cmp, CvtRound, FloatMods, FloatOp, MemMods, Operand, Reg, RegClass, Scope, Sem, Ty,
};
use crate::backend::ptx::lower::Lowering;
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::AtomicMode;

/// First target with scalar additions of bf16.
const BF16_ADDITIONS: u32 = 90;

impl Lowering<'_> {
    /// Returns true if atomics on this type need a compare-and-swap loop.
    pub fn needs_cas_loop(&self, dtype: DType) -> bool {
        dtype == DType::I16 || (dtype == DType::BF16 && self.b.target.arch < BF16_ADDITIONS)
    }

    /// Emits a relaxed atomic as loop. Returns the old value, or 0 if the guard is false.
    pub fn cas_loop(
        &mut self,
        mode: AtomicMode,
        dtype: DType,
        scope: Scope,
        addr: &Addr,
        guard: Option<Reg>,
        value: Operand,
    ) -> Operand {
        let (again, done) = (self.b.new_label(), self.b.new_label());
        let result = self.b.copy(Operand::Imm(0), RegClass::B16);
        if let Some(guard) = guard {
            self.b.bra_if(guard, true, done, false);
        }
        let value = self.widened(mode, value);
        let mods = MemMods { sem: Sem::Relaxed, scope, ..MemMods::default() };
        self.b.ld_to(&[result], self.smem.data_space, Ty::B16, addr, mods, None);
        self.b.emit_label(again);
        let old = self.b.copy(result, RegClass::B16);
        let new = self.updated(mode, old, value);
        let order = (Sem::Relaxed, scope);
        self.b.atom_to(result, AtomOp::Cas, Ty::B16, self.smem.data_space, order, addr, &[old.into(), new]);
        let words = [old, result].map(|half| self.b.pack(half, Operand::Imm(0)));
        let changed = self.b.setp(Cmp::Ne, Ty::B32, words[0], words[1]);
        self.b.bra_if(changed, false, again, false);
        self.b.emit_label(done);
        match repr::class(dtype) {
            RegClass::B16 => result.into(),
            _ => repr::to_word(&mut self.b, DType::F16, result.into()),
        }
    }

    /// Converts the operand to the type of the computation: f32, or a 32-bit integer with the sign
    /// that the mode reads.
    fn widened(&mut self, mode: AtomicMode, value: Operand) -> Operand {
        match mode {
            AtomicMode::AddF => self.b.cvt(Ty::F32, Ty::BF16, CvtRound::None, value),
            AtomicMode::Max | AtomicMode::Min => repr::sign_extended(&mut self.b, DType::I16, value),
            _ => value,
        }
    }

    /// Computes the new value from the old one.
    fn updated(&mut self, mode: AtomicMode, old: Reg, value: Operand) -> Operand {
        if mode == AtomicMode::AddF {
            let wide = self.b.cvt(Ty::F32, Ty::BF16, CvtRound::None, old);
            let sum = self.b.float(FloatOp::Add, Ty::F32, FloatMods::RN, &[wide, value]);
            return self.b.cvt(Ty::BF16, Ty::F32, CvtRound::Rn, sum);
        }
        let old = repr::to_word(&mut self.b, DType::F16, old.into());
        let old = self.widened(mode, old);
        let new = match mode {
            AtomicMode::Max => self.b.max(Ty::S32, old, value),
            AtomicMode::Min => self.b.min(Ty::S32, old, value),
            AtomicMode::UMax => self.b.max(Ty::U32, old, value),
            _ => self.b.min(Ty::U32, old, value),
        };
        repr::from_word(&mut self.b, DType::F16, new, 0)
    }
}
