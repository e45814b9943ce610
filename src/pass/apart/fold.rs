//! Reductions and scans: within each box, then from box to box in order; and the function of their region on whole tiles.

use rustc_hash::FxHashMap;

use super::emit::{Cutter, Whole};
use crate::ir::{Attr, AttrKind, BlockId, ConstData, Elem, Op, Opcode, Substitution, Type, Value};

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
                    let passed: Vec<Value> = carried.iter().map(|&value| self.broadcast(value, &shape)).collect();
                    values = self.combine(op.regions[0], &values, &passed, &shape);
                }
                let mut ends = vec![0; shape.len()];
                ends[axis] = if op.reverse() { 0 } else { shape[axis] - 1 };
                let mut edge = shape.clone();
                edge[axis] = 1;
                carried = Some(values.iter().map(|&value| self.extract(value, &ends, &edge)).collect());
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
        let region = self.module.clone_block(op.regions[0], &mut Substitution::new());
        let operands: Vec<Value> = tiles.iter().map(|tile| tile.boxes[index]).collect();
        let tile = |tile: &Whole| Type::Tile { elem: tile.elem, shape: shape.to_vec() };
        let types: Vec<_> = tiles.iter().map(|whole| self.module.intern(tile(whole))).collect();
        let id = self.emit(op.code, &[&operands], op.attrs.clone(), vec![region], &types);
        self.module.op(id).results.clone()
    }

    /// Can the function of the region be applied to whole tiles?
    fn is_plain(&mut self, op: &Op) -> bool {
        let elementwise = self.module.block(op.regions[0]).ops.iter().all(|&id| {
            let code = self.module.op(id).code;
            code.is_elementwise() || matches!(code, Opcode::Constant | Opcode::Yield)
        });
        if !elementwise {
            self.refuse(
                op,
                "the function does more than elementwise operations, and the extent along the axis is no power of two",
                "take a tile whose extent there is a power of two",
            );
        }
        elementwise
    }

    /// The function of a region, for each element of tiles of this shape.
    fn combine(&mut self, region: BlockId, elements: &[Value], passed: &[Value], shape: &[i64]) -> Vec<Value> {
        let block = self.module.block(region).clone();
        let mut known: FxHashMap<Value, Value> = FxHashMap::default();
        for (args, (&element, &before)) in block.args.chunks(2).zip(elements.iter().zip(passed)) {
            known.insert(args[0], element);
            known.insert(args[1], before);
        }
        for id in block.ops {
            let op = self.module.op(id).clone();
            let operands: Vec<Value> = op
                .operands
                .iter()
                .map(|&value| match known.get(&value) {
                    Some(&tile) => tile,
                    // A scalar from outside of the region.
                    None => self.spread(self.one(value), shape),
                })
                .collect();
            if op.code == Opcode::Yield {
                return operands;
            }
            let elem: Elem = self.elem(op.results[0]);
            let attrs = op.attrs.iter().map(|attr| match attr {
                Attr::Value(ConstData::Dense(words)) => Attr::Value(ConstData::Splat(words[0])),
                attr => attr.clone(),
            });
            debug_assert!(op.attr(AttrKind::Dim).is_none(), "an elementwise op has no axis");
            let value = self.put(op.code, &operands, attrs.collect(), elem, shape);
            known.insert(op.results[0], value);
        }
        unreachable!("a region ends with yield")
    }
}
