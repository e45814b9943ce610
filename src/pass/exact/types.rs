//! Types of a rewritten module: floats in tiles become elements of the ring, floats in memory
//! become integers of the same width.

use super::ring::Ring;
use crate::dtype::DType;
use crate::ir::{Elem, Module, Padding, Type, TypeId};

/// Returns the ring of a module: of 64 bits if it has f64, else of 32 bits.
pub fn ring_of(module: &Module) -> Ring {
    let is_wide = |ty: &Type| match ty {
        Type::Tile { elem: Elem::Num(dtype) | Elem::Ptr { pointee: dtype, .. }, .. } => *dtype == DType::F64,
        Type::TensorView { elem, .. } => *elem == DType::F64,
        _ => false,
    };
    Ring(if module.types().any(|(_, ty)| is_wide(ty)) { DType::I64 } else { DType::I32 })
}

/// Returns true if a type contains a float type.
pub fn has_floats(module: &Module) -> bool {
    module.types().any(|(_, ty)| match ty {
        Type::Tile { elem: Elem::Num(dtype) | Elem::Ptr { pointee: dtype, .. }, .. } => dtype.is_float(),
        Type::TensorView { elem, .. } => elem.is_float(),
        _ => false,
    })
}

/// Returns the integer type of the patterns of a float type in memory; an integer type itself.
pub fn pattern_type(dtype: DType) -> DType {
    match dtype {
        dtype if dtype.is_int() => dtype,
        dtype => match dtype.storage_bits() {
            4 => DType::I4,
            8 => DType::I8,
            16 => DType::I16,
            32 => DType::I32,
            _ => DType::I64,
        },
    }
}

/// Returns the type of the elements of an array. There are no views of i4: 4-bit floats remain
/// floats in memory, and tiles of them are reinterpreted.
pub fn memory_type(dtype: DType) -> DType {
    if dtype == DType::F4E2M1FN { dtype } else { pattern_type(dtype) }
}

/// Returns the type that replaces a type.
pub fn rewritten(module: &mut Module, id: TypeId, ring: Ring) -> TypeId {
    let ty = match module.type_of(id).clone() {
        Type::Tile { elem: Elem::Num(dtype), shape } if dtype.is_float() => Type::tile(ring.0, shape),
        Type::Tile { elem: Elem::Ptr { pointee, attr }, shape } => {
            Type::Tile { elem: Elem::Ptr { pointee: memory_type(pointee), attr }, shape }
        }
        Type::TensorView { elem, shape, strides, ptr_attr } => {
            Type::TensorView { elem: memory_type(elem), shape, strides, ptr_attr }
        }
        Type::PartitionView { tile, view, dim_map, padding } => {
            let view = rewritten(module, view, ring);
            Type::PartitionView { tile, view, dim_map, padding: zero_padding(padding) }
        }
        Type::StridedView { tile, traversal, view, dim_map, padding } => {
            let view = rewritten(module, view, ring);
            Type::StridedView { tile, traversal, view, dim_map, padding: zero_padding(padding) }
        }
        Type::GatherScatterView { tile, view, sparse_dim, padding } => {
            let view = rewritten(module, view, ring);
            Type::GatherScatterView { tile, view, sparse_dim, padding: zero_padding(padding) }
        }
        ty @ (Type::Tile { .. } | Type::Token) => ty,
    };
    module.intern(ty)
}

fn zero_padding(padding: Option<Padding>) -> Option<Padding> {
    padding.map(|_| Padding::Zero)
}

/// Returns element type and padding of a view of tiles before the rewriting.
pub fn element_and_padding(module: &Module, view: TypeId) -> Option<(DType, Option<Padding>)> {
    match module.type_of(view) {
        Type::PartitionView { view, padding, .. }
        | Type::StridedView { view, padding, .. }
        | Type::GatherScatterView { view, padding, .. } => match module.type_of(*view) {
            Type::TensorView { elem, .. } => Some((*elem, *padding)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the type of a global: the patterns of its elements.
pub fn global_type(module: &mut Module, id: TypeId) -> TypeId {
    match module.type_of(id).clone() {
        Type::Tile { elem: Elem::Num(dtype), shape } => module.intern(Type::tile(pattern_type(dtype), shape)),
        ty => module.intern(ty),
    }
}
