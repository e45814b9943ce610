//! Ops that create tiles or move their elements.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::extents::{Grid, Traversal, is_split};
use super::state::{SplitTile, Splitter};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, ConstData, Elem, Op, Opcode, Value};

/// Maximum number of pieces of a tile whose elements are moved by a reshape.
const MAX_PIECES: i64 = 512;

/// Maximum number of candidate blocks at a run-time index, if each of them is assembled from
/// several boxes.
const MAX_CHOICES: i64 = 32;

impl Splitter<'_> {
    /// Splits `constant`.
    pub fn constant(&mut self, op: &Op) {
        let Some(data) = op.const_data().cloned() else { return };
        self.map_boxes(op, |splitter, starts, extents| {
            let data = match &data {
                ConstData::Splat(bits) => ConstData::Splat(*bits),
                ConstData::Dense(words) => {
                    let shape = splitter.ops.shape(op.results[0]);
                    ConstData::Dense(elements(&shape, starts, extents).into_iter().map(|at| words[at]).collect())
                }
            };
            let elem = splitter.ops.elem(op.results[0]);
            splitter.ops.emit_one(Opcode::Constant, &[], vec![Attr::Value(data)], elem, extents)
        });
    }

    /// Splits `iota`.
    pub fn iota(&mut self, op: &Op) {
        self.map_boxes(op, |splitter, starts, extents| {
            let elem = splitter.ops.elem(op.results[0]);
            let count = splitter.ops.emit_one(Opcode::Iota, &[], vec![], elem, extents);
            if starts[0] == 0 {
                return count;
            }
            let dtype = splitter.ops.module.dtype(op.results[0]);
            let start = splitter.ops.number(dtype, starts[0]);
            let start = splitter.ops.splat_to(start, extents);
            splitter.ops.int_op(Opcode::AddI, count, start)
        });
    }

    /// Splits `broadcast`.
    pub fn broadcast_op(&mut self, op: &Op) {
        let source = self.get(op.operands[0]);
        let from = source.grid();
        let target = Grid::new(&self.ops.shape(op.results[0]));
        let boxes: Vec<Value> = target
            .places()
            .iter()
            .map(|place| {
                let at: Vec<usize> =
                    place.iter().zip(&source.shape).map(|(&n, &extent)| if extent == 1 { 0 } else { n }).collect_vec();
                self.ops.broadcast(source.boxes[from.index(&at)], &target.extents(place))
            })
            .collect_vec();
        self.set(op.results[0], boxes);
    }

    /// Splits `permute`.
    pub fn permute(&mut self, op: &Op) {
        let source = self.get(op.operands[0]);
        let from = source.grid();
        let target = Grid::new(&self.ops.shape(op.results[0]));
        let order = op.permutation().to_vec();
        let boxes: Vec<Value> = target
            .places()
            .iter()
            .map(|place| {
                let mut at = vec![0; place.len()];
                order.iter().zip(place).for_each(|(&axis, &number)| at[axis as usize] = number);
                let attrs = vec![Attr::Permutation(order.clone())];
                self.ops.emit_one(
                    Opcode::Permute,
                    &[source.boxes[from.index(&at)]],
                    attrs,
                    source.elem,
                    &target.extents(place),
                )
            })
            .collect_vec();
        self.set(op.results[0], boxes);
    }

    /// Splits `cat`.
    pub fn cat_op(&mut self, op: &Op) {
        let tiles = [self.get(op.operands[0]), self.get(op.operands[1])];
        let joined = self.concat(&tiles, op.dim() as usize);
        self.set(op.results[0], joined.boxes);
    }

    /// Splits `reshape`.
    pub fn reshape(&mut self, op: &Op) {
        let source = self.get(op.operands[0]);
        let to = self.ops.shape(op.results[0]);
        match self.reshaped(&source, &to) {
            Some(whole) => self.set(op.results[0], whole.boxes),
            None => self.reject(
                op,
                &format!("from {:?} to {to:?}, more than {MAX_PIECES} pieces would change their places", source.shape),
                "keep the axis whose extent is no power of two as it is, or cut it by one that is",
            ),
        }
    }

    fn reshaped(&mut self, source: &SplitTile, to: &[i64]) -> Option<SplitTile> {
        let (from, target) = (source.grid(), Grid::new(to));
        let walk = |shape: &[i64], grid: &Grid, place: &[usize]| {
            Traversal::new(shape, &grid.starts(place), &grid.extents(place))
        };
        let boxes_by_traversal: FxHashMap<Traversal, Value> = from
            .places()
            .iter()
            .zip(&*source.boxes)
            .map(|(at, &tile)| (walk(&source.shape, &from, at), tile))
            .collect();
        let places = target.places();
        let found: Option<Vec<Value>> =
            places.iter().map(|place| boxes_by_traversal.get(&walk(to, &target, place)).copied()).collect();
        let Some(found) = found else { return self.reshape_by_pieces(source, to) };
        let boxes = places.iter().zip(found).map(|(place, tile)| {
            self.ops.emit_one(Opcode::Reshape, &[tile], vec![], source.elem, &target.extents(place))
        });
        Some(SplitTile { elem: source.elem, shape: to.to_vec(), boxes: boxes.collect() })
    }

    /// Reshapes a tile whose boxes do not correspond to boxes of the result: through pieces that
    /// are contiguous in both shapes.
    fn reshape_by_pieces(&mut self, source: &SplitTile, to: &[i64]) -> Option<SplitTile> {
        let [slim_from, slim_to] = [&source.shape[..], to].map(squeezed);
        if slim_from != source.shape || slim_to != to {
            let source = self.reshaped(source, &slim_from)?;
            let whole = self.reshaped(&source, &slim_to)?;
            return self.reshaped(&whole, to);
        }
        let from = &source.shape;
        if let Some(intermediate_shape) = intermediate_shape(from, to) {
            let first = self.reshaped(source, &intermediate_shape)?;
            return self.reshaped(&first, to);
        }
        // Leading and trailing axes that both shapes share are unchanged.
        let shorter = from.len().min(to.len());
        let head = (0..shorter).take_while(|&d| from[d] == to[d]).count();
        let tail = (1..=shorter - head).take_while(|&d| from[from.len() - d] == to[to.len() - d]).count();
        let (inner, outer) = (&from[head..from.len() - tail], &to[head..to.len() - tail]);
        let unit = |shape: &[i64]| shape.iter().rev().find(|&&extent| extent > 1).map_or(1, |n| n & n.wrapping_neg());
        let length = unit(inner).min(unit(outer));
        let count = inner.iter().product::<i64>() / length;
        if count > MAX_PIECES {
            return None;
        }
        let pieces: Vec<SplitTile> =
            (0..count).map(|n| self.piece(source, head, tail, n * length, length)).collect_vec();
        let last = head + outer.iter().rposition(|&extent| extent > 1).unwrap_or(0);
        let mut shape = to.to_vec();
        shape[head..to.len() - tail].fill(1);
        if outer.iter().any(|&extent| extent > 1) {
            shape[last] = length;
        }
        let mut pieces: Vec<SplitTile> =
            pieces.iter().map(|piece| self.reshaped(piece, &shape)).collect::<Option<_>>()?;
        for axis in (head..to.len() - tail).rev() {
            let each = (to[axis] / pieces[0].shape[axis]) as usize;
            pieces = pieces.chunks(each).map(|row| self.concat(row, axis)).collect_vec();
        }
        pieces.into_iter().next()
    }

    /// Returns the `length` elements from `first` along the axes between `head` and `tail`, in
    /// row-major order.
    fn piece(&mut self, source: &SplitTile, head: usize, tail: usize, first: i64, length: i64) -> SplitTile {
        let mut piece = source.clone();
        let (mut rest, mut long) = (first, length);
        for axis in (head..source.shape.len() - tail).rev() {
            let extent = source.shape[axis];
            if extent > 1 {
                piece = self.slice(&piece, axis, rest % extent, long);
                long = 1;
            }
            rest /= extent;
        }
        piece
    }

    /// Splits `extract`.
    pub fn extract_tile(&mut self, op: &Op) {
        let (operands, to) = (op.operands.clone(), self.ops.shape(op.results[0]));
        let mut tile = self.get(operands[0]);
        let mut rest: Vec<Value> = operands[1..].iter().map(|&index| self.one(index)).collect_vec();
        for axis in 0..to.len() {
            if !is_split(&[tile.shape[axis], to[axis]]) {
                continue;
            }
            tile = match self.constant_scalar(rest[axis]) {
                Some(index) => {
                    let index = index.clamp(0, tile.shape[axis] / to[axis] - 1);
                    self.slice(&tile, axis, index * to[axis], to[axis])
                }
                None if is_split(&[to[axis]]) && tile.shape[axis] / to[axis] > MAX_CHOICES => {
                    let problem = format!("a block of {to:?} of a tile of {:?} at an index of run time", tile.shape);
                    return self.reject(op, &problem, "take blocks whose extents are powers of two");
                }
                None => self.extract_block(&tile, axis, rest[axis], to[axis]),
            };
            rest[axis] = self.ops.number(DType::I32, 0);
        }
        let grid = Grid::new(&to);
        let pairs: Vec<(Value, Vec<i64>)> =
            tile.boxes.iter().copied().zip(grid.places().iter().map(|place| grid.extents(place))).collect_vec();
        let boxes: Vec<Value> = pairs
            .into_iter()
            .map(
                |(tile, shape)| {
                    if self.ops.shape(tile) == shape { tile } else { self.ops.extract_at(tile, &rest, &shape) }
                },
            )
            .collect_vec();
        self.set(op.results[0], boxes);
    }

    /// Splits `insert`.
    pub fn insert_tile(&mut self, op: &Op) {
        let (source, target) = (self.get(op.operands[0]), self.get(op.operands[1]));
        let indices: Vec<Value> = op.operands[2..].iter().map(|&index| self.one(index)).collect_vec();
        let axes: Vec<usize> = (0..target.shape.len()).filter(|&axis| is_split(&[target.shape[axis]])).collect_vec();
        if axes.iter().all(|&axis| source.shape[axis].count_ones() == 1) {
            let boxes = self.insert_by_box(&source, &target, &indices, &axes);
            return self.set(op.results[0], boxes);
        }
        let starts: Vec<(usize, Option<i64>)> =
            axes.iter().map(|&axis| (axis, self.constant_scalar(indices[axis]))).collect_vec();
        let unknown = starts.iter().filter(|(_, constant_scalar)| constant_scalar.is_none());
        let choices: i64 = unknown.map(|&(axis, _)| target.shape[axis] / source.shape[axis]).product();
        if choices > MAX_CHOICES {
            let problem = format!(
                "a block of {:?} goes into a tile of {:?} at an index of run time, to one of {choices} places",
                source.shape, target.shape
            );
            return self.reject(op, &problem, "take blocks whose extents are powers of two, or a host index");
        }
        let whole = self.insert_at(&source, &target, &indices, &starts);
        self.set(op.results[0], whole.boxes);
    }

    /// Inserts a block whose extents along the split axes are powers of two: into each box,
    /// selected if the block is inside of it.
    fn insert_by_box(
        &mut self,
        source: &SplitTile,
        target: &SplitTile,
        indices: &[Value],
        axes: &[usize],
    ) -> Vec<Value> {
        let (grid, from) = (target.grid(), source.grid());
        let mut boxes = target.boxes.to_vec();
        for (place, before) in grid.places().iter().zip(&mut boxes) {
            let at: Vec<usize> = place.iter().enumerate().map(|(axis, &n)| n.min(from.count(axis) - 1)).collect_vec();
            let part = source.boxes[from.index(&at)];
            let mut indices = indices.to_vec();
            let mut here: Option<Value> = None;
            for &axis in axes {
                let each = source.shape[axis];
                let (start, length) = grid.part(axis, place[axis]);
                let (first, count) = (start / each, length / each);
                for (bound, inside) in [(first, true), (first + count, false)] {
                    let reached = self.is_at_least(indices[axis], bound);
                    let holds = if inside { reached } else { self.negated(reached) };
                    here = Some(match here {
                        None => holds,
                        Some(all) => self.ops.emit_one(Opcode::AndI, &[all, holds], vec![], Elem::Num(DType::I1), &[]),
                    });
                }
                // A power of two that divides the extent divides each box.
                indices[axis] = self.local_index(indices[axis], first, count);
            }
            let inserted = self.insert(part, *before, &indices);
            *before = match here {
                None => inserted,
                Some(here) => self.select(here, inserted, *before),
            };
        }
        boxes
    }

    fn negated(&mut self, condition: Value) -> Value {
        let yes = self.ops.number(DType::I1, 1);
        self.ops.emit_one(Opcode::XorI, &[condition, yes], vec![], Elem::Num(DType::I1), &[])
    }

    /// Inserts a block axis by axis: the part before it, the block, the part after it. At a
    /// run-time index, one of all candidates is selected.
    fn insert_at(
        &mut self,
        source: &SplitTile,
        target: &SplitTile,
        indices: &[Value],
        axes: &[(usize, Option<i64>)],
    ) -> SplitTile {
        let Some((&(axis, number), rest)) = axes.split_first() else {
            return self.insert_in_matching_boxes(source, target, indices);
        };
        let (extent, length) = (target.shape[axis], source.shape[axis]);
        let Some(number) = number else {
            let mut chosen = target.clone();
            for block in 0..extent / length {
                let constant_scalar = [&[(axis, Some(block))], rest].concat();
                let other = self.insert_at(source, target, indices, &constant_scalar);
                let is_it = self.is_at_least(indices[axis], block);
                let pairs: Vec<(Value, Value)> =
                    other.boxes.iter().copied().zip(chosen.boxes.iter().copied()).collect_vec();
                chosen.boxes = pairs.into_iter().map(|(new, old)| self.select(is_it, new, old)).collect();
            }
            return chosen;
        };
        let start = number.clamp(0, extent / length - 1) * length;
        let slab = self.slice(target, axis, start, length);
        let mut row = vec![self.insert_at(source, &slab, indices, rest)];
        if start > 0 {
            row.insert(0, self.slice(target, axis, 0, start));
        }
        if start + length < extent {
            row.push(self.slice(target, axis, start + length, extent - start - length));
        }
        self.concat(&row, axis)
    }

    /// Inserts a block that has the extent of the tile along each split axis.
    fn insert_in_matching_boxes(&mut self, source: &SplitTile, target: &SplitTile, indices: &[Value]) -> SplitTile {
        let pairs: Vec<(Value, Value)> = source.boxes.iter().copied().zip(target.boxes.iter().copied()).collect_vec();
        let boxes = pairs.into_iter().map(|(part, before)| {
            let (small, large) = (self.ops.shape(part), self.ops.shape(before));
            if small == large {
                return part;
            }
            let zero = self.ops.number(DType::I32, 0);
            let at = |axis: usize| if small[axis] == large[axis] { zero } else { indices[axis] };
            let indices: Vec<Value> = (0..small.len()).map(at).collect_vec();
            self.insert(part, before, &indices)
        });
        SplitTile { boxes: boxes.collect(), ..target.clone() }
    }

    fn insert(&mut self, part: Value, whole: Value, indices: &[Value]) -> Value {
        let ty = self.ops.module.ty_id(whole);
        let id = self.ops.emit(Opcode::Insert, &[&[part], &[whole], indices], vec![], vec![], &[ty]);
        self.ops.module.op(id).results[0]
    }

    /// Returns the value of a constant scalar.
    fn constant_scalar(&self, scalar: Value) -> Option<i64> {
        let op = self.ops.module.op(self.ops.module.defining_op(scalar)?);
        let bits = match op.attr(AttrKind::Value) {
            Some(Attr::Value(ConstData::Splat(bits))) => *bits,
            Some(Attr::Value(ConstData::Dense(words))) => words[0],
            _ => return None,
        };
        Some((bits as u32 as i32).into())
    }

    /// Makes a tile box by box, with a function of the start and the extents of each box.
    pub fn map_boxes(&mut self, op: &Op, mut make: impl FnMut(&mut Self, &[i64], &[i64]) -> Value) {
        let grid = Grid::new(&self.ops.shape(op.results[0]));
        let boxes: Vec<Value> =
            grid.places().iter().map(|place| make(self, &grid.starts(place), &grid.extents(place))).collect_vec();
        self.set(op.results[0], boxes);
    }
}

/// Returns a shape without axes of extent 1.
fn squeezed(shape: &[i64]) -> Vec<i64> {
    shape.iter().copied().filter(|&extent| extent != 1).collect_vec()
}

/// Returns the row-major indices of the elements of a box in its tile.
fn elements(shape: &[i64], starts: &[i64], extents: &[i64]) -> Vec<usize> {
    let mut all = vec![0];
    for axis in 0..shape.len() {
        let row = starts[axis]..starts[axis] + extents[axis];
        all = all
            .into_iter()
            .flat_map(|at| row.clone().map(move |n| at * shape[axis] as usize + n as usize))
            .collect_vec();
    }
    all
}

/// Returns an intermediate shape of a reshape, `None` if none is needed. Both shapes have no axes
/// of extent 1.
///
/// The leading axes are those of `to` up to the end of the first group of axes that differ, the
/// other axes are those of `from`. Independent groups are thus reshaped one after another, which
/// needs fewer pieces.
fn intermediate_shape(from: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let (mut i, mut j) = (0, 0);
    while i < from.len() && j < to.len() {
        let (begin, mut left, mut right) = ([i, j], from[i], to[j]);
        (i, j) = (i + 1, j + 1);
        while left != right {
            let (list, at, product) = if left < right { (from, &mut i, &mut left) } else { (to, &mut j, &mut right) };
            *product *= list[*at];
            *at += 1;
        }
        if from[begin[0]..i] != to[begin[1]..j] {
            return (from[i..] != to[j..]).then(|| [&to[..j], &from[i..]].concat());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::intermediate_shape;

    #[test]
    fn runs_of_axes_move_one_after_another() {
        for (from, to, want) in [
            (&[4, 12, 2, 7][..], &[48, 14][..], Some(&[48, 2, 7][..])),
            (&[48, 2, 7], &[48, 14], None),
            (&[3, 4, 5, 6, 7], &[12, 5, 42], Some(&[12, 5, 6, 7])),
            (&[48, 24], &[128, 9], None),
            (&[6, 10], &[6, 10], None),
            (&[2, 3, 5], &[6, 5], None),
        ] {
            assert_eq!(intermediate_shape(from, to).as_deref(), want, "{from:?} to {to:?}");
        }
    }
}
