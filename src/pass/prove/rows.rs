//! Rows of arrays that values depend on.
//!
//! The row of a value is a term of its lanes: each element depends on elements of the row with this
//! number, and on constants. A value that combines rows has the op that combines them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::term::{Node, Term, Terms, Var};
use crate::ir::{OpId, Value};

/// Dependence of a value on arrays with rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependence {
    /// The only row, `None` for a value that depends on no row.
    pub row: Option<Term>,
    /// Op with a dependence that the promise forbids.
    pub broken: Option<(OpId, &'static str)>,
}

impl Dependence {
    pub fn broken(op: OpId, how: &'static str) -> Dependence {
        Dependence { row: None, broken: Some((op, how)) }
    }

    /// Returns the dependence of a value that an op computes from both.
    pub fn join(self, other: Dependence, op: OpId) -> Dependence {
        let broken = self.broken.or(other.broken);
        match (self.row, other.row) {
            (Some(a), Some(b)) if a != b => {
                Dependence { row: Some(a), broken: broken.or(Some((op, "combines different rows"))) }
            }
            (a, b) => Dependence { row: a.or(b), broken },
        }
    }

    /// Returns true if the row differs along an axis of the value.
    pub fn varies(self, terms: &Terms, axis: usize) -> bool {
        self.row.is_some_and(|row| terms.vars(row).contains(&Var::Lane(axis as u8)))
    }

    /// Returns true if the row differs between elements of the value.
    pub fn varies_at_all(self, terms: &Terms) -> bool {
        self.row.is_some_and(|row| terms.vars(row).iter().any(|var| matches!(var, Var::Lane(_))))
    }

    /// Returns the dependence after a combination along an axis.
    pub fn combined(self, terms: &Terms, axis: usize, op: OpId) -> Dependence {
        match self.varies(terms, axis) {
            true => self.join(Dependence::broken(op, "combines the rows of a tile"), op),
            false => self,
        }
    }

    /// Returns the dependence with other lanes.
    pub fn moved(self, terms: &mut Terms, by: &FxHashMap<Var, Term>) -> Dependence {
        Dependence { row: self.row.map(|row| terms.substitute(row, by)), ..self }
    }
}

/// Terms that depend on the grid, or on the number of rows.
#[derive(Default)]
pub(super) struct GridTerms {
    /// Numbers of tile blocks, and extents along the axis of rows.
    pub values: FxHashSet<Value>,
    /// Positions of stores. What depends on the grid through them alone depends on the position.
    pub positions: FxHashSet<Term>,
}

impl GridTerms {
    /// Returns true if a term depends on the grid or the number of rows, other than through the
    /// positions of stores.
    pub fn contain(&self, terms: &Terms, term: Term) -> bool {
        let (mut stack, mut seen) = (vec![term], FxHashSet::default());
        while let Some(term) = stack.pop() {
            if self.positions.contains(&term) || !seen.insert(term) {
                continue;
            }
            match terms.node(term) {
                Node::Data(value, args) => {
                    if self.values.contains(value) {
                        return true;
                    }
                    stack.extend(args);
                }
                Node::Apply(_, _, args) => stack.extend(args),
                Node::Constant(_) | Node::Var(_) => {}
            }
        }
        false
    }
}
