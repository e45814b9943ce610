//! Elementwise ops: the scalar sequence once for each slot, pairs of halves packed.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::{Operand, RegClass};
use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::scalar::{self, ScalarTypes, repr};
use crate::dtype::DType;
use crate::ir::{OpId, Opcode, Rounding};
use crate::layout::Layout;

impl Lowering<'_> {
    /// A concrete elementwise op, in its own layout; a free one waits until it is asked for.
    pub fn elementwise(&mut self, id: OpId) -> Lowered {
        let result = self.module.op(id).results[0];
        if self.context.inference.source(result) == ValueOrigin::Rematerialized {
            return Ok(());
        }
        let layout = match self.context.inference.layout(result) {
            Some(layout) => layout.clone(),
            None => Layout::replicated(self.module.shape(result), self.context.inference.num_warps),
        };
        let slots = self.elementwise_slots(id, &layout)?;
        self.tiles[result.index()] = Some(Tile { layout, slots });
        Ok(())
    }

    /// The slots of an elementwise op in this layout.
    pub fn elementwise_slots(&mut self, id: OpId, layout: &Layout) -> Lowered<Rc<[Operand]>> {
        let mut operands = Vec::with_capacity(3);
        for &operand in &self.module.op(id).operands {
            operands.push(self.get(operand, layout)?);
        }
        let operands: Vec<&[Operand]> = operands.iter().map(|slots| &slots[..]).collect();
        Ok(self.apply(id, &operands, layout.num_registers())?.into())
    }

    /// An elementwise op on `count` slots of its operands. Slots with equal operands share a result.
    pub fn apply(&mut self, id: OpId, operands: &[&[Operand]], count: usize) -> Lowered<Vec<Operand>> {
        let op = self.module.op(id);
        if op.code == Opcode::Offset {
            return self.offset(id, operands, count);
        }
        let dtypes: Vec<DType> = op.operands.iter().map(|&v| self.context.element_type(v)).collect();
        let types = ScalarTypes { operands: &dtypes, result: self.context.element_type(op.results[0]) };
        let mut known: HashMap<Vec<OperandKey>, Operand> = HashMap::new();
        let mut slots: Vec<Operand> = Vec::with_capacity(count);
        let args = |slot: usize| -> Vec<Operand> { operands.iter().map(|slots| slots[slot]).collect() };
        for slot in 0..count {
            let key = OperandKey::list(&args(slot));
            if !known.contains_key(&key) {
                let next = (slot + 1 < count).then(|| args(slot + 1));
                let next = next.filter(|next| !known.contains_key(&OperandKey::list(next)));
                match next.and_then(|next| Some((self.apply_pair(id, types, &args(slot), &next)?, next))) {
                    Some(((first, second), next)) => {
                        known.insert(OperandKey::list(&next), second);
                        known.insert(key.clone(), first);
                    }
                    None => {
                        let value = scalar::lower(&mut self.b, op, types, &args(slot)).map_err(|e| e.0)?;
                        known.insert(key.clone(), value);
                    }
                }
            }
            slots.push(known[&key]);
        }
        Ok(slots)
    }

    /// Two elements at once, where halves have a packed form.
    fn apply_pair(
        &mut self,
        id: OpId,
        types: ScalarTypes<'_>,
        first: &[Operand],
        second: &[Operand],
    ) -> Option<(Operand, Operand)> {
        let op = self.module.op(id);
        let dtype = types.result;
        if op.code == Opcode::FToF && op.rounding() == Rounding::NearestEven && types.operands == [DType::F32] {
            // The assembler follows packed conversions of accumulators past a branch, single ones it does not.
            let registers = matches!((first[0], second[0]), (Operand::Reg(_), Operand::Reg(_)));
            if registers && dtype.storage_bits() == 8 {
                let codes = scalar::f16x2::narrow_bytes(&mut self.b, dtype, first[0], second[0])?;
                return Some((codes[0], codes[1]));
            }
            let word = registers.then(|| scalar::f16x2::narrow(&mut self.b, dtype, first[0], second[0]))??;
            let halves = repr::unpack_word(&mut self.b, dtype, word);
            return Some((halves[0], halves[1]));
        }
        if repr::class(dtype) != RegClass::B16 || types.operands.iter().any(|&other| other != dtype) {
            return None;
        }
        if !scalar::f16x2::exists(op, dtype) {
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
}

/// An operand by its bits, to be a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum OperandKey {
    Imm(i64),
    Float(u64),
    Other(u8, u64),
}

impl OperandKey {
    fn list(operands: &[Operand]) -> Vec<OperandKey> {
        operands.iter().map(|&operand| OperandKey::of(operand)).collect()
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
