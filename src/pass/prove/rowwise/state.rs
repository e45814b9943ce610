//! State of the check of rows, and dependences of values and terms.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::access::Root;
use super::super::term::{Term, Terms, Var};
use super::super::values::{Meaning, Values};
use super::lanes::normal;
use super::rows::{Dependence, GridTerms};
use crate::ir::{Elem, Module, OpId, Opcode, Value};

pub(super) const BY_GRID: &str = "depends on the grid or on the number of rows";

/// Extents and strides of an array.
#[derive(Clone)]
pub(super) struct Declared {
    pub(super) extents: Vec<Term>,
    pub(super) strides: Vec<Term>,
}

/// Returns the parameter of an address, through assumptions.
pub(super) fn parameter(module: &Module, mut value: Value) -> Value {
    while let Some(op) = module.defining_op(value).map(|id| module.op(id)).filter(|op| op.code == Opcode::Assume) {
        value = op.operands[0];
    }
    value
}

/// Returns the dependence with the normal form of its row, in a tile of these extents.
pub(super) fn normalized(all: Dependence, terms: &mut Terms, extents: &[i64]) -> Dependence {
    Dependence { row: all.row.map(|row| normal(terms, row, extents)), ..all }
}

/// State of a walk over a kernel.
pub(super) struct Rows<'m> {
    pub(super) module: &'m Module,
    pub(super) values: Values<'m>,
    pub(super) axis: usize,
    /// Parameters of arrays without rows.
    pub(super) constants: FxHashSet<Value>,
    pub(super) known: FxHashMap<Value, Dependence>,
    pub(super) grid: GridTerms,
    /// Arrays of arguments.
    pub(super) declared: FxHashMap<Root, Declared>,
    /// Arrays without rows that the kernel stores.
    pub(super) written: FxHashSet<Root>,
    /// Dependence of the memory of the tile block.
    pub(super) scratch: Dependence,
    /// Conditions of returns.
    pub(super) returned: Dependence,
    /// Open loops with bounds that depend on the grid: the iteration, and true if the last one does
    /// not.
    pub(super) grid_loops: Vec<(Var, bool)>,
    /// Values that the body of a loop defines.
    pub(super) defined: FxHashMap<OpId, FxHashSet<Value>>,
    pub(super) iterations: FxHashMap<OpId, Var>,
    pub(super) loops: Vec<OpId>,
    /// The first walk collects the positions of stores.
    pub(super) collects: bool,
    pub(super) problem: Option<(OpId, &'static str)>,
}

impl<'m> Rows<'m> {
    pub(super) fn new(module: &'m Module, axis: usize, constants: FxHashSet<Value>) -> Rows<'m> {
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
            declared: FxHashMap::default(),
            written: FxHashSet::default(),
            scratch: Dependence::default(),
            returned: Dependence::default(),
            grid_loops: Vec::new(),
            defined: FxHashMap::default(),
            iterations: FxHashMap::default(),
            loops: Vec::new(),
            collects: false,
            problem: None,
        }
    }

    pub(super) fn report(&mut self, op: OpId, how: &'static str) {
        self.problem.get_or_insert((op, how));
    }

    /// Returns the dependence of a value on rows alone.
    pub(super) fn own(&self, value: Value) -> Dependence {
        self.known.get(&value).copied().unwrap_or_default()
    }

    /// Returns the dependence of a value, also that of numbers on the grid.
    pub(super) fn of(&mut self, value: Value, op: OpId) -> Dependence {
        let own = self.own(value);
        let is_number = self.module.ty(value).as_tile().is_some() && self.values.bits(value).is_some();
        if !is_number {
            return own;
        }
        let term = self.values.term(value);
        own.join(self.on_grid(term, op), op)
    }

    /// Returns the dependence of a term on the grid.
    pub(super) fn on_grid(&self, term: Term, op: OpId) -> Dependence {
        let found = self.grid.of(&self.values.terms, term);
        let broken = found.is_direct.then_some((op, BY_GRID));
        Dependence { row: None, broken, through: found.through }
    }
}
