//! Arrays inside kernels: handles of a pointer with extents and strides that the launch passes in.

use std::marker::PhantomData;

use crate::dtype::DType;
use crate::ir::{Attr, Opcode, Predicate, Type, Value};
use crate::kernel::ArrayFacts;

use super::context::Trace;
use super::described::ArrayData;

/// An array in device memory with elements of type `T` and `R` dimensions; read only.
///
/// Made by the launch from a shared reference to a device array. `Copy`: a handle.
#[derive(Debug)]
pub struct Array<T, const R: usize> {
    pub(crate) handle: ArrayHandle,
    element: PhantomData<T>,
}

/// An array in device memory that this kernel may also write.
///
/// Made by the launch from a unique reference to a device array. `Copy`: a handle. Tile blocks run at
/// the same time in any order: two of them must not write the same element.
#[derive(Debug)]
pub struct ArrayMut<T, const R: usize> {
    pub(crate) handle: ArrayHandle,
    element: PhantomData<T>,
}

/// Position in the list of arrays of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayHandle {
    pub trace: u32,
    pub index: u32,
}

macro_rules! array_handle {
    ($name:ident) => {
        impl<T, const R: usize> Clone for $name<T, R> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T, const R: usize> Copy for $name<T, R> {}

        impl<T, const R: usize> $name<T, R> {
            pub(crate) fn from_handle(handle: ArrayHandle) -> Self {
                $name { handle, element: PhantomData }
            }
        }
    };
}
array_handle!(Array);
array_handle!(ArrayMut);

impl Trace {
    /// Declares the parameters of an array and states what is known about them.
    pub fn declare_array(&mut self, dtype: DType, rank: usize, facts: ArrayFacts) -> ArrayHandle {
        let index = Type::scalar(if facts.index64 { DType::I64 } else { DType::I32 });
        let base = self.param(Type::ptr(dtype));
        let extents: Vec<Value> = (0..rank).map(|_| self.param(index.clone())).collect();
        let strides: Vec<Value> = (0..rank).map(|_| self.param(index.clone())).collect();
        let bit = |mask: u32, d: usize| mask >> d & 1 != 0;
        let base = match facts.base_align {
            0 | 1 => base,
            align => self.assume_div_by(base, align.into()),
        };
        let known_extents = (0..rank).map(|d| {
            let value = self.assume(extents[d], Predicate::Bounded { lower: Some(0), upper: None });
            if bit(facts.extent_div16, d) { self.assume_div_by(value, 16) } else { value }
        });
        let extents = known_extents.collect();
        let known_strides = (0..rank).map(|d| {
            if bit(facts.unit_stride, d) {
                return strides[d];
            }
            let value = self.assume(strides[d], Predicate::Bounded { lower: Some(0), upper: None });
            if bit(facts.stride_div16, d) { self.assume_div_by(value, 16) } else { value }
        });
        let strides = known_strides.collect();
        self.make_array(dtype, base, extents, strides, facts.unit_stride)
    }

    fn assume_div_by(&mut self, value: Value, divisor: u64) -> Value {
        self.assume(value, Predicate::DivBy { divisor, every: None, along: None })
    }

    fn assume(&mut self, value: Value, predicate: Predicate) -> Value {
        let ty = self.builder.module.ty_id(value);
        self.emit(Opcode::Assume, &[&[value]], vec![Attr::Predicate(predicate)], Vec::new(), &[ty])[0]
    }

    /// An array with these extents and strides. Tile IR has no views without dimensions: an array without any is
    /// seen as one with a dimension of extent 1.
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
                rank => (0..rank).map(|d| is_unit(d).then_some(1)).collect(),
            },
            ptr_attr: None,
        };
        let view_type = self.builder.module.intern(ty);
        let dynamic: Vec<Value> = (0..strides.len()).filter(|&d| !is_unit(d)).map(|d| strides[d]).collect();
        let view =
            self.emit(Opcode::MakeTensorView, &[&[base], &extents, &dynamic], Vec::new(), Vec::new(), &[view_type])[0];
        self.arrays.push(ArrayData { base, extents, strides, unit_stride, view, view_type });
        ArrayHandle { trace: self.id(), index: self.arrays.len() as u32 - 1 }
    }
}
