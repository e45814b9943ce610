//! Values that may be negative infinity: a forward analysis of the module before the rewriting.
//!
//! Sources are constants and paddings. Elements of arrays and arguments are finite. The analysis
//! follows sums, products, extrema, selections, movement of elements, loops and branches. Only for
//! these values, the rewritten operations compare with the element of negative infinity.

use crate::ir::{ConstData, Module, OpId, Opcode, Padding, Type, Value};
use crate::types::float_codec;

use super::ring::INFINITE_EXPONENT;

/// Returns, by value, whether an element may be negative infinity.
pub fn may_be_negative_infinity(module: &Module) -> Vec<bool> {
    let mut analysis = Analysis { module, may: vec![false; module.num_values()], has_changed: true };
    while std::mem::take(&mut analysis.has_changed) {
        for entry in &module.entries {
            analysis.block(&module.block(entry.body).ops, None);
        }
    }
    analysis.may
}

struct Analysis<'m> {
    module: &'m Module,
    may: Vec<bool>,
    has_changed: bool,
}

impl Analysis<'_> {
    fn set(&mut self, value: Value, may: bool) {
        if may && !self.may[value.index()] {
            self.may[value.index()] = true;
            self.has_changed = true;
        }
    }

    /// Sets each value of `to` whose counterpart in `from` is set.
    fn flow(&mut self, from: &[Value], to: &[Value]) {
        for (&source, &target) in from.iter().zip(to) {
            self.set(target, self.may[source.index()]);
        }
    }

    fn block(&mut self, ops: &[OpId], enclosing: Option<OpId>) {
        for &id in ops {
            self.op(id, enclosing);
        }
    }

    fn op(&mut self, id: OpId, enclosing: Option<OpId>) {
        let op = self.module.op(id);
        let inner = if op.code.is_loop() { Some(id) } else { enclosing };
        match op.code {
            Opcode::For | Opcode::Loop => {
                let init = &op.operands[if op.code == Opcode::For { 3 } else { 0 }..];
                self.flow(init, self.module.carried_args(id));
                self.flow(init, if op.code == Opcode::For { &op.results } else { &[] });
            }
            Opcode::Continue => {
                let Some(target) = enclosing else { return };
                self.flow(&op.operands, self.module.carried_args(target));
                let target = self.module.op(target);
                self.flow(&op.operands, if target.code == Opcode::For { &target.results } else { &[] });
            }
            Opcode::Break => {
                let Some(target) = enclosing else { return };
                self.flow(&op.operands, &self.module.op(target).results);
            }
            Opcode::Reduce | Opcode::Scan => {
                for (&operand, pair) in op.operands.iter().zip(self.module.block(op.regions[0]).args.chunks(2)) {
                    self.flow(&[operand, operand], pair);
                }
            }
            _ => {
                if let [result, ..] = op.results[..]
                    && !op.code.is_control_flow()
                {
                    let may = self.result(id);
                    self.set(result, may);
                }
            }
        }
        for &region in &op.regions {
            let ops = &self.module.block(region).ops;
            self.block(ops, inner);
            if let Some(last) = ops.last().map(|&id| self.module.op(id)).filter(|last| last.code == Opcode::Yield) {
                self.flow(&last.operands, &op.results);
            }
        }
    }

    /// Returns true if the first result of an op without regions may be negative infinity.
    fn result(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let may = |index: usize| self.may[op.operands[index].index()];
        match op.code {
            Opcode::Constant => self.is_infinite_constant(id),
            Opcode::LoadView => matches!(
                self.module.ty(op.operands[0]),
                Type::PartitionView { padding: Some(Padding::NegInf), .. }
                    | Type::StridedView { padding: Some(Padding::NegInf), .. }
            ),
            Opcode::LoadPtr => op.operand_group("padding_value").iter().any(|value| self.may[value.index()]),
            Opcode::SubF | Opcode::DivF | Opcode::FToF | Opcode::Gather => may(0),
            Opcode::MaxF => may(0) && may(1),
            Opcode::Select => may(1) || may(2),
            Opcode::AddF | Opcode::MulF | Opcode::Fma | Opcode::MinF | Opcode::Cat | Opcode::Insert => {
                (0..op.operands.len()).any(may)
            }
            Opcode::Extract | Opcode::ClusterAllGather => may(0),
            code => code.has_operand_elements() && may(0),
        }
    }

    fn is_infinite_constant(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let dtype = self.module.dtype(op.results[0]);
        let is_infinite = |bits: u64| float_codec::decode(dtype, bits) <= -2f64.powi(INFINITE_EXPONENT);
        dtype.is_float()
            && match op.const_data() {
                Some(ConstData::Splat(bits)) => is_infinite(*bits),
                Some(ConstData::Dense(words)) => words.iter().any(|&bits| is_infinite(bits)),
                None => false,
            }
    }
}
