//! The state of the cutting: which boxes stand for a value, and where ops go.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::extents::{Grid, is_cut};
use crate::error::Diagnostic;
use crate::ir::{BlockId, Elem, Module, Op, OpId, Substitution, Type, TypeId, Value};
use crate::pass::transform::op_writer::Writer;

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
    pub ops: Writer<'m>,
    /// What stands for the values that are no longer made.
    values: Substitution,
    cut: FxHashMap<Value, Whole>,
    /// The views of the boxes of a view.
    pub views: FxHashMap<Value, Rc<[Value]>>,
    problems: Vec<Diagnostic>,
    /// Do reductions whose order does not matter combine boxes first (else each box is reduced first)?
    pub in_strips: bool,
}

impl<'m> Cutter<'m> {
    pub fn new(module: &'m mut Module, in_strips: bool) -> Cutter<'m> {
        Cutter {
            ops: Writer::new(module),
            values: Substitution::new(),
            cut: FxHashMap::default(),
            views: FxHashMap::default(),
            problems: Vec::new(),
            in_strips,
        }
    }

    /// Lets values stand for those that are gone; gives what could not be cut.
    pub fn finish(self) -> Result<(), Vec<Diagnostic>> {
        for entry in self.ops.module.entries.clone() {
            self.values.apply(self.ops.module, entry.body);
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    /// After a problem nothing is cut: it may be about what the problem left undone.
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Notes that the present op cannot be cut.
    pub fn refuse(&mut self, op: &Op, problem: &str, way_out: &str) {
        let location = self.ops.module.location(op.loc).cloned();
        let message = format!("`{}`: {problem}", op.code.spec().name);
        self.problems.push(Diagnostic::new(message, location).note(way_out));
    }

    /// The ops that `walk` emits, in the place of those of a block.
    pub fn rebuild(&mut self, block: BlockId, walk: impl FnOnce(&mut Self, Vec<OpId>)) {
        let (ops, outer) = self.ops.begin_block(block);
        walk(self, ops);
        self.ops.end_block(block, outer);
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
                Whole { elem: self.ops.elem(value), shape: self.ops.shape(value), boxes: Rc::from([value]) }
            }
        }
    }

    /// From now on these boxes stand for a value.
    pub fn set(&mut self, value: Value, boxes: impl Into<Rc<[Value]>>) {
        let boxes = boxes.into();
        match self.ops.module.ty(value).as_tile() {
            Some((elem, shape)) if is_cut(shape) => {
                let shape = shape.to_vec();
                self.cut.insert(value, Whole { elem, shape, boxes });
            }
            _ => self.values.replace(value, boxes[0]),
        }
    }

    /// One token for several.
    pub fn join(&mut self, token: Value, tokens: Vec<Value>) {
        let joined = self.ops.join(&tokens);
        self.values.replace(token, joined);
    }

    /// The types of the boxes of a value.
    pub fn types(&mut self, value: Value) -> Vec<TypeId> {
        let id = self.ops.module.ty_id(value);
        let Some((elem, shape)) = self.ops.module.ty(value).as_tile() else { return vec![id] };
        let grid = Grid::of(shape);
        let extents: Vec<Vec<i64>> = grid.places().iter().map(|place| grid.extents(place)).collect();
        extents.into_iter().map(|shape| self.ops.module.intern(Type::Tile { elem, shape })).collect()
    }

    /// The function of a region, for each element of tiles of this shape.
    pub fn combine(&mut self, region: BlockId, elements: &[Value], before: &[Value], shape: &[i64]) -> Vec<Value> {
        let Cutter { ops, values, .. } = self;
        ops.combine(region, [elements, before], shape, |value| values.resolve(value))
    }

    /// Is a value cut?
    pub fn is_cut(&self, value: Value) -> bool {
        self.cut.contains_key(&value) || self.views.contains_key(&value)
    }
}
