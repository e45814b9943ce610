//! Reductions and scans: within each box, then from box to box in order; and the function of their region on whole tiles.

use super::emit::{Cutter, Whole};
use crate::ir::{Op, Substitution, Type, Value};
use crate::pass::writer::is_elementwise;

impl Cutter<'_> {
    /// `reduce`.
    pub fn reduce(&mut self, op: &Op) {
        let (axis, tiles) = (op.dim() as usize, self.tiles(op));
        if !self.is_plain(op) {
            return;
        }
        let grid = tiles[0].grid();
        let mut results = vec![Vec::new(); tiles.len()];
        for mut place in grid.places_across(axis) {
            let mut sums: Option<Vec<Value>> = None;
            for number in 0..grid.count(axis) {
                place[axis] = number;
                let mut shape = grid.extents(&place);
                shape.remove(axis);
                let within = self.folded(op, &tiles, grid.index(&place), &shape);
                sums = Some(match sums {
                    None => within,
                    Some(before) => self.combine(op.regions[0], &within, &before, &shape),
                });
            }
            for (list, value) in results.iter_mut().zip(sums.into_iter().flatten()) {
                list.push(value);
            }
        }
        op.results.iter().zip(results).for_each(|(&result, boxes)| self.set(result, boxes));
    }

    /// `scan`.
    pub fn scan(&mut self, op: &Op) {
        let (axis, tiles) = (op.dim() as usize, self.tiles(op));
        if !self.is_plain(op) {
            return;
        }
        let grid = tiles[0].grid();
        let mut results: Vec<Vec<Value>> = tiles.iter().map(|tile| tile.boxes.to_vec()).collect();
        for mut place in grid.places_across(axis) {
            let mut carried: Option<Vec<Value>> = None;
            let count = grid.count(axis);
            for turn in 0..count {
                place[axis] = if op.reverse() { count - 1 - turn } else { turn };
                let (index, shape) = (grid.index(&place), grid.extents(&place));
                let mut values = self.folded(op, &tiles, index, &shape);
                if let Some(carried) = carried {
                    let passed: Vec<Value> = carried.iter().map(|&value| self.ops.broadcast(value, &shape)).collect();
                    values = self.combine(op.regions[0], &values, &passed, &shape);
                }
                let mut ends = vec![0; shape.len()];
                ends[axis] = if op.reverse() { 0 } else { shape[axis] - 1 };
                let mut edge = shape.clone();
                edge[axis] = 1;
                carried = Some(values.iter().map(|&value| self.ops.extract(value, &ends, &edge)).collect());
                for (list, value) in results.iter_mut().zip(values) {
                    list[index] = value;
                }
            }
        }
        op.results.iter().zip(results).for_each(|(&result, boxes)| self.set(result, boxes));
    }

    fn tiles(&self, op: &Op) -> Vec<Whole> {
        op.operands.iter().map(|&value| self.get(value)).collect()
    }

    /// The op itself, on one box of each of its tiles.
    fn folded(&mut self, op: &Op, tiles: &[Whole], index: usize, shape: &[i64]) -> Vec<Value> {
        let region = self.ops.module.clone_block(op.regions[0], &mut Substitution::new());
        let operands: Vec<Value> = tiles.iter().map(|tile| tile.boxes[index]).collect();
        let tile = |tile: &Whole| Type::Tile { elem: tile.elem, shape: shape.to_vec() };
        let types: Vec<_> = tiles.iter().map(|whole| self.ops.module.intern(tile(whole))).collect();
        let id = self.ops.emit(op.code, &[&operands], op.attrs.clone(), vec![region], &types);
        self.ops.module.op(id).results.clone()
    }

    /// Can the function of the region be applied to whole tiles?
    fn is_plain(&mut self, op: &Op) -> bool {
        let elementwise = is_elementwise(self.ops.module, op.regions[0]);
        if !elementwise {
            self.refuse(
                op,
                "the function does more than elementwise operations, and the extent along the axis is no power of two",
                "take a tile whose extent there is a power of two",
            );
        }
        elementwise
    }
}
