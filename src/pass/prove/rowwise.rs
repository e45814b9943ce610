//! Check of the promise that the rows of a kernel are independent of each other.
//!
//! 1. The walk computes for each value the row that it depends on (`rows`), with unknown extents
//!    and an unknown grid.
//! 2. A store is correct if the row of its value is the row that it stores.
//! 3. The order of a sum is fixed by extents: a loop that carries floats has no bounds that depend
//!    on the grid or on the number of rows, and no atomic operation combines floats.
//!
//! A load at a position that depends on the grid is refused, unless the position is one of a store:
//! the order of tiles may depend on the grid.
//!
//! Limits: parts of arrays, and pointers into arrays with rows, are refused.

use rustc_hash::{FxHashMap, FxHashSet};

use super::access::Root;
use super::rows::{Dependence, GridTerms};
use super::term::{Term, Var};
use super::values::{Meaning, Values, lane};
use crate::error::Diagnostic;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Elem, Module, Op, OpId, Opcode, Type, Value};

/// Maximum number of walks over the body of a loop.
const MOST_WALKS: usize = 6;

const BY_GRID: &str = "depends on the grid or on the number of rows";

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
        rows.collects = false;
        rows.problem = None;
        rows.block(entry.body, Dependence::default());
        let (op, how) = rows.problem?;
        let at = |loc| module.location(loc).cloned();
        let axis = promise.axis;
        let name = module.op(op).code.spec().name;
        let message = format!("this `{name}` {how}: the kernel promises that axis {axis} has independent rows");
        Some(Diagnostic::new(message, at(module.op(op).loc)).note_at("the promise", at(promise.loc)))
    });
    let problems: Vec<Diagnostic> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Returns the parameter of an address, through assumptions.
fn parameter(module: &Module, mut value: Value) -> Value {
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)).filter(|op| op.code == Opcode::Assume) {
        value = op.operands[0];
    }
    value
}

struct Rows<'m> {
    module: &'m Module,
    values: Values<'m>,
    axis: usize,
    /// Parameters of arrays without rows.
    constants: FxHashSet<Value>,
    known: FxHashMap<Value, Dependence>,
    grid: GridTerms,
    /// Dependence of the memory of the tile block.
    scratch: Dependence,
    iterations: FxHashMap<OpId, Var>,
    loops: Vec<OpId>,
    /// The first walk collects the positions of stores.
    collects: bool,
    problem: Option<(OpId, &'static str)>,
}

impl<'m> Rows<'m> {
    fn new(module: &'m Module, axis: usize, constants: FxHashSet<Value>) -> Rows<'m> {
        let mut values = Values::new(module, [u32::MAX; 3]);
        for entry in &module.entries {
            for &param in &module.block(entry.body).args {
                if matches!(module.ty(param).as_tile(), Some((Elem::Ptr { .. }, _))) {
                    let term = values.terms.constant(0);
                    values.set(param, Meaning { root: Some(Root::Parameter(param)), term });
                }
            }
        }
        Rows {
            module,
            values,
            axis,
            constants,
            known: FxHashMap::default(),
            grid: GridTerms::default(),
            scratch: Dependence::default(),
            iterations: FxHashMap::default(),
            loops: Vec::new(),
            collects: false,
            problem: None,
        }
    }

    fn report(&mut self, op: OpId, how: &'static str) {
        self.problem.get_or_insert((op, how));
    }

    /// Returns the dependence of a value on rows alone.
    fn own(&self, value: Value) -> Dependence {
        self.known.get(&value).copied().unwrap_or_default()
    }

    /// Returns the dependence of a value, also that of numbers on the grid.
    fn of(&mut self, value: Value, op: OpId) -> Dependence {
        let own = self.own(value);
        let is_number = self.module.ty(value).as_tile().is_some() && self.values.bits(value).is_some();
        if !is_number {
            return own;
        }
        let term = self.values.term(value);
        match self.grid.contain(&self.values.terms, term) {
            true => own.join(Dependence::broken(op, BY_GRID), op),
            false => own,
        }
    }

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
        let inner = control.join(self.own(op.operands[0]), id);
        let mut results = vec![condition; op.results.len()];
        for &region in &op.regions {
            let is_yield =
                self.module.block(region).ops.last().is_some_and(|&id| self.module.op(id).code == Opcode::Yield);
            let last = self.block(region, inner).filter(|_| is_yield).unwrap_or_default();
            for (result, &value) in results.iter_mut().zip(last) {
                *result = result.join(self.of(value, id), id);
            }
        }
        for (&result, dependence) in op.results.iter().zip(results) {
            self.values.forget(result);
            self.known.insert(result, dependence);
        }
    }

    fn repeated(&mut self, id: OpId, op: &'m Op, control: Dependence) {
        let module = self.module;
        let body = op.regions[0];
        let args = module.block(body).args.as_slice();
        let mut bounds = Dependence::default();
        let (carried, inits) = match op.code {
            Opcode::For => (&args[1..], op.group(3)),
            _ => (args, op.operands.as_slice()),
        };
        let mut by_grid = None;
        if op.code == Opcode::For {
            let number = self.iterations.len() as u32;
            let var = *self.iterations.entry(id).or_insert(Var::Iteration(number));
            let term = self.values.terms.var(var);
            self.values.set_term(args[0], term);
            for group in 0..3 {
                let bound = op.group(group)[0];
                bounds = bounds.join(self.own(bound), id);
                if self.of(bound, id).broken != self.own(bound).broken {
                    by_grid = Some((id, "adds in an order that depends on the grid or on the number of rows"));
                }
            }
        }
        let mut state: Vec<Dependence> = inits.iter().map(|&init| self.of(init, id).join(bounds, id)).collect();
        self.loops.push(id);
        for _ in 0..MOST_WALKS {
            for (&arg, &dependence) in carried.iter().zip(&state) {
                self.values.forget(arg);
                self.known.insert(arg, dependence);
            }
            self.block(body, control.join(bounds, id));
            let mut next = state.clone();
            for exit in self.exits(body) {
                let ended = module.op(exit);
                for (state, &value) in next.iter_mut().zip(&ended.operands) {
                    *state = state.join(self.of(value, exit), exit);
                }
            }
            let iteration = self.iterations.get(&id).copied();
            for (position, dependence) in next.iter_mut().enumerate() {
                let varies = |row: Term| iteration.is_some_and(|var| self.values.terms.vars(row).contains(&var));
                if dependence.row.is_some_and(varies) {
                    *dependence = dependence.join(Dependence::broken(id, "carries a row to another iteration"), id);
                }
                let is_float =
                    matches!(module.ty(carried[position]).as_tile(), Some((Elem::Num(dtype), _)) if dtype.is_float());
                if dependence.broken.is_none() && is_float {
                    dependence.broken = by_grid;
                }
            }
            if next == state {
                break;
            }
            state = next;
        }
        self.loops.pop();
        for (&result, dependence) in op.results.iter().zip(state) {
            self.values.forget(result);
            self.known.insert(result, dependence);
        }
    }

    /// Returns the terminators that pass values on from the body of a loop.
    fn exits(&self, body: BlockId) -> Vec<OpId> {
        let module = self.module;
        let (mut found, mut stack) = (Vec::new(), vec![body]);
        while let Some(block) = stack.pop() {
            for &id in &module.block(block).ops {
                match module.op(id).code {
                    Opcode::Continue | Opcode::Break => found.push(id),
                    Opcode::If => stack.extend(&module.op(id).regions),
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
                let dependence = self.computed(id, op);
                for &result in &op.results {
                    self.known.insert(result, dependence);
                }
            }
        }
    }

    /// Returns the array of a view: its allocation, place and rank.
    fn array(&mut self, mut view: Value) -> Option<(Root, Term, usize)> {
        loop {
            let op = self.module.op(self.module.defining_op(view)?);
            match op.code {
                Opcode::MakeTensorView => {
                    let Type::TensorView { shape, .. } = self.module.ty(op.results[0]) else { return None };
                    let meaning = self.values.meaning(op.group(0)[0]);
                    return Some((meaning.root?, meaning.term, shape.len()));
                }
                code if code.is_view() || code == Opcode::Assume => view = op.operands[0],
                _ => return None,
            }
        }
    }

    fn has_rows(&self, root: Root, rank: usize) -> bool {
        match root {
            Root::Parameter(param) => rank > self.axis && !self.constants.contains(&param),
            Root::Scratch => false,
            Root::Unknown(_) => true,
        }
    }

    /// Adds the extent along the axis of rows.
    fn declare(&mut self, op: &Op) {
        let Type::TensorView { shape, .. } = self.module.ty(op.results[0]) else { return };
        let Some(root) = self.values.meaning(op.group(0)[0]).root else { return };
        if !self.has_rows(root, shape.len()) || shape[self.axis].is_some() {
            return;
        }
        let position = shape[..self.axis].iter().filter(|extent| extent.is_none()).count();
        self.grid.values.insert(parameter(self.module, op.group(1)[position]));
    }

    fn view_shape(&mut self, op: &Op) {
        let rows = self.array(op.operands[0]).is_none_or(|(root, _, rank)| self.has_rows(root, rank));
        for (position, &result) in op.results.iter().enumerate() {
            let dim = match self.module.ty(op.operands[0]) {
                Type::PartitionView { dim_map, .. } | Type::StridedView { dim_map, .. } => dim_map[position] as usize,
                _ => position,
            };
            if rows && dim == self.axis {
                self.grid.values.insert(result);
            }
        }
    }

    /// Returns the rows of an access through a view, and what its other positions depend on.
    fn positions(&mut self, id: OpId, op: &Op) -> (Option<Root>, Option<Term>, Dependence) {
        let module = self.module;
        let view = op.operand_group("view")[0];
        let mut others = Dependence::default();
        let Some((root, base, rank)) = self.array(view) else {
            return (None, None, Dependence::broken(id, "accesses an array that is not analysed"));
        };
        let has_rows = self.has_rows(root, rank);
        let (tile, steps, dim_map) = match module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => (tile, Some(tile), Some(dim_map)),
            Type::StridedView { tile, traversal, dim_map, .. } => (tile, Some(traversal), Some(dim_map)),
            Type::GatherScatterView { tile, .. } => (tile, None, None),
            _ => return (None, None, Dependence::broken(id, "accesses an array that is not analysed")),
        };
        if has_rows && self.values.terms.as_constant(base) != Some(0) {
            others = Dependence::broken(id, "accesses a part of an array");
        }
        let mut row = has_rows.then(|| self.values.terms.constant(0));
        for (axis, &index) in op.operand_group("index").iter().enumerate() {
            let term = self.values.term(index);
            others = others.join(self.own(index), id);
            if self.collects && op.code != Opcode::LoadView {
                self.grid.positions.insert(term);
            }
            if has_rows && dim_map.map_or(axis, |map| map[axis] as usize) == self.axis {
                let of_tile = lane(&mut self.values.terms, axis, tile[axis].into());
                let is_list = !module.shape(index).is_empty();
                let by = FxHashMap::from_iter([(Var::Lane(0), of_tile)]);
                row = Some(match (is_list, steps) {
                    (true, _) => self.values.terms.substitute(term, &by),
                    (false, steps) => {
                        let step = steps.map_or(1, |steps| steps[axis].into());
                        self.values.terms.add_scaled(of_tile, term, step)
                    }
                });
            } else if self.grid.contain(&self.values.terms, term) {
                others = others.join(Dependence::broken(id, BY_GRID), id);
            }
        }
        (Some(root), row, others)
    }

    fn load(&mut self, id: OpId, op: &Op) {
        let (root, row, mut dependence) = match op.code {
            Opcode::LoadView => self.positions(id, op),
            _ => self.pointers(id, op),
        };
        if let Some(row) = row {
            dependence = dependence.join(Dependence { row: Some(row), broken: None }, id);
        }
        if root == Some(Root::Scratch) {
            dependence = dependence.join(self.scratch, id);
        }
        self.values.forget(op.results[0]);
        self.known.insert(op.results[0], dependence);
    }

    /// As [`Rows::positions`], for pointers. Arrays with rows are not accessed by pointers.
    fn pointers(&mut self, id: OpId, op: &Op) -> (Option<Root>, Option<Term>, Dependence) {
        let Some(address) = op.address() else { return (None, None, Dependence::default()) };
        let meaning = self.values.meaning(address);
        let mut others = self.own(address);
        for group in ["mask", "padding_value"] {
            if op.code.spec().operands.iter().any(|operand| operand.name == group) {
                for &value in op.operand_group(group) {
                    others = others.join(self.own(value), id);
                }
            }
        }
        if meaning.root.is_none_or(|root| self.has_rows(root, usize::MAX)) {
            others = others.join(Dependence::broken(id, "accesses an array with rows by pointers"), id);
        } else if self.grid.contain(&self.values.terms, meaning.term) {
            others = others.join(Dependence::broken(id, BY_GRID), id);
        }
        (meaning.root, None, others)
    }

    fn store(&mut self, id: OpId, op: &Op, control: Dependence) {
        let (root, row, others) = match op.code {
            Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => self.pointers(id, op),
            _ => self.positions(id, op),
        };
        let stored = match op.code {
            Opcode::StoreView => "tile",
            Opcode::StorePtr | Opcode::AtomicRedView => "value",
            Opcode::AtomicRmw => "arg",
            _ => "val",
        };
        let value = self.of(op.operand_group(stored)[0], id).join(control, id).join(others, id);
        if root == Some(Root::Scratch) {
            let rows = match value.varies_at_all(&self.values.terms) {
                true => value.join(Dependence::broken(id, "stores several rows to scratch memory"), id),
                false => value,
            };
            self.scratch = self.scratch.join(rows, id);
            return;
        }
        if let Some((op, how)) = value.broken {
            return self.report(op, how);
        }
        match (value.row, row) {
            (Some(of), Some(to)) if of != to => self.report(id, "stores to one row what depends on another row"),
            (Some(_), None) => self.report(id, "stores to an array without rows what depends on a row"),
            _ => {}
        }
    }

    fn atomic(&mut self, id: OpId, op: &Op, control: Dependence) {
        let mode = match op.attr(AttrKind::AtomicMode) {
            Some(Attr::AtomicMode(mode)) => Some(*mode),
            _ => None,
        };
        match mode {
            None | Some(AtomicMode::AddF | AtomicMode::Xchg) => {
                self.report(id, "combines tile blocks in the order of their execution");
            }
            _ => self.store(id, op, control),
        }
        for &result in &op.results {
            self.known.insert(result, Dependence::broken(id, "returns what the order of tile blocks decides"));
        }
    }

    /// Returns the dependence of the results of an op without memory effects.
    fn computed(&mut self, id: OpId, op: &Op) -> Dependence {
        let is_integer = op
            .results
            .iter()
            .all(|&result| self.module.ty(result).as_tile().is_some() && self.values.bits(result).is_some());
        let mut operands = Vec::new();
        for &operand in &op.operands {
            // A number keeps its term, which tells whether it depends on the grid.
            operands.push(if is_integer { self.own(operand) } else { self.of(operand, id) });
        }
        let axis = op.dim() as usize;
        let rank = |value: Value| self.module.ty(value).as_tile().map_or(0, |(_, shape)| shape.len());
        let operands: Vec<Dependence> = match op.code {
            code if code.is_machine_query() => vec![Dependence::broken(id, "returns the state of the machine")],
            Opcode::Reduce => {
                let by = self.shifted(op, axis, rank(op.operands[0]));
                let terms = &mut self.values.terms;
                operands.into_iter().map(|all| all.combined(terms, axis, id).moved(terms, &by)).collect()
            }
            Opcode::ClusterAllGather => {
                let broken = Dependence::broken(id, "exchanges the tiles of a cluster");
                operands.into_iter().map(|all| if all.row.is_some() { all.join(broken, id) } else { all }).collect()
            }
            Opcode::Scan | Opcode::Gather | Opcode::Cat => {
                operands.into_iter().map(|all| all.combined(&self.values.terms, axis, id)).collect()
            }
            code if code.is_mma() => {
                let (rank, terms) = (rank(op.operands[0]), &self.values.terms);
                let inner = [rank - 1, rank - 2];
                let factor = |(position, all): (usize, Dependence)| match position {
                    0 | 1 => all.combined(terms, inner[position], id),
                    _ => all,
                };
                operands.into_iter().enumerate().map(factor).collect()
            }
            Opcode::Reshape | Opcode::Permute | Opcode::Extract => {
                let by = self.values.lanes_of(op);
                let first = operands[0].moved(&mut self.values.terms, &by);
                std::iter::once(first).chain(operands.into_iter().skip(1)).collect()
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
                operands.into_iter().map(whole).collect()
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
