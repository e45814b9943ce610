//! Ragged slices: views of an array parameter between two run-time numbers along one axis.
//!
//! The address of the view is that of the array plus a number of rows, and its extent is computed.
//! A tensor map of the whole array bounds such rows at each box (`tensor_map`).

use crate::backend::ptx::layout_inference::tensor_stride;
use crate::backend::ptx::schedule::KernelInfo;
use crate::dtype::DType;
use crate::ir::{Op, OpId, Opcode, Type, Value};

/// A run-time slice of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaggedSlice {
    /// Address of the array.
    pub base: Value,
    /// Tensor dimension of the slice.
    pub dim: usize,
    /// Position of the first row in the array; `None`: 0.
    pub begin: Option<Value>,
    /// Number of rows.
    pub length: Value,
    /// Extent of the array, a parameter of the entry: no row of the slice is beyond it.
    pub extent: Value,
}

impl KernelInfo<'_> {
    /// Returns the slice that a tensor view is; `None` for whole arrays, and for views that have
    /// another address or more than one computed extent. Its numbers are not negative, and do not
    /// exceed the extent of the array.
    pub fn ragged_slice(&self, tensor: OpId) -> Option<RaggedSlice> {
        let op = self.module.op(tensor);
        let Type::TensorView { shape, .. } = self.module.ty(op.results[0]) else { return None };
        let mut dynamic = op.group(1).iter().copied();
        let extents = shape.iter().map(|extent| if extent.is_none() { dynamic.next() } else { None });
        let is_computed = |extent: &Option<Value>| extent.is_some_and(|extent| self.entry_param(extent).is_none());
        let mut computed = extents.enumerate().filter(|(_, extent)| is_computed(extent));
        let ((dim, Some(length)), None) = (computed.next()?, computed.next()) else { return None };
        let address = op.group(0)[0];
        let moved = self.defining(self.without_assumptions(address)).filter(|op| op.code == Opcode::Offset);
        let (base, begin, end) = match moved {
            None => (address, None, length),
            Some(moved) => {
                let begin = self.rows_before(moved.operands[1], tensor, dim)?;
                let left = self.defining(self.without_assumptions(length)).filter(|op| op.code == Opcode::SubI)?;
                (self.narrow(left.operands[1]) == begin).then_some((
                    moved.operands[0],
                    Some(begin),
                    left.operands[0],
                ))?
            }
        };
        let extent = self.upper_bound(end)?;
        let is_number = |value: Value| {
            let range = self.inference.int_ranges.range(value);
            matches!(self.module.dtype(value), DType::I32 | DType::I64) && range.is_some_and(|range| range.lo >= 0)
        };
        let mut numbers = begin.into_iter().chain([length]);
        numbers.all(is_number).then_some(RaggedSlice { base, dim, begin, length, extent })
    }

    /// Returns the number of rows of a dimension that have this number of elements.
    fn rows_before(&self, elements: Value, tensor: OpId, dim: usize) -> Option<Value> {
        if tensor_stride(self.module, tensor, dim) == Ok(1) {
            return Some(self.narrow(elements));
        }
        let product = self.defining(self.without_assumptions(elements)).filter(|op| op.code == Opcode::MulI)?;
        let [a, b] = [product.operands[0], product.operands[1]].map(|factor| self.narrow(factor));
        let is_stride = |value: Value| match tensor_stride(self.module, tensor, dim) {
            Ok(constant) => self.inference.int_ranges.constant(value) == Some(constant),
            Err(stride) => value == self.narrow(stride),
        };
        if is_stride(b) { Some(a) } else { is_stride(a).then_some(b) }
    }

    /// Returns a parameter of the entry that a number does not exceed.
    fn upper_bound(&self, value: Value) -> Option<Value> {
        let value = self.narrow(value);
        if self.entry_param(value).is_some() {
            return Some(value);
        }
        let least = self.defining(value).filter(|op| op.code == Opcode::MinI)?;
        least.operands.iter().map(|&operand| self.narrow(operand)).find(|&operand| self.entry_param(operand).is_some())
    }

    fn defining(&self, value: Value) -> Option<&Op> {
        self.module.defining_op(value).map(|id| self.module.op(id))
    }

    /// Returns the operand of a chain of assumptions.
    fn without_assumptions(&self, mut value: Value) -> Value {
        while let Some(op) = self.defining(value).filter(|op| op.code == Opcode::Assume) {
            value = op.operands[0];
        }
        value
    }

    /// Returns the operand of a chain of assumptions and extensions.
    fn narrow(&self, mut value: Value) -> Value {
        while let Some(op) = self.defining(value).filter(|op| matches!(op.code, Opcode::Assume | Opcode::ExtI)) {
            value = op.operands[0];
        }
        value
    }
}
