//! Bitonic sort (K. Batcher, *Sorting networks and their applications*, 1968).
//!
//! Each step compares elements whose positions differ in one bit. Data decide only which element of
//! a pair is kept.
//!
//! * A step splits the tile at that bit, and joins the smaller and the larger elements again. If
//!   one thread holds both elements of a pair, this is two instructions.
//! * Every second run of a bitonic network is in descending order. Keys alone are sorted by minima
//!   and maxima: keys of such a run are complemented during that phase, so that the smaller one is
//!   first everywhere. Keys with other tiles, and keys of 64 bits, are compared: there, the result
//!   of the comparison is complemented. In registers this is an exchange of operands.

use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, ConstData, Opcode, Sign, Type, Value};
use crate::ops::elementwise::compare::mask;
use crate::ops::shape::rearrange::Rows;
use crate::tile::Trace;
use crate::util::collect::CollectVec as _;

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
            if self.by_extremes() {
                pairs[0][1] = self.inverted(pairs[0][1]);
            }
            let smaller = self.exchanged(&pairs, 1, None);
            self.tiles = smaller.into_iter().map(|kept| kept[0]).collect_vec();
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

    /// Returns true if the pairs are sorted by minima and maxima, and not by comparisons. A minimum
    /// of 64 bits is a comparison, too.
    fn by_extremes(&self) -> bool {
        self.tiles.len() == 1 && self.t.builder.module.dtype(self.tiles[0]).bits() <= 32
    }

    /// Sorts runs of this length. If there are several, every second one is in descending order.
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

    /// Complements the keys of every second run if `runs` is set. With `halves`, every second half
    /// of a run has been complemented before, which is undone. Only minima and maxima need it.
    fn turn(&mut self, run: i64, runs: bool, halves: bool) {
        if !self.by_extremes() {
            return;
        }
        let (rows, pattern): (_, &[bool]) = match (runs, halves) {
            (false, false) => return,
            (true, false) => (Rows::of(&self.shape, self.axis, 2, run), &[false, true]),
            (false, true) => (Rows::of(&self.shape, self.axis, 2, run / 2), &[false, true]),
            (true, true) => (Rows::of(&self.shape, self.axis, 4, run / 2), &[false, true, true, false]),
        };
        let dtype = self.t.builder.module.dtype(self.tiles[0]);
        let keys = self.t.reshaped_to(self.tiles[0], dtype, &rows.shape);
        self.tiles[0] = self.complemented(keys, rows.at, pattern);
    }

    /// Complements the parts along an axis for which the pattern is set.
    fn complemented(&mut self, value: Value, axis: usize, pattern: &[bool]) -> Value {
        let (dtype, shape) = (self.t.builder.module.dtype(value), self.t.builder.module.shape(value).to_vec());
        let mut parts = vec![1; shape.len()];
        parts[axis] = shape[axis];
        let ones = all_ones(dtype);
        let words = pattern.iter().map(|&turned| if turned { ones } else { 0 }).collect_vec();
        let ty = self.t.builder.module.intern(Type::tile(dtype, parts));
        let value_of_ones = vec![Attr::Value(ConstData::Dense(words.into()))];
        let ones = self.t.emit(Opcode::Constant, &[], value_of_ones, vec![], &[ty])[0];
        let ones = self.t.stretch(ones, &shape);
        self.t.put(Opcode::XorI, &[value, ones], vec![], dtype, &shape)
    }

    fn inverted(&mut self, value: Value) -> Value {
        let (dtype, shape) = (self.t.builder.module.dtype(value), self.t.builder.module.shape(value).to_vec());
        let ones = self.t.splat(dtype, all_ones(dtype), &shape);
        self.t.put(Opcode::XorI, &[value, ones], vec![], dtype, &shape)
    }

    /// Sorts bitonic runs of this length.
    fn merge(&mut self, run: i64) {
        let alternates = run < self.shape[self.axis];
        let mut distance = run / 2;
        while distance > 0 {
            let rows = Rows::of(&self.shape, self.axis, 2, distance);
            let pairs = self.pairs(&rows);
            let runs = alternates.then(|| self.halves_of_runs(run));
            for (tile, kept) in self.exchanged(&pairs, 2, runs).into_iter().enumerate() {
                let dtype = self.t.builder.module.dtype(kept[0]);
                self.tiles[tile] = self.t.of_halves([kept[0], kept[1]], dtype, &rows);
            }
            distance /= 2;
        }
    }

    /// The halves of each tile.
    fn pairs(&mut self, rows: &Rows) -> Vec<[Value; 2]> {
        let tiles = self.tiles.clone();
        tiles.into_iter().map(|tile| self.t.halves(tile, self.t.builder.module.dtype(tile), rows)).collect_vec()
    }

    /// The shape of one element of each pair of runs of this length: pairs of runs, runs, and the
    /// elements of a run.
    fn halves_of_runs(&self, run: i64) -> Rows {
        let mut shape = self.shape.clone();
        shape[self.axis] /= 2;
        Rows::of(&shape, self.axis, 2, run / 2)
    }

    /// The element of each pair with the smaller key, and the other one if `wanted` is 2. With
    /// `runs`, every second one of them is in descending order.
    fn exchanged(&mut self, pairs: &[[Value; 2]], wanted: usize, runs: Option<Rows>) -> Vec<Vec<Value>> {
        let shape = self.t.builder.module.shape(pairs[0][0]).to_vec();
        if let ([keys], true) = (pairs, self.by_extremes()) {
            let dtype = self.t.builder.module.dtype(keys[0]);
            let codes = &[Opcode::MinI, Opcode::MaxI][..wanted];
            let both = codes.iter().map(|&code| self.t.put(code, keys, vec![Attr::Sign(self.sign)], dtype, &shape));
            return vec![both.collect_vec()];
        }
        let mut smaller = self.smaller(pairs, &shape);
        if let Some(runs) = runs {
            let of_runs = self.t.reshaped_to(smaller, DType::I1, &runs.shape);
            let turned = self.complemented(of_runs, runs.at, &[false, true]);
            smaller = self.t.reshaped_to(turned, DType::I1, &shape);
        }
        let one = |&[a, b]: &[Value; 2]| {
            let dtype = self.t.builder.module.dtype(a);
            let orders = &[[a, b], [b, a]][..wanted];
            let both = orders.iter().map(|&[a, b]| self.t.put(Opcode::Select, &[smaller, a, b], vec![], dtype, &shape));
            both.collect_vec()
        };
        pairs.iter().map(one).collect_vec()
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
