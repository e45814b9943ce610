//! Memory tokens: order of memory accesses in Tile IR.
//!
//! In the IR, memory ops take effect in program order; in Tile IR, only tokens order them. This
//! stage transforms a copy of the module before the output. It adds as few tokens as correctness
//! permits, because the compiler can only overlap accesses without an order:
//!
//! * Memory that an entry only reads needs no order. Distinct parameters need no order among each
//!   other.
//! * Within an alias set, a load waits for the last store. A store waits for the last store and all
//!   later accesses.
//! * An `if` yields a token of a set that a branch accesses if a later op waits for it.
//! * A loop carries one token for a set whose iterations conflict. If it only reads the set, or
//!   each iteration accesses other tiles, the iterations do not wait for each other. Then there is
//!   a token only if a later op waits for the entire loop.
//! * Acquires, releases and fences are ordered against all accesses.
//! * Tiles of memory that the same entry writes by element do not use TMA, because
//!   `tileiras` does not order it after such writes.
//!
//! Precondition: the module is verified. Existing tokens are replaced.

mod alias_sets;

#[cfg(test)]
mod tests;

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::access_hints::disallow_tma;
use super::grid;
use crate::ir::op_table::Arity;
use crate::ir::{BlockId, Entry, Loc, Module, OpId, Opcode, Type, TypeId, Value};
use crate::pass::IntRanges;
use crate::util::sort;
use alias_sets::{AliasSet, EntryEffects, MemoryEffect};

/// Adds the tokens that establish program order in Tile IR to the memory ops of all entries.
pub fn order_memory(module: &mut Module) {
    let token = module.intern(Type::Token);
    for entry in module.entries.clone() {
        order_entry(module, &entry, token);
    }
}

fn order_entry(module: &mut Module, entry: &Entry, token: TypeId) {
    let effects = EntryEffects::new(module, entry);
    // Symptom: the engine does not see earlier writes by element, foremost atomics, in spite of a
    // token: `tileiras` orders the threads, but not the engine. So threads execute these accesses.
    for id in effects.tiles_mixed_with_elements(module, entry) {
        disallow_tma(module, id);
    }
    let facts = grid::facts(module, entry);
    let state = vec![Order::default(); effects.num_sets];
    let mut stage = Stage { module, effects, facts, token, fresh: None, entry: entry.body, loc: entry.loc };
    stage.block(entry.body, state, &Context::default());
}

/// Tokens that later accesses of a set wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Order {
    /// Token of the last store.
    store: Option<Value>,
    /// Tokens of the later accesses. Each of them follows the last store.
    since: Vec<Value>,
}

impl Order {
    fn after(token: Value) -> Order {
        Order { store: Some(token), since: Vec::new() }
    }
}

type State = Vec<Order>;

/// Order of a set that a loop carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Each iteration follows the previous one.
    Serial,
    /// Iterations are unordered. The token completes after all of them.
    Free,
}

#[derive(Clone, Debug)]
struct Carried {
    set: AliasSet,
    mode: Mode,
    /// Token in the body.
    arg: Value,
    /// Order at the start of the iterations (unordered ones).
    start: Order,
}

/// Tokens that the enclosing region needs at the end of a block.
#[derive(Clone, Debug, Default)]
struct Context {
    /// Sets whose tokens a `yield` returns.
    yields: Vec<(AliasSet, MemoryEffect)>,
    /// Sets whose tokens the innermost loop carries.
    carried: Vec<Carried>,
}

impl Context {
    fn wants(&self, set: AliasSet) -> bool {
        self.yields.iter().any(|(s, _)| *s == set) || self.carried.iter().any(|c| c.set == set)
    }
}

struct Stage<'m> {
    module: &'m mut Module,
    effects: EntryEffects,
    facts: IntRanges,
    token: TypeId,
    /// Token without predecessors, at the start of the entry.
    fresh: Option<Value>,
    entry: BlockId,
    /// Place of the current op.
    loc: Loc,
}

impl Stage<'_> {
    /// Orders a block, and returns the state at its end.
    fn block(&mut self, block: BlockId, mut state: State, context: &Context) -> State {
        let ops = std::mem::take(&mut self.module.block_mut(block).ops);
        let mut later = self.later(&ops);
        for (i, &id) in ops.iter().enumerate() {
            let after = std::mem::take(&mut later[i]);
            let waited = |set: AliasSet, effect: MemoryEffect| context.wants(set) || effect.conflicts(after[set]);
            self.loc = self.module.op(id).loc;
            match self.module.op(id).code {
                Opcode::If => self.branch(id, &mut state, &waited, context),
                code if code.is_loop() => self.repeat(id, block, &mut state, &waited),
                Opcode::Yield => {
                    let exported = |(set, _): &(AliasSet, MemoryEffect)| self.exported(block, &state[*set]);
                    let tokens: Vec<Value> = context.yields.iter().map(exported).collect_vec();
                    self.append_operands(id, &tokens);
                }
                Opcode::Continue | Opcode::Break => {
                    let passed = |c: &Carried| self.at_end(block, c, &state[c.set]);
                    let tokens: Vec<Value> = context.carried.iter().map(passed).collect_vec();
                    self.append_operands(id, &tokens);
                }
                _ => self.access(id, block, &mut state),
            }
            self.module.block_mut(block).ops.push(id);
        }
        state
    }

    /// Returns, for each op of a list, the effects of the later ops on each set.
    fn later(&self, ops: &[OpId]) -> Vec<Vec<MemoryEffect>> {
        let mut sum = vec![MemoryEffect::default(); self.effects.num_sets];
        let mut later: Vec<Vec<MemoryEffect>> = ops
            .iter()
            .rev()
            .map(|&id| {
                let after = sum.clone();
                for (set, effect) in self.effects.effects(id) {
                    sum[*set].reads |= effect.reads;
                    sum[*set].writes |= effect.writes;
                }
                after
            })
            .collect_vec();
        later.reverse();
        later
    }

    /// Orders an op that accesses memory itself.
    fn access(&mut self, id: OpId, block: BlockId, state: &mut State) {
        let Some(group) = self.module.op(id).code.spec().operands.iter().position(|o| o.name == "token") else {
            return;
        };
        let effects = self.effects.effects(id).to_vec();
        let mut inputs = Vec::new();
        for (set, effect) in &effects {
            let order = &state[*set];
            match effect.writes && !order.since.is_empty() {
                true => inputs.extend(&order.since),
                false => inputs.extend(order.store),
            }
        }
        let mut input = self.join(block, inputs);
        if input.is_none() && self.module.op(id).code.spec().operands[group].arity == Arity::One {
            input = Some(self.fresh());
        }
        self.set_token(id, group, input);
        let results = &self.module.op(id).results;
        let Some(&own) = results.iter().find(|&&v| *self.module.ty(v) == Type::Token) else { return };
        for (set, effect) in effects {
            match effect.writes {
                true => state[set] = Order::after(own),
                false => state[set].since.push(own),
            }
        }
    }

    /// Sets or removes the token operand, which is the last group of its row.
    fn set_token(&mut self, id: OpId, group: usize, token: Option<Value>) {
        let op = self.module.op_mut(id);
        if op.segments.is_empty() {
            if let Some(token) = token {
                op.operands[group] = token;
            }
            return;
        }
        let old = op.segments[group] as usize;
        op.operands.truncate(op.operands.len() - old);
        op.operands.extend(token);
        op.segments[group] = token.is_some().into();
    }

    /// Joins tokens into one. The op that joins them is appended to the block.
    fn join(&mut self, block: BlockId, mut tokens: Vec<Value>) -> Option<Value> {
        sort::natural(&mut tokens);
        tokens.dedup();
        match tokens[..] {
            [] => None,
            [only] => Some(only),
            _ => {
                let id = self.module.add_op(Opcode::JoinTokens, &[&tokens], vec![], vec![], &[self.token], self.loc);
                self.module.block_mut(block).ops.push(id);
                Some(self.module.op(id).results[0])
            }
        }
    }

    /// Returns a token after all accesses of a set so far; `None` without an access.
    fn all(&mut self, block: BlockId, order: &Order) -> Option<Value> {
        let tokens = if order.since.is_empty() { order.store.into_iter().collect_vec() } else { order.since.clone() };
        self.join(block, tokens)
    }

    /// Returns the token of a set for a `yield`.
    fn exported(&mut self, block: BlockId, order: &Order) -> Value {
        self.all(block, order).unwrap_or_else(|| self.fresh())
    }

    /// Returns the token of a carried set at the end of an iteration.
    fn at_end(&mut self, block: BlockId, carried: &Carried, order: &Order) -> Value {
        if *order == carried.start && carried.mode == Mode::Free {
            return carried.arg;
        }
        let own = self.all(block, order);
        let before = (carried.mode == Mode::Free).then_some(carried.arg);
        self.join(block, own.into_iter().chain(before).collect_vec()).expect("a token that is carried")
    }

    /// Returns the token without predecessors.
    fn fresh(&mut self) -> Value {
        if let Some(token) = self.fresh {
            return token;
        }
        let id = self.module.add_op(Opcode::MakeToken, &[], vec![], vec![], &[self.token], self.loc);
        let token = self.module.op(id).results[0];
        self.fresh = Some(token);
        // The op list of the entry is under construction: its beginning is complete, or empty.
        self.module.block_mut(self.entry).ops.insert(0, id);
        token
    }

    fn append_operands(&mut self, id: OpId, tokens: &[Value]) {
        let op = self.module.op_mut(id);
        op.operands.extend(tokens);
        if let Some(last) = op.segments.last_mut() {
            *last += tokens.len() as u32;
        }
    }

    fn branch(
        &mut self,
        id: OpId,
        state: &mut State,
        waited: &dyn Fn(AliasSet, MemoryEffect) -> bool,
        context: &Context,
    ) {
        let effects = self.effects.effects(id).to_vec();
        let exports: Vec<(AliasSet, MemoryEffect)> =
            effects.into_iter().filter(|&(set, effect)| waited(set, effect)).collect_vec();
        let regions = self.module.op(id).regions.clone();
        if !exports.is_empty() {
            self.fill_else(regions[1], id);
        }
        let inner = Context { yields: exports.clone(), carried: context.carried.clone() };
        for &region in &regions {
            self.block(region, state.clone(), &inner);
        }
        for (set, effect) in exports {
            let result = self.module.add_op_result(id, self.token);
            match effect.writes {
                true => state[set] = Order::after(result),
                false => state[set].since = vec![result],
            }
        }
    }

    /// Adds a terminator to an empty else region, so that it can yield.
    fn fill_else(&mut self, region: BlockId, parent: OpId) {
        if self.module.block(region).ops.is_empty() {
            let loc = self.module.op(parent).loc;
            let id = self.module.add_op(Opcode::Yield, &[&[]], vec![], vec![], &[], loc);
            self.module.block_mut(region).ops.push(id);
            self.module.block_mut(region).parent = Some(parent);
        }
    }

    fn repeat(&mut self, id: OpId, block: BlockId, state: &mut State, waited: &dyn Fn(AliasSet, MemoryEffect) -> bool) {
        let body = self.module.op(id).regions[0];
        let mut inside = state.clone();
        let mut carried = Vec::new();
        let mut after = FxHashMap::default();
        for (set, effect) in self.effects.effects(id).to_vec() {
            let free = !effect.writes || self.effects.iterations_are_disjoint(self.module, &self.facts, id, set);
            let mode = if free { Mode::Free } else { Mode::Serial };
            let waited = waited(set, effect);
            // Loads only wait for the last store; unordered stores wait for all accesses before the
            // loop.
            if mode == Mode::Free && !effect.writes {
                inside[set].since = Vec::new();
                if !waited {
                    continue;
                }
            }
            let before = self.all(block, &state[set]);
            if mode == Mode::Free && effect.writes {
                inside[set] = Order { store: before, since: Vec::new() };
                if !waited {
                    continue;
                }
            }
            let init = before.unwrap_or_else(|| self.fresh());
            self.append_operands(id, &[init]);
            let arg = self.module.add_block_arg(body, self.token);
            if mode == Mode::Serial {
                inside[set] = Order::after(arg);
            }
            carried.push(Carried { set, mode, arg, start: inside[set].clone() });
            after.insert(set, effect);
        }
        let context = Context { yields: Vec::new(), carried: carried.clone() };
        self.block(body, inside, &context);
        for c in carried {
            let result = self.module.add_op_result(id, self.token);
            match after[&c.set].writes {
                true => state[c.set] = Order::after(result),
                false => state[c.set].since = vec![result],
            }
        }
    }
}
