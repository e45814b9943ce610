//! Rules of views: construction, shape queries, and accesses.

use super::memory::{LOADS, STORES, atomic_types, ordering};
use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{
    AtomicMode, Attr, AttrKind, Elem, MemOrder, MemScope, MultimemKind, Opcode, Padding, PtrAttr, Type, TypeId, Value,
};
use crate::util::collect::CollectVec as _;

pub(super) fn make_tensor_view(rule: &OpRule) -> Rule {
    let result = rule.result();
    let Type::TensorView { elem, shape, strides, ptr_attr } = rule.ty(result) else {
        return Err(rule.expected(result, "a tensor_view"));
    };
    let base = Type::Tile { elem: Elem::Ptr { pointee: *elem, attr: *ptr_attr }, shape: Vec::new() };
    rule.has_type(rule.operand("base"), &base)?;
    let dynamic = |list: &[Option<i64>]| list.iter().filter(|e| e.is_none()).count();
    for (name, needed) in [("dynamic_shape", dynamic(shape)), ("dynamic_strides", dynamic(strides))] {
        let given = rule.op.operand_group(name).len();
        demand(given == needed, || format!("{given} values of {name}, but {} needs {needed}", rule.text(result)))?;
    }
    let extents = &rule.op.operands[1..];
    for &value in extents {
        rule.int_scalar(value)?;
    }
    rule.one_type(extents.iter().copied())
}

/// Returns the tensor view of a view of tiles.
fn inner(ty: &Type) -> Option<TypeId> {
    match ty {
        Type::PartitionView { view, .. } | Type::StridedView { view, .. } | Type::GatherScatterView { view, .. } => {
            Some(*view)
        }
        Type::Tile { .. } | Type::TensorView { .. } | Type::Token => None,
    }
}

pub(super) fn make_tiles(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    let (matches, what) = match rule.op.code {
        Opcode::MakePartitionView => (matches!(rule.ty(result), Type::PartitionView { .. }), "a partition_view"),
        Opcode::MakeStridedView => (matches!(rule.ty(result), Type::StridedView { .. }), "a strided_view"),
        _ => (matches!(rule.ty(result), Type::GatherScatterView { .. }), "a gather_scatter_view"),
    };
    demand(matches, || rule.expected(result, what))?;
    demand(inner(rule.ty(result)) == Some(rule.module.ty_id(source)), || {
        format!("{} is made of {}, not of {}", rule.text(result), rule.name(source), rule.text(source))
    })
}

pub(super) fn shape_query(rule: &OpRule) -> Rule {
    let source = rule.op.operands[0];
    let rank = match (rule.op.code, rule.ty(source)) {
        (Opcode::GetTensorShape, Type::TensorView { shape, .. }) => shape.len(),
        (Opcode::GetTensorShape, _) => return Err(rule.expected(source, "a tensor_view")),
        (_, ty) => View::new(rule, source, ty)?.tile.len(),
    };
    let results = &rule.op.results;
    demand(results.len() == rank, || format!("{} results for {}", results.len(), rule.text(source)))?;
    for &result in results {
        rule.int_scalar(result)?;
    }
    rule.one_type(results.iter().copied())
}

/// Properties of a view of tiles that an access needs.
struct View<'m> {
    elem: DType,
    tile: &'m [i32],
    padding: Option<Padding>,
    sparse: Option<usize>,
    ptr_attr: Option<PtrAttr>,
}

impl<'m> View<'m> {
    fn new(rule: &OpRule<'m>, value: Value, ty: &'m Type) -> Result<View<'m>, String> {
        let (tile, view, padding, sparse) = match ty {
            Type::PartitionView { tile, view, padding, .. } | Type::StridedView { tile, view, padding, .. } => {
                (tile, view, padding, None)
            }
            Type::GatherScatterView { tile, view, sparse_dim, padding } => {
                (tile, view, padding, Some(*sparse_dim as usize))
            }
            Type::Tile { .. } | Type::TensorView { .. } | Type::Token => {
                return Err(rule.expected(value, "a view of tiles"));
            }
        };
        match rule.module.type_of(*view) {
            Type::TensorView { elem, ptr_attr, .. } => {
                Ok(View { elem: *elem, tile, padding: *padding, sparse, ptr_attr: *ptr_attr })
            }
            _ => Err(rule.expected(value, "a view of tiles of a tensor_view")),
        }
    }

    fn tile_type(&self) -> Type {
        Type::tile(self.elem, self.tile.iter().map(|&e| i64::from(e)).collect_vec())
    }
}

/// Checks view, indices and `inbounds` of an access. The caller checks the tile.
fn access_view<'m>(rule: &OpRule<'m>) -> Result<View<'m>, String> {
    let value = rule.operand("view");
    let view = View::new(rule, value, rule.ty(value))?;
    let (index, rank) = (rule.op.operand_group("index"), view.tile.len());
    demand(index.len() == rank, || format!("{} indices for {}", index.len(), rule.text(value)))?;
    let mut scalars = Vec::new();
    for (d, &i) in index.iter().enumerate() {
        if view.sparse == Some(d) {
            let (_, shape) = rule.ints(i)?;
            let extent = i64::from(view.tile[d]);
            demand(shape == [extent], || {
                rule.expected(i, &format!("{extent} positions, a tile of integers of rank 1"))
            })?;
        } else {
            rule.int_scalar(i)?;
            scalars.push(i);
        }
    }
    rule.one_type(scalars)?;
    if let Some(Attr::Inbounds(all)) = rule.op.attr(AttrKind::Inbounds) {
        demand(all.len() == rank, || format!("{} values of inbounds for {}", all.len(), rule.text(value)))?;
    }
    Ok(view)
}

pub(super) fn access(rule: &OpRule) -> Rule {
    let view = access_view(rule)?;
    if rule.op.code == Opcode::LoadView {
        ordering(rule, LOADS)?;
        rule.has_type(rule.result(), &view.tile_type())?;
        rule.token_in_out(1)
    } else {
        ordering(rule, STORES)?;
        rule.has_type(rule.operand("tile"), &view.tile_type())?;
        rule.token_in_out(0)
    }
}

pub(super) fn atomic(rule: &OpRule) -> Rule {
    ordering(rule, &[MemOrder::Relaxed])?;
    let local = !matches!(rule.op.attr(AttrKind::MemScope), Some(Attr::MemScope(MemScope::System)));
    demand(local, || "scope sys is not allowed here, only tl_blk or device".to_string())?;
    let view = access_view(rule)?;
    let value = rule.operand("view");
    demand(view.sparse.is_none() && view.padding.is_none(), || {
        rule.expected(value, "a partition_view or strided_view without padding")
    })?;
    rule.has_type(rule.operand("value"), &view.tile_type())?;
    if let Some(Attr::AtomicMode(mode)) = rule.op.attr(AttrKind::AtomicMode) {
        demand(*mode != AtomicMode::Xchg, || "xchg is no reduction".to_string())?;
        demand(view.elem != DType::I16, || format!("{} of i16 requires pointers", mode.name()))?;
        atomic_types(rule, *mode, view.elem)?;
    }
    rule.token_in_out(0)
}

pub(super) fn multimem(rule: &OpRule) -> Rule {
    ordering(
        rule,
        match rule.op.code {
            Opcode::MultimemLoadReduce => LOADS,
            Opcode::MultimemStore => STORES,
            _ => &[MemOrder::Relaxed, MemOrder::Release],
        },
    )?;
    let view = access_view(rule)?;
    let value = rule.operand("view");
    let multicast = matches!(rule.ty(value), Type::PartitionView { .. }) && view.ptr_attr == Some(PtrAttr::Multicast);
    demand(multicast, || rule.expected(value, "a partition_view over multicast memory"))?;
    let load = rule.op.code == Opcode::MultimemLoadReduce;
    let tile = if load { rule.result() } else { rule.operand("tile") };
    rule.has_type(tile, &view.tile_type())?;
    if let Some(Attr::MultimemKind(kind)) = rule.op.attr(AttrKind::MultimemKind) {
        use DType::{BF16, F16, F32, F64, I32, I64};
        let known = match view.elem {
            I32 | I64 => true,
            F16 | BF16 if load => matches!(kind, MultimemKind::Add | MultimemKind::Min | MultimemKind::Max),
            F16 | BF16 | F32 | F64 => *kind == MultimemKind::Add,
            _ => false,
        };
        demand(known, || format!("{} of {} over multicast memory does not exist", kind.name(), view.elem))?;
    }
    rule.token_in_out(usize::from(load))
}
