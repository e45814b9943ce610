//! Operands of accesses through pointers.

use crate::dtype::DType;
use crate::ir::{Elem, Module, Op, Opcode, Type, Value};

/// The pointers of an op that accesses memory through them.
pub fn pointers_of(op: &Op) -> Option<Value> {
    match op.code {
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => Some(op.operands[0]),
        _ => None,
    }
}

/// The mask of such an op.
pub fn mask_of(op: &Op) -> Option<Value> {
    op.operand_group("mask").first().copied()
}

pub fn pointee(module: &Module, pointers: Value) -> Option<DType> {
    match module.ty(pointers) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => Some(*pointee),
        _ => None,
    }
}
