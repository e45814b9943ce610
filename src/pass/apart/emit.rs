//! The state of the cutting: which boxes stand for a value, and where ops go.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::cut::{Grid, is_cut};
use crate::dtype::DType;
use crate::error::Diagnostic;
use crate::ir::{
    Attr, BlockId, ConstData, Elem, Loc, Module, Op, OpId, Opcode, Overflow, Sign, Substitution, Type, TypeId, Value,
};

/// A tile as the boxes that stand for it, in the order of their places; one that is not cut is its only box.
#[derive(Clone, Debug)]
pub struct Whole {
    pub elem: Elem,
    pub shape: Vec<i64>,
    pub boxes: Rc<[Value]>,
}

impl Whole {
    pub fn grid(&self) -> Grid {
        Grid::of(&self.shape)
    }
}

/// The module being cut.
pub struct Cutter<'m> {
    pub module: &'m mut Module,
    /// What stands for the values that are no longer made.
    values: Substitution,
    cut: FxHashMap<Value, Whole>,
    /// The views of the boxes of a view.
    pub views: FxHashMap<Value, Rc<[Value]>>,
    out: Vec<OpId>,
    loc: Loc,
    problems: Vec<Diagnostic>,
}

impl<'m> Cutter<'m> {
    pub fn new(module: &'m mut Module) -> Cutter<'m> {
        Cutter {
            module,
            values: Substitution::new(),
            cut: FxHashMap::default(),
            views: FxHashMap::default(),
            out: Vec::new(),
            loc: Loc::UNKNOWN,
            problems: Vec::new(),
        }
    }

    /// Lets values stand for those that are gone; gives what could not be cut.
    pub fn finish(self) -> Result<(), Vec<Diagnostic>> {
        for entry in self.module.entries.clone() {
            self.values.apply(self.module, entry.body);
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    /// Ops from now on come from this one.
    pub fn begin(&mut self, op: &Op) {
        self.loc = op.loc;
    }

    /// After a problem nothing is cut: it may be about what the problem left undone.
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Notes that the present op cannot be cut.
    pub fn refuse(&mut self, op: &Op, problem: &str, way_out: &str) {
        let location = self.module.location(op.loc).cloned();
        let message = format!("`{}`: {problem}", op.code.spec().name);
        self.problems.push(Diagnostic::new(message, location).note(way_out));
    }

    /// The ops that `walk` emits, in the place of those of a block.
    pub fn rebuild(&mut self, block: BlockId, walk: impl FnOnce(&mut Self, Vec<OpId>)) {
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let before = std::mem::take(&mut self.out);
        walk(self, ops);
        self.module.block_mut(block).ops = std::mem::replace(&mut self.out, before);
    }

    /// Keeps an op as it is.
    pub fn keep(&mut self, id: OpId) {
        self.out.push(id);
    }

    /// Adds an op.
    pub fn emit(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        types: &[TypeId],
    ) -> OpId {
        let id = self.module.add_op(code, groups, attrs, regions, types, self.loc);
        self.out.push(id);
        id
    }

    /// Adds an op whose groups have one operand each, with one result.
    pub fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, elem: Elem, shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::Tile { elem, shape: shape.to_vec() });
        let groups: Vec<&[Value]> = operands.chunks(1).collect();
        let id = self.emit(code, &groups, attrs, vec![], &[ty]);
        self.module.op(id).results[0]
    }

    /// A number.
    pub fn number(&mut self, dtype: DType, number: i64) -> Value {
        let bits = number as u64 & (u64::MAX >> (64 - dtype.bits()));
        self.put(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(bits))], Elem::Num(dtype), &[])
    }

    /// A scalar in every element of a tile.
    pub fn spread(&mut self, scalar: Value, shape: &[i64]) -> Value {
        if shape.is_empty() {
            return scalar;
        }
        let elem = self.elem(scalar);
        let one = self.put(Opcode::Reshape, &[scalar], vec![], elem, &vec![1; shape.len()]);
        self.broadcast(one, shape)
    }

    /// A tile stretched to a shape.
    pub fn broadcast(&mut self, tile: Value, shape: &[i64]) -> Value {
        if self.shape(tile) == shape {
            return tile;
        }
        let elem = self.elem(tile);
        self.put(Opcode::Broadcast, &[tile], vec![], elem, shape)
    }

    /// A scalar integer between two bounds, read as signed.
    pub fn clamp(&mut self, number: Value, [least, most]: [i64; 2]) -> Value {
        let dtype = self.module.dtype(number);
        let sign = || vec![Attr::Sign(Sign::Signed)];
        let most = self.number(dtype, most);
        let least = self.number(dtype, least);
        let below = self.put(Opcode::MinI, &[number, most], sign(), Elem::Num(dtype), &[]);
        self.put(Opcode::MaxI, &[below, least], sign(), Elem::Num(dtype), &[])
    }

    /// A sum, difference or product of integers; it wraps.
    pub fn integers(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let (elem, shape) = (self.elem(a), self.shape(a));
        self.put(code, &[a, b], vec![Attr::Overflow(Overflow::None)], elem, &shape)
    }

    /// The block of a tile at these places, counted in blocks.
    pub fn extract(&mut self, tile: Value, indices: &[i64], shape: &[i64]) -> Value {
        if self.shape(tile) == shape {
            return tile;
        }
        let indices: Vec<Value> = indices.iter().map(|&index| self.number(DType::I32, index)).collect();
        self.extract_at(tile, &indices, shape)
    }

    /// [`Cutter::extract`] at indices of run time.
    pub fn extract_at(&mut self, tile: Value, indices: &[Value], shape: &[i64]) -> Value {
        let ty = self.module.intern(Type::Tile { elem: self.elem(tile), shape: shape.to_vec() });
        let id = self.emit(Opcode::Extract, &[&[tile], indices], vec![], vec![], &[ty]);
        self.module.op(id).results[0]
    }

    /// One tile behind the other along an axis.
    pub fn cat(&mut self, first: Value, second: Value, axis: usize) -> Value {
        let mut shape = self.shape(first);
        shape[axis] += self.shape(second)[axis];
        let elem = self.elem(first);
        self.put(Opcode::Cat, &[first, second], vec![Attr::Dim(axis as u32)], elem, &shape)
    }

    /// What stands for a value that is not cut.
    pub fn one(&self, value: Value) -> Value {
        self.values.resolve(value)
    }

    /// What stand for values, box by box.
    pub fn flat(&self, values: &[Value]) -> Vec<Value> {
        values.iter().flat_map(|value| self.boxes(*value)).collect()
    }

    fn boxes(&self, value: Value) -> Vec<Value> {
        match self.cut.get(&value) {
            Some(whole) => whole.boxes.to_vec(),
            None => vec![self.one(value)],
        }
    }

    /// A tile, as its boxes.
    pub fn get(&self, value: Value) -> Whole {
        match self.cut.get(&value) {
            Some(whole) => whole.clone(),
            None => {
                let value = self.one(value);
                Whole { elem: self.elem(value), shape: self.shape(value), boxes: Rc::from([value]) }
            }
        }
    }

    /// From now on these boxes stand for a value.
    pub fn set(&mut self, value: Value, boxes: impl Into<Rc<[Value]>>) {
        let boxes = boxes.into();
        match self.module.ty(value).as_tile() {
            Some((elem, shape)) if is_cut(shape) => {
                let shape = shape.to_vec();
                self.cut.insert(value, Whole { elem, shape, boxes });
            }
            _ => self.values.replace(value, boxes[0]),
        }
    }

    /// One token for several.
    pub fn join(&mut self, token: Value, tokens: Vec<Value>) {
        let joined = match tokens[..] {
            [one] => one,
            _ => {
                let ty = self.module.intern(Type::Token);
                let id = self.emit(Opcode::JoinTokens, &[&tokens], vec![], vec![], &[ty]);
                self.module.op(id).results[0]
            }
        };
        self.values.replace(token, joined);
    }

    /// The types of the boxes of a value.
    pub fn types(&mut self, value: Value) -> Vec<TypeId> {
        let id = self.module.ty_id(value);
        let Some((elem, shape)) = self.module.ty(value).as_tile() else { return vec![id] };
        let grid = Grid::of(shape);
        let extents: Vec<Vec<i64>> = grid.places().iter().map(|place| grid.extents(place)).collect();
        extents.into_iter().map(|shape| self.module.intern(Type::Tile { elem, shape })).collect()
    }

    pub fn elem(&self, value: Value) -> Elem {
        self.module.ty(value).as_tile().expect("a tile").0
    }

    pub fn shape(&self, value: Value) -> Vec<i64> {
        self.module.shape(value).to_vec()
    }

    /// Is a value cut?
    pub fn is_cut(&self, value: Value) -> bool {
        self.cut.contains_key(&value) || self.views.contains_key(&value)
    }
}
