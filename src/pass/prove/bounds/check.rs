//! Positions outside of arrays.
//!
//! A tile of a partition may reach over the edge of its array, and is a mistake only if it is
//! entirely outside. The elements of pointers, and of arrays inside of others, must be in their
//! allocation.

use crate::util::collect::CollectVec as _;
use std::ops::ControlFlow;

use crate::pass::prove::access::{Access, Dim, Frame, Root};
use crate::pass::prove::enumerate::{Outcome, enumerate};
use crate::pass::prove::interval::{Interval, Intervals, Ranges};
use crate::pass::prove::system::{parts, solution};
use crate::pass::prove::term::{Term, Terms, Var};
use crate::pass::prove::verdict::{Reason, Witness};

/// Result of a check of bounds.
pub(in crate::pass::prove) enum BoundsCheck {
    Inside,
    /// The tile block, and the position along each dimension.
    Outside(Witness),
    Unknown(Reason),
}

/// A term, and the interval that it must be in.
struct Goal {
    term: Term,
    within: Interval,
    dim: usize,
}

/// Checks the positions of an access. `whole`: the array that is the allocation.
pub(in crate::pass::prove) fn check(
    terms: &mut Terms,
    ranges: &Ranges,
    access: &Access,
    whole: Option<&Frame>,
) -> BoundsCheck {
    let is_part = access.frame.is_some() && access.root != Root::Scratch && access.frame.as_ref() != whole;
    let mut result = BoundsCheck::Inside;
    let goals = tile_goals(access);
    if !goals.is_empty() {
        result = decided(terms, ranges, access, &goals);
    }
    if !matches!(result, BoundsCheck::Inside) {
        return result;
    }
    let is_pointer = access.frame.is_none() && access.root != Root::Scratch;
    if !is_part && !is_pointer {
        return result;
    }
    let Some(whole) = whole else {
        return match access.unknown(terms) {
            Some(value) if matches!(access.root, Root::Unknown(_)) => BoundsCheck::Unknown(Reason::Data(value)),
            _ => BoundsCheck::Unknown(Reason::Op(access.op, "accesses memory of unknown extent")),
        };
    };
    let flat = access.flattened(terms);
    let reach: i64 = whole.extents.iter().zip(&whole.strides).map(|(n, stride)| (n - 1).max(0) * stride).sum();
    let most = if whole.extents.contains(&0) { -1 } else { reach };
    decided(terms, ranges, &flat, &[Goal { term: flat.dims[0].start, within: (0, most), dim: 0 }])
}

/// Returns true if all elements of an access along a dimension are inside of the array.
pub(in crate::pass::prove) fn is_inside(terms: &Terms, ranges: &Ranges, access: &Access, dim: usize) -> bool {
    let place = &access.dims[dim];
    let goal = Goal { term: place.start, within: (0, place.extent - place.len), dim };
    matches!(decided(terms, ranges, access, &[goal]), BoundsCheck::Inside)
}

/// Returns true if the last condition of an access holds if the other ones do.
pub(in crate::pass::prove) fn is_implied(terms: &Terms, ranges: &Ranges, access: &Access) -> bool {
    let mut without = access.clone();
    let Some(mask) = without.conditions.pop() else { return true };
    matches!(decided(terms, ranges, &without, &[Goal { term: mask, within: (1, 1), dim: 0 }]), BoundsCheck::Inside)
}

fn tile_goals(access: &Access) -> Vec<Goal> {
    let is_empty = access.dims.iter().any(|dim| dim.extent == 0);
    let goal = |(number, dim): (usize, &Dim)| {
        let within = if dim.inbounds {
            (0, dim.extent - dim.len)
        } else if access.partition && !access.clipped && !is_empty {
            (1 - dim.len, dim.extent - 1)
        } else {
            return None;
        };
        Some(Goal { term: dim.start, within, dim: number })
    };
    access.dims.iter().enumerate().filter_map(goal).collect_vec()
}

fn decided(terms: &Terms, ranges: &Ranges, access: &Access, goals: &[Goal]) -> BoundsCheck {
    let ranges = access.ranges(ranges);
    let mut intervals = Intervals::new(terms, &ranges, &access.conditions);
    let mut unknown = None;
    for goal in goals {
        let (lo, hi) = intervals.of(goal.term);
        if lo > hi || goal.within.0 <= lo && hi <= goal.within.1 {
            continue;
        }
        match enumerated(terms, &ranges, access, goal) {
            BoundsCheck::Inside => {}
            BoundsCheck::Outside(witness) => return BoundsCheck::Outside(witness),
            BoundsCheck::Unknown(reason) => unknown = unknown.or(Some(reason)),
        }
    }
    unknown.map_or(BoundsCheck::Inside, BoundsCheck::Unknown)
}

fn enumerated(terms: &Terms, ranges: &Ranges, access: &Access, goal: &Goal) -> BoundsCheck {
    if let Some(value) = terms.data_of(goal.term) {
        return BoundsCheck::Unknown(Reason::Data(value));
    }
    let is_known = |condition: &Term| terms.data_of(*condition).is_none();
    let known: Vec<Term> = access.conditions.iter().copied().filter(is_known).collect_vec();
    let all = parts(terms, &known, &[goal.term], &[]);
    let mut found: Option<(i64, Vec<(Var, i64)>)> = None;
    let mut others = Vec::new();
    for part in &all {
        if part.positions.is_empty() {
            others.extend(&part.conditions);
            continue;
        }
        let outcome = enumerate(terms, ranges, &part.vars, (&part.conditions, &[goal.term]), &mut |values, outputs| {
            if (goal.within.0..=goal.within.1).contains(&outputs[0]) {
                return ControlFlow::Continue(());
            }
            found = Some((outputs[0], part.vars.iter().copied().zip(values.iter().copied()).collect_vec()));
            ControlFlow::Break(())
        });
        match outcome {
            Outcome::Complete => return BoundsCheck::Inside,
            Outcome::Undecided => {
                return BoundsCheck::Unknown(Reason::Op(
                    access.op,
                    "has too many combinations of tile blocks and iterations",
                ));
            }
            Outcome::Stopped => {}
        }
    }
    let Some((position, mut values)) = found else { return BoundsCheck::Inside };
    match solution(terms, ranges, &others) {
        Ok(None) => return BoundsCheck::Inside,
        Ok(Some(more)) => values.extend(more),
        Err(()) => {
            return BoundsCheck::Unknown(Reason::Op(access.op, "has too many conditions of its execution"));
        }
    }
    // A condition that depends on data may exclude the position.
    if let Some(value) = access.unknown(terms) {
        return BoundsCheck::Unknown(Reason::Data(value));
    }
    let mut witness = Witness { element: vec![0; access.dims.len()], ..Witness::default() };
    witness.element[goal.dim] = position;
    for (var, value) in values {
        if let Var::Block(axis) = var {
            witness.blocks[0][axis as usize] = value as u32;
        }
    }
    BoundsCheck::Outside(witness)
}
