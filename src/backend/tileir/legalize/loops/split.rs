//! Splitting of loops over the range of a condition on their counter: `if counter < bound` in the
//! body becomes two loops without the `if`, one up to the bound and one from it. The condition may
//! also be a conjunction of comparisons of sums with multiples of the counter.
//!
//! Example: masked attention, whose first tiles of keys need no mask. A tile that passes through an
//! `if` prevents `tileiras` from overlapping the products of a loop. Masks that are computed in
//! each iteration become such conditions first.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::super::super::grid;
use super::super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{
    Attr, BlockId, CmpPred, ConstData, Entry, Flag, Loc, Module, Op, OpId, Opcode, Overflow, Rounding, Sign,
    Substitution, Type, TypeId, Value,
};
use crate::pass::IntRanges;

/// Largest number of splits of an entry, each of which doubles a loop body.
const MAX_SPLITS: usize = 4;
/// Elements of a result of an `if` from which a loop is split.
const LARGE: i64 = 1024;

/// Largest multiple in a sum.
const MAX_TIMES: i64 = 1 << 24;

/// A condition of an `if` in a loop body.
struct Split {
    /// Position of the `if` in the body.
    position: usize,
    bound: SplitBound,
    /// The region below the bound; the other one is for the bound and above.
    below: usize,
}

/// First number of the counter for which the condition is false.
enum SplitBound {
    /// A value from outside of the loop.
    Value(Value),
    /// The least of the numbers at which one of these sums becomes zero or positive.
    Zeros(Vec<Affine>),
}

/// Splits the loops with products of an entry at conditions on their counter. A mask of each
/// iteration becomes a condition if the loop can be split there. Entries with several such loops
/// have separate loops for masks already.
pub(in super::super) fn run(module: &mut Module, entry: &Entry) {
    let is_single = module.entries.len() == 1 && count_mma_loops(module, entry) == 1;
    let branched = if is_single { crate::pass::select_to_branch(module, LARGE) } else { None };
    split_conditions(module, entry);
    if let Some(mut branched) = branched {
        split_conditions(&mut branched, entry);
        if count_large_branches(&branched, entry) <= count_large_branches(module, entry) {
            *module = branched;
        }
    }
}

/// Returns the number of loops whose bodies contain MMAs directly.
fn count_mma_loops(module: &Module, entry: &Entry) -> usize {
    let mut count = 0;
    module.walk(entry.body, &mut |id| {
        let op = module.op(id);
        let multiplies = |&region: &BlockId| module.block(region).ops.iter().any(|&id| module.op(id).code.is_mma());
        count += usize::from(op.code == Opcode::For && op.regions.iter().any(multiplies));
    });
    count
}

/// Returns the number of `if` ops with large tiles as results.
fn count_large_branches(module: &Module, entry: &Entry) -> usize {
    let mut count = 0;
    module.walk(entry.body, &mut |id| count += usize::from(is_large_branch(module, id)));
    count
}

fn is_large_branch(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    let is_large = |&result: &Value| module.shape(result).iter().product::<i64>() >= LARGE;
    op.code == Opcode::If && op.results.iter().any(is_large)
}

fn split_conditions(module: &mut Module, entry: &Entry) {
    for _ in 0..MAX_SPLITS {
        let mut values = Substitution::new();
        let mut is_done = false;
        let facts = grid::facts(module, entry);
        rewrite_blocks(
            module,
            entry.body,
            &mut |module, id, out| match find(module, &facts, id).filter(|_| !is_done) {
                Some(found) => {
                    is_done = true;
                    split(module, id, &found, out, &mut values);
                }
                None => out.push(id),
            },
        );
        if !is_done {
            return;
        }
        values.apply(module, entry.body);
    }
}

/// Returns the first condition at which a loop can be split.
fn find(module: &Module, facts: &IntRanges, id: OpId) -> Option<Split> {
    let op = module.op(id);
    if op.code != Opcode::For || op.flag(Flag::UnsignedCmp) || !is_one(module, op.operands[2]) {
        return None;
    }
    let body = op.regions[0];
    let ops = &module.block(body).ops;
    if !ops.iter().any(|&inner| module.op(inner).code.is_mma()) {
        return None;
    }
    let inside = defined_inside(module, body);
    let counter = module.block(body).args[0];
    ops.iter().enumerate().filter(|(_, inner)| is_large_branch(module, **inner)).find_map(|(position, &inner)| {
        let condition = module.op(inner).operands[0];
        if let Some((bound, below)) = direct_bound(module, condition, counter)
            && !inside.contains(&bound)
        {
            return Some(Split { position, bound: SplitBound::Value(bound), below });
        }
        if module.dtype(counter) != DType::I32 {
            return None;
        }
        let mut zeros = Vec::new();
        let reader = Reader { module, inside: &inside, counter, facts };
        reader.collect_zeros(condition, &mut zeros)?;
        Some(Split { position, bound: SplitBound::Zeros(zeros), below: 0 })
    })
}

/// Returns the bound of a comparison of the counter itself, and the region below it.
fn direct_bound(module: &Module, condition: Value, counter: Value) -> Option<(Value, usize)> {
    let (pred, [left, right]) = comparison(module, condition)?;
    match (pred, left == counter, right == counter) {
        (CmpPred::Lt, true, false) => Some((right, 0)),
        (CmpPred::Ge, true, false) => Some((right, 1)),
        (CmpPred::Gt, false, true) => Some((left, 0)),
        (CmpPred::Le, false, true) => Some((left, 1)),
        _ => None,
    }
}

/// Returns predicate and operands of a signed comparison.
fn comparison(module: &Module, condition: Value) -> Option<(CmpPred, [Value; 2])> {
    let op = module.op(module.defining_op(condition)?);
    let pred = op.attrs.iter().find_map(|attr| match attr {
        Attr::CmpPred(pred) => Some(*pred),
        _ => None,
    })?;
    (op.code == Opcode::CmpI && op.sign() == Sign::Signed).then(|| (pred, [op.operands[0], op.operands[1]]))
}

/// The sum of a multiple of the counter, of multiples of values from outside of the loop, and of a
/// number, in 64 bits.
#[derive(Clone, Debug, Default)]
struct Affine {
    times: i64,
    values: Vec<(Value, i64)>,
    number: i64,
}

impl Affine {
    /// Returns `self + factor · other`.
    fn add(mut self, other: &Affine, factor: i64) -> Option<Affine> {
        self.times = self.times.checked_add(other.times.checked_mul(factor)?)?;
        self.number = self.number.checked_add(other.number.checked_mul(factor)?)?;
        for &(value, times) in &other.values {
            self.values.push((value, times.checked_mul(factor)?));
        }
        let multiples = self.values.iter().map(|(_, times)| *times);
        let is_small = multiples.chain([self.times, self.number >> 32]).all(|times| times.abs() <= MAX_TIMES);
        (is_small && self.values.len() <= 16).then_some(self)
    }

    fn is_number(&self) -> bool {
        self.times == 0 && self.values.is_empty()
    }
}

/// Reader of conditions in a loop body.
struct Reader<'a> {
    module: &'a Module,
    /// Values that the body defines.
    inside: &'a FxHashSet<Value>,
    counter: Value,
    facts: &'a IntRanges,
}

impl Reader<'_> {
    /// Collects sums that are negative exactly where a condition is true, and do not decrease with
    /// the counter. `None` if there is another condition.
    fn collect_zeros(&self, condition: Value, zeros: &mut Vec<Affine>) -> Option<()> {
        let op = self.module.op(self.module.defining_op(condition)?);
        if op.code == Opcode::AndI {
            return op.operands.iter().try_for_each(|&operand| self.collect_zeros(operand, zeros));
        }
        let (pred, [left, right]) = comparison(self.module, condition)?;
        let (strict, [small, large]) = match pred {
            CmpPred::Lt => (true, [left, right]),
            CmpPred::Le => (false, [left, right]),
            CmpPred::Gt => (true, [right, left]),
            CmpPred::Ge => (false, [right, left]),
            CmpPred::Eq | CmpPred::Ne => return None,
        };
        let mut zero = self.sum(small)?.add(&self.sum(large)?, -1)?;
        zero.number = zero.number.checked_sub(i64::from(!strict))?;
        (zero.times >= 0).then(|| zeros.push(zero))
    }

    /// Returns true if a sum or a product of 32 bits does not wrap around.
    fn is_exact(&self, op: &Op) -> bool {
        let range = |operand: usize| self.facts.range(op.operands[operand]).map(|range| [range.lo, range.hi]);
        let [Some(a), Some(b)] = [range(0), range(1)] else { return false };
        let results = a.iter().flat_map(|a| b.iter().map(move |b| (i128::from(*a), i128::from(*b))));
        let fits = |number: i128| i32::try_from(number).is_ok();
        match op.code {
            _ if self.module.dtype(op.results[0]) != DType::I32 => false,
            Opcode::AddI => results.into_iter().all(|(a, b)| fits(a + b)),
            Opcode::SubI => results.into_iter().all(|(a, b)| fits(a - b)),
            Opcode::MulI => results.into_iter().all(|(a, b)| fits(a * b)),
            _ => false,
        }
    }

    /// Returns an integer as a sum, if no part of it wraps around: arithmetic in 64 bits with small
    /// multiples of values of 32 bits.
    fn sum(&self, value: Value) -> Option<Affine> {
        if value == self.counter {
            return Some(Affine { times: 1, ..Affine::default() });
        }
        let op = self.module.defining_op(value).map(|id| self.module.op(id));
        let dtype = self.module.dtype(value);
        if let Some(ConstData::Splat(bits)) = op.and_then(|op| op.const_data()) {
            let unused = 64 - dtype.bits();
            return Some(Affine { number: (*bits as i64) << unused >> unused, ..Affine::default() });
        }
        if dtype != DType::I64 && !self.inside.contains(&value) {
            return Some(Affine { values: vec![(value, 1)], ..Affine::default() });
        }
        let op = op?;
        if dtype != DType::I64 && !self.is_exact(op) {
            return None;
        }
        let of = |operand: usize| self.sum(op.operands[operand]);
        match op.code {
            Opcode::ExtI if op.sign() == Sign::Signed => of(0),
            Opcode::AddI => of(0)?.add(&of(1)?, 1),
            Opcode::SubI => of(0)?.add(&of(1)?, -1),
            Opcode::MulI => match (of(0)?, of(1)?) {
                (factor, sum) | (sum, factor) if factor.is_number() => Affine::default().add(&sum, factor.number),
                _ => None,
            },
            _ => None,
        }
    }
}

fn is_one(module: &Module, value: Value) -> bool {
    let op = module.defining_op(value).map(|id| module.op(id));
    op.is_some_and(|op| op.const_data() == Some(&ConstData::Splat(1)))
}

/// Returns the values that a loop body defines.
pub(super) fn defined_inside(module: &Module, body: BlockId) -> FxHashSet<Value> {
    let mut values: FxHashSet<Value> = module.block(body).args.iter().copied().collect();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        values.extend(&op.results);
        op.regions.iter().for_each(|&region| values.extend(&module.block(region).args));
    });
    values
}

fn split(module: &mut Module, first: OpId, at: &Split, out: &mut Vec<OpId>, values: &mut Substitution) {
    let (op, loc) = (module.op(first).clone(), module.op(first).loc);
    let ty = module.ty_id(op.operands[0]);
    let bound = match &at.bound {
        SplitBound::Value(bound) => *bound,
        SplitBound::Zeros(zeros) => {
            let mut emitter = Emitter { module, out, loc };
            emitter.bound(zeros, ty)
        }
    };
    let mut emitter = Emitter { module, out, loc };
    let end = emitter.limited(Opcode::MinI, bound, op.operands[1]);
    let start = emitter.limited(Opcode::MaxI, end, op.operands[0]);
    let second = module.clone_op(first, &mut Substitution::new());
    for (id, region) in [(first, at.below), (second, 1 - at.below)] {
        let body = module.op(id).regions[0];
        take_branch(module, body, at.position, region);
    }
    module.op_mut(first).operands[1] = end;
    let carried = module.renew_results(first);
    let operands = &mut module.op_mut(second).operands;
    operands[0] = start;
    operands[3..].copy_from_slice(&carried);
    let results = module.op(second).results.clone();
    op.results.iter().zip(results).for_each(|(&old, new)| values.replace(old, new));
    out.extend([first, second]);
}

/// Emitter of scalar ops before a loop.
struct Emitter<'a> {
    module: &'a mut Module,
    out: &'a mut Vec<OpId>,
    loc: Loc,
}

impl Emitter<'_> {
    fn emit(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let id = self.module.add_op(code, &groups, attrs, vec![], &[ty], self.loc);
        self.out.push(id);
        self.module.op(id).results[0]
    }

    /// Emits a minimum or maximum of signed integers.
    fn limited(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let ty = self.module.ty_id(a);
        self.emit(code, &[a, b], vec![Attr::Sign(Sign::Signed)], ty)
    }

    fn number(&mut self, number: i64) -> Value {
        let ty = self.module.intern(Type::scalar(DType::I64));
        self.emit(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(number as u64))], ty)
    }

    fn arithmetic(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let ty = self.module.ty_id(a);
        self.emit(code, &[a, b], vec![Attr::Overflow(Overflow::None)], ty)
    }

    /// Emits the first number of a counter of 32 bits at which one of the sums is not negative.
    fn bound(&mut self, zeros: &[Affine], ty: TypeId) -> Value {
        let (least, most) = (i32::MIN.into(), i32::MAX.into());
        let mut bound = self.number(most);
        for zero in zeros {
            let first = self.first(zero, [least, most]);
            bound = self.limited(Opcode::MinI, bound, first);
        }
        let least = self.number(least);
        let bound = self.limited(Opcode::MaxI, bound, least);
        self.emit(Opcode::TruncI, &[bound], vec![Attr::Overflow(Overflow::None)], ty)
    }

    /// Emits the first number at which a sum is not negative, in 64 bits.
    fn first(&mut self, zero: &Affine, [least, most]: [i64; 2]) -> Value {
        // The sum is negative for `times · counter < rest`.
        let wide = self.module.intern(Type::scalar(DType::I64));
        let mut rest = self.number(-zero.number);
        for &(value, times) in &zero.values {
            let value = match self.module.dtype(value) {
                DType::I64 => value,
                _ => self.emit(Opcode::ExtI, &[value], vec![Attr::Sign(Sign::Signed)], wide),
            };
            let times = self.number(-times);
            let product = self.arithmetic(Opcode::MulI, value, times);
            rest = self.arithmetic(Opcode::AddI, rest, product);
        }
        if zero.times > 0 {
            let times = self.number(zero.times);
            let attrs = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::PosInf)];
            return self.emit(Opcode::DivI, &[rest, times], attrs, wide);
        }
        let nothing = self.number(0);
        let boolean = self.module.intern(Type::scalar(DType::I1));
        let attrs = vec![Attr::CmpPred(CmpPred::Lt), Attr::Sign(Sign::Signed)];
        let is_negative = self.emit(Opcode::CmpI, &[nothing, rest], attrs, boolean);
        let [least, most] = [least, most].map(|number| self.number(number));
        self.emit(Opcode::Select, &[is_negative, most, least], vec![], wide)
    }
}

/// Replaces an `if` of a block by the ops of one of its regions.
fn take_branch(module: &mut Module, block: BlockId, position: usize, region: usize) {
    let branch = module.op(module.block(block).ops[position]).clone();
    let mut inner = module.block(branch.regions[region]).ops.clone();
    let yielded = inner.pop().map(|id| module.op(id).operands.clone()).unwrap_or_default();
    module.block_mut(block).ops.splice(position..=position, inner);
    let mut values = Substitution::new();
    branch.results.iter().zip(yielded).for_each(|(&old, new)| values.replace(old, new));
    values.apply(module, block);
}
