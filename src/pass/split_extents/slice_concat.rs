//! Slices and concatenations of split tiles along an axis, for any boxes.

use super::extents::powers_of_two;
use super::state::{SplitTile, Splitter};
use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Elem, Opcode, Sign, Value};
use crate::util::collect::CollectVec as _;

/// Box of a row of boxes: its start and length along the axis.
#[derive(Clone, Copy)]
struct Segment {
    start: i64,
    length: i64,
    value: Value,
}

impl Splitter<'_> {
    /// Returns the part of a tile from `start` along an axis, with this length.
    pub fn slice(&mut self, tile: &SplitTile, axis: usize, start: i64, length: i64) -> SplitTile {
        if length == tile.shape[axis] {
            return tile.clone();
        }
        self.rebuild_rows(tile, axis, length, |splitter, row, parts| {
            parts.iter().map(|&(at, long)| splitter.slice_row(row, axis, start + at, long)).collect_vec()
        })
    }

    /// Concatenates tiles along an axis.
    pub fn concat(&mut self, tiles: &[SplitTile], axis: usize) -> SplitTile {
        let mut shape = tiles[0].shape.clone();
        shape[axis] = tiles.iter().map(|tile| tile.shape[axis]).sum();
        let rows: Vec<Vec<Vec<Segment>>> = tiles.iter().map(|tile| rows(tile, axis)).collect_vec();
        let parts = powers_of_two(shape[axis]);
        let made = (0..rows[0].len()).map(|number| {
            let mut row = Vec::new();
            let mut end = 0;
            for (tile, rows) in tiles.iter().zip(&rows) {
                row.extend(rows[number].iter().map(|segment| Segment { start: end + segment.start, ..*segment }));
                end += tile.shape[axis];
            }
            parts.iter().map(|&(at, long)| self.slice_row(&row, axis, at, long)).collect_vec()
        });
        let made: Vec<Vec<Value>> = made.collect_vec();
        assemble(tiles[0].elem, shape, axis, &made)
    }

    /// Returns block `index` of the blocks of this length along an axis. The index is a run-time
    /// value and is clamped.
    pub fn extract_block(&mut self, tile: &SplitTile, axis: usize, index: Value, length: i64) -> SplitTile {
        if length.count_ones() == 1 {
            return self.rebuild_rows(tile, axis, length, |splitter, row, _| {
                vec![splitter.extract_from_row(row, axis, index, length)]
            });
        }
        let blocks = tile.shape[axis] / length;
        let mut chosen = self.slice(tile, axis, 0, length);
        for block in 1..blocks {
            let other = self.slice(tile, axis, block * length, length);
            let is_it = self.is_at_least(index, block);
            let pairs = other.boxes.iter().zip(&*chosen.boxes);
            let boxes: Vec<Value> = pairs.map(|(&one, &before)| self.select(is_it, one, before)).collect_vec();
            chosen.boxes = boxes.into();
        }
        chosen
    }

    fn extract_from_row(&mut self, row: &[Segment], axis: usize, index: Value, length: i64) -> Value {
        let mut chosen = None;
        for segment in row {
            let local_index = self.local_index(index, segment.start / length, segment.length / length);
            let mut shape = self.ops.shape(segment.value);
            shape[axis] = length;
            let zero = self.ops.number(DType::I32, 0);
            let indices: Vec<Value> =
                (0..shape.len()).map(|d| if d == axis { local_index } else { zero }).collect_vec();
            let found = self.ops.extract_at(segment.value, &indices, &shape);
            chosen = Some(match chosen {
                None => found,
                Some(before) => {
                    let is_here = self.is_at_least(index, segment.start / length);
                    self.select(is_here, found, before)
                }
            });
        }
        chosen.expect("a box")
    }

    /// Returns the index of a block relative to a box with `count` blocks from `first`, clamped to
    /// the box.
    pub fn local_index(&mut self, index: Value, first: i64, count: i64) -> Value {
        let dtype = self.ops.module.dtype(index);
        let first = self.ops.number(dtype, first);
        let apart = self.ops.int_op(Opcode::SubI, index, first);
        self.ops.clamp(apart, [0, count - 1])
    }

    /// Emits the comparison of a scalar with a lower bound.
    pub fn is_at_least(&mut self, index: Value, number: i64) -> Value {
        let dtype = self.ops.module.dtype(index);
        let number = self.ops.number(dtype, number);
        let attrs = vec![Attr::CmpPred(CmpPred::Ge), Attr::Sign(Sign::Signed)];
        self.ops.emit_one(Opcode::CmpI, &[index, number], attrs, Elem::Num(DType::I1), &[])
    }

    /// Emits the selection of one of two tiles by a scalar.
    pub fn select(&mut self, condition: Value, if_true: Value, if_false: Value) -> Value {
        let (elem, shape) = (self.ops.elem(if_true), self.ops.shape(if_true));
        let condition = self.ops.splat_to(condition, &shape);
        self.ops.emit_one(Opcode::Select, &[condition, if_true, if_false], vec![], elem, &shape)
    }

    /// Makes a tile with another extent along an axis, row by row.
    fn rebuild_rows(
        &mut self,
        tile: &SplitTile,
        axis: usize,
        extent: i64,
        mut make: impl FnMut(&mut Self, &[Segment], &[(i64, i64)]) -> Vec<Value>,
    ) -> SplitTile {
        let mut shape = tile.shape.clone();
        shape[axis] = extent;
        let parts = powers_of_two(extent);
        let made: Vec<Vec<Value>> = rows(tile, axis).iter().map(|row| make(self, row, &parts)).collect_vec();
        assemble(tile.elem, shape, axis, &made)
    }

    /// Returns `length` elements, a power of two, of a row of boxes from `start`.
    fn slice_row(&mut self, row: &[Segment], axis: usize, start: i64, length: i64) -> Value {
        let within = |segment: &&Segment| segment.start <= start && start + length <= segment.start + segment.length;
        if let Some(segment) = row.iter().find(within)
            && (start - segment.start) % length == 0
        {
            let mut shape = self.ops.shape(segment.value);
            let mut indices = vec![0; shape.len()];
            shape[axis] = length;
            indices[axis] = (start - segment.start) / length;
            return self.ops.extract(segment.value, &indices, &shape);
        }
        let half = length / 2;
        let (first, second) = (self.slice_row(row, axis, start, half), self.slice_row(row, axis, start + half, half));
        self.ops.cat(first, second, axis)
    }
}

/// Returns the boxes of a tile as rows along an axis, one row for each position across it.
fn rows(tile: &SplitTile, axis: usize) -> Vec<Vec<Segment>> {
    let grid = tile.grid();
    let row = |mut place: Vec<usize>| {
        let segment = |number| {
            place[axis] = number;
            let (start, length) = grid.part(axis, number);
            Segment { start, length, value: tile.boxes[grid.index(&place)] }
        };
        (0..grid.count(axis)).map(segment).collect_vec()
    };
    grid.places_across(axis).into_iter().map(row).collect_vec()
}

/// Assembles a tile from rows of boxes along an axis.
fn assemble(elem: Elem, shape: Vec<i64>, axis: usize, rows: &[Vec<Value>]) -> SplitTile {
    let grid = super::extents::Grid::new(&shape);
    let mut boxes = vec![None; grid.places().len()];
    for (mut place, row) in grid.places_across(axis).into_iter().zip(rows) {
        for (number, &value) in row.iter().enumerate() {
            place[axis] = number;
            boxes[grid.index(&place)] = Some(value);
        }
    }
    SplitTile { elem, shape, boxes: boxes.into_iter().map(|value| value.expect("a box at each place")).collect() }
}
