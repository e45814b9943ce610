//! Launch probe: the computation of tile indices, loop ends and divisors, extracted from a kernel
//! as a separate kernel. A launch executes it first, and so checks that all indices are inside, all
//! loops end and divisors are positive.
//!
//! Reason: a guard is an `if` around an access, which prevents compilers from overlapping the
//! access with arithmetic. Wider counters cost registers. Most indices and ends only depend on
//! block ids, extents and loop counters. The probe computes these as the kernel does, and asserts
//! the conditions of the kernel. It accesses no memory and has no tiles.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::index::{Open, through_assumes, tile_count};
use super::loops;
use super::rewrite::rewrite_blocks;
use crate::backend::ParamWord;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Def, Elem, Entry, Flag, Loc, Module, Op, OpId, Opcode, Overflow,
    Predicate, RegionTree, Sign, Substitution, Type, TypeId, Value,
};
use crate::pass::{self, IntRanges};

/// Message of the assertions of a probe, which identifies them.
const MESSAGE: &str = "a tile index outside of its array, a loop without an end, or a divisor of 0";

/// A kernel with the parameters of another kernel, whose conditions it asserts.
#[derive(Clone, Debug)]
pub struct Probe(Module);

impl Probe {
    /// Returns the probe as a module for the cpu back end. It runs without memory, and fails if a
    /// condition is false.
    pub fn module(&self) -> &Module {
        &self.0
    }

    /// Returns true if ranges prove all assertions for a launch with this grid and these
    /// parameters. False does not imply a failure.
    pub fn is_proven(&self, grid: [u32; 3], params: &[ParamWord]) -> bool {
        let mut module = self.0.clone();
        let entry = module.entries[0].clone();
        insert_launch(&mut module, entry.body, grid, params);
        let facts = IntRanges::analyze(&module, &entry);
        let mut proven = true;
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            // True is -1 as a signed number of one bit.
            proven &= !is_ours(op) || facts.constant(op.operands[0]) == Some(-1);
        });
        proven
    }
}

fn is_ours(op: &Op) -> bool {
    op.code == Opcode::Assert && matches!(op.attr(AttrKind::Text), Some(Attr::Text(text)) if **text == *MESSAGE)
}

/// Replaces grid and parameters by the values of a launch.
fn insert_launch(module: &mut Module, body: BlockId, grid: [u32; 3], params: &[ParamWord]) {
    let mut values = Substitution::new();
    let mut head = Vec::new();
    for (arg, &word) in module.block(body).args.clone().into_iter().zip(params) {
        if let Type::Tile { elem: Elem::Num(dtype), .. } = module.ty(arg) {
            let bits = word & (u64::MAX >> (64 - dtype.bits()));
            values.replace(arg, constant(module, module.ty_id(arg), bits, &mut head));
        }
    }
    rewrite_blocks(module, body, &mut |module, id, out| {
        out.push(id);
        let old = module.op(id).results.clone();
        match module.op(id).code {
            Opcode::GetTileBlockId => {
                let ids = module.renew_results(id);
                for ((old, id), blocks) in old.into_iter().zip(ids).zip(grid) {
                    let predicate = Predicate::Bounded { lower: Some(0), upper: Some(i64::from(blocks) - 1) };
                    let (ty, attrs) = (module.ty_id(id), vec![Attr::Predicate(predicate)]);
                    let bounded = module.add_op(Opcode::Assume, &[&[id]], attrs, vec![], &[ty], Loc::UNKNOWN);
                    out.push(bounded);
                    values.replace(old, module.op(bounded).results[0]);
                }
            }
            Opcode::GetNumTileBlocks => {
                for (old, blocks) in old.into_iter().zip(grid) {
                    values.replace(old, constant(module, module.ty_id(old), blocks.into(), out));
                }
            }
            _ => {}
        }
    });
    module.block_mut(body).ops.splice(0..0, head);
    values.apply(module, body);
}

fn constant(module: &mut Module, ty: TypeId, bits: u64, out: &mut Vec<OpId>) -> Value {
    let data = vec![Attr::Value(ConstData::Splat(bits))];
    let id = module.add_op(Opcode::Constant, &[], data, vec![], &[ty], Loc::UNKNOWN);
    out.push(id);
    module.op(id).results[0]
}

/// Builds the probe of an entry for the open accesses and loops that do not depend on data, and
/// removes them from `open` and `wrapping`. It also checks the divisions in `by_zero` that it can,
/// and removes them. Divisions alone need no probe.
pub(super) fn build(
    module: &Module,
    entry: &Entry,
    facts: &IntRanges,
    open: &mut Open,
    wrapping: &mut FxHashSet<OpId>,
    by_zero: &mut FxHashSet<OpId>,
) -> Option<Probe> {
    if module.entries.len() != 1 || open.is_empty() && wrapping.is_empty() {
        return None;
    }
    let mut plan = Plan {
        module,
        regions: RegionTree::new(module, entry.body),
        facts,
        open,
        wrapping,
        by_zero,
        checks: Vec::new(),
        of_dims: Vec::new(),
    };
    plan.block(entry.body, &mut Vec::new());
    let Plan { checks, of_dims, .. } = plan;
    let decides = |check: &Check| extract(module, entry, &[check]).is_some();
    let mut decided: Vec<Check> = checks.into_iter().filter(decides).collect_vec();
    let subjects: FxHashSet<OpId> = decided.iter().map(|check| check.subject).collect();
    // Some dimensions of other accesses may be decided.
    decided.extend(of_dims.into_iter().filter(|check| !subjects.contains(&check.subject) && decides(check)));
    for check in &decided {
        if let Some(dims) = open.get_mut(&check.subject) {
            dims.retain(|dim| !check.dims.contains(dim));
        }
        wrapping.remove(&check.subject);
        by_zero.remove(&check.subject);
    }
    open.retain(|_, dims| !dims.is_empty());
    if decided.is_empty() { None } else { extract(module, entry, &decided.iter().collect_vec()).map(Probe) }
}

/// One comparison of a check.
#[derive(Clone, Copy)]
enum Condition {
    /// An index is below the number of tiles.
    Inside { view: Value, dim: usize, index: Value },
    /// The end of a loop whose counter is an index is at most the number of tiles.
    EndsInside { view: Value, dim: usize, end: Value },
    /// The counter of a loop reaches its end before the last number of its type.
    Ends { end: Value, step: Value, sign: Sign },
    /// A divisor is positive.
    Positive { divisor: Value },
}

/// Assertion for one access, loop or division.
struct Check {
    subject: OpId,
    /// Dimensions of an access, one for each condition; none for others.
    dims: Vec<usize>,
    /// The op before which it is evaluated: the subject or an enclosing loop.
    place: OpId,
    conditions: Vec<Condition>,
}

/// Selects, for each open access, each loop that may wrap and each divisor that may be 0, the
/// outermost place at which its condition can be evaluated.
struct Plan<'m> {
    module: &'m Module,
    regions: RegionTree,
    facts: &'m IntRanges,
    open: &'m Open,
    wrapping: &'m FxHashSet<OpId>,
    by_zero: &'m FxHashSet<OpId>,
    checks: Vec<Check>,
    /// A check for each dimension of accesses with several open dimensions.
    of_dims: Vec<Check>,
}

impl Plan<'_> {
    /// `around` has the loops around this block, outermost first, inside of the innermost branch.
    /// An op that does not always run must only be checked if it runs.
    fn block(&mut self, block: BlockId, around: &mut Vec<OpId>) {
        for &id in &self.module.block(block).ops {
            if let Some(dims) = self.open.get(&id) {
                let check = self.access(id, dims, around);
                self.checks.push(check);
                if dims.len() > 1 {
                    let each: Vec<Check> = dims.iter().map(|&dim| self.access(id, &[dim], around)).collect_vec();
                    self.of_dims.extend(each);
                }
            }
            if self.wrapping.contains(&id) {
                self.end(id, around);
            }
            if self.by_zero.contains(&id) {
                self.divisor(id, around);
            }
            let op = self.module.op(id);
            match op.code {
                code if code.is_loop() => {
                    around.push(id);
                    self.block(op.regions[0], around);
                    around.pop();
                }
                _ => op.regions.iter().for_each(|&region| self.block(region, &mut Vec::new())),
            }
        }
    }

    fn access(&self, access: OpId, dims: &[usize], around: &[OpId]) -> Check {
        let before = around.iter().find_map(|&loop_around| {
            let conditions = dims.iter().map(|&dim| self.before(loop_around, access, dim));
            Some((loop_around, conditions.collect::<Option<Vec<Condition>>>()?))
        });
        let (place, conditions) = before.unwrap_or_else(|| {
            let op = self.module.op(access);
            let (view, index) = (op.operand_group("view")[0], op.operand_group("index"));
            let condition = |&dim: &usize| Condition::Inside { view, dim, index: index[dim] };
            (access, dims.iter().map(condition).collect_vec())
        });
        Check { subject: access, dims: dims.to_vec(), place, conditions }
    }

    fn end(&mut self, id: OpId, around: &[OpId]) {
        let op = self.module.op(id);
        let (end, step, sign) = (op.operands[1], op.operands[2], loops::sign(op));
        let fixed = |&outer: &OpId| self.is_invariant(outer, end) && self.is_invariant(outer, step);
        let place = around.iter().copied().find(fixed).unwrap_or(id);
        let conditions = vec![Condition::Ends { end, step, sign }];
        self.checks.push(Check { subject: id, dims: Vec::new(), place, conditions });
    }

    fn divisor(&mut self, id: OpId, around: &[OpId]) {
        let divisor = self.module.op(id).operands[1];
        let place = around.iter().copied().find(|&outer| self.is_invariant(outer, divisor)).unwrap_or(id);
        let conditions = vec![Condition::Positive { divisor }];
        self.checks.push(Check { subject: id, dims: Vec::new(), place, conditions });
    }

    /// Returns the condition before a loop for one dimension of an access in it, if there is one.
    /// The index is either invariant, or the counter of this or an inner loop. Then the end of that
    /// loop is compared.
    fn before(&self, around: OpId, access: OpId, dim: usize) -> Option<Condition> {
        let op = self.module.op(access);
        let (view, index) = (op.operand_group("view")[0], op.operand_group("index")[dim]);
        if !self.is_invariant(around, view) {
            return None;
        }
        if self.is_invariant(around, index) {
            return Some(Condition::Inside { view, dim, index });
        }
        let Def::Arg(body, 0) = self.module.def(through_assumes(self.module, index)) else { return None };
        let looped = self.module.op(self.regions.parent(body)?);
        let counts = looped.code == Opcode::For
            && !looped.flag(Flag::UnsignedCmp)
            && self.facts.range(index).is_some_and(|range| range.lo >= 0);
        let end = counts.then(|| self.invariant_end(around, looped.operands[1])).flatten()?;
        Some(Condition::EndsInside { view, dim, end })
    }

    /// Returns the end of a loop, or a number that it does not exceed, if one is invariant.
    fn invariant_end(&self, around: OpId, end: Value) -> Option<Value> {
        if self.is_invariant(around, end) {
            return Some(end);
        }
        let op = self.module.op(self.module.defining_op(end)?);
        let is_minimum = op.code == Opcode::MinI && op.sign() == Sign::Signed;
        is_minimum.then(|| op.operands.iter().copied().find(|&one| self.is_invariant(around, one))).flatten()
    }

    fn is_invariant(&self, around: OpId, value: Value) -> bool {
        match self.module.def(value) {
            Def::Arg(block, _) => {
                self.regions.parent(block).is_none_or(|op| op != around && !self.regions.contains(around, op))
            }
            Def::Result(id, _) => !self.regions.contains(around, id),
        }
    }
}

/// Returns the kernel without the ops that these checks do not need; `None` if memory or tiles
/// remain.
fn extract(module: &Module, entry: &Entry, checks: &[&Check]) -> Option<Module> {
    let mut probe = module.clone();
    probe.globals.clear();
    rewrite_blocks(&mut probe, entry.body, &mut |probe, id, out| {
        for check in checks.iter().filter(|check| check.place == id) {
            check.conditions.iter().for_each(|condition| assert(probe, id, condition, out));
        }
        out.push(id);
    });
    pass::keep_only(&mut probe, &is_ours);
    let mut allowed = true;
    probe.walk(entry.body, &mut |id| {
        let op = probe.op(id);
        let harmless = matches!(op.code.spec().effect, Effect::Pure | Effect::Region | Effect::Terminator);
        let is_small = |&value: &Value| match probe.ty(value) {
            Type::Tile { elem: Elem::Num(dtype), shape } => shape.is_empty() && dtype.is_int(),
            Type::Tile { elem: Elem::Ptr { .. }, shape } => shape.is_empty(),
            Type::TensorView { .. }
            | Type::PartitionView { .. }
            | Type::StridedView { .. }
            | Type::GatherScatterView { .. }
            | Type::Token => true,
        };
        allowed &= (harmless && op.code != Opcode::GetGlobal || is_ours(op)) && op.results.iter().all(is_small);
    });
    allowed.then_some(probe)
}

fn assert(probe: &mut Module, place: OpId, condition: &Condition, out: &mut Vec<OpId>) {
    let loc = probe.op(place).loc;
    let (number, pred, limit, sign) = match *condition {
        Condition::Inside { view, dim, index } => {
            (index, CmpPred::Lt, tile_count(probe, view, dim, index, loc, out), Sign::Unsigned)
        }
        Condition::EndsInside { view, dim, end } => {
            (end, CmpPred::Le, tile_count(probe, view, dim, end, loc, out), Sign::Signed)
        }
        Condition::Positive { divisor } => {
            let one = constant(probe, probe.ty_id(divisor), 1, out);
            (one, CmpPred::Le, divisor, Sign::Signed)
        }
        Condition::Ends { end, step, sign } => {
            let (ty, dtype) = (probe.ty_id(end), probe.dtype(end));
            let (one, last) = (constant(probe, ty, 1, out), constant(probe, ty, loops::last(dtype, sign), out));
            let mut subtract = |a: Value, b: Value| {
                let id =
                    probe.add_op(Opcode::SubI, &[&[a], &[b]], vec![Attr::Overflow(Overflow::None)], vec![], &[ty], loc);
                out.push(id);
                probe.op(id).results[0]
            };
            let beyond = subtract(step, one);
            (end, CmpPred::Le, subtract(last, beyond), sign)
        }
    };
    let truth = probe.intern(Type::scalar(DType::I1));
    let attrs = vec![Attr::CmpPred(pred), Attr::Sign(sign)];
    let holds = probe.add_op(Opcode::CmpI, &[&[number], &[limit]], attrs, vec![], &[truth], loc);
    let holds_value = probe.op(holds).results[0];
    let message = vec![Attr::Text(MESSAGE.into())];
    let assertion = probe.add_op(Opcode::Assert, &[&[holds_value], &[]], message, vec![], &[], loc);
    out.extend([holds, assertion]);
}
