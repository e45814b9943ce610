//! Operands of accesses through pointers.

use crate::dtype::DType;
use crate::ir::{Elem, Module, Op, Opcode, Type, Value};

/// Returns the pointers of an access through pointers.
pub fn pointers_of(op: &Op) -> Option<Value> {
    match op.code {
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => Some(op.operands[0]),
        _ => None,
    }
}

/// Returns the mask of an access through pointers.
pub fn mask_of(op: &Op) -> Option<Value> {
    op.operand_group("mask").first().copied()
}

/// Returns the element type that pointers refer to.
pub fn pointee(module: &Module, pointers: Value) -> Option<DType> {
    match module.ty(pointers) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => Some(*pointee),
        _ => None,
    }
}
