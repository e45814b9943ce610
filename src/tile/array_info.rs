//! Properties of an array in a trace.

use crate::ir::{TypeId, Value};

/// A declared or derived array.
#[derive(Clone, Debug)]
pub(crate) struct ArrayData {
    pub base: Value,
    /// One rank-0 value per dimension, i32 or i64.
    pub extents: Vec<Value>,
    /// One rank-0 value per dimension, in elements.
    pub strides: Vec<Value>,
    /// Bit d: the stride of dimension d is the constant 1.
    pub unit_stride: u32,
    /// The result of `make_tensor_view` and its type.
    pub view: Value,
    pub view_type: TypeId,
}
