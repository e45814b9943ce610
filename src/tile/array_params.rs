//! Arrays in a trace: their parameters, and what the launch knows about them.

use super::array::ArrayHandle;
use super::array_info::{ArrayData, ArrayInfo};
use super::array_table::TableHandle;
use super::trace::Trace;
use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Predicate, Type, Value};
use crate::util::collect::CollectVec as _;

impl Trace {
    /// Declares the parameters of an array and states what is known about them.
    pub fn declare_array(&mut self, dtype: DType, rank: usize, facts: ArrayInfo) -> ArrayHandle {
        let index = Type::scalar(if facts.index64 { DType::I64 } else { DType::I32 });
        let base = self.param(Type::ptr(dtype));
        let extents: Vec<Value> = (0..rank).map(|_| self.param(index.clone())).collect_vec();
        let strides: Vec<Value> = (0..rank).map(|_| self.param(index.clone())).collect_vec();
        self.array_with_facts(dtype, base, extents, strides, facts)
    }

    /// Declares the parameters of a table of arrays.
    pub fn declare_table(&mut self, dtype: DType, facts: ArrayInfo) -> TableHandle {
        let words = self.param(Type::ptr(DType::I64));
        let first = self.param(Type::ptr(dtype));
        let count = self.param(Type::scalar(DType::I32));
        let words = self.assume_div_by(words, 16);
        let first = match facts.base_align {
            0 | 1 => first,
            align => self.assume_div_by(first, align.into()),
        };
        let count = self.assumed(count, Predicate::Bounded { lower: Some(0), upper: None });
        let [words, first, count] = [words, first, count].map(|value| self.raw(value));
        TableHandle { words, first, count, facts }
    }

    /// Declares an array with the properties that the launch has determined.
    pub fn array_with_facts(
        &mut self,
        dtype: DType,
        base: Value,
        extents: Vec<Value>,
        strides: Vec<Value>,
        facts: ArrayInfo,
    ) -> ArrayHandle {
        let rank = extents.len();
        let bit = |mask: u32, d: usize| mask >> d & 1 != 0;
        let base = match facts.base_align {
            0 | 1 => base,
            align => self.assume_div_by(base, align.into()),
        };
        let known_extents = (0..rank).map(|d| {
            let value = self.assumed(extents[d], Predicate::Bounded { lower: Some(0), upper: None });
            if bit(facts.extent_div16, d) { self.assume_div_by(value, 16) } else { value }
        });
        let extents: Vec<Value> = known_extents.collect_vec();
        if facts.index64 {
            let known = if facts.extent64 { &mut self.long_extents } else { &mut self.short_extents };
            known.extend(&extents);
        }
        let known_strides = (0..rank).map(|d| {
            if bit(facts.unit_stride, d) {
                return strides[d];
            }
            let value = self.assumed(strides[d], Predicate::Bounded { lower: Some(0), upper: None });
            if bit(facts.stride_div16, d) { self.assume_div_by(value, 16) } else { value }
        });
        let strides = known_strides.collect_vec();
        self.make_array(dtype, base, extents, strides, facts.unit_stride)
    }

    fn assume_div_by(&mut self, value: Value, divisor: u64) -> Value {
        self.assumed(value, Predicate::DivBy { divisor, every: None, along: None })
    }

    /// Returns the value with an assumption about it.
    pub fn assumed(&mut self, value: Value, predicate: Predicate) -> Value {
        let ty = self.builder.module.ty_id(value);
        self.emit(Opcode::Assume, &[&[value]], vec![Attr::Predicate(predicate)], Vec::new(), &[ty])[0]
    }

    /// Declares an array with these extents and strides. Tile IR has no views without dimensions:
    /// an array of rank 0 becomes a view with one dimension of extent 1.
    pub fn make_array(
        &mut self,
        dtype: DType,
        base: Value,
        extents: Vec<Value>,
        strides: Vec<Value>,
        unit_stride: u32,
    ) -> ArrayHandle {
        let is_unit = |d: usize| unit_stride >> d & 1 != 0;
        let ty = Type::TensorView {
            elem: dtype,
            shape: if extents.is_empty() { vec![Some(1)] } else { vec![None; extents.len()] },
            strides: match strides.len() {
                0 => vec![Some(1)],
                rank => (0..rank).map(|d| is_unit(d).then_some(1)).collect_vec(),
            },
            ptr_attr: None,
        };
        let view_type = self.builder.module.intern(ty);
        let dynamic: Vec<Value> = (0..strides.len()).filter(|&d| !is_unit(d)).map(|d| strides[d]).collect_vec();
        let view =
            self.emit(Opcode::MakeTensorView, &[&[base], &extents, &dynamic], Vec::new(), Vec::new(), &[view_type])[0];
        self.arrays.push(ArrayData { base, extents, strides, unit_stride, view, view_type });
        ArrayHandle { trace: self.id(), index: self.arrays.len() as u32 - 1 }
    }

    /// Returns an unusable array, after a problem that has been reported.
    pub fn poison_array(&mut self, rank: usize) -> ArrayHandle {
        let nothing = self.splat(DType::I32, 0, &[]);
        self.taint(&[nothing]);
        let (list, view_type) = (vec![nothing; rank], self.builder.module.ty_id(nothing));
        let (extents, strides) = (list.clone(), list);
        self.arrays.push(ArrayData { base: nothing, extents, strides, unit_stride: 0, view: nothing, view_type });
        ArrayHandle { trace: self.id(), index: self.arrays.len() as u32 - 1 }
    }
}
