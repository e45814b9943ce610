//! Software pipelining of dependent MMAs: in a loop with two dependent matrix products, the second
//! one is moved to the next iteration.
//!
//! ```text
//! for j: s = a[j] · b; p = f(s); acc = p · c[j] + g(acc, s)
//! ```
//!
//! becomes, if there is a first iteration,
//!
//! ```text
//! s = a[0] · b; p = f(s); acc = g(acc, s)
//! for j from 1: s = a[j] · b; o = p · c[j-1] + acc; p = f(s); acc = g(o, s)
//! o = p · c[last] + acc
//! ```
//!
//! The two products of an iteration are then independent, and `f` overlaps with the second one if
//! MMAs are asynchronous (intra-warpgroup pipelining of FlashAttention-3, Shah et al. 2024). Not
//! part of [`PIPELINE`](crate::pass::PIPELINE): a back end calls it afterwards. The results are
//! bit-identical: the same operations are executed on the same operands.
//!
//! Each of the two products may be an MMA group (`mma_groups`). The products of the second group
//! have accumulators of their own.
//!
//! Sound for two reasons:
//! * The body has no effects except weak reads. So its ops may be reordered inside of an iteration,
//!   and loads of operands of the moved product may execute one iteration later.
//! * The peeled first iteration and the product after the loop are inside of a branch that is taken
//!   if the loop has an iteration.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::canonicalize::collect_continues;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Def, Flag, Loc, MemOrder, Module, Op, OpId, Opcode, Overflow,
    Rounding, Sign, Substitution, Type, TypeId, Value,
};
use crate::pass::analysis::mma_groups;
use crate::pass::analysis::mma_groups::MmaGroups;
use crate::util::sort;

/// Pipelines the loops of each entry whose two products are `wanted`. Returns true if there is one.
/// The module remains well-formed; unused ops remain for dead code elimination.
pub fn pipeline_dependent_mma(module: &mut Module, wanted: &dyn Fn(OpId) -> bool) -> bool {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    entries.into_iter().fold(false, |any, body| block(module, body, wanted) | any)
}

fn block(module: &mut Module, id: BlockId, wanted: &dyn Fn(OpId) -> bool) -> bool {
    let mut any = false;
    let mut out = Vec::new();
    for op in std::mem::take(&mut module.block_mut(id).ops) {
        for region in module.op(op).regions.clone() {
            any |= block(module, region, wanted);
        }
        if module.op(op).code == Opcode::For
            && let Some(plan) = LoopPlan::find(module, op, wanted)
        {
            plan.apply(module, op, &mut out);
            any = true;
        }
        out.push(op);
    }
    module.block_mut(id).ops = out;
    any
}

/// Plan for one loop.
struct LoopPlan {
    /// Ops that the first product depends on, and the product itself.
    head: FxHashSet<OpId>,
    /// Second product: all MMAs of its group.
    second: Rc<[OpId]>,
    /// Accumulator chains of the second product.
    chains: Vec<AccumulatorChain>,
    /// Ops that the second product depends on and that can be computed one iteration later, in
    /// order.
    deferred: Vec<OpId>,
    /// Deferred ops without other uses.
    moved: FxHashSet<OpId>,
    /// Values that are carried to the next iteration for the second product and the deferred ops,
    /// except accumulators.
    carried: Vec<Value>,
    /// Ops that overwrite an operand of a product in flight. They are placed last.
    sunk: FxHashSet<OpId>,
}

/// Accumulator chain of one or more products.
struct AccumulatorChain {
    /// First product of the chain.
    first: OpId,
    /// Result of the last product of the chain.
    result: Value,
    /// Position of the carried value.
    position: usize,
    /// The initial accumulator is computed in the iteration and carried to the second product.
    /// Otherwise it is defined outside of the loop or deferred.
    accumulates: bool,
}

/// Body of a loop, with the users of each value.
struct Body<'m> {
    module: &'m Module,
    block: BlockId,
    inside: FxHashSet<OpId>,
    users: FxHashMap<Value, Vec<OpId>>,
}

impl<'m> Body<'m> {
    fn new(module: &'m Module, block: BlockId) -> Body<'m> {
        let inside = module.block(block).ops.iter().copied().collect();
        let mut users: FxHashMap<Value, Vec<OpId>> = FxHashMap::default();
        for &id in &module.block(block).ops {
            inputs(module, id).into_iter().for_each(|value| users.entry(value).or_default().push(id));
        }
        Body { module, block, inside, users }
    }

    fn users(&self, value: Value) -> &[OpId] {
        self.users.get(&value).map_or(&[], Vec::as_slice)
    }

    /// Returns the op of the body that defines a value.
    fn defining_op(&self, value: Value) -> Option<OpId> {
        self.module.defining_op(value).filter(|op| self.inside.contains(op))
    }

    /// Returns the backward slice of these values: its ops and arguments of the body.
    fn slice(&self, roots: &[Value]) -> (FxHashSet<OpId>, FxHashSet<Value>) {
        let (mut ops, mut args) = (FxHashSet::default(), FxHashSet::default());
        let mut pending = roots.to_vec();
        while let Some(value) = pending.pop() {
            match self.defining_op(value) {
                Some(op) if ops.insert(op) => pending.extend(inputs(self.module, op)),
                None if matches!(self.module.def(value), Def::Arg(block, _) if block == self.block) => {
                    args.insert(value);
                }
                _ => {}
            }
        }
        (ops, args)
    }

    /// Returns true if the body has no effects except weak reads, and each iteration ends at its
    /// end.
    fn is_pipelinable(&self) -> bool {
        let mut ends = Vec::new();
        collect_continues(self.module, self.block, &mut ends);
        let mut plain = ends.len() == 1 && self.module.block(self.block).ops.last() == ends.first();
        self.module.walk(self.block, &mut |id| {
            let op = self.module.op(id);
            plain &= match op.code.spec().effect {
                Effect::Pure | Effect::Region | Effect::Terminator => true,
                Effect::Read => op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Weak)),
                Effect::Write | Effect::ReadWrite | Effect::Other => false,
            };
        });
        plain
    }

    /// Returns true if the op can execute in a later iteration, with operands of this one.
    fn is_deferrable(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        match op.code {
            code if code.is_mma() => false,
            Opcode::LoadView => op.group(2).is_empty() && self.users(op.results[1]).is_empty(),
            code => code.spec().effect == Effect::Pure && op.regions.is_empty(),
        }
    }
}

/// Returns the operands of an op and of all nested ops.
fn inputs(module: &Module, id: OpId) -> Vec<Value> {
    let op = module.op(id);
    let mut all = op.operands.clone();
    for &region in &op.regions {
        module.walk(region, &mut |nested| all.extend(&module.op(nested).operands));
    }
    all
}

fn is_scalar(module: &Module, value: Value) -> bool {
    matches!(module.ty(value), Type::Tile { shape, .. } if shape.iter().product::<i64>() == 1)
}

/// Returns the accumulator chains of a group, if the only use of each result is the terminator
/// `end` of the body.
fn chains(body: &Body<'_>, second: &[OpId], end: OpId) -> Option<Vec<AccumulatorChain>> {
    let module = body.module;
    let sum = |products: Vec<OpId>| {
        let (first, last) = (products[0], products[products.len() - 1]);
        let result = module.op(last).results[0];
        let position = module.op(end).operands.iter().position(|&value| value == result)?;
        (body.users(result) == [end]).then_some(AccumulatorChain { first, result, position, accumulates: false })
    };
    mma_groups::accumulator_chains(module, second).into_iter().map(sum).collect()
}

impl LoopPlan {
    fn find(module: &Module, id: OpId, wanted: &dyn Fn(OpId) -> bool) -> Option<LoopPlan> {
        let block = module.op(id).regions[0];
        let body = Body::new(module, block);
        let (args, ops) = (&module.block(block).args, &module.block(block).ops);
        let is_product = |id: OpId| module.op(id).code.is_mma() && wanted(id);
        let groups = MmaGroups::new(module, block, wanted);
        let second = groups.group_of(*ops.iter().rfind(|&&id| is_product(id))?);
        let chains = if body.is_pipelinable() { chains(&body, &second, *ops.last()?)? } else { return None };
        let operands: Vec<Value> = second.iter().flat_map(|&id| &module.op(id).operands[..2]).copied().collect_vec();
        // The last product on which the second one depends, with its group and backward slice.
        let (before, _) = body.slice(&operands);
        let first_group = groups.group_of(*ops.iter().rfind(|id| before.contains(id) && is_product(**id))?);
        let results: Vec<Value> = first_group.iter().map(|&id| module.op(id).results[0]).collect_vec();
        let (head, needs) = body.slice(&results);
        if chains.iter().any(|sum| needs.contains(&args[sum.position + 1])) {
            return None;
        }
        let mut plan = LoopPlan {
            head,
            second,
            chains,
            deferred: Vec::new(),
            moved: FxHashSet::default(),
            carried: Vec::new(),
            sunk: FxHashSet::default(),
        };
        plan.operands(&body);
        plan.find_moved(&body)?;
        plan.sink(&body);
        Some(plan)
    }

    /// Classifies each operand of the second product: defined outside, deferred, or carried.
    fn operands(&mut self, body: &Body<'_>) {
        let module = body.module;
        let counter = module.block(body.block).args[0];
        let factors = self.second.iter().flat_map(|&id| &module.op(id).operands[..2]).map(|&value| (value, None));
        let starts = self.chains.iter().enumerate().map(|(index, sum)| (module.op(sum.first).operands[2], Some(index)));
        let all: Vec<(Value, Option<usize>)> = factors.chain(starts).collect_vec();
        for (operand, sum) in all {
            let (ops, args) = body.slice(&[operand]);
            if ops.is_empty() && args.is_empty() {
                continue;
            }
            let scalars = args.iter().all(|&arg| is_scalar(module, arg));
            if scalars && ops.iter().all(|&op| body.is_deferrable(op)) {
                self.deferred.extend(ops);
                self.carried.extend(args.into_iter().filter(|&arg| arg != counter));
            } else if let Some(sum) = sum {
                self.chains[sum].accumulates = true;
            } else {
                self.carried.push(operand);
            }
        }
        let order: FxHashMap<OpId, usize> =
            module.block(body.block).ops.iter().enumerate().map(|(index, &op)| (op, index)).collect();
        sort::by_key(&mut self.deferred, |op| order[op]);
        self.deferred.dedup();
        sort::natural(&mut self.carried);
        self.carried.dedup();
    }

    /// Finds the deferred ops to move. Returns `None` if a load would execute twice.
    fn find_moved(&mut self, body: &Body<'_>) -> Option<()> {
        for &id in self.deferred.iter().rev() {
            let is_moved = |user: &OpId| self.second.contains(user) || self.moved.contains(user);
            let op = body.module.op(id);
            if op.results.iter().all(|&result| body.users(result).iter().all(is_moved)) {
                self.moved.insert(id);
            } else if op.code == Opcode::LoadView {
                return None;
            }
        }
        Some(())
    }

    /// Places narrowing conversions of carried operands last. Their wide operand is live anyway,
    /// and the product has read the register that they overwrite.
    fn sink(&mut self, body: &Body<'_>) {
        let module = body.module;
        for &value in &self.carried {
            let for_late = body.users(value).iter().all(|user| self.second.contains(user));
            let Some(id) = body.defining_op(value).filter(|_| for_late) else { continue };
            let op = module.op(id);
            let bits = |value: Value| module.dtype(value).storage_bits();
            if op.code == Opcode::FToF && bits(value) < bits(op.operands[0]) {
                self.sunk.insert(id);
            }
        }
    }

    /// Replaces the loop by a branch around its pipelined form. Ops to be placed before it are
    /// appended to `out`.
    fn apply(&self, module: &mut Module, id: OpId, out: &mut Vec<OpId>) {
        let old = module.op(id).clone();
        let unsigned = old.flag(Flag::UnsignedCmp);
        let loc = old.loc;
        let mut before = Emitter { module, ops: std::mem::take(out), loc };
        let sign = Attr::Sign(if unsigned { Sign::Unsigned } else { Sign::Signed });
        let bounds = [0, 1, 2].map(|group| old.group(group)[0]);
        let runs = before.compare(CmpPred::Lt, sign, bounds[0], bounds[1]);
        *out = before.ops;

        let then = self.pipelined(module, &old, bounds);
        let otherwise = module.add_block(&[]);
        let end = module.add_op(Opcode::Yield, &[old.group(3)], vec![], vec![], &[], loc);
        module.block_mut(otherwise).ops.push(end);
        for region in [then, otherwise] {
            module.block_mut(region).parent = Some(id);
        }
        let op = module.op_mut(id);
        (op.code, op.operands, op.segments) = (Opcode::If, vec![runs], Vec::new());
        (op.attrs, op.regions) = (Vec::new(), vec![then, otherwise]);
    }

    /// Makes the block for a loop with iterations: first iteration, loop, last product.
    fn pipelined(&self, module: &mut Module, old: &Op, [lower, upper, step]: [Value; 3]) -> BlockId {
        let body = old.regions[0];
        let (args, ops) = (module.block(body).args.clone(), module.block(body).ops.clone());
        let yielded = module.op(*ops.last().expect("a terminator")).operands.clone();
        let then = module.add_block(&[]);

        let mut values = Substitution::new();
        values.replace(args[0], lower);
        args[1..].iter().zip(old.group(3)).for_each(|(&arg, &init)| values.replace(arg, init));
        let mut emitter = Emitter { module, ops: Vec::new(), loc: old.loc };
        for &op in ops.iter().filter(|op| self.keeps_iteration(**op, &ops)) {
            emitter.copy(op, &mut values);
        }
        let initial: Vec<Value> = self.chains.iter().map(|sum| values.resolve(args[sum.position + 1])).collect_vec();
        let init = self.passed_values(emitter.module, &yielded, &values, &initial);
        let [first, last] = emitter.range(lower, upper, step);

        let pipelined_body = self.body(emitter.module, old, step);
        let types: Vec<TypeId> = init.iter().map(|&value| emitter.module.ty_id(value)).collect_vec();
        let groups: [&[Value]; 4] = [&[first], &[upper], &[step], &init];
        let pipelined_loop =
            emitter.module.add_op(Opcode::For, &groups, old.attrs.clone(), vec![pipelined_body], &types, old.loc);
        emitter.ops.push(pipelined_loop);

        let mut results = emitter.module.op(pipelined_loop).results.clone();
        let results_of_second = self.emit_second(&mut emitter, args[0], last, &results);
        results.truncate(args.len() - 1);
        self.chains.iter().zip(results_of_second).for_each(|(sum, result)| results[sum.position] = result);
        let end = emitter.module.add_op(Opcode::Yield, &[&results], vec![], vec![], &[], old.loc);
        emitter.ops.push(end);
        let done = emitter.ops;
        module.block_mut(then).ops = done;
        then
    }

    /// Returns true if an op of the body remains in its iteration.
    fn keeps_iteration(&self, op: OpId, ops: &[OpId]) -> bool {
        !self.second.contains(&op) && !self.moved.contains(&op) && ops.last() != Some(&op)
    }

    /// Returns the values that an iteration passes to the next one. They are the original carried
    /// values followed by the values for the second product. The position of each result of the
    /// second product has its initial accumulator, or `otherwise` if there is none.
    fn passed_values(&self, module: &Module, next: &[Value], values: &Substitution, otherwise: &[Value]) -> Vec<Value> {
        let mut all: Vec<Value> = next.iter().map(|&value| values.resolve(value)).collect_vec();
        for (sum, &otherwise) in self.chains.iter().zip(otherwise) {
            let accumulator = module.op(sum.first).operands[2];
            all[sum.position] = if sum.accumulates { values.resolve(accumulator) } else { otherwise };
        }
        all.extend(self.carried.iter().map(|&value| values.resolve(value)));
        all
    }

    /// Emits the second product and the deferred ops for the iteration whose counter is `counter`
    /// and which passed these values. Returns the results.
    fn emit_second(
        &self,
        emitter: &mut Emitter<'_>,
        argument: Value,
        counter: Value,
        passed_values: &[Value],
    ) -> Vec<Value> {
        let mut values = Substitution::new();
        values.replace(argument, counter);
        let taken = &passed_values[passed_values.len() - self.carried.len()..];
        self.carried.iter().zip(taken).for_each(|(&value, &now)| values.replace(value, now));
        for &op in &self.deferred {
            emitter.copy(op, &mut values);
        }
        for &id in &*self.second {
            let second = emitter.copy(id, &mut values);
            // A value may be the accumulator and another operand. The accumulator is carried
            // separately.
            if let Some(sum) = self.chains.iter().find(|sum| sum.first == id && sum.accumulates) {
                emitter.module.op_mut(second).operands[2] = passed_values[sum.position];
            }
        }
        self.chains.iter().map(|sum| values.resolve(sum.result)).collect_vec()
    }

    /// Makes the body of the pipelined loop.
    fn body(&self, module: &mut Module, old: &Op, step: Value) -> BlockId {
        let body = old.regions[0];
        let (args, ops) = (module.block(body).args.clone(), module.block(body).ops.clone());
        let end = *ops.last().expect("a terminator");
        let yielded = module.op(end).operands.clone();
        let types: Vec<TypeId> = args.iter().chain(&self.carried).map(|&value| module.ty_id(value)).collect_vec();
        let block = module.add_block(&types);
        let now = module.block(block).args.clone();
        let mut values = Substitution::new();
        for (index, (&arg, &new)) in args.iter().zip(&now).enumerate() {
            if self.chains.iter().all(|sum| index != sum.position + 1) {
                values.replace(arg, new);
            }
        }
        let mut emitter = Emitter { module, ops: Vec::new(), loc: old.loc };
        for &op in ops.iter().filter(|op| self.head.contains(op)) {
            emitter.copy(op, &mut values);
        }
        let previous = emitter.binary(Opcode::SubI, vec![Attr::Overflow(Overflow::None)], now[0], step);
        let results_of_second = self.emit_second(&mut emitter, args[0], previous, &now[1..]);
        self.chains
            .iter()
            .zip(&results_of_second)
            .for_each(|(sum, &result)| values.replace(args[sum.position + 1], result));
        let rest = |op: &&OpId| self.keeps_iteration(**op, &ops) && !self.head.contains(*op);
        for sunk in [false, true] {
            for &op in ops.iter().filter(rest).filter(|op| self.sunk.contains(op) == sunk) {
                emitter.copy(op, &mut values);
            }
        }
        let passed_values = self.passed_values(emitter.module, &yielded, &values, &results_of_second);
        let loc = emitter.module.op(end).loc;
        let end = emitter.module.add_op(Opcode::Continue, &[&passed_values], vec![], vec![], &[], loc);
        emitter.ops.push(end);
        let done = emitter.ops;
        module.block_mut(block).ops = done;
        block
    }
}

/// List of ops that is being built.
struct Emitter<'m> {
    module: &'m mut Module,
    ops: Vec<OpId>,
    loc: Loc,
}

impl Emitter<'_> {
    fn copy(&mut self, op: OpId, values: &mut Substitution) -> OpId {
        let copy = self.module.clone_op(op, values);
        self.ops.push(copy);
        copy
    }

    fn emit(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, ty: TypeId) -> Value {
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        let op = self.module.add_op(code, &groups, attrs, vec![], &[ty], self.loc);
        self.ops.push(op);
        self.module.op(op).results[0]
    }

    fn binary(&mut self, code: Opcode, attrs: Vec<Attr>, lhs: Value, rhs: Value) -> Value {
        let ty = self.module.ty_id(lhs);
        self.emit(code, &[lhs, rhs], attrs, ty)
    }

    fn compare(&mut self, predicate: CmpPred, sign: Attr, lhs: Value, rhs: Value) -> Value {
        let ty = self.module.intern(Type::scalar(DType::I1));
        self.emit(Opcode::CmpI, &[lhs, rhs], vec![Attr::CmpPred(predicate), sign], ty)
    }

    /// Returns the second number of a nonempty range, or its end if there is none, and the last
    /// number.
    fn range(&mut self, lower: Value, upper: Value, step: Value) -> [Value; 2] {
        let wrap = || vec![Attr::Overflow(Overflow::None)];
        let unsigned = || Attr::Sign(Sign::Unsigned);
        if self.is_one(step) {
            let first = self.binary(Opcode::AddI, wrap(), lower, step);
            return [first, self.binary(Opcode::SubI, wrap(), upper, step)];
        }
        // A difference is at most the range of the type, so it does not overflow as an unsigned
        // number.
        let length = self.binary(Opcode::SubI, wrap(), upper, lower);
        let stride = self.binary(Opcode::MinI, vec![unsigned()], step, length);
        let first = self.binary(Opcode::AddI, wrap(), lower, stride);
        let ty = self.module.ty_id(lower);
        let one = self.emit(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(1))], ty);
        let most = self.binary(Opcode::SubI, wrap(), length, one);
        let division = vec![unsigned(), Attr::Rounding(Rounding::Zero)];
        let turns = self.binary(Opcode::DivI, division, most, step);
        let distance = self.binary(Opcode::MulI, wrap(), turns, step);
        [first, self.binary(Opcode::AddI, wrap(), lower, distance)]
    }

    fn is_one(&self, value: Value) -> bool {
        let data = self.module.defining_op(value).and_then(|op| self.module.op(op).const_data());
        matches!(data, Some(ConstData::Splat(1)))
    }
}
