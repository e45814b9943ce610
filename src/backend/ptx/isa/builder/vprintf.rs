//! Calls of the driver's `vprintf` (CUDA).

use super::super::inst::*;
use super::Builder;

impl Builder {
    /// Adds a format to the module and returns its generic address.
    pub fn text(&mut self, text: &str) -> Reg {
        let texts = &mut self.function().texts;
        let index = texts.iter().position(|known| known == text).unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        });
        let raw = self.copy(Operand::Text(index as u32), RegClass::B64);
        let dst = self.fresh(RegClass::B64);
        self.push(Opcode::CvtaFromGlobal, vec![dst.into()], vec![raw.into()]);
        dst
    }

    /// Prints values (B32, B64, F64) in a format (a generic address). The values are consecutive in
    /// memory, each at a multiple of its size.
    ///
    /// # Panics
    /// Under a guard, which a call cannot have.
    pub fn printf(&mut self, text: Reg, values: &[Operand]) {
        assert!(!self.is_guarded(), "a call is guarded");
        let mut end = 0;
        for &value in values {
            let (ty, bytes) = match value {
                Operand::Reg(reg) if reg.class.bits() == 32 => (Ty::B32, 4),
                Operand::Reg(reg) if reg.class == RegClass::F64 => (Ty::F64, 8),
                Operand::F64(_) => (Ty::F64, 8),
                Operand::Reg(_) => (Ty::B64, 8),
                other => panic!("{other:?} has no width"),
            };
            end = (end + bytes - 1) / bytes * bytes;
            self.st(Space::Local, ty, &Addr::new(Operand::Frame, end), value, MemMods::default());
            end += bytes;
        }
        let function = self.function();
        // An empty frame has no address.
        function.frame_bytes = function.frame_bytes.max(end.max(8) as u32);
        let raw = self.copy(Operand::Frame, RegClass::B64);
        let generic = self.fresh(RegClass::B64);
        self.push(Opcode::CvtaFromLocal, vec![generic.into()], vec![raw.into()]);
        self.push(Opcode::Printf, vec![], vec![text.into(), generic.into()]);
    }
}
