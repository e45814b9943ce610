//! Independent parts of a system of conditions and positions.
//!
//! Terms without common variables are independent: their values combine freely. The number of
//! combinations of a part is the product of the ranges of its own variables alone.

use crate::util::collect::CollectVec as _;
use std::ops::ControlFlow;

use super::enumerate::{Outcome, enumerate};
use super::interval::Ranges;
use super::term::{Term, Terms, Var};

/// A part of a system: variables with all conditions and positions that depend on them.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub vars: Vec<Var>,
    pub conditions: Vec<Term>,
    /// Numbers of positions.
    pub positions: Vec<usize>,
}

/// Returns the parts of a system. `linked` variables are in one part.
pub(super) fn parts(terms: &Terms, conditions: &[Term], positions: &[Term], linked: &[Vec<Var>]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut join = |vars: &[Var], part: Part| {
        let mut joined = part;
        joined.vars.extend(vars);
        let overlaps = |part: &Part| part.vars.iter().any(|var| vars.contains(var));
        let (same, others): (Vec<Part>, Vec<Part>) = std::mem::take(&mut parts).into_iter().partition(overlaps);
        for part in same {
            joined.vars.extend(part.vars);
            joined.conditions.extend(part.conditions);
            joined.positions.extend(part.positions);
        }
        joined.vars.sort_unstable();
        joined.vars.dedup();
        parts = others;
        parts.push(joined);
    };
    for vars in linked {
        join(vars, Part::default());
    }
    for &condition in conditions {
        join(terms.vars(condition), Part { conditions: vec![condition], ..Part::default() });
    }
    for (number, &position) in positions.iter().enumerate() {
        join(terms.vars(position), Part { positions: vec![number], ..Part::default() });
    }
    parts
}

/// Returns values of all variables for which the conditions hold: `Err` if that is undecided.
pub(super) fn solution(terms: &Terms, ranges: &Ranges, conditions: &[Term]) -> Result<Option<Vec<(Var, i64)>>, ()> {
    let mut all = Vec::new();
    for part in parts(terms, conditions, &[], &[]) {
        let mut found = None;
        let outcome = enumerate(terms, ranges, &part.vars, (&part.conditions, &[]), &mut |values, _| {
            found = Some(part.vars.iter().copied().zip(values.iter().copied()).collect_vec());
            ControlFlow::Break(())
        });
        match (outcome, found) {
            (_, Some(values)) => all.extend(values),
            (Outcome::Undecided, None) => return Err(()),
            _ => return Ok(None),
        }
    }
    Ok(Some(all))
}
