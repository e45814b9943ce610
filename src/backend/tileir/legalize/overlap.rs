//! Legalization of tiles of strided views that may begin before the array and reach into it: Tile
//! IR has no negative indices. Masked accesses through pointers replace them.

use super::bounds::padding_bits;
use super::index::through_assumes;
use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, CmpPred, ConstData, Entry, Loc, Module, OpId, Opcode, Overflow, Sign, Substitution, Type, Value,
};
use crate::pass::IntRanges;
use crate::util::collect::CollectVec as _;

/// Replaces the accesses of an entry to tiles that may begin before the array. Returns true if
/// there were any.
pub(super) fn run(module: &mut Module, entry: &Entry, facts: &IntRanges) -> bool {
    let mut values = Substitution::new();
    let mut any = false;
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        if !may_begin_before(module, facts, id) {
            return out.push(id);
        }
        any = true;
        let loc = module.op(id).loc;
        Edit { module, out, loc }.through_pointers(id, &mut values);
    });
    values.apply(module, entry.body);
    any
}

/// Returns true for an access to a tile that may extend across the start of its array.
fn may_begin_before(module: &Module, facts: &IntRanges, id: OpId) -> bool {
    let op = module.op(id);
    if !matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView) {
        return false;
    }
    let view = op.operand_group("view")[0];
    let Type::StridedView { tile, traversal, view: array, .. } = module.ty(view) else { return false };
    // A pointer cannot address an element that shares a byte.
    let Type::TensorView { elem, .. } = module.type_of(*array) else { return false };
    if elem.storage_bits() < 8 {
        return false;
    }
    let index = op.operand_group("index");
    let nonnegative = |value: Value| facts.range(value).is_some_and(|range| range.lo >= 0);
    (0..tile.len()).any(|d| tile[d] > traversal[d] && !is_assumed(module, id, d) && !nonnegative(index[d]))
}

fn is_assumed(module: &Module, id: OpId, dim: usize) -> bool {
    match module.op(id).attr(AttrKind::Inbounds) {
        Some(Attr::Inbounds(promised)) => promised.get(dim) == Some(&true),
        _ => false,
    }
}

/// Ops that replace one op.
struct Edit<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    loc: Loc,
}

impl Edit<'_> {
    fn add(&mut self, code: Opcode, groups: &[&[Value]], attrs: Vec<Attr>, ty: Type) -> Value {
        let ty = self.module.intern(ty);
        let id = self.module.add_op(code, groups, attrs, vec![], &[ty], self.loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    fn wide(&mut self, value: Value) -> Value {
        match self.module.dtype(value) {
            DType::I64 => value,
            _ => self.add(Opcode::ExtI, &[&[value]], vec![Attr::Sign(Sign::Signed)], Type::scalar(DType::I64)),
        }
    }

    /// Converts an index to i64 and clamps it, so that positions fit in 64 bits. Tiles beyond the
    /// clamp are entirely outside, as the last ones are.
    fn countable(&mut self, index: Value, step: i64, extent: i64) -> Value {
        let fits = step == 1 || self.module.dtype(index).bits() < DType::I64.bits();
        let mut index = self.wide(index);
        if !fits {
            let most = (i64::MAX - extent) / step;
            for (code, bound) in [(Opcode::MinI, most), (Opcode::MaxI, -most)] {
                let bound = self.number(bound);
                let signed = vec![Attr::Sign(Sign::Signed)];
                index = self.add(code, &[&[index], &[bound]], signed, Type::scalar(DType::I64));
            }
        }
        index
    }

    fn number(&mut self, number: i64) -> Value {
        let data = vec![Attr::Value(ConstData::Splat(number as u64))];
        self.add(Opcode::Constant, &[], data, Type::scalar(DType::I64))
    }

    /// Broadcasts a scalar, or a list along dimension `dim`, to the shape of the tile.
    fn spread(&mut self, value: Value, dim: usize, shape: &[i64]) -> Value {
        let elem = match self.module.ty(value) {
            Type::Tile { elem, .. } => *elem,
            _ => unreachable!("a tile"),
        };
        let mut thin = vec![1; shape.len()];
        if let [extent] = *self.module.shape(value) {
            thin[dim] = extent;
        }
        let thin = self.add(Opcode::Reshape, &[&[value]], vec![], Type::Tile { elem, shape: thin });
        match self.module.shape(thin) == shape {
            true => thin,
            false => self.add(Opcode::Broadcast, &[&[thin]], vec![], Type::Tile { elem, shape: shape.to_vec() }),
        }
    }

    fn integers(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let ty = self.module.ty(a).clone();
        self.add(code, &[&[a], &[b]], vec![Attr::Overflow(Overflow::None)], ty)
    }

    /// Returns base, extents and strides of the array of a view; extents and strides as i64.
    fn array(&mut self, view: Value) -> (Value, Vec<Value>, Vec<Value>) {
        let cut = self.module.defining_op(view).expect("views come from ops");
        let tensor = through_assumes(self.module, self.module.op(cut).operands[0]);
        let make = self.module.op(self.module.defining_op(tensor).expect("views come from ops")).clone();
        let Type::TensorView { shape, strides, .. } = self.module.ty(tensor).clone() else {
            unreachable!("a tensor view")
        };
        let mut all = |numbers: &[Option<i64>], group: &str| -> Vec<Value> {
            let mut dynamic = make.operand_group(group).iter();
            let mut value = |number: &Option<i64>| match number {
                Some(number) => self.number(*number),
                None => self.wide(*dynamic.next().expect("an operand for each unknown number")),
            };
            numbers.iter().map(&mut value).collect_vec()
        };
        let extents = all(&shape, "dynamic_shape");
        let strides = all(&strides, "dynamic_strides");
        (make.operand_group("base")[0], extents, strides)
    }

    fn through_pointers(&mut self, id: OpId, values: &mut Substitution) {
        let op = self.module.op(id).clone();
        let view = op.operand_group("view")[0];
        let Type::StridedView { tile, traversal, dim_map, .. } = self.module.ty(view).clone() else {
            unreachable!("a strided view")
        };
        let shape: Vec<i64> = tile.iter().map(|&e| e.into()).collect_vec();
        let (base, extents, strides) = self.array(view);
        let (mut offset, mut mask): (Option<Value>, Option<Value>) = (None, None);
        for (d, &index) in op.operand_group("index").iter().enumerate() {
            let dim = dim_map[d] as usize;
            let list = Type::tile(DType::I64, [shape[d]]);
            let index = self.countable(index, traversal[d].into(), shape[d]);
            let step = self.number(traversal[d].into());
            let start = self.integers(Opcode::MulI, index, step);
            let counted = self.add(Opcode::Iota, &[], vec![], list.clone());
            let start = self.spread(start, 0, &[shape[d]]);
            let position = self.integers(Opcode::AddI, counted, start);
            if !is_assumed(self.module, id, d) {
                let extent = self.spread(extents[dim], 0, &[shape[d]]);
                let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Unsigned)];
                let truth = Type::tile(DType::I1, [shape[d]]);
                let inside = self.add(Opcode::CmpI, &[&[position], &[extent]], attrs, truth);
                let inside = self.spread(inside, d, &shape);
                mask = Some(match mask {
                    None => inside,
                    Some(mask) => {
                        self.add(Opcode::AndI, &[&[mask], &[inside]], vec![], Type::tile(DType::I1, shape.as_slice()))
                    }
                });
            }
            let stride = self.spread(strides[dim], 0, &[shape[d]]);
            let elements = self.integers(Opcode::MulI, position, stride);
            let elements = self.spread(elements, d, &shape);
            offset = Some(offset.map_or(elements, |sum| self.integers(Opcode::AddI, sum, elements)));
        }
        let base = self.spread(base, 0, &shape);
        let pointers = self.module.ty(base).clone();
        let pointers = self.add(Opcode::Offset, &[&[base], &[offset.expect("a dimension")]], vec![], pointers);
        self.access(id, pointers, mask.as_slice(), values);
    }

    fn access(&mut self, id: OpId, pointers: Value, mask: &[Value], values: &mut Substitution) {
        let op = self.module.op(id).clone();
        let view = op.operand_group("view")[0];
        let kept = [AttrKind::MemOrder, AttrKind::MemScope, AttrKind::Hints, AttrKind::AtomicMode];
        let attrs: Vec<Attr> = kept.iter().filter_map(|&kind| op.attr(kind).cloned()).collect_vec();
        let results: Vec<_> = op.results.iter().map(|&value| self.module.ty_id(value)).collect_vec();
        let token = op.operand_group("token");
        if op.code == Opcode::AtomicRedView {
            let value = op.operand_group("value");
            let ty = self.module.ty_id(value[0]);
            let groups: [&[Value]; 4] = [&[pointers], value, mask, token];
            let new = self.module.add_op(Opcode::AtomicRmw, &groups, attrs, vec![], &[ty, results[0]], self.loc);
            self.out.push(new);
            let replaced = self.module.op(new).results[1];
            values.replace(op.results[0], replaced);
            return;
        }
        let new = if op.code == Opcode::LoadView {
            let ty = self.module.ty(op.results[0]).clone();
            let bits = Attr::Value(ConstData::Splat(padding_bits(self.module, view, op.results[0])));
            let otherwise: Vec<Value> =
                mask.iter().map(|_| self.add(Opcode::Constant, &[], vec![bits.clone()], ty.clone())).collect_vec();
            let groups: [&[Value]; 4] = [&[pointers], mask, &otherwise, token];
            self.module.add_op(Opcode::LoadPtr, &groups, attrs, vec![], &results, self.loc)
        } else {
            let groups: [&[Value]; 4] = [&[pointers], op.operand_group("tile"), mask, token];
            self.module.add_op(Opcode::StorePtr, &groups, attrs, vec![], &results, self.loc)
        };
        self.out.push(new);
        let replaced: Vec<Value> = self.module.op(new).results.clone();
        op.results.iter().zip(replaced).for_each(|(&old, new)| values.replace(old, new));
    }
}
