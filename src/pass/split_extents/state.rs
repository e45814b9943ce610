//! State of the pass: the boxes that replace each value, and the emitted ops.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::extents::{Grid, is_split};
use crate::error::Diagnostic;
use crate::ir::{BlockId, Elem, Module, Op, OpId, Substitution, Type, TypeId, Value};
use crate::pass::transform::op_writer::OpWriter;

/// Tile as its boxes, in the order of their coordinates. A tile that is not split is its only box.
#[derive(Clone, Debug)]
pub struct SplitTile {
    pub elem: Elem,
    pub shape: Vec<i64>,
    pub boxes: Rc<[Value]>,
}

impl SplitTile {
    pub fn grid(&self) -> Grid {
        Grid::new(&self.shape)
    }
}

/// Rewriter of the module.
pub struct Splitter<'m> {
    pub ops: OpWriter<'m>,
    /// Replacements of removed values.
    values: Substitution,
    cut: FxHashMap<Value, SplitTile>,
    /// By view: the views of its boxes.
    pub views: FxHashMap<Value, Rc<[Value]>>,
    problems: Vec<Diagnostic>,
    /// Reductions in any order combine boxes first. Otherwise each box is reduced first.
    pub in_strips: bool,
}

impl<'m> Splitter<'m> {
    pub fn new(module: &'m mut Module, in_strips: bool) -> Splitter<'m> {
        Splitter {
            ops: OpWriter::new(module),
            values: Substitution::new(),
            cut: FxHashMap::default(),
            views: FxHashMap::default(),
            problems: Vec::new(),
            in_strips,
        }
    }

    /// Replaces removed values. Returns the ops that could not be split.
    pub fn finish(self) -> Result<(), Vec<Diagnostic>> {
        for entry in self.ops.module.entries.clone() {
            self.values.apply(self.ops.module, entry.body);
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }

    /// Returns true after the first problem. Nothing is split then, because later problems may be
    /// consequences.
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// Records that the current op cannot be split.
    pub fn reject(&mut self, op: &Op, problem: &str, way_out: &str) {
        let location = self.ops.module.location(op.loc).cloned();
        let message = format!("`{}`: {problem}", op.code.spec().name);
        self.problems.push(Diagnostic::new(message, location).note(way_out));
    }

    /// Replaces the ops of a block by those that `walk` emits.
    pub fn rebuild(&mut self, block: BlockId, walk: impl FnOnce(&mut Self, Vec<OpId>)) {
        let (ops, outer) = self.ops.begin_block(block);
        walk(self, ops);
        self.ops.end_block(block, outer);
    }

    /// Returns the replacement of a value that is not split.
    pub fn one(&self, value: Value) -> Value {
        self.values.resolve(value)
    }

    /// Returns the replacements of values, box by box.
    pub fn flat(&self, values: &[Value]) -> Vec<Value> {
        values.iter().flat_map(|value| self.boxes(*value)).collect_vec()
    }

    fn boxes(&self, value: Value) -> Vec<Value> {
        match self.cut.get(&value) {
            Some(whole) => whole.boxes.to_vec(),
            None => vec![self.one(value)],
        }
    }

    /// Returns a tile as its boxes.
    pub fn get(&self, value: Value) -> SplitTile {
        match self.cut.get(&value) {
            Some(whole) => whole.clone(),
            None => {
                let value = self.one(value);
                SplitTile { elem: self.ops.elem(value), shape: self.ops.shape(value), boxes: Rc::from([value]) }
            }
        }
    }

    /// Sets the boxes that replace a value.
    pub fn set(&mut self, value: Value, boxes: impl Into<Rc<[Value]>>) {
        let boxes = boxes.into();
        match self.ops.module.ty(value).as_tile() {
            Some((elem, shape)) if is_split(shape) => {
                let shape = shape.to_vec();
                self.cut.insert(value, SplitTile { elem, shape, boxes });
            }
            _ => self.values.replace(value, boxes[0]),
        }
    }

    /// Replaces a token by the join of several ones.
    pub fn join(&mut self, token: Value, tokens: Vec<Value>) {
        let joined = self.ops.join(&tokens);
        self.values.replace(token, joined);
    }

    /// Returns the types of the boxes of a value.
    pub fn types(&mut self, value: Value) -> Vec<TypeId> {
        let id = self.ops.module.ty_id(value);
        let Some((elem, shape)) = self.ops.module.ty(value).as_tile() else { return vec![id] };
        let grid = Grid::new(shape);
        let extents: Vec<Vec<i64>> = grid.places().iter().map(|place| grid.extents(place)).collect_vec();
        extents.into_iter().map(|shape| self.ops.module.intern(Type::Tile { elem, shape })).collect_vec()
    }

    /// Applies the function of a region elementwise to tiles of this shape.
    pub fn combine(&mut self, region: BlockId, elements: &[Value], before: &[Value], shape: &[i64]) -> Vec<Value> {
        let Splitter { ops, values, .. } = self;
        ops.combine(region, [elements, before], shape, |value| values.resolve(value))
    }

    /// Returns true if a value is split.
    pub fn is_split(&self, value: Value) -> bool {
        self.cut.contains_key(&value) || self.views.contains_key(&value)
    }
}
