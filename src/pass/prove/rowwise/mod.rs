//! Check of the promise that the rows of a kernel are independent of each other.
//!
//! 1. The walk computes for each value the row that it depends on (`rows`), with unknown extents
//!    and an unknown grid.
//! 2. A store is correct if the row of its value is the row that it stores.
//! 3. The order of a sum is fixed by extents: a loop that carries values has no bounds that depend
//!    on the grid or on the number of rows, and no atomic operation combines floats.
//!
//! A load at a position that depends on the grid is refused, unless the position is one of a store:
//! the order of tiles may depend on the grid.
//!
//! The number of the tile block depends on the grid, unless a position of the store determines it.
//! A store under a condition by the grid depends on the grid, unless the condition is the bound of
//! a position.
//!
//! Limits: parts of arrays are refused, and pointers whose rows the strides do not show. Scratch
//! memory has one row in all iterations.

mod lanes;
mod memory;
mod rows;
mod state;

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use self::rows::Dependence;
use self::state::{Rows, normalized, parameter};
use super::term::{Node, Term, Var};
use crate::error::Diagnostic;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Value};

/// Maximum number of walks over the body of a loop.
const MAX_WALKS: usize = 6;

/// Checks the promises of a verified trace.
///
/// # Errors
/// A diagnostic for each promise that is not proved, with the op that breaks it.
pub(crate) fn check_rowwise(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let Some(entry) = module.entries.first().filter(|_| !module.rowwise.is_empty()) else { return Ok(()) };
    let problems = module.rowwise.iter().filter_map(|promise| {
        let constants = promise.constants.iter().map(|&base| parameter(module, base)).collect();
        let mut rows = Rows::new(module, promise.axis as usize, constants);
        rows.collects = true;
        rows.block(entry.body, Dependence::default());
        // The dependences of the first walk lack positions.
        rows.collects = false;
        rows.problem = None;
        rows.known.clear();
        rows.scratch = Dependence::default();
        rows.returned = Dependence::default();
        rows.block(entry.body, Dependence::default());
        let (op, how) = rows.problem?;
        let at = |loc| module.location(loc).cloned();
        let axis = promise.axis;
        let name = module.op(op).code.spec().name;
        let message = format!("this `{name}` {how}: the kernel promises that axis {axis} has independent rows");
        Some(Diagnostic::new(message, at(module.op(op).loc)).note_at("the promise", at(promise.loc)))
    });
    let problems: Vec<Diagnostic> = problems.collect_vec();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

impl<'m> Rows<'m> {
    fn block(&mut self, block: BlockId, control: Dependence) -> Option<&'m [Value]> {
        let module = self.module;
        let mut last = None;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            match op.code {
                Opcode::For | Opcode::Loop => self.repeated(id, op, control),
                Opcode::If => self.branches(id, op, control),
                Opcode::Yield | Opcode::Continue | Opcode::Break | Opcode::Return => {
                    last = Some(op.operands.as_slice())
                }
                _ => self.op(id, op, control),
            }
        }
        last
    }

    fn branches(&mut self, id: OpId, op: &'m Op, control: Dependence) {
        let condition = self.of(op.operands[0], id);
        let inner = control.join(condition, id);
        let mut results = vec![condition; op.results.len()];
        for &region in &op.regions {
            let is_yield =
                self.module.block(region).ops.last().is_some_and(|&id| self.module.op(id).code == Opcode::Yield);
            let last = self.block(region, inner).filter(|_| is_yield).unwrap_or_default();
            for (result, &value) in results.iter_mut().zip(last) {
                *result = result.join(self.of(value, id), id);
            }
        }
        let mut returns = false;
        op.regions.iter().for_each(|&region| {
            self.module.walk(region, &mut |id| returns |= self.module.op(id).code == Opcode::Return);
        });
        if returns {
            self.returned = self.returned.join(inner, id);
        }
        for (&result, dependence) in op.results.iter().zip(results) {
            self.values.forget(result);
            self.known.insert(result, dependence);
        }
    }

    /// Enters a loop over a range. Returns the dependence of its bounds, and that of values that it
    /// carries if the bounds depend on the grid.
    fn range(&mut self, id: OpId, op: &'m Op, first: Value) -> (Dependence, Option<(OpId, &'static str)>) {
        let number = self.iterations.len() as u32;
        let var = *self.iterations.entry(id).or_insert(Var::Iteration(number));
        let term = self.values.terms.var(var);
        self.values.set_term(first, term);
        let (mut bounds, mut direct) = (Dependence::default(), [false; 3]);
        for (group, is_direct) in direct.iter_mut().enumerate() {
            let bound = op.group(group)[0];
            let term = self.values.term(bound);
            let on_grid = self.on_grid(term, id);
            *is_direct = on_grid.broken.is_some();
            bounds = bounds.join(self.own(bound), id).join(Dependence { broken: None, ..on_grid }, id);
        }
        self.known.insert(first, bounds);
        if !direct.contains(&true) || self.collects {
            return (bounds, None);
        }
        self.grid.loops.insert(var);
        self.grid_loops.push((var, !direct[1]));
        (bounds, Some((id, "adds in an order that depends on the grid or on the number of rows")))
    }

    fn repeated(&mut self, id: OpId, op: &'m Op, control: Dependence) {
        let module = self.module;
        let body = op.regions[0];
        let args = module.block(body).args.as_slice();
        let (carried, inits) = match op.code {
            Opcode::For => (&args[1..], op.group(3)),
            _ => (args, op.operands.as_slice()),
        };
        let num_grid_loops = self.grid_loops.len();
        let (bounds, by_grid) = match op.code {
            Opcode::For => self.range(id, op, args[0]),
            _ => (Dependence::default(), None),
        };
        let mut state: Vec<Dependence> = inits.iter().map(|&init| self.of(init, id).join(bounds, id)).collect_vec();
        self.loops.push(id);
        // Conditions of the terminators.
        let mut leaving = Dependence::default();
        for _ in 0..MAX_WALKS {
            for (&arg, &dependence) in carried.iter().zip(&state) {
                self.values.forget(arg);
                self.known.insert(arg, dependence);
            }
            let before = (leaving, self.returned, self.scratch);
            self.block(body, control.join(bounds, id).join(leaving, id));
            let mut next = state.clone();
            for (exit, conditions) in self.exits(body) {
                let ended = module.op(exit);
                let mut condition = Dependence::default();
                for value in conditions {
                    condition = condition.join(self.of(value, exit), exit);
                }
                leaving = leaving.join(condition, exit);
                for (state, &value) in next.iter_mut().zip(&ended.operands) {
                    *state = state.join(self.of(value, exit), exit).join(condition, exit);
                }
            }
            for (position, dependence) in next.iter_mut().enumerate() {
                if dependence.row.is_some_and(|row| self.is_of_iteration(id, body, row)) {
                    *dependence = dependence.join(Dependence::broken(id, "carries a row to another iteration"), id);
                }
                if dependence.broken.is_none() && module.ty(carried[position]).as_tile().is_some() {
                    dependence.broken = by_grid;
                }
            }
            if next == state && before == (leaving, self.returned, self.scratch) {
                break;
            }
            state = next;
        }
        self.loops.pop();
        self.grid_loops.truncate(num_grid_loops);
        for (&result, dependence) in op.results.iter().zip(state) {
            self.values.forget(result);
            self.known.insert(result, dependence);
        }
    }

    /// Returns true if a row is another one in each iteration of a loop.
    fn is_of_iteration(&mut self, id: OpId, body: BlockId, row: Term) -> bool {
        let module = self.module;
        let defined = self.defined.entry(id).or_insert_with(|| {
            let mut all: FxHashSet<Value> = module.block(body).args.iter().copied().collect();
            module.walk(body, &mut |inner| {
                let op = module.op(inner);
                all.extend(&op.results);
                op.regions.iter().for_each(|&region| all.extend(&module.block(region).args));
            });
            all
        });
        let (iteration, mut stack) = (self.iterations.get(&id), vec![row]);
        while let Some(term) = stack.pop() {
            match self.values.terms.node(term) {
                Node::Var(var) if Some(var) == iteration => return true,
                Node::Data(value, _) if defined.contains(value) => return true,
                Node::Data(_, args) | Node::Apply(_, _, args) => stack.extend(args),
                _ => {}
            }
        }
        false
    }

    /// Returns the terminators that pass values on from the body of a loop, with the conditions
    /// that reach them.
    fn exits(&self, body: BlockId) -> Vec<(OpId, Vec<Value>)> {
        let module = self.module;
        let (mut found, mut stack) = (Vec::new(), vec![(body, Vec::new())]);
        while let Some((block, conditions)) = stack.pop() {
            for &id in &module.block(block).ops {
                let op = module.op(id);
                match op.code {
                    Opcode::Continue | Opcode::Break => found.push((id, conditions.clone())),
                    Opcode::If => {
                        let inner = [conditions.as_slice(), &op.operands[..1]].concat();
                        stack.extend(op.regions.iter().map(|&region| (region, inner.clone())));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    fn op(&mut self, id: OpId, op: &'m Op, control: Dependence) {
        match op.code {
            Opcode::GetNumTileBlocks => self.grid.values.extend(&op.results),
            Opcode::GetIndexSpaceShape | Opcode::GetTensorShape => self.view_shape(op),
            Opcode::MakeTensorView => self.declare(op),
            Opcode::LoadView | Opcode::LoadPtr => self.load(id, op),
            Opcode::StoreView | Opcode::StorePtr => self.store(id, op, control),
            Opcode::AtomicRmw | Opcode::AtomicRedView | Opcode::AtomicCas => self.atomic(id, op, control),
            Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore => {
                self.report(id, "accesses the memory of several devices");
            }
            _ => {
                self.values.op(op);
                let mut dependence = self.computed(id, op);
                // An unknown number does not have the terms of its operands.
                if op.results.iter().any(|&result| self.is_unknown(result)) {
                    for &operand in &op.operands {
                        let of = self.of(operand, id);
                        dependence = dependence.join(Dependence { row: dependence.row, ..of }, id);
                    }
                }
                for &result in &op.results {
                    self.known.insert(result, dependence);
                }
            }
        }
    }

    /// Returns true for a number without a term.
    fn is_unknown(&mut self, value: Value) -> bool {
        if self.module.ty(value).as_tile().is_none() || self.values.bits(value).is_none() {
            return false;
        }
        let term = self.values.term(value);
        matches!(self.values.terms.node(term), Node::Data(data, _) if *data == value)
    }

    /// Returns the dependence of the results of an op without memory effects.
    fn computed(&mut self, id: OpId, op: &Op) -> Dependence {
        let is_integer = op
            .results
            .iter()
            .all(|&result| self.module.ty(result).as_tile().is_some() && self.values.bits(result).is_some());
        let mut operands = Vec::new();
        for &operand in &op.operands {
            // A number keeps its term, which shows whether it depends on the grid.
            operands.push(if is_integer { self.own(operand) } else { self.of(operand, id) });
        }
        let axis = op.dim() as usize;
        let rank = |value: Value| self.module.ty(value).as_tile().map_or(0, |(_, shape)| shape.len());
        let operands: Vec<Dependence> = match op.code {
            code if code.is_machine_query() => vec![Dependence::broken(id, "returns the state of the machine")],
            Opcode::Reduce => {
                let by = self.shifted(op, axis, rank(op.operands[0]));
                let terms = &mut self.values.terms;
                let to = self.module.shape(op.results[0]);
                let moved = |all: Dependence| normalized(all.combined(terms, axis, id).moved(terms, &by), terms, to);
                operands.into_iter().map(moved).collect_vec()
            }
            Opcode::ClusterAllGather => {
                let broken = Dependence::broken(id, "exchanges the tiles of a cluster");
                operands.into_iter().map(|all| if all.row.is_some() { all.join(broken, id) } else { all }).collect_vec()
            }
            Opcode::Scan | Opcode::Gather | Opcode::Cat => {
                operands.into_iter().map(|all| all.combined(&self.values.terms, axis, id)).collect_vec()
            }
            code if code.is_mma() => {
                let (rank, terms) = (rank(op.operands[0]), &self.values.terms);
                let inner = [rank - 1, rank - 2];
                let factor = |(position, all): (usize, Dependence)| match position {
                    0 | 1 => all.combined(terms, inner[position], id),
                    _ => all,
                };
                operands.into_iter().enumerate().map(factor).collect_vec()
            }
            Opcode::Reshape | Opcode::Permute | Opcode::Extract => {
                let by = self.values.lanes_of(op);
                let terms = &mut self.values.terms;
                let first = normalized(operands[0].moved(terms, &by), terms, self.module.shape(op.results[0]));
                std::iter::once(first).chain(operands.into_iter().skip(1)).collect_vec()
            }
            code if code.is_elementwise()
                || matches!(code, Opcode::Broadcast | Opcode::Assume | Opcode::WithLayout) =>
            {
                operands
            }
            _ => {
                let broken = Dependence::broken(id, "combines the rows of a tile");
                let terms = &self.values.terms;
                let whole = |all: Dependence| if all.varies_at_all(terms) { all.join(broken, id) } else { all };
                operands.into_iter().map(whole).collect_vec()
            }
        };
        operands.into_iter().fold(Dependence::default(), |all, operand| all.join(operand, id))
    }

    /// Returns the lanes of the operand of a reduction as lanes of its result.
    fn shifted(&mut self, op: &Op, axis: usize, rank: usize) -> FxHashMap<Var, Term> {
        let keeps = self.module.ty(op.results[0]).as_tile().is_some_and(|(_, shape)| shape.len() == rank);
        let mut by = FxHashMap::default();
        for other in axis + 1..rank {
            let to = if keeps { other } else { other - 1 };
            by.insert(Var::Lane(other as u8), self.values.terms.var(Var::Lane(to as u8)));
        }
        by
    }
}
