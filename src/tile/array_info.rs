//! What a trace knows about its arrays.

use crate::ir::{TypeId, Value};

/// An array that was declared or derived.
#[derive(Clone, Debug)]
pub(crate) struct ArrayData {
    pub base: Value,
    /// One rank-0 value a dimension, i32 or i64.
    pub extents: Vec<Value>,
    /// One rank-0 value a dimension, in elements.
    pub strides: Vec<Value>,
    /// Bit d: the stride of dimension d is compiled in as 1.
    pub unit_stride: u32,
    /// The result of `make_tensor_view` and its type.
    pub view: Value,
    pub view_type: TypeId,
}
