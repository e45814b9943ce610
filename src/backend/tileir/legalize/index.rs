//! Tile indices, and accesses with tile indices.

use rustc_hash::FxHashMap;

use crate::ir::{Loc, Module, OpId, Opcode, Type, Value};

/// By access: the dimensions along which its index may be outside.
pub(super) type Open = FxHashMap<OpId, Vec<usize>>;

/// Returns the value below the `assume` ops of a value.
pub(super) fn through_assumes(module: &Module, mut value: Value) -> Value {
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)) {
        if op.code != Opcode::Assume {
            break;
        }
        value = op.operands[0];
    }
    value
}

/// Returns the number of tiles along a dimension of a view, in the type of `like`.
pub(super) fn tile_count(
    module: &mut Module,
    view: Value,
    dim: usize,
    like: Value,
    loc: Loc,
    out: &mut Vec<OpId>,
) -> Value {
    let (Type::PartitionView { tile, .. } | Type::StridedView { tile, .. }) = module.ty(view) else {
        unreachable!("a view that is indexed by tiles")
    };
    let types = vec![module.ty_id(like); tile.len()];
    let id = module.add_op(Opcode::GetIndexSpaceShape, &[&[view]], vec![], vec![], &types, loc);
    out.push(id);
    module.op(id).results[dim]
}
