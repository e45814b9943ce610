//! Tile indices, accesses with tile indices, and tests of them.

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Loc, Module, OpId, Opcode, Sign, Type, Value};

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

/// Converts an index to i64 if the extents of its array are i64: the number of tiles may exceed 32
/// bits.
fn as_wide_as_extents(module: &mut Module, view: Value, index: Value, loc: Loc, out: &mut Vec<OpId>) -> Value {
    let make = |module: &Module, value: Value| module.defining_op(value).map(|id| module.op(id).clone());
    let extent = make(module, view)
        .and_then(|view| make(module, through_assumes(module, view.operands[0])))
        .filter(|tensor| tensor.code == Opcode::MakeTensorView)
        .and_then(|tensor| tensor.operand_group("dynamic_shape").first().copied());
    if extent.is_none_or(|extent| module.dtype(extent) != DType::I64) || module.dtype(index) == DType::I64 {
        return index;
    }
    let wide = module.intern(Type::scalar(DType::I64));
    let id = module.add_op(Opcode::ExtI, &[&[index]], vec![Attr::Sign(Sign::Signed)], vec![], &[wide], loc);
    out.push(id);
    module.op(id).results[0]
}

/// Adds the test that the index of an access is inside along open dimensions.
pub(super) fn inside_condition(module: &mut Module, id: OpId, open: &[usize], loc: Loc, out: &mut Vec<OpId>) -> Value {
    let op = module.op(id).clone();
    let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
    let truth = module.intern(Type::scalar(DType::I1));
    let mut condition: Option<Value> = None;
    for &d in open {
        let position = as_wide_as_extents(module, view, index[d], loc, out);
        let count = tile_count(module, view, d, position, loc, out);
        // As an unsigned number, a negative index is large.
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
        let less = module.add_op(Opcode::CmpI, &[&[position], &[count]], attrs, vec![], &[truth], loc);
        out.push(less);
        let less = module.op(less).results[0];
        condition = Some(match condition {
            None => less,
            Some(before) => {
                let both = module.add_op(Opcode::AndI, &[&[before], &[less]], vec![], vec![], &[truth], loc);
                out.push(both);
                module.op(both).results[0]
            }
        });
    }
    condition.expect("an open dimension")
}
