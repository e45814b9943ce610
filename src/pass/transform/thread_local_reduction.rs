//! Thread-local reduction: a sum that a loop carries is kept as partial sums of the threads, which
//! are reduced after the loop.
//!
//! ```text
//! for …: sum = sum · factor + reduce(x)
//! ```
//!
//! becomes, if `parts` threads share a row,
//!
//! ```text
//! for …: sums = sums · factor + x[…, 0, …] + x[…, 1, …] + …
//! sum = reduce(sums)
//! ```
//!
//! The threads then exchange no data inside of the loop. The chain of additions begins with the
//! factor, which is computed early, so that other uses of the factor do not wait. FlashAttention-2
//! (Dao, 2023) keeps the denominators of a softmax in this form; Triton has the pass
//! `OptimizeThreadLocality`. Not part of the pipeline: a back end that has assigned layouts calls
//! it afterwards.
//!
//! The terms are added in another order, which changes the rounding. The rewriting needs one of two
//! proofs (`float_sign`):
//!
//! * Each factor is at most one, or NaN. Those of a softmax are: they are exponentials of numbers
//!   that are not positive. Otherwise the values are equal.
//! * Neither factors nor terms nor the initial value are negative. Then no partial sum exceeds the
//!   sum. A sum that a factor makes infinite may become NaN: another partial sum may be zero, and
//!   zero times an infinite factor is NaN.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::canonicalize::collect_continues;
use super::op_writer::OpWriter;
use crate::dtype::DType;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Distribution, Elem, Flag, Module, Op, OpId, Opcode, Rounding, Sign,
    Substitution, Uses, Value,
};
use crate::pass::analysis::float_sign::{FloatSigns, LoopsByBody, loops_by_body};
use crate::pass::legalize::ordered_reduction::is_commutative;
use crate::util::sort;

/// Maximum number of terms that one thread adds.
const MAX_TERMS: i64 = 64;
/// Minimum number of terms that one thread adds. With 16 terms, attention with 64 keys and head
/// dimension 256 was slower.
const MIN_TERMS: i64 = 32;
/// Minimum number of terms if different warps have terms of a row. Their exchange needs shared
/// memory and barriers, before which all MMAs are complete.
const MIN_TERMS_OF_WARPS: i64 = 1;

/// Distribution of the axis of a reduction over threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionDistribution {
    /// The axis as several axes, the outermost first.
    pub axes: Vec<ReductionAxis>,
    /// The threads are in different warps.
    pub crosses_warps: bool,
    /// Layout of the partial sums.
    pub layout: Distribution,
}

/// A part of the axis of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionAxis {
    pub extent: i64,
    /// Different threads have its elements, otherwise one thread has all of them.
    pub is_shared: bool,
}

impl ReductionDistribution {
    /// Returns the number of terms of one thread.
    fn terms(&self) -> i64 {
        self.axes.iter().filter(|axis| !axis.is_shared).map(|axis| axis.extent).product()
    }

    /// Returns the number of threads with different elements.
    fn parts(&self) -> i64 {
        self.axes.iter().filter(|axis| axis.is_shared).map(|axis| axis.extent).product()
    }

    /// Returns the extents of the axes.
    fn extents(&self) -> impl Iterator<Item = i64> + '_ {
        self.axes.iter().map(|axis| axis.extent)
    }

    /// Returns the place of a term along each axis, in units of the elements of all threads.
    fn place(&self, term: i64) -> Vec<i64> {
        let mut rest = term;
        let mut place = vec![0; self.axes.len()];
        for (index, axis) in self.axes.iter().enumerate().rev().filter(|(_, axis)| !axis.is_shared) {
            (place[index], rest) = (rest % axis.extent, rest / axis.extent);
        }
        place
    }
}

/// Converts the sums that loops carry to partial sums, if `shared` returns the distribution of
/// their reductions. Returns true if there is one. The module remains well-formed; unused ops
/// remain for dead code elimination.
pub fn thread_local_reduction(module: &mut Module, shared: &dyn Fn(OpId) -> Option<ReductionDistribution>) -> bool {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    entries.into_iter().fold(false, |any, body| {
        let uses = Uses::new(module, body);
        let loops = loops_by_body(module, body);
        let mut pass = Rewriter { writer: OpWriter::new(module), loops, uses, shared, values: Substitution::new() };
        pass.block(body);
        let Rewriter { values, .. } = pass;
        values.apply(module, body);
        any | !values.is_empty()
    })
}

struct Rewriter<'a, 'm> {
    writer: OpWriter<'m>,
    loops: LoopsByBody,
    /// Uses in the original module.
    uses: Uses,
    shared: &'a dyn Fn(OpId) -> Option<ReductionDistribution>,
    /// Replacements of loop results.
    values: Substitution,
}

/// Sum that a loop carries.
struct Sum {
    position: usize,
    /// Op that computes the next value: an addition or a fused multiply-add.
    next: OpId,
    /// Factor of the sum, and the attributes of the product.
    factor: Option<(Value, Vec<Attr>)>,
    /// Addends: reductions of the same kind, of the parts of a tile whose extent is no power of
    /// two.
    added: Vec<(OpId, ReductionDistribution)>,
}

impl Rewriter<'_, '_> {
    fn block(&mut self, block: BlockId) {
        let (ops, outer) = self.writer.begin_block(block);
        for id in ops {
            for region in self.writer.module.op(id).regions.clone() {
                self.block(region);
            }
            let op = self.writer.module.op(id).clone();
            let sums = if op.code == Opcode::For { self.sums(&op) } else { Vec::new() };
            match sums.is_empty() {
                true => self.writer.keep(id),
                false => self.rewrite(&op, sums),
            }
        }
        self.writer.end_block(block, outer);
    }

    /// Returns the sums of a loop that can be partial sums.
    fn sums(&self, op: &Op) -> Vec<Sum> {
        let module = &*self.writer.module;
        let body = op.regions[0];
        let mut ends = Vec::new();
        collect_continues(module, body, &mut ends);
        let &[end] = &ends[..] else { return Vec::new() };
        if module.block(body).ops.last() != Some(&end) {
            return Vec::new();
        }
        let next = &module.op(end).operands;
        let initial = op.group(3);
        (0..next.len())
            .filter_map(|position| self.sum(body, position, [initial[position], next[position]]))
            .collect_vec()
    }

    /// Returns the carried value at this position as a sum, if it is one.
    fn sum(&self, body: BlockId, position: usize, [initial, next]: [Value; 2]) -> Option<Sum> {
        let module = &*self.writer.module;
        let argument = module.block(body).args[position + 1];
        // With narrower floats, a chain of additions is less accurate than the tree of a reduction.
        if !matches!(module.dtype(argument), DType::F32 | DType::F64) || self.uses.count(argument) != 1 {
            return None;
        }
        let next = self.defined_in(body, self.used_once(next)?, &[Opcode::AddF, Opcode::Fma])?;
        let op = module.op(next);
        let found = if op.code == Opcode::Fma {
            let [a, b, rest] = op.operands[..] else { return None };
            let factor = if a == argument { b } else { a };
            (a == argument || b == argument).then(|| (Some((factor, op.attrs.clone())), rest))
        } else {
            let [a, b] = op.operands[..] else { return None };
            let scaled = |scaled, rest| Some((self.factor(body, argument, scaled)?, rest));
            scaled(a, b).or_else(|| scaled(b, a))
        };
        let (factor, rest) = found?;
        let added = self.terms(body, rest)?;
        let terms = added.iter().map(|(_, shared)| shared.terms()).sum::<i64>();
        let least = if added[0].1.crosses_warps { MIN_TERMS_OF_WARPS } else { MIN_TERMS };
        let factor_is_bounded = || {
            let Some((factor, _)) = factor else { return true };
            let signs = FloatSigns::new(module, &self.loops);
            let operand = |(reduce, _): &(OpId, ReductionDistribution)| module.op(*reduce).operands[0];
            let mut summands = added.iter().map(operand).chain([factor, initial]);
            signs.is_at_most_one(factor) || summands.all(|value| signs.is_nonnegative(value))
        };
        ((least..=MAX_TERMS).contains(&terms) && factor_is_bounded()).then_some(Sum { position, next, factor, added })
    }

    fn used_once(&self, value: Value) -> Option<Value> {
        Some(value).filter(|&value| self.uses.count(value) == 1)
    }

    /// Returns the op of a loop body that computes a value, if it rounds to nearest and is one of
    /// these.
    fn defined_in(&self, body: BlockId, value: Value, codes: &[Opcode]) -> Option<OpId> {
        let module = &*self.writer.module;
        let fits = |op: &Op| codes.contains(&op.code) && rounds_to_nearest(op);
        let id = module.defining_op(value).filter(|&id| fits(module.op(id)))?;
        module.block(body).ops.contains(&id).then_some(id)
    }

    /// Returns the factor of a carried sum, `None` inside for the sum itself.
    fn factor(&self, body: BlockId, argument: Value, scaled: Value) -> Option<Option<(Value, Vec<Attr>)>> {
        if scaled == argument {
            return Some(None);
        }
        let product = self.writer.module.op(self.defined_in(body, self.used_once(scaled)?, &[Opcode::MulF])?);
        let [a, b] = product.operands[..] else { return None };
        let factor = if a == argument { b } else { a };
        (a == argument || b == argument).then(|| Some((factor, product.attrs.clone())))
    }

    /// Returns the reductions whose sum is a value. They have one axis and one distribution.
    fn terms(&self, body: BlockId, value: Value) -> Option<Vec<(OpId, ReductionDistribution)>> {
        let module = &*self.writer.module;
        let mut added: Vec<(OpId, ReductionDistribution)> = Vec::new();
        let mut pending = vec![value];
        while let Some(value) = pending.pop() {
            let value = self.used_once(value)?;
            if let Some(id) = self.defined_in(body, value, &[Opcode::Reshape, Opcode::AddF]) {
                pending.extend(module.op(id).operands.iter().rev());
                continue;
            }
            let reduce = self.defined_in(body, value, &[Opcode::Reduce]).filter(|&id| is_sum(module, id))?;
            let shared = (self.shared)(reduce)?;
            let same_axis =
                |(other, _): &(OpId, ReductionDistribution)| module.op(*other).dim() == module.op(reduce).dim();
            if added.first().is_some_and(|first| first.1.layout != shared.layout || !same_axis(first)) {
                return None;
            }
            added.push((reduce, shared));
        }
        Some(added)
    }

    /// Emits the loop with partial sums.
    fn rewrite(&mut self, op: &Op, sums: Vec<Sum>) {
        self.writer.begin(op);
        let body = op.regions[0];
        let mut initial = op.group(3).to_vec();
        let mut replaced: FxHashMap<OpId, (usize, Value)> = FxHashMap::default();
        for (index, sum) in sums.iter().enumerate() {
            let first = self.first(sum, initial[sum.position]);
            let argument = self.writer.module.add_block_arg(body, self.writer.module.ty_id(first));
            replaced.insert(sum.next, (index, argument));
            initial.push(first);
        }
        let (ops, outer) = self.writer.begin_block(body);
        let mut next = Vec::new();
        for id in ops {
            match replaced.get(&id) {
                Some(&(index, argument)) => {
                    let parts = self.next(&sums[index], argument);
                    next.push((index, parts));
                }
                None => self.writer.keep(id),
            }
        }
        self.writer.end_block(body, outer);
        sort::natural(&mut next);
        let end = *self.writer.module.block(body).ops.last().expect("an end of the body");
        let arguments = self.writer.module.block(body).args.clone();
        let end = self.writer.module.op_mut(end);
        for sum in &sums {
            end.operands[sum.position] = arguments[sum.position + 1];
        }
        end.operands.extend(next.into_iter().map(|(_, parts)| parts));
        if let Some(count) = end.segments.last_mut() {
            *count += sums.len() as u32;
        }

        let types: Vec<_> = initial.iter().map(|&value| self.writer.module.ty_id(value)).collect_vec();
        let groups: [&[Value]; 4] = [op.group(0), op.group(1), op.group(2), &initial];
        let loop_op = self.writer.emit(Opcode::For, &groups, op.attrs.clone(), vec![body], &types);
        let results = self.writer.module.op(loop_op).results.clone();
        for (&old, &new) in op.results.iter().zip(&results) {
            self.values.replace(old, new);
        }
        for (sum, &parts) in sums.iter().zip(&results[op.results.len()..]) {
            let total = self.total(sum, parts);
            self.values.replace(results[sum.position], total);
        }
    }

    /// Returns the shape of the partial sums, and their axis.
    fn shape(&self, sum: &Sum) -> (Vec<i64>, usize) {
        let (reduce, shared) = &sum.added[0];
        let reduce = self.writer.module.op(*reduce);
        let (mut shape, axis) = (self.writer.shape(reduce.operands[0]), reduce.dim() as usize);
        shape[axis] = shared.parts();
        (shape, axis)
    }

    /// Broadcasts a value of the sum to all partial sums.
    fn splat_to(&mut self, sum: &Sum, value: Value) -> Value {
        let (shape, axis) = self.shape(sum);
        let mut one = shape.clone();
        one[axis] = 1;
        let value = self.writer.reshape(value, &one);
        self.writer.broadcast(value, &shape)
    }

    /// Emits the initial partial sums: the initial value of the sum, followed by zeros.
    fn first(&mut self, sum: &Sum, value: Value) -> Value {
        let (shape, axis) = self.shape(sum);
        let elem = self.writer.elem(value);
        let Elem::Num(dtype) = elem else { unreachable!("a sum of numbers") };
        let all = self.splat_to(sum, value);
        let number = self.writer.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &[shape[axis]]);
        let mut along = vec![1; shape.len()];
        along[axis] = shape[axis];
        let number = self.writer.reshape(number, &along);
        let number = self.writer.broadcast(number, &shape);
        let constant = |bits: u64| vec![Attr::Value(ConstData::Splat(bits))];
        let zero = self.writer.emit_one(Opcode::Constant, &[], constant(0), Elem::Num(DType::I32), &shape);
        let compared = vec![Attr::CmpPred(CmpPred::Eq), Attr::Sign(Sign::Signed)];
        let is_first = self.writer.emit_one(Opcode::CmpI, &[number, zero], compared, Elem::Num(DType::I1), &shape);
        // -0, the neutral element of the addition.
        let nothing = constant(1 << (dtype.bits() - 1));
        let nothing = self.writer.emit_one(Opcode::Constant, &[], nothing, elem, &shape);
        let parts = self.writer.emit_one(Opcode::Select, &[is_first, all, nothing], vec![], elem, &shape);
        self.with_layout(sum, parts)
    }

    /// Emits the partial sums after an iteration.
    fn next(&mut self, sum: &Sum, before: Value) -> Value {
        let (shape, axis) = self.shape(sum);
        let elem = self.writer.elem(before);
        let op = self.writer.module.op(sum.next);
        let is_fused = op.code == Opcode::Fma;
        let rounded = if is_fused { vec![Attr::Rounding(Rounding::NearestEven)] } else { op.attrs.clone() };
        let mut factor = None;
        let mut all = before;
        if let Some((value, attrs)) = &sum.factor {
            let value = self.splat_to(sum, *value);
            match is_fused {
                true => factor = Some((value, attrs.clone())),
                false => all = self.writer.emit_one(Opcode::MulF, &[before, value], attrs.clone(), elem, &shape),
            }
        }
        for (reduce, shared) in &sum.added {
            let terms = self.writer.module.op(*reduce).operands[0];
            let (mut split_shape, mut one) = (shape.clone(), shape.clone());
            split_shape.splice(axis..=axis, shared.extents());
            one.splice(axis..=axis, shared.axes.iter().map(|part| if part.is_shared { part.extent } else { 1 }));
            let terms = self.writer.reshape(terms, &split_shape);
            for term in 0..shared.terms() {
                let mut at = vec![0; shape.len()];
                at.splice(axis..=axis, shared.place(term));
                let term = self.writer.extract(terms, &at, &one);
                let term = self.writer.reshape(term, &shape);
                all = match factor.take() {
                    Some((factor, attrs)) => {
                        self.writer.emit_one(Opcode::Fma, &[all, factor, term], attrs, elem, &shape)
                    }
                    None => self.writer.emit_one(Opcode::AddF, &[all, term], rounded.clone(), elem, &shape),
                };
            }
        }
        self.with_layout(sum, all)
    }

    /// Sets the layout of the partial sums.
    fn with_layout(&mut self, sum: &Sum, parts: Value) -> Value {
        let (elem, (shape, _)) = (self.writer.elem(parts), self.shape(sum));
        let layout = vec![Attr::Distribution(sum.added[0].1.layout.clone())];
        self.writer.emit_one(Opcode::WithLayout, &[parts], layout, elem, &shape)
    }

    /// Emits the reduction of the partial sums.
    fn total(&mut self, sum: &Sum, parts: Value) -> Value {
        let op = self.writer.module.op(sum.added[0].0).clone();
        let region = self.writer.module.clone_block(op.regions[0], &mut Substitution::new());
        let ty = self.writer.module.ty_id(op.results[0]);
        let id = self.writer.emit(Opcode::Reduce, &[&[parts]], op.attrs.clone(), vec![region], &[ty]);
        let total = self.writer.module.op(id).results[0];
        let shape = self.writer.shape(self.writer.module.op(sum.next).results[0]);
        self.writer.reshape(total, &shape)
    }
}

/// Returns true if an op rounds to nearest. It may flush subnormal numbers.
fn rounds_to_nearest(op: &Op) -> bool {
    let nearest = op.attr(AttrKind::Rounding).is_none() || op.rounding() == Rounding::NearestEven;
    nearest && op.attrs.iter().all(|attr| !matches!(attr, Attr::Flag(flag) if *flag != Flag::FlushToZero))
}

/// Returns true if a reduction adds the elements of one tile.
fn is_sum(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    let [combiner, _] = module.block(op.regions[0]).ops[..] else { return false };
    let combiner = module.op(combiner);
    op.operands.len() == 1
        && combiner.code == Opcode::AddF
        && rounds_to_nearest(combiner)
        && is_commutative(module, op.regions[0])
}
