//! Accesses to memory: patterns become elements of the ring after loads, and elements become
//! patterns before stores.

use super::state::{Exact, Site};
use super::types::{element_and_padding, memory_type, pattern_type};
use crate::dtype::DType;
use crate::ir::{Elem, OpId, Opcode, Padding, Type, Value};

impl Exact<'_> {
    /// Rewrites a load of a tile of a view. Returns `None` if the padding needs a view that the
    /// pass cannot follow.
    pub fn load_view(&mut self, id: OpId, site: &Site, dtype: DType) -> Option<Value> {
        let view = site.old.operand_group("view")[0];
        let padding = element_and_padding(self.ops.module, self.old_type(view)).and_then(|(_, padding)| padding);
        let number = match padding {
            None | Some(Padding::Zero | Padding::NegZero) => None,
            Some(Padding::NegInf) => Some(self.ring.negative_infinity()),
            Some(Padding::PosInf | Padding::NaN) => Some(self.ring.infinity()),
        };
        let pattern = self.loaded(id, dtype);
        let element = self.embed(pattern, dtype);
        let Some(number) = number else { return Some(element) };
        let elements = self.elements(site)?;
        let inside = self.inside(&elements);
        let padding = self.constant(element, number);
        Some(self.select(inside, element, padding))
    }

    /// Rewrites a load through pointers.
    pub fn load_pointers(&mut self, id: OpId, site: &Site, dtype: DType) -> Value {
        let (mask, padding) = (site.op.operand_group("mask"), site.op.operand_group("padding_value"));
        let ([mask], [padding]) = (mask, padding) else {
            let pattern = self.loaded(id, dtype);
            return self.embed(pattern, dtype);
        };
        let groups: [&[Value]; 4] = [site.op.operand_group("source"), &[*mask], &[], site.op.operand_group("token")];
        let shape = self.ops.shape(*mask);
        let pattern = self.ops.module.intern(Type::tile(pattern_type(dtype), shape));
        let token = self.ops.module.intern(Type::Token);
        let load = self.ops.emit(Opcode::LoadPtr, &groups, site.op.attrs.clone(), vec![], &[pattern, token]);
        let results = self.ops.module.op(load).results.clone();
        self.values.replace(site.old.results[1], results[1]);
        let element = self.embed(results[0], dtype);
        self.select(*mask, element, *padding)
    }

    /// Keeps a load. Returns the patterns.
    pub fn loaded(&mut self, id: OpId, dtype: DType) -> Value {
        let old = self.ops.module.op(id).results[0];
        let shape = self.ops.shape(old);
        let elem = Elem::Num(memory_type(dtype));
        let ty = self.ops.module.intern(Type::Tile { elem, shape: shape.clone() });
        self.ops.keep(id);
        let loaded = self.ops.module.renew_result_as(id, ty);
        self.reinterpreted(loaded, pattern_type(dtype))
    }

    /// Emits a reinterpretation of 4-bit elements, unless the type is that of the value. `bitcast`
    /// has no i4, `pack` and `unpack` have.
    fn reinterpreted(&mut self, value: Value, dtype: DType) -> Value {
        if self.ops.module.dtype(value) == dtype {
            return value;
        }
        let shape = self.ops.shape(value);
        let count: i64 = shape.iter().product();
        let flat = self.ops.reshape(value, &[count]);
        let bytes = self.ops.emit_one(Opcode::Pack, &[flat], vec![], Elem::Num(DType::I8), &[count / 2]);
        let flat = self.ops.emit_one(Opcode::Unpack, &[bytes], vec![], Elem::Num(dtype), &[count]);
        self.ops.reshape(flat, &shape)
    }

    /// Keeps an op whose operands at these positions become patterns.
    pub fn stored(&mut self, id: OpId, site: &Site, positions: impl IntoIterator<Item = usize>) {
        for position in positions {
            if let Some(dtype) = self.float(site.old.operands[position]) {
                let pattern = self.unembed(site.op.operands[position], dtype);
                let pattern = self.reinterpreted(pattern, memory_type(dtype));
                self.ops.module.op_mut(id).operands[position] = pattern;
            }
        }
    }
}
