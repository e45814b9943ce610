//! Enumeration of the values of variables.
//!
//! Terms are computed as soon as their last variable has a value. A condition that does not hold
//! ends the enumeration of the variables after it.

use crate::util::collect::CollectVec as _;
use std::ops::ControlFlow;

use rustc_hash::FxHashMap;

use super::interval::{Interval, Ranges};
use super::term::{Fun, Node, Term, Terms, Var, evaluate};

/// Maximum number of computed terms of one decision.
const MAX_STEPS: u64 = 1 << 23;

/// Result of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All values were visited.
    Complete,
    /// The visitor stopped.
    Stopped,
    /// There are too many values, or a term depends on data.
    Undecided,
}

/// Function of the values of the variables and of the outputs.
type Visitor<'v> = dyn FnMut(&[i64], &[i64]) -> ControlFlow<()> + 'v;

/// Operation of one term, with the places of its operands.
struct Step<'t> {
    fun: &'t Fun,
    bits: u32,
    operands: Vec<usize>,
    result: usize,
}

/// Terms that are computed after one variable.
#[derive(Default)]
struct Level<'t> {
    steps: Vec<Step<'t>>,
    conditions: Vec<usize>,
}

struct Enumeration<'t, 'v, 'f> {
    /// Variables with their ranges and places, the outermost first.
    vars: Vec<(Interval, usize)>,
    levels: Vec<Level<'t>>,
    values: Vec<i64>,
    outputs: Vec<usize>,
    steps: u64,
    visit: &'v mut Visitor<'f>,
}

/// Calls `visit` with the values of the variables and of the outputs, for all values of the
/// variables for which the conditions hold.
pub(super) fn enumerate(
    terms: &Terms,
    ranges: &Ranges,
    vars: &[Var],
    (conditions, outputs): (&[Term], &[Term]),
    visit: &mut Visitor<'_>,
) -> Outcome {
    let all = || conditions.iter().chain(outputs).copied();
    if all().any(|term| terms.data_of(term).is_some()) {
        return Outcome::Undecided;
    }
    let mut placed = Vec::new();
    for (place, var) in vars.iter().enumerate() {
        let Some(&range) = ranges.get(var) else { return Outcome::Undecided };
        placed.push((range, place));
    }
    if placed.iter().any(|((lo, hi), _)| lo > hi) {
        return Outcome::Complete;
    }
    let mut run = Enumeration {
        vars: placed,
        levels: (0..=vars.len()).map(|_| Level::default()).collect_vec(),
        values: vec![0; vars.len()],
        outputs: Vec::new(),
        steps: 0,
        visit,
    };
    let mut places: FxHashMap<Term, usize> = FxHashMap::default();
    for term in all() {
        run.place(terms, vars, term, &mut places);
    }
    for &condition in conditions {
        let level = level_of(terms, vars, condition);
        run.levels[level].conditions.push(places[&condition]);
    }
    run.outputs = outputs.iter().map(|output| places[output]).collect_vec();
    match run.compute(0) {
        Some(true) => run.level(0),
        Some(false) => Outcome::Complete,
        None => Outcome::Undecided,
    }
}

/// Returns the number of variables that must have values before a term has one.
fn level_of(terms: &Terms, vars: &[Var], term: Term) -> usize {
    let last = |var: &Var| vars.iter().position(|other| other == var).map_or(0, |index| index + 1);
    terms.vars(term).iter().map(last).max().unwrap_or(0)
}

impl<'t> Enumeration<'t, '_, '_> {
    /// Returns the place of a term. Places of its operands precede it.
    fn place(&mut self, terms: &'t Terms, vars: &[Var], term: Term, places: &mut FxHashMap<Term, usize>) -> usize {
        if let Some(&place) = places.get(&term) {
            return place;
        }
        let place = match terms.node(term) {
            Node::Var(var) => vars.iter().position(|other| other == var).expect("all variables are enumerated"),
            Node::Constant(value) => {
                self.values.push(*value);
                self.values.len() - 1
            }
            Node::Data(..) => unreachable!("terms without data are enumerated"),
            Node::Apply(fun, bits, args) => {
                let operands = args.iter().map(|&arg| self.place(terms, vars, arg, places)).collect_vec();
                self.values.push(0);
                let result = self.values.len() - 1;
                let level = level_of(terms, vars, term);
                self.levels[level].steps.push(Step { fun, bits: *bits, operands, result });
                result
            }
        };
        places.insert(term, place);
        place
    }

    /// Computes the terms of a level. Returns whether its conditions hold, `None` beyond the limit.
    fn compute(&mut self, level: usize) -> Option<bool> {
        self.steps += 1 + self.levels[level].steps.len() as u64;
        if self.steps > MAX_STEPS {
            return None;
        }
        for step in &self.levels[level].steps {
            let mut operands = [0; 3];
            for (operand, &place) in operands.iter_mut().zip(&step.operands) {
                *operand = self.values[place];
            }
            self.values[step.result] = evaluate(step.fun, step.bits, &operands);
        }
        Some(self.levels[level].conditions.iter().all(|&condition| self.values[condition] != 0))
    }

    fn level(&mut self, level: usize) -> Outcome {
        let Some(&((lo, hi), place)) = self.vars.get(level) else {
            let outputs: Vec<i64> = self.outputs.iter().map(|&output| self.values[output]).collect_vec();
            return match (self.visit)(&self.values[..self.vars.len()], &outputs) {
                ControlFlow::Continue(()) => Outcome::Complete,
                ControlFlow::Break(()) => Outcome::Stopped,
            };
        };
        for value in lo..=hi {
            self.values[place] = value;
            match self.compute(level + 1) {
                None => return Outcome::Undecided,
                Some(false) => continue,
                Some(true) => {}
            }
            let outcome = self.level(level + 1);
            if outcome != Outcome::Complete {
                return outcome;
            }
        }
        Outcome::Complete
    }
}
