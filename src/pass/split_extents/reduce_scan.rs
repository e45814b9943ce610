//! Reductions and scans: first inside of each box, then across the boxes in order with the function
//! of the region on whole tiles.

use super::state::{SplitTile, Splitter};
use crate::ir::{Op, Opcode, Substitution, Type, Value};
use crate::pass::is_commutative;
use crate::pass::transform::op_writer::is_elementwise;
use crate::util::collect::CollectVec as _;

impl Splitter<'_> {
    /// Splits `reduce`.
    pub fn reduce(&mut self, op: &Op) {
        let (axis, tiles) = (op.dim() as usize, self.tiles(op));
        if !self.check_elementwise(op) {
            return;
        }
        let grid = tiles[0].grid();
        // If any order is allowed, the boxes are combined elementwise along the axis, and the one
        // remaining box is reduced last.
        let last = grid.part(axis, grid.count(axis) - 1).1;
        let combines_boxes = self.in_strips && last > 1 && is_commutative(self.ops.module, op.regions[0]);
        let mut results = vec![Vec::new(); tiles.len()];
        for mut place in grid.places_across(axis) {
            let mut sums: Option<Vec<Value>> = None;
            let mut end = grid.extents(&place);
            end.remove(axis);
            for number in 0..grid.count(axis) {
                place[axis] = number;
                let boxes: Vec<Value> = tiles.iter().map(|tile| tile.boxes[grid.index(&place)]).collect_vec();
                let mut shape = end.clone();
                let within = if combines_boxes {
                    shape.insert(axis, last);
                    self.in_strips(op, boxes, &shape)
                } else {
                    self.reduce_boxes(op, &boxes, &shape)
                };
                sums = Some(match sums {
                    None => within,
                    Some(before) => self.combine(op.regions[0], &within, &before, &shape),
                });
            }
            let mut sums = sums.unwrap_or_default();
            if combines_boxes {
                sums = self.reduce_boxes(op, &sums, &end);
            }
            for (list, value) in results.iter_mut().zip(sums) {
                list.push(value);
            }
        }
        op.results.iter().zip(results).for_each(|(&result, boxes)| self.set(result, boxes));
    }

    /// Splits `scan`.
    pub fn scan(&mut self, op: &Op) {
        let (axis, tiles) = (op.dim() as usize, self.tiles(op));
        if !self.check_elementwise(op) {
            return;
        }
        let grid = tiles[0].grid();
        let mut results: Vec<Vec<Value>> = tiles.iter().map(|tile| tile.boxes.to_vec()).collect_vec();
        for mut place in grid.places_across(axis) {
            let mut carried: Option<Vec<Value>> = None;
            let count = grid.count(axis);
            for turn in 0..count {
                place[axis] = if op.reverse() { count - 1 - turn } else { turn };
                let (index, shape) = (grid.index(&place), grid.extents(&place));
                let boxes: Vec<Value> = tiles.iter().map(|tile| tile.boxes[index]).collect_vec();
                let mut values = self.reduce_boxes(op, &boxes, &shape);
                if let Some(carried) = carried {
                    let passed: Vec<Value> =
                        carried.iter().map(|&value| self.ops.broadcast(value, &shape)).collect_vec();
                    values = self.combine(op.regions[0], &values, &passed, &shape);
                }
                let mut ends = vec![0; shape.len()];
                ends[axis] = if op.reverse() { 0 } else { shape[axis] - 1 };
                let mut edge = shape.clone();
                edge[axis] = 1;
                carried = Some(values.iter().map(|&value| self.ops.extract(value, &ends, &edge)).collect_vec());
                for (list, value) in results.iter_mut().zip(values) {
                    list[index] = value;
                }
            }
        }
        op.results.iter().zip(results).for_each(|(&result, boxes)| self.set(result, boxes));
    }

    fn tiles(&self, op: &Op) -> Vec<SplitTile> {
        op.operands.iter().map(|&value| self.get(value)).collect_vec()
    }

    /// Reduces boxes along the axis to the extent that `shape` has there. Each element combines the
    /// elements of the box at multiples of that extent.
    fn in_strips(&mut self, op: &Op, boxes: Vec<Value>, shape: &[i64]) -> Vec<Value> {
        let axis = op.dim() as usize;
        let count = self.ops.shape(boxes[0])[axis] / shape[axis];
        if count == 1 {
            return boxes;
        }
        let mut strips = shape.to_vec();
        strips.insert(axis, count);
        let each = |&tile: &Value| {
            let elem = self.ops.elem(tile);
            self.ops.emit_one(Opcode::Reshape, &[tile], vec![], elem, &strips)
        };
        let boxes: Vec<Value> = boxes.iter().map(each).collect_vec();
        self.reduce_boxes(op, &boxes, shape)
    }

    /// Applies the op to one box of each operand, with results of this shape.
    fn reduce_boxes(&mut self, op: &Op, boxes: &[Value], shape: &[i64]) -> Vec<Value> {
        let region = self.ops.module.clone_block(op.regions[0], &mut Substitution::new());
        let tile = |elem| Type::Tile { elem, shape: shape.to_vec() };
        let types: Vec<Type> = boxes.iter().map(|&value| tile(self.ops.elem(value))).collect_vec();
        let types: Vec<_> = types.into_iter().map(|ty| self.ops.module.intern(ty)).collect_vec();
        let id = self.ops.emit(op.code, &[boxes], op.attrs.clone(), vec![region], &types);
        self.ops.module.op(id).results.clone()
    }

    /// Returns true if the function of the region can be applied to whole tiles.
    fn check_elementwise(&mut self, op: &Op) -> bool {
        let elementwise = is_elementwise(self.ops.module, op.regions[0]);
        if !elementwise {
            self.reject(
                op,
                "the function does more than elementwise operations, and the extent along the axis is no power of two",
                "take a tile whose extent there is a power of two",
            );
        }
        elementwise
    }
}
