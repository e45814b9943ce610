//! Emission of integer arithmetic on scalars.

use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Elem, Opcode, Predicate, Rounding, Sign, Value};
use crate::pass::transform::op_writer::OpWriter;

/// Emitter of scalar ops of i32.
pub struct ScalarWriter<'m> {
    pub writer: OpWriter<'m>,
}

impl ScalarWriter<'_> {
    pub fn int(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        self.writer.int_op(code, a, b)
    }

    pub fn positive(&mut self, value: Value) -> Value {
        let bounded = Attr::Predicate(Predicate::Bounded { lower: Some(1), upper: None });
        self.writer.emit_one(Opcode::Assume, &[value], vec![bounded], Elem::Num(DType::I32), &[])
    }

    pub fn number(&mut self, number: i64) -> Value {
        self.writer.number(DType::I32, number)
    }

    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        self.writer.emit_one(Opcode::Select, &[condition, a, b], vec![], Elem::Num(DType::I32), &[])
    }

    pub fn compare(&mut self, pred: CmpPred, a: Value, b: Value) -> Value {
        let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
        self.writer.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), &[])
    }

    pub fn and(&mut self, a: Value, b: Value, dtype: DType) -> Value {
        self.writer.emit_one(Opcode::AndI, &[a, b], vec![], Elem::Num(dtype), &[])
    }

    pub fn min(&mut self, a: Value, b: Value) -> Value {
        let attrs = vec![Attr::Sign(Sign::Signed)];
        self.writer.emit_one(Opcode::MinI, &[a, b], attrs, Elem::Num(DType::I32), &[])
    }

    /// Returns quotient and remainder.
    pub fn div_rem(&mut self, a: Value, b: Value) -> [Value; 2] {
        let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::Zero)];
        let quotient = self.writer.emit_one(Opcode::DivI, &[a, b], attrs, Elem::Num(DType::I32), &[]);
        let multiple = self.int(Opcode::MulI, quotient, b);
        [quotient, self.int(Opcode::SubI, a, multiple)]
    }

    pub fn not_negative(&mut self, index: Value) -> Value {
        let bounded = Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None });
        self.writer.emit_one(Opcode::Assume, &[index], vec![bounded], Elem::Num(DType::I32), &[])
    }
}
