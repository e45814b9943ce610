//! Accesses: rows of arrays by views and by pointers, and memory of the tile block.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::super::access::Root;
use super::super::term::{Fun, Node, Term, Var};
use super::super::values::lane;
use super::lanes::normal;
use super::rows::Dependence;
use super::state::{BY_GRID, Declared, Rows, parameter};
use crate::ir::{AtomicMode, Attr, AttrKind, CmpPred, Op, OpId, Opcode, Sign, Type, Value};

/// Elements that an op accesses.
struct Place {
    root: Option<Root>,
    row: Option<Term>,
    /// Dependence of the positions along other axes than the row, of masks and padding.
    others: Dependence,
    /// Index along each axis.
    indices: Vec<Term>,
}

impl<'m> Rows<'m> {
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

    /// Adds extents and strides of an array, and its extent along the axis of rows.
    pub(super) fn declare(&mut self, op: &Op) {
        let Type::TensorView { shape, strides, .. } = self.module.ty(op.results[0]) else { return };
        let meaning = self.values.meaning(op.group(0)[0]);
        let Some(root) = meaning.root else { return };
        let [extents, strides] = [(shape, op.group(1)), (strides, op.group(2))].map(|(fixed, dynamic)| {
            let mut dynamic = dynamic.iter();
            let term = |number: &Option<i64>| match number {
                Some(number) => self.values.terms.constant(*number),
                None => match dynamic.next() {
                    Some(&value) => self.values.term(value),
                    None => self.values.terms.constant(0),
                },
            };
            fixed.iter().map(term).collect::<Vec<Term>>()
        });
        if self.values.terms.as_constant(meaning.term) == Some(0) {
            self.declared.insert(root, Declared { extents, strides });
        }
        if !self.has_rows(root, shape.len()) || shape[self.axis].is_some() {
            return;
        }
        let position = shape[..self.axis].iter().filter(|extent| extent.is_none()).count();
        let extent = parameter(self.module, op.group(1)[position]);
        self.grid.values.insert(extent);
        self.grid.counts.insert(extent, 1);
    }

    pub(super) fn view_shape(&mut self, op: &Op) {
        let rows = self.array(op.operands[0]).is_none_or(|(root, _, rank)| self.has_rows(root, rank));
        for (position, &result) in op.results.iter().enumerate() {
            let (dim, step) = match self.module.ty(op.operands[0]) {
                Type::PartitionView { tile: step, dim_map, .. }
                | Type::StridedView { traversal: step, dim_map, .. } => {
                    (dim_map[position] as usize, i64::from(step[position]))
                }
                _ => (position, 1),
            };
            if rows && dim == self.axis {
                self.grid.values.insert(result);
                self.grid.counts.insert(result, step);
            }
        }
    }

    /// Returns the elements of an access through a view.
    fn viewed(&mut self, id: OpId, op: &Op) -> Place {
        let module = self.module;
        let view = op.operand_group("view")[0];
        let unknown = Dependence::broken(id, "accesses an array that is not analysed");
        let unknown = Place { root: None, row: None, others: unknown, indices: Vec::new() };
        let Some((root, base, rank)) = self.array(view) else { return unknown };
        let has_rows = self.has_rows(root, rank);
        let (tile, steps, dim_map) = match module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => (tile, Some(tile), Some(dim_map)),
            Type::StridedView { tile, traversal, dim_map, .. } => (tile, Some(traversal), Some(dim_map)),
            Type::GatherScatterView { tile, .. } => (tile, None, None),
            _ => return unknown,
        };
        let mut others = Dependence::default();
        if has_rows && self.values.terms.as_constant(base) != Some(0) {
            others = Dependence::broken(id, "accesses a part of an array");
        }
        let mut row = has_rows.then(|| self.values.terms.constant(0));
        let mut indices = Vec::new();
        for (axis, &index) in op.operand_group("index").iter().enumerate() {
            let term = self.values.term(index);
            indices.push(term);
            others = others.join(self.own(index), id);
            let is_row = has_rows && dim_map.map_or(axis, |map| map[axis] as usize) == self.axis;
            let step = steps.map_or(1, |steps| i64::from(steps[axis]));
            self.collect_position(op, root, term, is_row.then_some(step));
            if !is_row {
                others = others.join(self.on_grid(term, id), id);
                continue;
            }
            let of_tile = lane(&mut self.values.terms, axis, tile[axis].into());
            let of_row = match (module.shape(index).is_empty(), steps) {
                (false, _) => {
                    let by = FxHashMap::from_iter([(Var::Lane(0), of_tile)]);
                    self.values.terms.substitute(term, &by)
                }
                (true, _) => self.values.terms.add_scaled(of_tile, term, step),
            };
            let extents: Vec<i64> = tile.iter().map(|&extent| extent.into()).collect_vec();
            row = Some(normal(&mut self.values.terms, of_row, &extents));
        }
        Place { root: Some(root), row, others, indices }
    }

    /// Collects a position of a store to an argument.
    fn collect_position(&mut self, op: &Op, root: Root, term: Term, step: Option<i64>) {
        let is_load = matches!(op.code, Opcode::LoadView | Opcode::LoadPtr);
        if self.collects && !is_load && matches!(root, Root::Parameter(_)) {
            self.grid.add_position(&self.values.terms, term, step);
        }
    }

    fn place(&mut self, id: OpId, op: &Op) -> Place {
        match op.code {
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => self.viewed(id, op),
            _ => self.pointed(id, op),
        }
    }

    pub(super) fn load(&mut self, id: OpId, op: &Op) {
        let Place { root, row, others, .. } = self.place(id, op);
        let mut dependence = others.join(Dependence { row, ..Dependence::default() }, id);
        if root == Some(Root::Scratch) {
            dependence = dependence.join(self.scratch, id);
        }
        if row.is_none() && root.is_some_and(|root| self.written.contains(&root)) {
            let broken = Dependence::broken(id, "reads an array without rows that the kernel stores");
            dependence = dependence.join(broken, id);
        }
        self.values.forget(op.results[0]);
        self.known.insert(op.results[0], dependence);
    }

    /// As [`Rows::viewed`], for pointers.
    fn pointed(&mut self, id: OpId, op: &Op) -> Place {
        let none = Place { root: None, row: None, others: Dependence::default(), indices: Vec::new() };
        let Some(address) = op.address() else { return none };
        let meaning = self.values.meaning(address);
        let mut others = self.own(address);
        let declared = meaning.root.and_then(|root| self.declared.get(&root).cloned());
        let has_rows = meaning.root.is_none_or(|root| {
            let rank = declared.as_ref().map_or(usize::MAX, |declared| declared.extents.len());
            self.has_rows(root, rank)
        });
        let indices = declared.as_ref().and_then(|declared| self.indices(declared, meaning.term));
        for group in ["mask", "padding_value"] {
            if op.code.spec().operands.iter().any(|operand| operand.name == group) {
                for &value in op.operand_group(group) {
                    others = others.join(self.own(value), id);
                    if self.values.bits(value).is_some() {
                        let term = self.values.term(value);
                        others = others.join(self.masked(term, declared.as_ref(), id), id);
                    }
                }
            }
        }
        let (Some(root), Some(indices)) = (meaning.root, indices.filter(|_| has_rows)) else {
            others = match has_rows {
                true => others.join(Dependence::broken(id, "accesses an array with rows by pointers"), id),
                false => others.join(self.on_grid(meaning.term, id), id),
            };
            if let Some(root) = meaning.root {
                self.collect_position(op, root, meaning.term, None);
            }
            return Place { root: meaning.root, row: None, others, indices: vec![meaning.term] };
        };
        let mut row = None;
        for (axis, &index) in indices.iter().enumerate() {
            let is_row = axis == self.axis;
            self.collect_position(op, root, index, is_row.then_some(1));
            if is_row {
                row = Some(normal(&mut self.values.terms, index, self.module.shape(address)));
            } else {
                others = others.join(self.on_grid(index, id), id);
            }
        }
        Place { root: Some(root), row, others, indices }
    }

    /// Returns the dependence of a mask on the grid. Bounds of the row are not part of it: the row
    /// that is stored is inside of its array.
    fn masked(&mut self, mask: Term, declared: Option<&Declared>, id: OpId) -> Dependence {
        let rows = declared.and_then(|declared| declared.extents.get(self.axis));
        let (mut stack, mut all) = (vec![mask], Dependence::default());
        while let Some(term) = stack.pop() {
            match self.values.terms.node(term) {
                Node::Apply(Fun::And, 1, sides) => stack.extend(sides),
                Node::Apply(Fun::Compare(CmpPred::Lt, Sign::Unsigned), _, sides) if rows == Some(&sides[1]) => {}
                _ => all = all.join(self.on_grid(term, id), id),
            }
        }
        all
    }

    /// Returns the index along each axis of a place in an array: the factors of the strides. The
    /// other terms are the index along the axis with a stride of 1.
    fn indices(&mut self, declared: &Declared, place: Term) -> Option<Vec<Term>> {
        let terms = &mut self.values.terms;
        let strides = &declared.strides;
        let is_distinct = |(at, stride): (usize, &Term)| !strides[..at].contains(stride);
        let unit = strides.iter().position(|&stride| terms.as_constant(stride) == Some(1));
        if !strides.iter().enumerate().all(is_distinct) {
            return None;
        }
        let zero = terms.constant(0);
        let mut indices = vec![zero; strides.len()];
        let mut stack = vec![place];
        while let Some(term) = stack.pop() {
            let (axis, index) = match terms.node(term).clone() {
                Node::Apply(Fun::Add, _, sides) if strides.len() > 1 => {
                    stack.extend(sides);
                    continue;
                }
                Node::Apply(Fun::Mul, _, sides) => match strides.iter().position(|stride| sides.contains(stride)) {
                    Some(axis) => (axis, sides[usize::from(sides[0] == strides[axis])]),
                    None => (unit?, term),
                },
                Node::Constant(0) => continue,
                _ => (unit?, term),
            };
            if indices[axis] != zero && Some(axis) != unit {
                return None;
            }
            indices[axis] = terms.apply(Fun::Add, 64, &[indices[axis], index]);
        }
        Some(indices)
    }

    pub(super) fn store(&mut self, id: OpId, op: &Op, control: Dependence) {
        let Place { root, row, others, indices } = self.place(id, op);
        let stored = match op.code {
            Opcode::StoreView => "tile",
            Opcode::StorePtr | Opcode::AtomicRedView => "value",
            Opcode::AtomicRmw => "arg",
            _ => "val",
        };
        let control = control.join(self.returned, id);
        let value = self.of(op.operand_group(stored)[0], id).join(control, id).join(others, id);
        if root == Some(Root::Scratch) {
            return self.store_to_scratch(id, value);
        }
        if let Some(root) = root.filter(|_| row.is_none()) {
            self.written.insert(root);
        }
        if let Some((op, how)) = value.broken {
            return self.report(op, how);
        }
        match (value.row, row) {
            (Some(of), Some(to)) if of != to => {
                return self.report(id, "stores to one row what depends on another row");
            }
            (Some(_), None) => return self.report(id, "stores to an array without rows what depends on a row"),
            _ => {}
        }
        let terms = &self.values.terms;
        let own = indices.iter().fold(0, |own, &index| own | self.grid.bits(terms, index));
        let has = |term: Option<Term>, var| term.is_some_and(|term| terms.vars(term).contains(&var));
        let is_fixed = |&(var, is_bounded): &(Var, bool)| {
            has(row, var) || is_bounded && indices.iter().any(|&index| has(Some(index), var))
        };
        if !self.collects && (value.through & !own != 0 || !self.grid_loops.iter().all(is_fixed)) {
            self.report(id, BY_GRID);
        }
    }

    /// Adds what a store to the memory of the tile block depends on. The memory is not
    /// distinguished by places or iterations.
    fn store_to_scratch(&mut self, id: OpId, value: Dependence) {
        let terms = &self.values.terms;
        let is_carried = |row: Term| {
            let is_iteration = |var: &Var| matches!(var, Var::Iteration(_));
            !self.loops.is_empty() && (terms.data_of(row).is_some() || terms.vars(row).iter().any(is_iteration))
        };
        let several = Dependence::broken(id, "stores several rows to scratch memory");
        let mut rows = value;
        if value.varies_at_all(terms) || value.row.is_some_and(is_carried) {
            rows = value.join(several, id);
        }
        if !self.grid_loops.is_empty() {
            rows = rows.join(Dependence::broken(id, BY_GRID), id);
        }
        self.scratch = self.scratch.join(rows, id);
    }

    pub(super) fn atomic(&mut self, id: OpId, op: &Op, control: Dependence) {
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
}
