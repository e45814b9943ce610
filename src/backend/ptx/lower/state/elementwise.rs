//! Elementwise ops: the scalar sequence for each register, packed f16x2 where possible.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;
use std::rc::Rc;

use super::core::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{CvtMods, Operand, RegClass, Ty};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::scalar::{self, ScalarTypes, repr};
use crate::dtype::DType;
use crate::ir::{Elem, Flag, OpId, Opcode, Rounding, Type};

/// Minimum number of quotients by one divisor with a common reciprocal. Fewer quotients do not save
/// the instructions that test the range. The number is an estimate, not a measurement.
const MIN_QUOTIENTS: usize = 4;

impl Lowering<'_> {
    /// Lowers an elementwise op on `count` registers of its operands. Equal operands share a
    /// result.
    pub fn apply(&mut self, id: OpId, operands: &[Rc<[Operand]>], count: usize) -> Lowered<Vec<Operand>> {
        let op = self.module.op(id);
        if op.code == Opcode::Offset {
            return self.offset(id, operands, count);
        }
        let dtypes: Vec<DType> = op.operands.iter().map(|&v| self.info.element_type(v)).collect_vec();
        let types = ScalarTypes { operands: &dtypes, result: self.info.element_type(op.results[0]) };
        let mut known: FxHashMap<Vec<OperandKey>, Operand> = FxHashMap::default();
        self.shared_quotients(id, types, operands, &mut known);
        let mut regs: Vec<Operand> = Vec::with_capacity(count);
        let args = |register: usize| -> Vec<Operand> { operands.iter().map(|regs| regs[register]).collect_vec() };
        for register in 0..count {
            let key = OperandKey::list(&args(register));
            if !known.contains_key(&key) {
                let next = (register + 1 < count).then(|| args(register + 1));
                let next = next.filter(|next| !known.contains_key(&OperandKey::list(next)));
                match next.and_then(|next| Some((self.apply_pair(id, types, &args(register), &next)?, next))) {
                    Some(((first, second), next)) => {
                        known.insert(OperandKey::list(&next), second);
                        known.insert(key.clone(), first);
                    }
                    None => {
                        let value = scalar::lower(&mut self.b, op, types, &args(register)).map_err(|e| e.0)?;
                        known.insert(key.clone(), value);
                    }
                }
            }
            regs.push(known[&key]);
        }
        Ok(regs)
    }

    /// Lowers the divisions of an op whose divisor several elements share. `known` receives the
    /// quotients.
    fn shared_quotients(
        &mut self,
        id: OpId,
        types: ScalarTypes<'_>,
        operands: &[Rc<[Operand]>],
        known: &mut FxHashMap<Vec<OperandKey>, Operand>,
    ) {
        let op = self.module.op(id);
        let is_division = op.code == Opcode::DivF
            && types.result == DType::F32
            && op.rounding() == Rounding::NearestEven
            && !op.flag(Flag::FlushToZero);
        // Branches between MMAs and their wait serialize the MMAs.
        let is_possible = !self.b.is_guarded() && self.sync.mmas.in_flight.is_empty();
        if !is_division || !is_possible || !self.info.is_enabled(Optimization::SharedDivisor) {
            return;
        }
        let mut groups: Vec<(Operand, Vec<Operand>)> = Vec::new();
        for (&dividend, &divisor) in operands[0].iter().zip(operands[1].iter()) {
            if !matches!((dividend, divisor), (Operand::Reg(_), Operand::Reg(_))) {
                continue;
            }
            match groups.iter_mut().find(|(other, _)| *other == divisor) {
                Some((_, dividends)) if dividends.contains(&dividend) => {}
                Some((_, dividends)) => dividends.push(dividend),
                None => groups.push((divisor, vec![dividend])),
            }
        }
        for (divisor, dividends) in groups.into_iter().filter(|(_, dividends)| dividends.len() >= MIN_QUOTIENTS) {
            let quotients = scalar::float::quotients(&mut self.b, &dividends, divisor);
            for (dividend, quotient) in dividends.into_iter().zip(quotients) {
                known.insert(OperandKey::list(&[dividend, divisor]), quotient);
            }
        }
    }

    /// Lowers two elements at once, if there is a packed f16x2 form.
    fn apply_pair(
        &mut self,
        id: OpId,
        types: ScalarTypes<'_>,
        first: &[Operand],
        second: &[Operand],
    ) -> Option<(Operand, Operand)> {
        let op = self.module.op(id);
        let dtype = types.result;
        let is_cast =
            matches!(op.code, Opcode::IToF | Opcode::FToF) && self.info.is_enabled(Optimization::PackedHalves);
        if is_cast && let (&[Operand::Reg(_)], &[Operand::Reg(_)], &[from]) = (first, second, types.operands) {
            let bytes = [first[0], second[0]];
            if let Some(word) = scalar::cast::byte_pair(&mut self.b, op, from, dtype, bytes) {
                let halves = repr::unpack_word(&mut self.b, dtype, word);
                return Some((halves[0], halves[1]));
            }
        }
        if op.code == Opcode::FToF && op.rounding() == Rounding::NearestEven && types.operands == [DType::F32] {
            // ptxas tracks packed conversions of accumulators across a branch, but not scalar ones.
            let registers = matches!((first[0], second[0]), (Operand::Reg(_), Operand::Reg(_)));
            if registers && dtype.storage_bits() == 8 {
                let codes = scalar::small_float::encode_pair(&mut self.b, dtype, first[0], second[0])?;
                return Some((codes[0], codes[1]));
            }
            let word = registers.then(|| scalar::f16x2::narrow(&mut self.b, dtype, first[0], second[0]))??;
            let halves = repr::unpack_word(&mut self.b, dtype, word);
            return Some((halves[0], halves[1]));
        }
        if repr::class(dtype) != RegClass::B16 || types.operands.iter().any(|&other| other != dtype) {
            return None;
        }
        if !scalar::f16x2::exists(op, dtype) || !self.info.is_enabled(Optimization::PackedHalves) {
            return None;
        }
        let mut packed = Vec::with_capacity(first.len());
        for (&lo, &hi) in first.iter().zip(second) {
            packed.push(repr::pack_word(&mut self.b, dtype, &[lo, hi]));
        }
        let word = scalar::f16x2::lower(&mut self.b, op, dtype, &packed)?;
        let halves = repr::unpack_word(&mut self.b, dtype, word);
        Some((halves[0], halves[1]))
    }

    /// Lowers `offset`: adds a number of elements to an address.
    fn offset(&mut self, id: OpId, operands: &[Rc<[Operand]>], count: usize) -> Lowered<Vec<Operand>> {
        let op = self.module.op(id);
        let Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } = *self.module.ty(op.results[0]) else {
            return Err("an offset of a number".to_owned());
        };
        let bits = i64::from(pointee.storage_bits());
        let dtype = self.module.dtype(op.operands[1]);
        let mut regs: Vec<Operand> = Vec::with_capacity(count);
        for register in 0..count {
            let (base, offset) = (operands[0][register], operands[1][register]);
            let same = (0..register).rev().take(16).find(|&s| operands[0][s] == base && operands[1][s] == offset);
            if let Some(same) = same {
                regs.push(regs[same]);
                continue;
            }
            let offset = repr::sign_extended(&mut self.b, dtype, offset);
            let bytes = match (dtype, bits) {
                (DType::I64, 8..) => self.b.mul(Ty::S64, offset, bits / 8),
                (DType::I64, _) => self.b.shr(Ty::S64, offset, 1),
                (_, 8) => self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), offset),
                (_, 9..) => self.b.mul_wide(Ty::S32, offset, bits / 8),
                _ => {
                    let half = self.b.shr(Ty::S32, offset, 1);
                    self.b.cvt(Ty::S64, Ty::S32, CvtMods::default(), half)
                }
            };
            regs.push(self.b.add(Ty::S64, base, bytes));
        }
        Ok(regs)
    }
}

/// An operand as a hash key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum OperandKey {
    Imm(i64),
    Float(u64),
    Other(u8, u64),
}

impl OperandKey {
    fn list(operands: &[Operand]) -> Vec<OperandKey> {
        operands.iter().map(|&operand| OperandKey::of(operand)).collect_vec()
    }

    fn of(operand: Operand) -> OperandKey {
        match operand {
            Operand::Imm(value) => OperandKey::Imm(value),
            Operand::F32(value) => OperandKey::Float(u64::from(value.to_bits())),
            Operand::F64(value) => OperandKey::Float(value.to_bits()),
            Operand::Reg(reg) => OperandKey::Other(reg.class.bits() as u8, u64::from(reg.id)),
            Operand::Special(special) => OperandKey::Other(128, special as u64),
            Operand::Smem => OperandKey::Other(129, 0),
            Operand::Param(index) => OperandKey::Other(130, u64::from(index)),
            Operand::Text(index) => OperandKey::Other(132, u64::from(index)),
            Operand::Frame => OperandKey::Other(133, 0),
            Operand::Global(index) => OperandKey::Other(134, u64::from(index)),
            Operand::Table(table) => OperandKey::Other(131, table.name.as_ptr() as u64),
        }
    }
}
