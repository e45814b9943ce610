//! Integer arithmetic on indices, extents and strides: i32 and i64 scalars of a trace.

use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Overflow, Predicate, Sign, Value};
use crate::tile::Trace;

impl Trace {
    /// Emits an operation on two scalars of one type.
    pub(crate) fn integers(&mut self, code: Opcode, attrs: Vec<Attr>, a: Value, b: Value) -> Value {
        let dtype = self.builder.module.dtype(a);
        self.put(code, &[a, b], attrs, dtype, &[])
    }

    /// Emits a constant.
    pub(crate) fn integer(&mut self, number: i64, dtype: DType) -> Value {
        let bits = if dtype == DType::I64 { number as u64 } else { number as i32 as u32 as u64 };
        self.splat(dtype, bits, &[])
    }

    /// Converts a signed scalar to i32 (the low bits) or i64.
    pub(crate) fn as_width(&mut self, value: Value, to: DType) -> Value {
        match (self.builder.module.dtype(value), to) {
            (from, to) if from == to => value,
            (DType::I64, _) => self.put(Opcode::TruncI, &[value], vec![Attr::Overflow(Overflow::None)], to, &[]),
            _ => self.extended(value, Sign::Signed, to),
        }
    }

    /// Extends the elements of a tile or scalar to a wider type.
    pub(crate) fn extended(&mut self, value: Value, sign: Sign, to: DType) -> Value {
        let shape = self.builder.module.shape(value).to_vec();
        self.put(Opcode::ExtI, &[value], vec![Attr::Sign(sign)], to, &shape)
    }

    /// Converts signed values to one type: i64, if one of them is i64.
    pub(crate) fn of_one_width(&mut self, values: &mut [Value]) {
        if values.iter().any(|&value| self.builder.module.dtype(value) == DType::I64) {
            for value in values {
                if self.builder.module.dtype(*value) != DType::I64 {
                    *value = self.extended(*value, Sign::Signed, DType::I64);
                }
            }
        }
    }

    /// Emits the assumption that a scalar is not negative.
    pub(crate) fn nonnegative(&mut self, value: Value) -> Value {
        let ty = self.builder.module.ty_id(value);
        let predicate = Attr::Predicate(Predicate::Bounded { lower: Some(0), upper: None });
        self.emit(Opcode::Assume, &[&[value]], vec![predicate], vec![], &[ty])[0]
    }
}
