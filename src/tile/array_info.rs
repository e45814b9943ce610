//! Properties of an array: those that a launch compiles into the code, and those of a trace.

use crate::ir::{TypeId, Value};

/// Properties of an array that a launch compiles into the code.
///
/// Part of the specialization key; the trace states it as `assume` ops and constant strides.
///
/// ```
/// use cutlet::kernel::{ArgSignature, LaunchArg};
///
/// let mut signatures = Vec::new();
/// cutlet::ArraySpec::<f32, 1>::new([64]).forms(&mut signatures);
/// let ArgSignature::Array { facts, .. } = &signatures[0] else { unreachable!() };
/// assert!(facts.unit_stride == 1 && facts.extent_div16 == 1 && !facts.index64);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArrayInfo {
    /// Extents and strides are i64 (else i32): chosen when an element offset may not fit 31 bits.
    pub index64: bool,
    /// Some extent is above i32::MAX. Then `index64` is true as well.
    pub extent64: bool,
    /// The base address is a multiple of this many bytes: 16, or the element size.
    pub base_align: u32,
    /// Bit d: the stride of dimension d is 1.
    pub unit_stride: u32,
    /// Bit d: the extent of dimension d is a multiple of 16.
    pub extent_div16: u32,
    /// Bit d: the stride of dimension d is a multiple of 16 elements.
    pub stride_div16: u32,
}

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
