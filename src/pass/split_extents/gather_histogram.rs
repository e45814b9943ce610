//! Gathers and histograms: a gather looks up each box along the axis, a histogram counts in each
//! box.

use super::state::Splitter;
use crate::dtype::DType;
use crate::ir::{Attr, CmpPred, Elem, Op, Opcode, Sign, Value};
use crate::util::collect::CollectVec as _;

impl Splitter<'_> {
    /// Splits `gather`. The result is an element of the last box along the axis that begins at or
    /// before the position.
    pub fn gather(&mut self, op: &Op) {
        let [source, positions] = [0, 1].map(|i| self.get(op.operands[i]));
        let (axis, from, to) = (op.dim() as usize, source.grid(), positions.grid());
        let look_up = |(place, &at): (&Vec<usize>, &Value)| {
            let mut there = place.clone();
            let extents = to.extents(place);
            let mut found = None;
            for number in 0..from.count(axis) {
                there[axis] = number;
                let (start, _) = from.part(axis, number);
                let local_index = self.minus(at, start);
                let part = source.boxes[from.index(&there)];
                let new = self.ops.emit_one(op.code, &[part, local_index], op.attrs.clone(), source.elem, &extents);
                found = Some(match found {
                    None => new,
                    Some(before) => {
                        let start = self.ops.number(DType::I32, start);
                        let start = self.ops.splat_to(start, &extents);
                        let attrs = vec![Attr::CmpPred(CmpPred::Ge), Attr::Sign(Sign::Signed)];
                        let is_here =
                            self.ops.emit_one(Opcode::CmpI, &[at, start], attrs, Elem::Num(DType::I1), &extents);
                        self.ops.emit_one(Opcode::Select, &[is_here, new, before], vec![], source.elem, &extents)
                    }
                });
            }
            found.expect("a box")
        };
        let boxes: Vec<Value> = to.places().iter().zip(&*positions.boxes).map(look_up).collect_vec();
        self.set(op.results[0], boxes);
    }

    /// Splits `cluster_all_gather`: each box is exchanged by itself.
    pub fn cluster_all_gather(&mut self, op: &Op) {
        let source = self.get(op.operands[0]);
        let size = self.ops.shape(op.results[0])[0];
        let exchanged = |(place, &part): (&Vec<usize>, &Value)| {
            let extents: Vec<i64> = std::iter::once(size).chain(source.grid().extents(place)).collect_vec();
            self.ops.emit_one(op.code, &[part], vec![], source.elem, &extents)
        };
        let places = source.grid().places();
        let boxes: Vec<Value> = places.iter().zip(&*source.boxes).map(exchanged).collect_vec();
        self.set(op.results[0], boxes);
    }

    /// Splits `histogram`. Each box of the bins is the sum of the counts of all source boxes.
    pub fn histogram(&mut self, op: &Op) {
        let source = self.get(op.operands[0]);
        self.map_boxes(op, |splitter, starts, extents| {
            let count = |&part: &Value| {
                let from_start = splitter.minus(part, starts[0]);
                splitter.ops.emit_one(op.code, &[from_start], vec![], Elem::Num(DType::I32), extents)
            };
            let counts: Vec<Value> = source.boxes.iter().map(count).collect_vec();
            counts.into_iter().reduce(|a, b| splitter.ops.int_op(Opcode::AddI, a, b)).expect("a box")
        });
    }

    /// Subtracts a number from integers. If that wraps, the integer is outside of all boxes before
    /// and after.
    fn minus(&mut self, tile: Value, number: i64) -> Value {
        if number == 0 {
            return tile;
        }
        let number = self.ops.number(DType::I32, number);
        let numbers = self.ops.splat_to(number, &self.ops.shape(tile));
        self.ops.int_op(Opcode::SubI, tile, numbers)
    }
}
