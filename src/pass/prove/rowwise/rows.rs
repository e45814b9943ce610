//! Rows of arrays that values depend on.
//!
//! The row of a value is a term of its lanes: each element depends on elements of the row with this
//! number, and on constants. A value that combines rows has the op that combines them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::term::{Fun, Node, Term, Terms, Var};
use crate::ir::{OpId, Value};

/// Dependence of a value on arrays with rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependence {
    /// The only row, `None` for a value that depends on no row.
    pub row: Option<Term>,
    /// Op with a dependence that the promise forbids.
    pub broken: Option<(OpId, &'static str)>,
    /// Positions of stores through which the value depends on the grid, by their bits. Another
    /// store of the value is refused.
    pub through: u64,
}

impl Dependence {
    pub fn broken(op: OpId, how: &'static str) -> Dependence {
        Dependence { broken: Some((op, how)), ..Dependence::default() }
    }

    /// Returns the dependence of a value that an op computes from both.
    pub fn join(self, other: Dependence, op: OpId) -> Dependence {
        let mut broken = self.broken.or(other.broken);
        if self.row.is_some() && other.row.is_some() && self.row != other.row {
            broken = broken.or(Some((op, "combines different rows")));
        }
        Dependence { row: self.row.or(other.row), broken, through: self.through | other.through }
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

/// Position of stores along an axis.
#[derive(Clone, Copy, Debug)]
struct Position {
    bit: u64,
    /// Rows of a step, for a position along the axis of rows.
    step: Option<i64>,
}

/// Terms that depend on the grid, or on the number of rows: numbers of tile blocks and extents
/// along the axis of rows, the number of the own tile block, and iterations of loops with such
/// bounds.
#[derive(Default)]
pub(super) struct GridTerms {
    /// Numbers of tile blocks, and extents along the axis of rows.
    pub values: FxHashSet<Value>,
    /// Numbers of steps along the axis of rows, and the rows of a step.
    pub counts: FxHashMap<Value, i64>,
    /// Loops whose bounds depend on the grid.
    pub loops: FxHashSet<Var>,
    positions: FxHashMap<Term, Position>,
    num_positions: u32,
}

/// Dependence of a term on the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnGrid {
    /// Other than through positions of stores.
    pub is_direct: bool,
    /// Bits of positions.
    pub through: u64,
}

impl GridTerms {
    /// Adds a position of a store. A number of a tile block that the position determines depends on
    /// the position, too.
    pub fn add_position(&mut self, terms: &Terms, term: Term, step: Option<i64>) {
        if let Some(known) = self.positions.get_mut(&term) {
            known.step = known.step.filter(|_| known.step == step);
            return;
        }
        if self.num_positions == u64::BITS {
            return;
        }
        let bit = 1 << self.num_positions;
        self.num_positions += 1;
        self.positions.insert(term, Position { bit, step });
        if let Some(inner) = inverse(terms, term).filter(|&inner| inner != term) {
            self.positions.entry(inner).or_insert(Position { bit, step: None });
        }
    }

    /// Returns the bits of a position of a store.
    pub fn bits(&self, terms: &Terms, position: Term) -> u64 {
        let own = |term: Term| self.positions.get(&term).map_or(0, |position| position.bit);
        own(position) | inverse(terms, position).map_or(0, own)
    }

    /// Returns the dependence of a term on the grid or the number of rows.
    pub fn of(&self, terms: &Terms, term: Term) -> OnGrid {
        let (mut stack, mut seen, mut found) = (vec![term], FxHashSet::default(), OnGrid::default());
        while let Some(term) = stack.pop() {
            if !seen.insert(term) {
                continue;
            }
            if let Some(position) = self.positions.get(&term) {
                found.through |= if self.is_of_grid(terms, term) { position.bit } else { 0 };
                continue;
            }
            if let Some(bit) = self.bound(terms, term) {
                found.through |= bit;
                continue;
            }
            match terms.node(term) {
                Node::Data(value, args) => {
                    found.is_direct |= self.values.contains(value);
                    stack.extend(args);
                }
                Node::Apply(_, _, args) => stack.extend(args),
                Node::Var(Var::Block(_)) => found.is_direct = true,
                Node::Var(var) => found.is_direct |= self.loops.contains(var),
                Node::Constant(_) => {}
            }
        }
        found
    }

    /// Returns true if a part of a term depends on the grid.
    fn is_of_grid(&self, terms: &Terms, term: Term) -> bool {
        match terms.node(term) {
            Node::Data(value, args) => {
                self.values.contains(value) || args.iter().any(|&arg| self.is_of_grid(terms, arg))
            }
            Node::Apply(_, _, args) => args.iter().any(|&arg| self.is_of_grid(terms, arg)),
            Node::Var(Var::Block(_)) => true,
            Node::Var(var) => self.loops.contains(var),
            Node::Constant(_) => false,
        }
    }

    /// Returns the bit of a position of rows whose comparison with their number a term is: it is
    /// decided by the position alone, where the array has this position.
    fn bound(&self, terms: &Terms, condition: Term) -> Option<u64> {
        let Node::Apply(Fun::Compare(..), _, sides) = terms.node(condition) else { return None };
        let count = |mut term: Term| loop {
            match terms.node(term) {
                Node::Apply(Fun::Extend(..) | Fun::Truncate, _, args) => term = args[0],
                Node::Data(value, _) => return self.counts.get(value).copied(),
                _ => return None,
            }
        };
        let fits = |a: Term, b: Term| {
            let position = self.positions.get(&a)?;
            (position.step.is_some() && position.step == count(b)).then_some(position.bit)
        };
        fits(sides[0], sides[1]).or_else(|| fits(sides[1], sides[0]))
    }
}

/// Returns the only variable of a term that determines it: sums and products with constants.
fn inverse(terms: &Terms, mut term: Term) -> Option<Term> {
    while let Node::Apply(fun, _, args) = terms.node(term) {
        let constant = |index: usize| terms.as_constant(args[index]);
        term = match (fun, args.as_slice()) {
            (Fun::Extend(..), [inner]) => *inner,
            (Fun::Add, [a, b]) => match (constant(0), constant(1)) {
                (Some(_), _) => *b,
                (_, Some(_)) => *a,
                _ => return None,
            },
            (Fun::Sub, [a, _]) if constant(1).is_some() => *a,
            (Fun::Mul, [a, _]) if constant(1).is_some_and(|factor| factor != 0) => *a,
            (Fun::Mul, [_, b]) if constant(0).is_some_and(|factor| factor != 0) => *b,
            _ => return None,
        };
    }
    matches!(terms.node(term), Node::Var(_)).then_some(term)
}
