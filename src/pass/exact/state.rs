//! State of the rewriting, and the integer operations that it emits.

use super::ring::Ring;
use crate::dtype::DType;
use crate::error::Diagnostic;
use crate::ir::{
    Attr, CmpPred, ConstData, Elem, Module, Op, Opcode, Overflow, Sign, Substitution, Type, TypeId, Value,
};
use crate::pass::transform::op_writer::OpWriter;

/// An op before the rewriting, and with its operands replaced.
pub struct Site {
    /// Operands and results have the types before the rewriting ([`Exact::float`]).
    pub old: Op,
    pub op: Op,
}

/// Rewriter of a module.
pub struct Exact<'m> {
    pub ops: OpWriter<'m>,
    pub ring: Ring,
    /// Replacements of values.
    pub values: Substitution,
    /// Types of values before the rewriting.
    types: Vec<TypeId>,
    /// Values that may be negative infinity, before the rewriting.
    infinite: Vec<bool>,
    pub problems: Vec<Diagnostic>,
}

impl<'m> Exact<'m> {
    pub fn new(module: &'m mut Module, ring: Ring, types: Vec<TypeId>, infinite: Vec<bool>) -> Exact<'m> {
        let (ops, values) = (OpWriter::new(module), Substitution::new());
        Exact { ops, ring, values, types, infinite, problems: Vec::new() }
    }

    /// Returns the type of a value before the rewriting.
    pub fn old_type(&self, value: Value) -> TypeId {
        self.types[value.index()]
    }

    /// Returns the float type that a value had; `None` for other values.
    pub fn float(&self, value: Value) -> Option<DType> {
        match self.ops.module.type_of(self.old_type(value)) {
            Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_float() => Some(*dtype),
            _ => None,
        }
    }

    /// Returns true if an element of the value may be negative infinity.
    pub fn may_be_infinite(&self, value: Value) -> bool {
        self.infinite[value.index()]
    }

    /// Records an op that has no form in the ring.
    pub fn reject(&mut self, op: &Op, problem: &str) {
        let location = self.ops.module.location(op.loc).cloned();
        let message = format!("exact mode: `{}`: {problem}", op.code.spec().name);
        self.problems.push(Diagnostic::new(message, location));
    }

    /// Replaces the first result of an op.
    pub fn replace(&mut self, site: &Site, new: Value) {
        self.values.replace(site.old.results[0], new);
    }

    /// Emits a constant of the type of another value.
    pub fn constant(&mut self, like: Value, number: u64) -> Value {
        let (elem, shape) = (self.ops.elem(like), self.ops.shape(like));
        let bits = elem.dtype().map_or(64, DType::bits);
        let data = ConstData::Splat(number & u64::MAX >> (64 - bits));
        self.ops.emit_one(Opcode::Constant, &[], vec![Attr::Value(data)], elem, &shape)
    }

    fn binary(&mut self, code: Opcode, a: Value, b: Value, attrs: Vec<Attr>) -> Value {
        let (elem, shape) = (self.ops.elem(a), self.ops.shape(a));
        self.ops.emit_one(code, &[a, b], attrs, elem, &shape)
    }

    pub fn add(&mut self, a: Value, b: Value) -> Value {
        self.ops.int_op(Opcode::AddI, a, b)
    }

    pub fn sub(&mut self, a: Value, b: Value) -> Value {
        self.ops.int_op(Opcode::SubI, a, b)
    }

    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        self.ops.int_op(Opcode::MulI, a, b)
    }

    pub fn shift_left(&mut self, a: Value, b: Value) -> Value {
        self.ops.int_op(Opcode::ShlI, a, b)
    }

    pub fn and(&mut self, a: Value, b: Value) -> Value {
        self.binary(Opcode::AndI, a, b, vec![])
    }

    pub fn or(&mut self, a: Value, b: Value) -> Value {
        self.binary(Opcode::OrI, a, b, vec![])
    }

    pub fn xor(&mut self, a: Value, b: Value) -> Value {
        self.binary(Opcode::XorI, a, b, vec![])
    }

    /// Emits `maxi` or `mini` in the signed order.
    pub fn extremum(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        self.binary(code, a, b, vec![Attr::Sign(Sign::Signed)])
    }

    pub fn add_constant(&mut self, a: Value, number: u64) -> Value {
        let number = self.constant(a, number);
        self.add(a, number)
    }

    pub fn mul_constant(&mut self, a: Value, number: u64) -> Value {
        let number = self.constant(a, number);
        self.mul(a, number)
    }

    pub fn xor_constant(&mut self, a: Value, number: u64) -> Value {
        let number = self.constant(a, number);
        self.xor(a, number)
    }

    pub fn and_constant(&mut self, a: Value, number: u64) -> Value {
        let number = self.constant(a, number);
        self.and(a, number)
    }

    /// Emits a shift to the right that fills with zeros.
    pub fn shift_right(&mut self, a: Value, count: u32) -> Value {
        if count == 0 {
            return a;
        }
        let count = self.constant(a, count.into());
        self.binary(Opcode::ShrI, a, count, vec![Attr::Sign(Sign::Unsigned)])
    }

    pub fn negate(&mut self, a: Value) -> Value {
        let zero = self.constant(a, 0);
        self.sub(zero, a)
    }

    pub fn compare(&mut self, pred: CmpPred, sign: Sign, a: Value, b: Value) -> Value {
        let shape = self.ops.shape(a);
        let attrs = vec![Attr::CmpPred(pred), Attr::Sign(sign)];
        self.ops.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), &shape)
    }

    pub fn is_equal_to(&mut self, a: Value, number: u64) -> Value {
        let number = self.constant(a, number);
        self.compare(CmpPred::Eq, Sign::Signed, a, number)
    }

    pub fn select(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        let (elem, shape) = (self.ops.elem(yes), self.ops.shape(yes));
        self.ops.emit_one(Opcode::Select, &[condition, yes, no], vec![], elem, &shape)
    }

    /// Emits a conversion between integer types.
    pub fn resize(&mut self, value: Value, to: DType, sign: Sign) -> Value {
        let from = self.ops.module.dtype(value);
        let (code, attr) = match from.bits().cmp(&to.bits()) {
            std::cmp::Ordering::Equal => return value,
            std::cmp::Ordering::Less => (Opcode::ExtI, Attr::Sign(sign)),
            std::cmp::Ordering::Greater => (Opcode::TruncI, Attr::Overflow(Overflow::None)),
        };
        let shape = self.ops.shape(value);
        self.ops.emit_one(code, &[value], vec![attr], Elem::Num(to), &shape)
    }
}
