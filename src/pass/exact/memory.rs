//! Accesses to memory: patterns become elements of the ring after loads, and elements become
//! patterns before stores.

use super::state::{Exact, Site};
use super::types::{element_and_padding, pattern_type};
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

    /// Keeps a load, with patterns as its result.
    pub fn loaded(&mut self, id: OpId, dtype: DType) -> Value {
        let old = self.ops.module.op(id).results[0];
        let shape = self.ops.shape(old);
        let ty = self.ops.module.intern(Type::Tile { elem: Elem::Num(pattern_type(dtype)), shape });
        self.ops.keep(id);
        self.ops.module.renew_result_as(id, ty)
    }

    /// Keeps an op whose operands at these positions become patterns.
    pub fn stored(&mut self, id: OpId, site: &Site, positions: impl IntoIterator<Item = usize>) {
        for position in positions {
            if let Some(dtype) = self.float(site.old.operands[position]) {
                let pattern = self.unembed(site.op.operands[position], dtype);
                self.ops.module.op_mut(id).operands[position] = pattern;
            }
        }
    }
}
