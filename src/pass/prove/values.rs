//! Terms of values: integers, pointers and the shapes of tiles.
//!
//! The term of a tile is a function of the lane variables, one for each axis of more than one
//! element.

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::access::{Frame, Root};
use super::term::{Fun, Term, Terms, Var, wrapped};
use crate::ir::{Attr, AttrKind, CmpPred, ConstData, Elem, Module, Op, Opcode, Rounding, Sign, Type, Value};

/// Meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// The allocation of a pointer.
    pub root: Option<Root>,
    /// The number, or the position of a pointer in elements.
    pub term: Term,
}

/// Values of a kernel.
pub(super) struct Values<'m> {
    pub module: &'m Module,
    pub terms: Terms,
    pub grid: [u32; 3],
    /// Numbers of tile blocks that are symbols.
    pub blocks: Option<[Term; 3]>,
    known: FxHashMap<Value, Meaning>,
}

/// Returns the lane variable of an axis, 0 for an axis of one element.
pub(super) fn lane(terms: &mut Terms, axis: usize, extent: i64) -> Term {
    if extent == 1 { terms.constant(0) } else { terms.var(Var::Lane(axis as u8)) }
}

impl<'m> Values<'m> {
    pub fn new(module: &'m Module, grid: [u32; 3]) -> Values<'m> {
        Values { module, terms: Terms::default(), grid, blocks: None, known: FxHashMap::default() }
    }

    pub fn set(&mut self, value: Value, meaning: Meaning) {
        self.known.insert(value, meaning);
    }

    pub fn set_term(&mut self, value: Value, term: Term) {
        self.set(value, Meaning { root: None, term });
    }

    /// Makes a value unknown.
    pub fn forget(&mut self, value: Value) {
        self.known.remove(&value);
    }

    /// Returns the meaning of a value; an unknown function of its lanes if nothing is known.
    pub fn meaning(&mut self, value: Value) -> Meaning {
        if let Some(&known) = self.known.get(&value) {
            return known;
        }
        let (mut args, mut root) = (Vec::new(), None);
        if let Some((elem, shape)) = self.module.ty(value).as_tile() {
            args = shape.iter().enumerate().map(|(axis, &extent)| lane(&mut self.terms, axis, extent)).collect_vec();
            root = matches!(elem, Elem::Ptr { .. }).then_some(Root::Unknown(value));
        }
        Meaning { root, term: self.terms.data(value, args) }
    }

    pub fn term(&mut self, value: Value) -> Term {
        self.meaning(value).term
    }

    /// Returns the width of an integer value, 64 for pointers.
    pub fn bits(&self, value: Value) -> Option<u32> {
        match self.module.ty(value).as_tile()?.0 {
            Elem::Num(dtype) => dtype.is_int().then(|| dtype.bits()),
            Elem::Ptr { .. } => Some(64),
        }
    }

    /// Returns the array of a view: its allocation, place, extents and strides.
    pub fn frame(&mut self, mut view: Value) -> Option<(Root, Frame)> {
        let op = loop {
            let op = self.module.op(self.module.defining_op(view)?);
            match op.code {
                Opcode::MakeTensorView => break op,
                code if code.is_view() || code == Opcode::Assume => view = op.operands[0],
                _ => return None,
            }
        };
        let Type::TensorView { shape, strides, .. } = self.module.ty(op.results[0]) else { return None };
        let (extents, extent_terms) = self.numbers(shape, op.group(1))?;
        let (strides, stride_terms) = self.numbers(strides, op.group(2))?;
        let Meaning { root, term } = self.meaning(op.group(0)[0]);
        Some((root?, Frame { base: term, extents, strides, extent_terms, stride_terms }))
    }

    /// Returns numbers, some of which are values, and their terms. The number of a symbol is 0.
    fn numbers(&mut self, fixed: &[Option<i64>], dynamic: &[Value]) -> Option<(Vec<i64>, Vec<Term>)> {
        let mut dynamic = dynamic.iter();
        let mut both = (Vec::new(), Vec::new());
        for number in fixed {
            let term = match number {
                Some(number) => self.terms.constant(*number),
                None => self.term(*dynamic.next()?),
            };
            let number = match self.terms.as_constant(term) {
                None if self.blocks.is_some() && self.terms.data_of(term).is_none() => 0,
                known => known?,
            };
            both.0.push(number);
            both.1.push(term);
        }
        Some(both)
    }

    /// Computes the results of an op without regions.
    pub fn op(&mut self, op: &Op) {
        match op.code {
            Opcode::GetTileBlockId => {
                for (axis, &result) in op.results.iter().enumerate() {
                    let blocks = self.blocks(axis);
                    let term = match self.terms.as_constant(blocks) {
                        Some(1) => self.terms.constant(0),
                        _ => self.terms.var(Var::Block(axis as u8)),
                    };
                    self.set_term(result, term);
                }
            }
            Opcode::GetNumTileBlocks => {
                for (axis, &result) in op.results.iter().enumerate() {
                    let term = self.blocks(axis);
                    self.set_term(result, term);
                }
            }
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => self.view_shape(op),
            Opcode::Alloca => {
                let term = self.terms.constant(0);
                self.set(op.results[0], Meaning { root: Some(Root::Scratch), term });
            }
            _ => {
                let &[result] = op.results.as_slice() else { return };
                match self.result(op, result) {
                    Some(meaning) if !self.terms.is_too_large(meaning.term) => self.set(result, meaning),
                    _ => self.forget(result),
                }
            }
        }
    }

    /// Returns the number of tile blocks along an axis.
    fn blocks(&mut self, axis: usize) -> Term {
        match self.blocks {
            Some(blocks) => blocks[axis],
            None => self.terms.constant(self.grid[axis].into()),
        }
    }

    fn view_shape(&mut self, op: &Op) {
        let Some((_, frame)) = self.frame(op.operands[0]) else { return };
        let counts: Vec<(Term, i32)> = match self.module.ty(op.operands[0]) {
            Type::PartitionView { tile: step, dim_map, .. } | Type::StridedView { traversal: step, dim_map, .. } => {
                step.iter().zip(dim_map).map(|(&step, &dim)| (frame.extent_terms[dim as usize], step)).collect_vec()
            }
            _ => frame.extent_terms.into_iter().map(|extent| (extent, 1)).collect_vec(),
        };
        for (&result, (extent, step)) in op.results.iter().zip(counts) {
            let step = self.terms.constant(step.into());
            let count = self.terms.apply(Fun::Div(Sign::Signed, Rounding::PosInf), 64, &[extent, step]);
            let term = match self.bits(result) {
                Some(bits) if bits < 64 => self.terms.apply(Fun::Truncate, bits, &[count]),
                _ => count,
            };
            self.set_term(result, term);
        }
    }

    fn result(&mut self, op: &Op, result: Value) -> Option<Meaning> {
        let bits = self.bits(result)?;
        let shape = self.module.shape(result);
        let number = |term: Term| Some(Meaning { root: None, term });
        match op.code {
            Opcode::Constant => number(self.constant(op, bits, shape)?),
            Opcode::Iota => number(lane(&mut self.terms, 0, shape[0])),
            Opcode::Broadcast | Opcode::Assume | Opcode::WithLayout => {
                self.bits(op.operands[0]).map(|_| self.meaning(op.operands[0]))
            }
            Opcode::Bitcast => (self.bits(op.operands[0]) == Some(bits)).then(|| self.meaning(op.operands[0])),
            Opcode::PtrToPtr => {
                let pointee = |value| match self.module.ty(value).as_tile() {
                    Some((Elem::Ptr { pointee, .. }, _)) => Some(pointee.storage_bits()),
                    _ => None,
                };
                (pointee(op.operands[0])? == pointee(result)?).then(|| self.meaning(op.operands[0]))
            }
            Opcode::Reshape | Opcode::Permute | Opcode::Extract | Opcode::Cat => self.moved(op),
            Opcode::Offset => {
                let Meaning { root, term } = self.meaning(op.operands[0]);
                let offset = self.term(op.operands[1]);
                Some(Meaning { root, term: self.terms.apply(Fun::Add, 64, &[term, offset]) })
            }
            Opcode::Select => {
                let condition = self.term(op.operands[0]);
                let (a, b) = (self.meaning(op.operands[1]), self.meaning(op.operands[2]));
                let term = self.terms.apply(Fun::Select, bits, &[condition, a.term, b.term]);
                (a.root == b.root).then_some(Meaning { root: a.root, term })
            }
            _ => number(self.arithmetic(op, bits)?),
        }
    }

    fn constant(&mut self, op: &Op, bits: u32, shape: &[i64]) -> Option<Term> {
        match op.const_data()? {
            ConstData::Splat(pattern) => Some(self.terms.constant(wrapped((*pattern).into(), bits))),
            ConstData::Dense(patterns) => {
                let table: Arc<[i64]> = patterns.iter().map(|&pattern| wrapped(pattern.into(), bits)).collect();
                let mut place = self.terms.constant(0);
                for (axis, &extent) in shape.iter().enumerate() {
                    let lane = lane(&mut self.terms, axis, extent);
                    let stride = shape[axis + 1..].iter().product();
                    place = self.terms.add_scaled(place, lane, stride);
                }
                Some(self.terms.apply(Fun::Table(table), bits, &[place]))
            }
        }
    }

    /// Returns the lanes of the operand of `permute`, `extract` and `reshape` as terms of the lanes
    /// of the result.
    pub fn lanes_of(&mut self, op: &Op) -> FxHashMap<Var, Term> {
        let shape = self.module.shape(op.results[0]);
        let from = self.module.shape(op.operands[0]);
        let lanes: Vec<Term> = shape.iter().enumerate().map(|(axis, &n)| lane(&mut self.terms, axis, n)).collect_vec();
        let mut by: FxHashMap<Var, Term> = FxHashMap::default();
        match op.code {
            Opcode::Permute => {
                for (axis, &of) in op.permutation().iter().enumerate() {
                    by.insert(Var::Lane(of as u8), lanes[axis]);
                }
            }
            Opcode::Extract => {
                for axis in 0..from.len() {
                    let tile = self.term(op.operands[1 + axis]);
                    by.insert(Var::Lane(axis as u8), self.terms.add_scaled(lanes[axis], tile, shape[axis]));
                }
            }
            _ => self.reshaped(from, shape, &lanes, &mut by),
        }
        by
    }

    /// Returns the meaning of a value whose elements are those of an operand at other positions.
    fn moved(&mut self, op: &Op) -> Option<Meaning> {
        self.bits(op.operands[0])?;
        let meaning = self.meaning(op.operands[0]);
        if op.code != Opcode::Cat {
            let by = self.lanes_of(op);
            return Some(Meaning { root: meaning.root, term: self.terms.substitute(meaning.term, &by) });
        }
        let other = self.meaning(op.operands[1]);
        let axis = op.dim() as usize;
        let extent = self.module.shape(op.operands[0])[axis];
        let at = self.terms.var(Var::Lane(axis as u8));
        let border = self.terms.constant(extent);
        let behind = self.terms.add_scaled(at, border, -1);
        let second = self.terms.substitute(other.term, &FxHashMap::from_iter([(Var::Lane(axis as u8), behind)]));
        let is_first = self.terms.apply(Fun::Compare(CmpPred::Lt, Sign::Signed), 64, &[at, border]);
        let term = self.terms.apply(Fun::Select, 64, &[is_first, meaning.term, second]);
        (meaning.root == other.root).then_some(Meaning { root: meaning.root, term })
    }

    /// Adds the lanes of the source of a reshape as terms of the lanes of its result: by groups of
    /// axes with equal numbers of elements.
    fn reshaped(&mut self, from: &[i64], to: &[i64], lanes: &[Term], by: &mut FxHashMap<Var, Term>) {
        let (mut source, mut result) = (0, 0);
        while source < from.len() {
            let (first, start) = (source, result);
            let (mut of_source, mut of_result) = (from[source], 1);
            source += 1;
            while of_source != of_result {
                if of_result < of_source {
                    of_result *= to[result];
                    result += 1;
                } else {
                    of_source *= from[source];
                    source += 1;
                }
            }
            let mut place = self.terms.constant(0);
            for axis in start..result {
                place = self.terms.add_scaled(place, lanes[axis], to[axis + 1..result].iter().product());
            }
            for axis in first..source {
                let stride = self.terms.constant(from[axis + 1..source].iter().product());
                let quotient = self.terms.apply(Fun::Div(Sign::Signed, Rounding::Zero), 64, &[place, stride]);
                let extent = self.terms.constant(from[axis]);
                let lane = match axis == first {
                    true => quotient,
                    false => self.terms.apply(Fun::Rem(Sign::Signed), 64, &[quotient, extent]),
                };
                by.insert(Var::Lane(axis as u8), lane);
            }
        }
    }

    fn arithmetic(&mut self, op: &Op, bits: u32) -> Option<Term> {
        let fun = function(op, || self.bits(op.operands[0]))?;
        let of = self.bits(op.operands[0])?;
        let args: Vec<Term> = op.operands.iter().map(|&operand| self.term(operand)).collect_vec();
        let bits = if matches!(fun, Fun::Compare(..)) { of } else { bits };
        Some(self.terms.apply(fun, bits, &args))
    }
}

/// Returns the function of an integer op.
fn function(op: &Op, from: impl Fn() -> Option<u32>) -> Option<Fun> {
    let sign = op.sign();
    Some(match op.code {
        Opcode::AddI => Fun::Add,
        Opcode::SubI => Fun::Sub,
        Opcode::MulI => Fun::Mul,
        Opcode::MulHiI => Fun::MulHigh,
        Opcode::AndI => Fun::And,
        Opcode::OrI => Fun::Or,
        Opcode::XorI => Fun::Xor,
        Opcode::MinI => Fun::Min(sign),
        Opcode::MaxI => Fun::Max(sign),
        Opcode::ShlI => Fun::ShiftLeft,
        Opcode::ShrI => Fun::ShiftRight(sign),
        Opcode::DivI => Fun::Div(sign, op.rounding()),
        Opcode::RemI => Fun::Rem(sign),
        Opcode::NegI => Fun::Negate,
        Opcode::AbsI => Fun::Absolute,
        Opcode::TruncI => Fun::Truncate,
        Opcode::ExtI => Fun::Extend(sign, from()?),
        Opcode::CmpI => match op.attr(AttrKind::CmpPred)? {
            Attr::CmpPred(pred) => Fun::Compare(*pred, sign),
            _ => return None,
        },
        _ => return None,
    })
}
