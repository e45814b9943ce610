//! Typed PTX builder: the only module that creates instructions.
//!
//! Methods check register classes, fold constants and return fresh registers. A wrong class is a
//! defect of the caller and panics. Methods named `*_to` write an existing register, as
//! loop-carried values require. A constant stays an [`Operand`] until an instruction needs it in a
//! register. [`Builder::bitcast`] to a class of the same width is free.
//!
//! The builder does not depend on ops, tiles or layouts.

mod arith;
mod bit_fields;
mod byte_fields;
mod bytes;
pub(in crate::backend::ptx) mod fold;
mod hoist_invariant;
mod hopper;
mod known_bits;
mod memory;
mod pack;
mod vprintf;
mod warp;

#[cfg(test)]
mod tests;

use super::emit::{Function, Param};
use super::inst::*;
use crate::target::Target;
use crate::util::collect::CollectVec as _;

pub use bit_fields::FewValues;
pub use hoist_invariant::Invariants;
pub use hopper::LoadRoute;
#[cfg(test)]
pub(crate) use hopper::dropped;

/// Builder of one kernel.
#[derive(Debug)]
pub struct Builder {
    /// The GPU architecture.
    pub target: Target,
    function: Function,
    guard: Option<(Reg, bool)>,
    labels: u32,
    /// Number of the source location of the next instructions.
    loc: u32,
    masked: known_bits::Masked,
    fields: byte_fields::Fields,
    bits: bit_fields::BitFields,
    /// Threads of a consumer group, relative to which thread numbers are: a power of two, or 0.
    pub threads_per_consumer_group: u32,
}

impl Builder {
    /// Makes an empty kernel of this name with `threads` threads per CTA.
    pub fn new(target: Target, name: &str, threads: u32) -> Builder {
        let function = Function { name: name.into(), threads, ..Function::default() };
        Builder {
            target,
            function,
            guard: None,
            labels: 0,
            loc: 0,
            masked: known_bits::Masked::default(),
            fields: byte_fields::Fields::default(),
            bits: bit_fields::BitFields::default(),
            threads_per_consumer_group: 0,
        }
    }

    /// Returns the directives and the body so far.
    pub fn function(&mut self) -> &mut Function {
        &mut self.function
    }

    /// Returns the finished kernel, for [`super::emit::module`].
    pub fn finish(self) -> Function {
        self.function
    }

    /// Adds an entry parameter and returns its address in parameter space.
    pub fn param(&mut self, param: Param) -> Operand {
        self.function.params.push(param);
        Operand::Param(self.function.params.len() as u32 - 1)
    }

    /// Returns a register that has not been written.
    pub fn fresh(&mut self, class: RegClass) -> Reg {
        let bank = match class.bits() {
            1 => 0,
            16 => 1,
            32 => 2,
            _ => 3,
        };
        let id = self.function.registers[bank];
        self.function.registers[bank] += 1;
        Reg { class, id }
    }

    /// Returns `count` fresh registers.
    pub fn fresh_vec(&mut self, class: RegClass, count: usize) -> Vec<Reg> {
        (0..count).map(|_| self.fresh(class)).collect_vec()
    }

    /// Returns the number of instructions and other lines so far.
    pub fn num_lines(&self) -> usize {
        self.function.lines.len()
    }

    /// Returns the lines from number `start` on.
    pub fn lines_from(&self, start: usize) -> &[Line] {
        &self.function.lines[start..]
    }

    /// Emits `.pragma "text";`.
    pub fn pragma(&mut self, text: &'static str) {
        self.function.lines.push(Line::Pragma(text));
    }

    /// Appends an instruction unchanged (with the current guard).
    pub fn push(&mut self, op: Opcode, dsts: Vec<Arg>, srcs: Vec<Arg>) {
        self.masked.forget_written(&dsts);
        self.fields.forget_written(&dsts);
        self.bits.forget_written(&dsts);
        self.function.lines.push(Line::Inst(Inst { guard: self.guard, op, dsts, srcs, loc: self.loc }));
    }

    /// Sets the number of the source location of the next instructions, and returns the previous
    /// one. The number 0, an unknown location, has no effect.
    pub fn set_loc(&mut self, loc: u32) -> u32 {
        let before = self.loc;
        if loc != 0 {
            self.loc = loc;
        }
        before
    }

    /// Returns the number of the source location of the next instructions.
    pub fn loc(&self) -> u32 {
        self.loc
    }

    /// Calls `body` with every instruction guarded by `pred` (or its negation). Guards do not nest.
    /// Registers written under a guard keep their previous value if the guard is false.
    pub fn guarded<T>(&mut self, pred: Reg, negated: bool, body: impl FnOnce(&mut Builder) -> T) -> T {
        assert_eq!(pred.class, RegClass::Pred, "guard");
        assert!(self.guard.is_none(), "guards do not nest");
        self.guard = Some((pred, negated));
        let result = body(self);
        self.guard = None;
        result
    }

    /// Calls [`Builder::guarded`] if there is a guard.
    pub fn guarded_if<T>(&mut self, pred: Option<Reg>, body: impl FnOnce(&mut Builder) -> T) -> T {
        match pred {
            Some(pred) => self.guarded(pred, false, body),
            None => body(self),
        }
    }

    /// Returns true if the next instruction is guarded.
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    // Operands.

    /// Returns `operand` in a form that an instruction of type `ty` accepts: a constant if PTX
    /// allows it, otherwise a register of the right class.
    pub(crate) fn source(&mut self, operand: impl Into<Operand>, ty: Ty) -> Operand {
        let operand = recast(operand.into(), ty);
        match operand {
            Operand::Reg(reg) => {
                assert_eq!(reg.class, ty.class(), "class of {reg} as {ty}");
                operand
            }
            Operand::Imm(_) if ty.is_int() => operand,
            Operand::F32(_) | Operand::F64(_) => operand,
            _ => self.reg(operand, ty.class()).into(),
        }
    }

    /// Returns `operand` in a register of this class; emits a `mov` for a constant or special
    /// register.
    pub fn reg(&mut self, operand: impl Into<Operand>, class: RegClass) -> Reg {
        let operand = operand.into();
        if let Operand::Reg(reg) = operand {
            assert_eq!(reg.class, class, "class of {reg}");
            return reg;
        }
        let dst = self.fresh(class);
        self.mov_to(dst, operand);
        dst
    }

    /// Emits inline PTX of the user on registers; see [`Opcode::Inline`].
    pub fn inline(&mut self, text: &'static str, class: RegClass, operands: Vec<Reg>) -> Reg {
        let dst = self.fresh(class);
        let srcs = operands.into_iter().map(|reg| Arg::One(reg.into())).collect_vec();
        self.push(Opcode::Inline(text), vec![Arg::One(dst.into())], srcs);
        dst
    }

    /// Returns all operands in registers of this class.
    pub fn regs(&mut self, operands: &[Operand], class: RegClass) -> Vec<Reg> {
        operands.iter().map(|&x| self.reg(x, class)).collect_vec()
    }

    /// Returns the same bits as another class of the same width, without an instruction.
    pub fn bitcast(&mut self, operand: impl Into<Operand>, class: RegClass) -> Operand {
        match operand.into() {
            Operand::Reg(reg) => reg.as_class(class).into(),
            Operand::Imm(bits) if class == RegClass::F32 => Operand::F32(f32::from_bits(bits as u32)),
            Operand::Imm(bits) if class == RegClass::F64 => Operand::F64(f64::from_bits(bits as u64)),
            Operand::F32(value) if class == RegClass::B32 => Operand::Imm(i64::from(value.to_bits() as i32)),
            Operand::F64(value) if class == RegClass::B64 => Operand::Imm(value.to_bits() as i64),
            other => other,
        }
    }

    // Moves.

    /// Emits `dst = src`, into a register that may have been written before.
    pub fn mov_to(&mut self, dst: Reg, src: impl Into<Operand>) {
        self.mov_of(dst, src.into());
    }

    fn mov_of(&mut self, dst: Reg, src: Operand) {
        let src = self.bitcast_constant(src, dst.class);
        if src == Operand::Reg(dst) {
            return;
        }
        match (dst.class, src) {
            // `mov.pred` of a constant is emitted as an integer test, since PTX has no predicate
            // constants.
            (RegClass::Pred, Operand::Imm(value)) => {
                let op = Opcode::Setp { cmp: if value & 1 == 1 { Cmp::Eq } else { Cmp::Ne }, ty: Ty::U32, ftz: false };
                self.push(op, vec![dst.into()], vec![Operand::Imm(0).into(), Operand::Imm(0).into()]);
            }
            (class, src) => {
                if let Operand::Reg(reg) = src {
                    assert_eq!(reg.class, class, "mov of {reg} to {dst}");
                }
                let ty = match (class, src) {
                    (_, Operand::Special(special)) => special.ty(),
                    (RegClass::Pred, _) => Ty::Pred,
                    (RegClass::B16, _) => Ty::B16,
                    (RegClass::B32, _) => Ty::B32,
                    (RegClass::B64, _) => Ty::B64,
                    (RegClass::F32, _) => Ty::F32,
                    (RegClass::F64, _) => Ty::F64,
                };
                self.push(Opcode::Mov(ty), vec![dst.into()], vec![src.into()]);
            }
        }
    }

    /// Copies an operand into a fresh register.
    pub fn copy(&mut self, src: impl Into<Operand>, class: RegClass) -> Reg {
        let dst = self.fresh(class);
        self.mov_to(dst, src);
        dst
    }

    /// Converts integer constants to floats of the same bits and back, according to the class.
    fn bitcast_constant(&mut self, operand: Operand, class: RegClass) -> Operand {
        match operand {
            Operand::Imm(_) | Operand::F32(_) | Operand::F64(_) => self.bitcast(operand, class),
            other => other,
        }
    }

    /// Adds a constant array to the module and returns its address (B64, constant space).
    pub fn table(&mut self, table: &'static Table) -> Reg {
        if !self.function.tables.contains(&table) {
            self.function.tables.push(table);
        }
        self.copy(Operand::Table(table), RegClass::B64)
    }

    // Control flow.

    /// Returns a label without a line, for a later [`Builder::emit_label`].
    pub fn new_label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Emits the label at the current line.
    pub fn emit_label(&mut self, label: Label) {
        self.masked = known_bits::Masked::default();
        self.bits = bit_fields::BitFields::default();
        self.function.lines.push(Line::Label(label));
    }

    /// Jumps; `uniform` asserts that all threads of the warp take the same branch.
    pub fn bra(&mut self, label: Label, uniform: bool) {
        self.push(Opcode::Bra { uniform }, vec![], vec![Arg::Label(label)]);
    }

    /// Jumps if `pred` is true (negated: false).
    pub fn bra_if(&mut self, pred: Reg, negated: bool, label: Label, uniform: bool) {
        self.guarded(pred, negated, |b| b.bra(label, uniform));
    }

    /// Executes `body` unless `pred` (negated: `!pred`) is true for this thread.
    pub fn skip_if(&mut self, pred: Reg, negated: bool, body: impl FnOnce(&mut Builder)) {
        let end = self.new_label();
        self.bra_if(pred, negated, end, false);
        body(self);
        self.emit_label(end);
    }

    /// Emits `ret`.
    pub fn ret(&mut self) {
        self.push(Opcode::Ret, vec![], vec![]);
    }
}

/// Converts constants to bit patterns or floats, as an instruction of type `ty` requires.
fn recast(operand: Operand, ty: Ty) -> Operand {
    match (operand, ty.class()) {
        (Operand::Imm(bits), RegClass::F32) => Operand::F32(f32::from_bits(bits as u32)),
        (Operand::Imm(bits), RegClass::F64) => Operand::F64(f64::from_bits(bits as u64)),
        (Operand::F32(value), RegClass::B32) => value.to_bits().into(),
        (Operand::F64(value), RegClass::B64) => Operand::Imm(value.to_bits() as i64),
        (other, _) => other,
    }
}
