//! Bitonic sort (K. Batcher, *Sorting networks and their applications*, 1968).
//!
//! Each step compares elements whose positions differ in one bit. Data decide only which element of
//! a pair is kept.
//!
//! * A step splits the tile at that bit, and joins the smaller and the larger elements again. If
//!   one thread holds both elements of a pair, this is two instructions.
//! * Every second run of a bitonic network is in descending order. Its keys are complemented during
//!   that phase, so that the smaller one is first everywhere.

use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, ConstData, Opcode, Sign, Type, Value};
use crate::ops::elementwise::compare::mask;
use crate::ops::shape::rearrange::Rows;
use crate::tile::Trace;

/// Tiles of one shape whose elements are permuted alike along an axis. The first tile has the keys.
/// If `ties` is set, the second one has i32 numbers that order equal keys. Others may follow.
pub(super) struct Network<'t> {
    t: &'t mut Trace,
    tiles: Vec<Value>,
    shape: Vec<i64>,
    axis: usize,
    sign: Sign,
    ties: bool,
}

impl<'t> Network<'t> {
    /// Creates the network before its first comparison. The extent along the axis is a power of
    /// two.
    pub fn new(t: &'t mut Trace, tiles: Vec<Value>, shape: &[i64], axis: usize, sign: Sign, ties: bool) -> Self {
        Network { t, tiles, shape: shape.to_vec(), axis, sign, ties }
    }

    /// Sorts all elements in ascending order of the keys.
    pub fn sort(&mut self) {
        self.runs(self.shape[self.axis]);
    }

    /// Keeps the `count` smallest elements, in order. `count` is a power of two.
    pub fn smallest(&mut self, count: i64) {
        self.runs(count);
        while self.shape[self.axis] > count {
            // A run and the next one have opposite orders. The smaller elements of all pairs are
            // therefore the smallest elements of both runs, and form a bitonic sequence.
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

    /// Returns the tiles, in their current shape.
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

    /// The number of tiles that are compared, and hence complemented.
    fn compared(&self) -> usize {
        1 + usize::from(self.ties)
    }

    /// Sorts runs of this length. If there are several, every second one is complemented.
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

    /// Complements every second run if `runs` is set. With `halves`, every second half of a run has
    /// been complemented before, which is undone.
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

    /// Sorts bitonic runs of this length.
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

    /// The element of each pair with the smaller key, and the other one if `wanted` is 2.
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

    /// Compares two keys: true if the first one is smaller.
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

/// The bit pattern with all bits of a type set.
fn all_ones(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bits())
}
