//! Sorting networks (K. Batcher, *Sorting networks and their applications*, 1968): each step compares elements whose
//! positions differ in one bit, so nothing depends on data but which of two is kept.
//!
//! A step takes the tile apart at that bit, and puts the smaller and the larger elements together again: there are two
//! instructions for two elements where a thread has both. Every other run of a bitonic network is in descending order: its
//! keys are complemented meanwhile, so that the smaller one goes first everywhere.

use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, ConstData, Opcode, Sign, Type, Value};
use crate::ops::elementwise::compare::mask;
use crate::ops::shape::rearrange::Rows;
use crate::tile::Trace;

/// Tiles of one shape whose elements move together along an axis: keys, then, if `ties`, numbers (i32) that decide between
/// equal keys, then others.
pub(super) struct Network<'t> {
    t: &'t mut Trace,
    tiles: Vec<Value>,
    shape: Vec<i64>,
    axis: usize,
    sign: Sign,
    ties: bool,
}

impl<'t> Network<'t> {
    /// Tiles before anything is compared; the extent along the axis is a power of two.
    pub fn new(t: &'t mut Trace, tiles: Vec<Value>, shape: &[i64], axis: usize, sign: Sign, ties: bool) -> Self {
        Network { t, tiles, shape: shape.to_vec(), axis, sign, ties }
    }

    /// All in order, the smallest key first.
    pub fn sort(&mut self) {
        self.runs(self.shape[self.axis]);
    }

    /// The `count` smallest in order, a power of two.
    pub fn smallest(&mut self, count: i64) {
        self.runs(count);
        while self.shape[self.axis] > count {
            // Of a run and the one behind it, which is in the opposite order, the smaller ones of each two elements are
            // the smallest of both runs, first upwards and then downwards or the other way round.
            let rows = Rows::of(&self.shape, self.axis, 2, count);
            let mut pairs = self.pairs(&rows);
            let compared = self.compared();
            for [_, behind] in &mut pairs[..compared] {
                *behind = self.inverted(*behind);
            }
            let smaller = self.exchanged(&pairs, 1);
            self.tiles = smaller.into_iter().map(|kept| kept[0]).collect();
            self.shape[self.axis] /= 2;
            self.turn(count, count < self.shape[self.axis], false);
            self.merge(count);
        }
        self.restore();
    }

    /// The tiles in the shape that they have now.
    pub fn finish(mut self) -> Vec<Value> {
        self.restore();
        self.tiles
    }

    fn restore(&mut self) {
        for tile in &mut self.tiles {
            let dtype = self.t.builder.module.dtype(*tile);
            *tile = self.t.reshaped_to(*tile, dtype, &self.shape);
        }
    }

    /// How many tiles are compared: these are complemented.
    fn compared(&self) -> usize {
        1 + usize::from(self.ties)
    }

    /// Runs of this length in order: where there are several, every other one complemented.
    fn runs(&mut self, length: i64) {
        let mut run = 2;
        while run <= length {
            self.turn(run, run < self.shape[self.axis], run > 2);
            self.merge(run);
            run *= 2;
        }
        if length == 1 {
            self.turn(1, self.shape[self.axis] > 1, false);
        }
    }

    /// Complements every other run, if it shall be, where every other half of a run may be so until now.
    fn turn(&mut self, run: i64, runs: bool, halves: bool) {
        let (rows, pattern): (_, &[bool]) = match (runs, halves) {
            (false, false) => return,
            (true, false) => (Rows::of(&self.shape, self.axis, 2, run), &[false, true]),
            (false, true) => (Rows::of(&self.shape, self.axis, 2, run / 2), &[false, true]),
            (true, true) => (Rows::of(&self.shape, self.axis, 4, run / 2), &[false, true, true, false]),
        };
        for tile in 0..self.compared() {
            let dtype = self.t.builder.module.dtype(self.tiles[tile]);
            let keys = self.t.reshaped_to(self.tiles[tile], dtype, &rows.shape);
            let mut shape = vec![1; rows.shape.len()];
            shape[rows.at] = rows.shape[rows.at];
            let ones = all_ones(dtype);
            let words = pattern.iter().map(|&turned| if turned { ones } else { 0 }).collect::<Vec<_>>();
            let ty = self.t.builder.module.intern(Type::tile(dtype, shape));
            let value = vec![Attr::Value(ConstData::Dense(words.into()))];
            let ones = self.t.emit(Opcode::Constant, &[], value, vec![], &[ty])[0];
            let ones = self.t.stretch(ones, &rows.shape);
            self.tiles[tile] = self.t.put(Opcode::XorI, &[keys, ones], vec![], dtype, &rows.shape);
        }
    }

    fn inverted(&mut self, value: Value) -> Value {
        let (dtype, shape) = (self.t.builder.module.dtype(value), self.t.builder.module.shape(value).to_vec());
        let ones = self.t.splat(dtype, all_ones(dtype), &shape);
        self.t.put(Opcode::XorI, &[value, ones], vec![], dtype, &shape)
    }

    /// Runs of this length, each first upwards and then downwards or the other way round, in order.
    fn merge(&mut self, run: i64) {
        let mut distance = run / 2;
        while distance > 0 {
            let rows = Rows::of(&self.shape, self.axis, 2, distance);
            let pairs = self.pairs(&rows);
            for (tile, kept) in self.exchanged(&pairs, 2).into_iter().enumerate() {
                let dtype = self.t.builder.module.dtype(kept[0]);
                self.tiles[tile] = self.t.of_halves([kept[0], kept[1]], dtype, &rows);
            }
            distance /= 2;
        }
    }

    /// The halves of each tile.
    fn pairs(&mut self, rows: &Rows) -> Vec<[Value; 2]> {
        let tiles = self.tiles.clone();
        tiles.into_iter().map(|tile| self.t.halves(tile, self.t.builder.module.dtype(tile), rows)).collect()
    }

    /// Of each pair the element with the smaller key, and, if both are wanted, the other one.
    fn exchanged(&mut self, pairs: &[[Value; 2]], wanted: usize) -> Vec<Vec<Value>> {
        let shape = self.t.builder.module.shape(pairs[0][0]).to_vec();
        if let [keys] = pairs {
            let dtype = self.t.builder.module.dtype(keys[0]);
            let codes = &[Opcode::MinI, Opcode::MaxI][..wanted];
            let both = codes.iter().map(|&code| self.t.put(code, keys, vec![Attr::Sign(self.sign)], dtype, &shape));
            return vec![both.collect()];
        }
        let smaller = self.smaller(pairs, &shape);
        let one = |&[a, b]: &[Value; 2]| {
            let dtype = self.t.builder.module.dtype(a);
            let orders = &[[a, b], [b, a]][..wanted];
            let both = orders.iter().map(|&[a, b]| self.t.put(Opcode::Select, &[smaller, a, b], vec![], dtype, &shape));
            both.collect()
        };
        pairs.iter().map(one).collect()
    }

    /// Is the first of two keys the smaller one?
    fn smaller(&mut self, pairs: &[[Value; 2]], shape: &[i64]) -> Value {
        let signed = self.sign == Sign::Signed;
        let mut is = |pred, [a, b]: [Value; 2], signed| {
            let dtype = self.t.builder.module.dtype(a);
            mask(self.t, pred, CmpOrder::Ordered, dtype, signed, a, b, shape)
        };
        let smaller = is(CmpPred::Lt, pairs[0], signed);
        if !self.ties {
            return smaller;
        }
        let (equal, before) = (is(CmpPred::Eq, pairs[0], signed), is(CmpPred::Lt, pairs[1], true));
        let first = self.t.put(Opcode::AndI, &[equal, before], vec![], DType::I1, shape);
        self.t.put(Opcode::OrI, &[smaller, first], vec![], DType::I1, shape)
    }
}

/// A number of which all bits are set.
fn all_ones(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bits())
}
