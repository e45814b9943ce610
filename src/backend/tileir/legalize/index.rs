//! Tile indices and the accesses that use them.

use rustc_hash::FxHashMap;

use crate::ir::{Loc, Module, OpId, Opcode, Type, Value};

/// The dimensions of each access along which its index may be outside.
pub(super) type Open = FxHashMap<OpId, Vec<usize>>;

/// What a value is without the assumptions about it.
pub(super) fn through_assumes(module: &Module, mut value: Value) -> Value {
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)) {
        if op.code != Opcode::Assume {
            break;
        }
        value = op.operands[0];
    }
    value
}

/// How many tiles there are along a dimension of a view, as a number of the type of `like`.
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
