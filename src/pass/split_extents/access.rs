//! Views and accesses: each box has its own view, whose tiles begin at the start of the box in the
//! original tiles.

use super::extents::{Grid, is_split};
use super::state::Splitter;
use crate::dtype::DType;
use crate::ir::{Attr, Elem, Op, Opcode, Sign, Type, Value};
use crate::util::collect::CollectVec as _;

/// Index transformation of an axis of a box view. The first element is
/// `(index * factor + start) * step`.
struct Stride {
    /// Elements from one tile of the box view to the next.
    step: i64,
    factor: i64,
    start: i64,
}

/// Returns the largest step that divides both the step of the view and the start of the box.
fn stride(traversal: i64, start: i64) -> Stride {
    let (mut step, mut rest) = (traversal, start);
    while rest != 0 {
        (step, rest) = (rest, step % rest);
    }
    Stride { step, factor: traversal / step, start: start / step }
}

impl Splitter<'_> {
    /// Splits an op that makes a view of tiles.
    pub fn view(&mut self, op: &Op) {
        let ty = self.ops.module.ty(op.results[0]).clone();
        let tensor = self.one(op.operands[0]);
        let grid = Grid::new(&tile_of(&ty));
        let views: Vec<Value> = grid
            .places()
            .iter()
            .map(|place| {
                let ty = box_view(&ty, &grid.starts(place), &grid.extents(place));
                let code = match ty {
                    Type::PartitionView { .. } => Opcode::MakePartitionView,
                    Type::StridedView { .. } => Opcode::MakeStridedView,
                    _ => Opcode::MakeGatherScatterView,
                };
                let ty = self.ops.module.intern(ty);
                let id = self.ops.emit(code, &[&[tensor]], vec![], vec![], &[ty]);
                self.ops.module.op(id).results[0]
            })
            .collect_vec();
        self.views.insert(op.results[0], views.into());
    }

    /// Splits `get_index_space_shape`. The first box of each tile begins where the tile does, so
    /// its view has the same index space.
    pub fn index_space(&mut self, op: &Op) {
        let view = self.views[&op.operands[0]][0];
        let types: Vec<_> = op.results.iter().map(|&result| self.ops.module.ty_id(result)).collect_vec();
        let id = self.ops.emit(op.code, &[&[view]], vec![], vec![], &types);
        let counts = self.ops.module.op(id).results.clone();
        op.results.iter().zip(counts).for_each(|(&result, count)| self.set(result, [count]));
    }

    /// Splits an access through a view.
    pub fn access(&mut self, op: &Op) {
        let view = op.operand_group("view")[0];
        let ty = self.ops.module.ty(view).clone();
        let (views, tile) = (self.views[&view].clone(), tile_of(&ty));
        let grid = Grid::new(&tile);
        let names = op.code.spec().operands;
        let indices = self.widened_indices(op.operand_group("index"), &ty);
        let stored: Option<Vec<Value>> = names
            .iter()
            .find(|group| matches!(group.name, "tile" | "value"))
            .map(|group| self.flat(op.operand_group(group.name)));
        let mut results: Vec<Vec<Value>> = vec![Vec::new(); op.results.len()];
        for (number, place) in grid.places().iter().enumerate() {
            let starts = grid.starts(place);
            let index: Vec<Value> = indices
                .iter()
                .enumerate()
                .map(|(axis, part)| self.index(&ty, axis, part, place, starts[axis]))
                .collect_vec();
            let token: Vec<Value> = op.operand_group("token").iter().map(|&token| self.one(token)).collect_vec();
            let groups: Vec<Vec<Value>> = names
                .iter()
                .map(|group| match group.name {
                    "view" => vec![views[number]],
                    "index" => index.clone(),
                    "token" => token.clone(),
                    _ => stored.iter().map(|boxes| boxes[number]).collect_vec(),
                })
                .collect_vec();
            let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect_vec();
            self.copy(op, &groups, number, &mut results);
        }
        self.finish_access(op, results);
    }

    /// Splits an access through pointers. Each operand except the token is a tile of the same
    /// shape.
    pub fn access_by_pointers(&mut self, op: &Op) {
        let names = op.code.spec().operands;
        let count = self.get(op.operands[0]).boxes.len();
        let mut results: Vec<Vec<Value>> = vec![Vec::new(); op.results.len()];
        for number in 0..count {
            let groups: Vec<Vec<Value>> = names
                .iter()
                .map(|group| {
                    let own = |&value: &Value| match group.name {
                        "token" => self.one(value),
                        _ => self.get(value).boxes[number],
                    };
                    op.operand_group(group.name).iter().map(own).collect_vec()
                })
                .collect_vec();
            let groups: Vec<&[Value]> = groups.iter().map(Vec::as_slice).collect_vec();
            self.copy(op, &groups, number, &mut results);
        }
        self.finish_access(op, results);
    }

    /// Emits the op for one box.
    fn copy(&mut self, op: &Op, groups: &[&[Value]], number: usize, results: &mut [Vec<Value>]) {
        let types: Vec<_> = op
            .results
            .iter()
            .map(|&result| {
                let types = self.types(result);
                if types.len() == 1 { types[0] } else { types[number] }
            })
            .collect_vec();
        let id = self.ops.emit(op.code, groups, op.attrs.clone(), vec![], &types);
        let made = self.ops.module.op(id).results.clone();
        results.iter_mut().zip(made).for_each(|(list, value)| list.push(value));
    }

    fn finish_access(&mut self, op: &Op, results: Vec<Vec<Value>>) {
        for (&result, values) in op.results.iter().zip(results) {
            match self.ops.module.ty(result) {
                Type::Token => self.join(result, values),
                _ => self.set(result, values),
            }
        }
    }

    /// Extends indices to at least 32 bits, because a smaller step has larger indices.
    fn widened_indices(&mut self, indices: &[Value], view: &Type) -> Vec<Vec<Value>> {
        let narrow = indices.iter().any(|&index| self.ops.module.dtype(index).bits() < 32);
        let sparse = matches!(view, Type::GatherScatterView { .. });
        indices
            .iter()
            .map(|&index| {
                let boxes = self.flat(&[index]);
                if !narrow || sparse && !self.ops.module.shape(index).is_empty() {
                    return boxes;
                }
                boxes
                    .into_iter()
                    .map(|value| {
                        let signed = vec![Attr::Sign(Sign::Signed)];
                        match self.ops.module.dtype(value).bits() < 32 {
                            true => self.ops.emit_one(Opcode::ExtI, &[value], signed, Elem::Num(DType::I32), &[]),
                            false => value,
                        }
                    })
                    .collect_vec()
            })
            .collect_vec()
    }

    /// Returns the index of a box along an axis of its view.
    fn index(&mut self, view: &Type, axis: usize, index: &[Value], place: &[usize], start: i64) -> Value {
        let stride = match view {
            Type::PartitionView { tile, .. } => stride(tile[axis].into(), start),
            Type::StridedView { traversal, .. } => stride(traversal[axis].into(), start),
            Type::GatherScatterView { sparse_dim, .. } if axis == *sparse_dim as usize => {
                return index[place[axis].min(index.len() - 1)];
            }
            _ => Stride { step: 1, factor: 1, start },
        };
        if start == 0 {
            return index[0];
        }
        self.scaled(index[0], &stride)
    }

    /// Emits `index * factor + start` without overflow. The index is clamped: an index outside of
    /// every array remains outside.
    fn scaled(&mut self, index: Value, stride: &Stride) -> Value {
        let dtype = self.ops.module.dtype(index);
        // Element positions have 64 bits.
        let step = if dtype.bits() < 64 { 1 } else { stride.step };
        let most = (i64::MAX >> (64 - dtype.bits())) / (stride.factor * step) - stride.start - 1;
        let index = self.ops.clamp(index, [-most, most]);
        let factor = self.ops.number(dtype, stride.factor);
        let start = self.ops.number(dtype, stride.start);
        let scaled = self.ops.int_op(Opcode::MulI, index, factor);
        self.ops.int_op(Opcode::AddI, scaled, start)
    }
}

fn tile_of(view: &Type) -> Vec<i64> {
    match view {
        Type::PartitionView { tile, .. } | Type::StridedView { tile, .. } | Type::GatherScatterView { tile, .. } => {
            tile.iter().map(|&extent| extent.into()).collect_vec()
        }
        _ => unreachable!("a view of tiles"),
    }
}

/// Returns the type of the view of one box. Along axes that are not split, the step between tiles
/// is unchanged.
fn box_view(view: &Type, starts: &[i64], extents: &[i64]) -> Type {
    let tile: Vec<i32> = extents.iter().map(|&extent| extent as i32).collect_vec();
    let steps = |traversal: &[i32]| -> Vec<i32> {
        let step =
            |(&each, &start): (&i32, &i64)| if start == 0 { each } else { stride(each.into(), start).step as i32 };
        traversal.iter().zip(starts).map(step).collect_vec()
    };
    let (traversal, tensor, dim_map, padding) = match view {
        Type::PartitionView { tile: whole, view, dim_map, padding } => (steps(whole), *view, dim_map, *padding),
        Type::StridedView { traversal, view, dim_map, padding, .. } => (steps(traversal), *view, dim_map, *padding),
        Type::GatherScatterView { view, sparse_dim, padding, .. } => {
            return Type::GatherScatterView { tile, view: *view, sparse_dim: *sparse_dim, padding: *padding };
        }
        _ => unreachable!("a view of tiles"),
    };
    let dim_map = dim_map.clone();
    if traversal == tile {
        return Type::PartitionView { tile, view: tensor, dim_map, padding };
    }
    Type::StridedView { tile, traversal, view: tensor, dim_map, padding }
}

/// Returns true for a view whose tiles are split.
pub fn is_split_view(ty: &Type) -> bool {
    match ty {
        Type::PartitionView { .. } | Type::StridedView { .. } | Type::GatherScatterView { .. } => {
            is_split(&tile_of(ty))
        }
        _ => false,
    }
}
