//! Rotation: in a loop with two dependent products, the second one moves into the next iteration.
//!
//! ```text
//! for j: s = a[j] · b; p = f(s); acc = p · c[j] + g(acc, s)
//! ```
//!
//! becomes, where there is a first iteration,
//!
//! ```text
//! s = a[0] · b; p = f(s); acc = g(acc, s)
//! for j from 1: s = a[j] · b; o = p · c[j-1] + acc; p = f(s); acc = g(o, s)
//! o = p · c[last] + acc
//! ```
//!
//! so that the products of an iteration do not depend on each other and the work between them can overlap
//! with the second one, on machines whose products run on their own. Not part of the pipeline: a back end
//! asks for it, after that. Values are those of the loop as it was, bit for bit: the same operations on the
//! same operands in another order.
//!
//! Either product may be several that belong together (`bundle`), each of the second ones with an accumulator of its own.
//!
//! Sound because the body has no effects but reads, so that its ops may change places within an iteration
//! and loads that feed the moved product may come an iteration later; and because the peeled first
//! iteration and the product after the loop stand in a branch that is taken when the loop runs at all.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::canonicalize::continues;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, CmpPred, ConstData, Def, Flag, Loc, MemOrder, Module, Op, OpId, Opcode, Overflow,
    Rounding, Sign, Substitution, Type, TypeId, Value,
};
use crate::pass::analysis::mma_groups;
use crate::pass::analysis::mma_groups::Bundles;

/// Rotates the loops of every entry whose two products are both `wanted`; says whether there were any.
/// The module stays well-formed; ops that nothing uses any more are left to dead code elimination.
pub fn rotate(module: &mut Module, wanted: &dyn Fn(OpId) -> bool) -> bool {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect();
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
            && let Some(turn) = Turn::find(module, op, wanted)
        {
            turn.apply(module, op, &mut out);
            any = true;
        }
        out.push(op);
    }
    module.block_mut(id).ops = out;
    any
}

/// What moves, in one loop.
struct Turn {
    /// Ops that the first product needs, and that product.
    head: FxHashSet<OpId>,
    /// The second product: all that belong together.
    late: Rc<[OpId]>,
    /// What it makes.
    sums: Vec<Sum>,
    /// Ops that it needs and that can as well be computed an iteration later, in order.
    deferred: Vec<OpId>,
    /// Those of them that nothing else needs.
    moved: FxHashSet<OpId>,
    /// Values that it, or what is deferred, takes along to the next iteration, without the accumulator.
    carried: Vec<Value>,
    /// Ops that overwrite an operand of a product that may still run: last.
    sunk: FxHashSet<OpId>,
}

/// Products that add up in turn, one or more.
struct Sum {
    /// The first of them.
    first: OpId,
    /// The result of the last one.
    result: Value,
    /// The carried value that this is.
    position: usize,
    /// Is the accumulator computed in the iteration itself (or comes from outside)?
    accumulates: bool,
}

/// The body of a loop: its ops by value and by user.
struct Body<'m> {
    module: &'m Module,
    block: BlockId,
    inside: FxHashSet<OpId>,
    users: FxHashMap<Value, Vec<OpId>>,
}

impl<'m> Body<'m> {
    fn of(module: &'m Module, block: BlockId) -> Body<'m> {
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

    /// The op of the body that makes a value.
    fn maker(&self, value: Value) -> Option<OpId> {
        self.module.defining_op(value).filter(|op| self.inside.contains(op))
    }

    /// The ops of the body that these values come from, and the arguments of the body among what they need.
    fn slice(&self, roots: &[Value]) -> (FxHashSet<OpId>, FxHashSet<Value>) {
        let (mut ops, mut args) = (FxHashSet::default(), FxHashSet::default());
        let mut pending = roots.to_vec();
        while let Some(value) = pending.pop() {
            match self.maker(value) {
                Some(op) if ops.insert(op) => pending.extend(inputs(self.module, op)),
                None if matches!(self.module.def(value), Def::Arg(block, _) if block == self.block) => {
                    args.insert(value);
                }
                _ => {}
            }
        }
        (ops, args)
    }

    /// Has the body no effects but weak reads, and does every iteration end at its end?
    fn is_plain(&self) -> bool {
        let mut ends = Vec::new();
        continues(self.module, self.block, &mut ends);
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

    /// May this run in a later iteration instead, on operands of this one?
    fn can_wait(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        match op.code {
            Opcode::MmaF | Opcode::MmaI => false,
            Opcode::LoadView => op.group(2).is_empty() && self.users(op.results[1]).is_empty(),
            code => code.spec().effect == Effect::Pure && op.regions.is_empty(),
        }
    }
}

/// The operands of an op and of everything nested in it.
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

/// What products that belong together make, if each of their sums goes to the end of the body (`end`) and nowhere else.
fn sums(body: &Body<'_>, late: &[OpId], end: OpId) -> Option<Vec<Sum>> {
    let module = body.module;
    let sum = |products: Vec<OpId>| {
        let (first, last) = (products[0], products[products.len() - 1]);
        let result = module.op(last).results[0];
        let position = module.op(end).operands.iter().position(|&value| value == result)?;
        (body.users(result) == [end]).then_some(Sum { first, result, position, accumulates: false })
    };
    mma_groups::sums(module, late).into_iter().map(sum).collect()
}

impl Turn {
    fn find(module: &Module, id: OpId, wanted: &dyn Fn(OpId) -> bool) -> Option<Turn> {
        let block = module.op(id).regions[0];
        let body = Body::of(module, block);
        let (args, ops) = (&module.block(block).args, &module.block(block).ops);
        let is_product = |id: OpId| matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI) && wanted(id);
        let bundles = Bundles::of(module, block, wanted);
        let late = bundles.with(*ops.iter().rfind(|&&id| is_product(id))?);
        let sums = if body.is_plain() { sums(&body, &late, *ops.last()?)? } else { return None };
        let operands: Vec<Value> = late.iter().flat_map(|&id| &module.op(id).operands[..2]).copied().collect();
        // The last of the products that the second one waits for, with what it needs itself.
        let (before, _) = body.slice(&operands);
        let early = bundles.with(*ops.iter().rfind(|id| before.contains(id) && is_product(**id))?);
        let results: Vec<Value> = early.iter().map(|&id| module.op(id).results[0]).collect();
        let (head, needs) = body.slice(&results);
        if sums.iter().any(|sum| needs.contains(&args[sum.position + 1])) {
            return None;
        }
        let mut turn = Turn {
            head,
            late,
            sums,
            deferred: Vec::new(),
            moved: FxHashSet::default(),
            carried: Vec::new(),
            sunk: FxHashSet::default(),
        };
        turn.operands(&body);
        turn.settle_moved(&body)?;
        turn.sink(&body);
        Some(turn)
    }

    /// Decides for each operand of the second product: from outside, deferred, or carried.
    fn operands(&mut self, body: &Body<'_>) {
        let module = body.module;
        let counter = module.block(body.block).args[0];
        let factors = self.late.iter().flat_map(|&id| &module.op(id).operands[..2]).map(|&value| (value, None));
        let starts = self.sums.iter().enumerate().map(|(index, sum)| (module.op(sum.first).operands[2], Some(index)));
        let all: Vec<(Value, Option<usize>)> = factors.chain(starts).collect();
        for (operand, sum) in all {
            let (ops, args) = body.slice(&[operand]);
            if ops.is_empty() && args.is_empty() {
                continue;
            }
            let scalars = args.iter().all(|&arg| is_scalar(module, arg));
            if scalars && ops.iter().all(|&op| body.can_wait(op)) {
                self.deferred.extend(ops);
                self.carried.extend(args.into_iter().filter(|&arg| arg != counter));
            } else if let Some(sum) = sum {
                self.sums[sum].accumulates = true;
            } else {
                self.carried.push(operand);
            }
        }
        let order: FxHashMap<OpId, usize> =
            module.block(body.block).ops.iter().enumerate().map(|(index, &op)| (op, index)).collect();
        self.deferred.sort_unstable_by_key(|op| order[op]);
        self.deferred.dedup();
        self.carried.sort_unstable();
        self.carried.dedup();
    }

    /// Finds the deferred ops that go from their place; `None` if a load would then be made twice.
    fn settle_moved(&mut self, body: &Body<'_>) -> Option<()> {
        for &id in self.deferred.iter().rev() {
            let goes = |user: &OpId| self.late.contains(user) || self.moved.contains(user);
            let op = body.module.op(id);
            if op.results.iter().all(|&result| body.users(result).iter().all(goes)) {
                self.moved.insert(id);
            } else if op.code == Opcode::LoadView {
                return None;
            }
        }
        Some(())
    }

    /// Narrowing conversions of carried operands come last: their wide operand is there in any case, and
    /// what they overwrite has been read by then.
    fn sink(&mut self, body: &Body<'_>) {
        let module = body.module;
        for &value in &self.carried {
            let for_late = body.users(value).iter().all(|user| self.late.contains(user));
            let Some(id) = body.maker(value).filter(|_| for_late) else { continue };
            let op = module.op(id);
            let bits = |value: Value| module.dtype(value).storage_bits();
            if op.code == Opcode::FToF && bits(value) < bits(op.operands[0]) {
                self.sunk.insert(id);
            }
        }
    }

    /// Turns the loop into a branch around its rotated form; what has to stand before it goes to `out`.
    fn apply(&self, module: &mut Module, id: OpId, out: &mut Vec<OpId>) {
        let old = module.op(id).clone();
        let unsigned = old.flag(Flag::UnsignedCmp);
        let loc = old.loc;
        let mut before = Emitter { module, ops: std::mem::take(out), loc };
        let sign = Attr::Sign(if unsigned { Sign::Unsigned } else { Sign::Signed });
        let bounds = [0, 1, 2].map(|group| old.group(group)[0]);
        let runs = before.compare(CmpPred::Lt, sign, bounds[0], bounds[1]);
        *out = before.ops;

        let then = self.rotated(module, &old, bounds);
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

    /// The block for a loop that runs: first iteration, loop, last product.
    fn rotated(&self, module: &mut Module, old: &Op, [lower, upper, step]: [Value; 3]) -> BlockId {
        let body = old.regions[0];
        let (args, ops) = (module.block(body).args.clone(), module.block(body).ops.clone());
        let next = module.op(*ops.last().expect("a terminator")).operands.clone();
        let then = module.add_block(&[]);

        let mut values = Substitution::new();
        values.replace(args[0], lower);
        args[1..].iter().zip(old.group(3)).for_each(|(&arg, &init)| values.replace(arg, init));
        let mut emitter = Emitter { module, ops: Vec::new(), loc: old.loc };
        for &op in ops.iter().filter(|op| self.stays(**op, &ops)) {
            emitter.copy(op, &mut values);
        }
        let begun: Vec<Value> = self.sums.iter().map(|sum| values.resolve(args[sum.position + 1])).collect();
        let init = self.handed(emitter.module, &next, &values, &begun);
        let [first, last] = emitter.range(lower, upper, step);

        let turning = self.body(emitter.module, old, step);
        let types: Vec<TypeId> = init.iter().map(|&value| emitter.module.ty_id(value)).collect();
        let groups: [&[Value]; 4] = [&[first], &[upper], &[step], &init];
        let turned = emitter.module.add_op(Opcode::For, &groups, old.attrs.clone(), vec![turning], &types, old.loc);
        emitter.ops.push(turned);

        let mut results = emitter.module.op(turned).results.clone();
        let made = self.delayed(&mut emitter, args[0], last, &results);
        results.truncate(args.len() - 1);
        self.sums.iter().zip(made).for_each(|(sum, result)| results[sum.position] = result);
        let end = emitter.module.add_op(Opcode::Yield, &[&results], vec![], vec![], &[], old.loc);
        emitter.ops.push(end);
        let done = emitter.ops;
        module.block_mut(then).ops = done;
        then
    }

    /// Does an op of the body keep its iteration?
    fn stays(&self, op: OpId, ops: &[OpId]) -> bool {
        !self.late.contains(&op) && !self.moved.contains(&op) && ops.last() != Some(&op)
    }

    /// What an iteration hands to the next one: the old carried values, with the accumulators of the second product
    /// (or, if it needs none, `otherwise`) in the place of its results, then what it takes along.
    fn handed(&self, module: &Module, next: &[Value], values: &Substitution, otherwise: &[Value]) -> Vec<Value> {
        let mut all: Vec<Value> = next.iter().map(|&value| values.resolve(value)).collect();
        for (sum, &otherwise) in self.sums.iter().zip(otherwise) {
            let accumulator = module.op(sum.first).operands[2];
            all[sum.position] = if sum.accumulates { values.resolve(accumulator) } else { otherwise };
        }
        all.extend(self.carried.iter().map(|&value| values.resolve(value)));
        all
    }

    /// The second product with what is deferred, for the iteration of which `counter` was the number and
    /// that handed over these values; gives its results.
    fn delayed(&self, emitter: &mut Emitter<'_>, argument: Value, counter: Value, handed: &[Value]) -> Vec<Value> {
        let mut values = Substitution::new();
        values.replace(argument, counter);
        let taken = &handed[handed.len() - self.carried.len()..];
        self.carried.iter().zip(taken).for_each(|(&value, &now)| values.replace(value, now));
        for &op in &self.deferred {
            emitter.copy(op, &mut values);
        }
        for &id in &*self.late {
            let late = emitter.copy(id, &mut values);
            // The accumulator may be an operand twice over: it has a place of its own.
            if let Some(sum) = self.sums.iter().find(|sum| sum.first == id && sum.accumulates) {
                emitter.module.op_mut(late).operands[2] = handed[sum.position];
            }
        }
        self.sums.iter().map(|sum| values.resolve(sum.result)).collect()
    }

    /// The body of the rotated loop.
    fn body(&self, module: &mut Module, old: &Op, step: Value) -> BlockId {
        let body = old.regions[0];
        let (args, ops) = (module.block(body).args.clone(), module.block(body).ops.clone());
        let end = *ops.last().expect("a terminator");
        let next = module.op(end).operands.clone();
        let types: Vec<TypeId> = args.iter().chain(&self.carried).map(|&value| module.ty_id(value)).collect();
        let block = module.add_block(&types);
        let now = module.block(block).args.clone();
        let mut values = Substitution::new();
        for (index, (&arg, &new)) in args.iter().zip(&now).enumerate() {
            if self.sums.iter().all(|sum| index != sum.position + 1) {
                values.replace(arg, new);
            }
        }
        let mut emitter = Emitter { module, ops: Vec::new(), loc: old.loc };
        for &op in ops.iter().filter(|op| self.head.contains(op)) {
            emitter.copy(op, &mut values);
        }
        let previous = emitter.binary(Opcode::SubI, vec![Attr::Overflow(Overflow::None)], now[0], step);
        let made = self.delayed(&mut emitter, args[0], previous, &now[1..]);
        self.sums.iter().zip(&made).for_each(|(sum, &result)| values.replace(args[sum.position + 1], result));
        let rest = |op: &&OpId| self.stays(**op, &ops) && !self.head.contains(*op);
        for sunk in [false, true] {
            for &op in ops.iter().filter(rest).filter(|op| self.sunk.contains(op) == sunk) {
                emitter.copy(op, &mut values);
            }
        }
        let handed = self.handed(emitter.module, &next, &values, &made);
        let loc = emitter.module.op(end).loc;
        let end = emitter.module.add_op(Opcode::Continue, &[&handed], vec![], vec![], &[], loc);
        emitter.ops.push(end);
        let done = emitter.ops;
        module.block_mut(block).ops = done;
        block
    }
}

/// A list of ops in the making.
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
        let groups: Vec<&[Value]> = operands.chunks(1).collect();
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

    /// The second number of a range that is not empty, or its end if there is none; and the last number.
    fn range(&mut self, lower: Value, upper: Value, step: Value) -> [Value; 2] {
        let wrap = || vec![Attr::Overflow(Overflow::None)];
        let unsigned = || Attr::Sign(Sign::Unsigned);
        if self.is_one(step) {
            let first = self.binary(Opcode::AddI, wrap(), lower, step);
            return [first, self.binary(Opcode::SubI, wrap(), upper, step)];
        }
        // Differences are at most the width's range: as unsigned numbers they do not overflow.
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
