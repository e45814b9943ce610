//! Normal form of terms of lanes: sums of products with constants, quotients and remainders.
//!
//! After a reshape, a row is a quotient of a sum of lanes. With the extents of a tile, equal rows
//! have one form: `(2 i + j) / 8` with `j < 2` is `i / 4`.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeMap;

use super::super::term::{Fun, Node, Term, Terms, Var};
use crate::ir::{Rounding, Sign};

/// Sum of a constant and of products of terms with constants.
#[derive(Clone, Debug, Default)]
struct Sum {
    constant: i64,
    parts: BTreeMap<Term, i64>,
}

/// Largest number of the forms. No sum of such numbers wraps.
const MAX_NUMBER: i64 = 1 << 31;

/// Returns a row in the normal form. `extents`: those of the tile.
///
/// Limit: numbers of rows have no more than 31 bits.
pub(super) fn normal(terms: &mut Terms, row: Term, extents: &[i64]) -> Term {
    let mut form = Sum::default();
    match collect(terms, row, 1, extents, &mut form) {
        Some(()) => {
            form.parts.retain(|_, factor| *factor != 0);
            form.term(terms)
        }
        None => row,
    }
}

/// Adds the product of a term and a factor.
fn collect(terms: &mut Terms, term: Term, factor: i64, extents: &[i64], form: &mut Sum) -> Option<()> {
    let is_lane = |var: &Var| matches!(var, Var::Lane(_));
    let vars = terms.vars(term);
    if !vars.is_empty() && vars.iter().all(is_lane) && terms.data_of(term).is_none() {
        let own = sum(terms, term, extents).unwrap_or(Sum { constant: 0, parts: BTreeMap::from([(term, 1)]) });
        *form = std::mem::take(form).plus(&own, factor)?;
        return Some(());
    }
    let (node, is_factor) = (terms.node(term).clone(), |factor: i64| factor.abs() < 1 << 16);
    match node {
        Node::Constant(constant) => {
            form.constant = form.constant.checked_add(constant.checked_mul(factor)?)?;
            return Some(());
        }
        Node::Apply(Fun::Add, _, args) => {
            return args.iter().try_for_each(|&arg| collect(terms, arg, factor, extents, form));
        }
        Node::Apply(Fun::Extend(Sign::Signed, 32), _, args) => return collect(terms, args[0], factor, extents, form),
        Node::Apply(Fun::Mul, _, args) => {
            let constants = [terms.as_constant(args[0]), terms.as_constant(args[1])];
            for (constant, other) in [(constants[0], args[1]), (constants[1], args[0])] {
                if let Some(constant) = constant.filter(|&constant| is_factor(constant)) {
                    return collect(terms, other, factor.checked_mul(constant)?, extents, form);
                }
            }
        }
        Node::Data(value, args) => {
            let args = args.into_iter().map(|arg| normal(terms, arg, extents)).collect_vec();
            let part = terms.data(value, args);
            *form.parts.entry(part).or_insert(0) += factor;
            return Some(());
        }
        _ => {}
    }
    *form.parts.entry(term).or_insert(0) += factor;
    Some(())
}

/// Returns the form of a term that is not negative.
fn sum(terms: &mut Terms, term: Term, extents: &[i64]) -> Option<Sum> {
    let mut most = MAX_NUMBER;
    let form = match terms.node(term).clone() {
        Node::Constant(constant) if constant < 0 => return None,
        Node::Constant(constant) => Sum { constant, parts: BTreeMap::new() },
        Node::Var(_) => Sum { constant: 0, parts: BTreeMap::from([(term, 1)]) },
        Node::Data(..) => return None,
        Node::Apply(fun, bits, args) => {
            most = most.min(1 << (bits.clamp(1, 32) - 1));
            let first = sum(terms, *args.first()?, extents)?;
            match fun {
                Fun::Add => first.plus(&sum(terms, args[1], extents)?, 1)?,
                Fun::Mul => match (terms.as_constant(args[0]), terms.as_constant(args[1])) {
                    (_, Some(factor)) if factor >= 0 => Sum::default().plus(&first, factor)?,
                    (Some(factor), _) if factor >= 0 => Sum::default().plus(&sum(terms, args[1], extents)?, factor)?,
                    _ => return None,
                },
                Fun::Div(_, rounding) if rounding != Rounding::PosInf => {
                    let divisor = terms.as_constant(args[1]).filter(|&divisor| divisor > 0)?;
                    first.quotient(terms, divisor, extents)?
                }
                Fun::Rem(_) => {
                    let divisor = terms.as_constant(args[1]).filter(|&divisor| divisor > 0)?;
                    let quotient = first.clone().quotient(terms, divisor, extents)?;
                    first.plus(&quotient, -divisor)?
                }
                _ => return None,
            }
        }
    };
    (form.range(terms, extents)?.1 < most).then_some(form)
}

impl Sum {
    fn plus(mut self, other: &Sum, factor: i64) -> Option<Sum> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        for (&term, &own) in &other.parts {
            let part = self.parts.entry(term).or_insert(0);
            *part = part.checked_add(own.checked_mul(factor)?)?;
        }
        self.parts.retain(|_, factor| *factor != 0);
        Some(self)
    }

    /// Returns the least and the largest number.
    fn range(&self, terms: &Terms, extents: &[i64]) -> Option<(i64, i64)> {
        let mut range = (self.constant, self.constant);
        for (&part, &factor) in &self.parts {
            let most = largest(terms, part, extents)?.checked_mul(factor)?;
            range = (range.0.checked_add(most.min(0))?, range.1.checked_add(most.max(0))?);
        }
        Some(range)
    }

    /// Returns the quotient, rounded down. Invariant: `⌊(g a + b) / (g d)⌋ = ⌊a / d⌋` for
    /// `0 <= b < g`, and `⌊⌊a / c⌋ / d⌋ = ⌊a / (c d)⌋`.
    fn quotient(self, terms: &mut Terms, divisor: i64, extents: &[i64]) -> Option<Sum> {
        if let Some((inner, by)) = self.as_quotient(terms) {
            return sum(terms, inner, extents)?.quotient(terms, divisor.checked_mul(by)?, extents);
        }
        let mut units: Vec<i64> = self.parts.values().map(|&factor| gcd(factor, divisor)).collect_vec();
        units.extend([divisor, gcd(self.constant, divisor)]);
        units.sort_unstable();
        for &unit in units.iter().rev() {
            let is_high = |factor: i64| factor % unit == 0;
            let low = Sum {
                constant: self.constant.rem_euclid(unit),
                parts: self.parts.iter().map(|(&term, &f)| (term, f)).filter(|&(_, f)| !is_high(f)).collect(),
            };
            let (least, most) = low.range(terms, extents)?;
            if least < 0 || most >= unit {
                continue;
            }
            let high = self.clone().plus(&low, -1)?;
            let rest = Sum {
                constant: high.constant / unit,
                parts: high.parts.into_iter().map(|(term, factor)| (term, factor / unit)).collect(),
            };
            if divisor == unit {
                return Some(rest);
            }
            if rest.range(terms, extents)?.0 < 0 {
                return None;
            }
            let (place, by) = (rest.term(terms), terms.constant(divisor / unit));
            let quotient = terms.apply(FLOOR, 64, &[place, by]);
            return match terms.as_constant(quotient) {
                Some(constant) => Some(Sum { constant, parts: BTreeMap::new() }),
                None => Some(Sum { constant: 0, parts: BTreeMap::from([(quotient, 1)]) }),
            };
        }
        None
    }

    /// Returns dividend and divisor of a sum that is one quotient.
    fn as_quotient(&self, terms: &Terms) -> Option<(Term, i64)> {
        let (&part, 1) = self.parts.first_key_value().filter(|_| self.parts.len() == 1 && self.constant == 0)? else {
            return None;
        };
        match terms.node(part) {
            Node::Apply(Fun::Div(..), _, args) => Some((args[0], terms.as_constant(args[1])?)),
            _ => None,
        }
    }

    fn term(&self, terms: &mut Terms) -> Term {
        let mut all = terms.constant(self.constant);
        for (&part, &factor) in &self.parts {
            all = match terms.as_constant(all) {
                Some(0) if factor == 1 => part,
                _ => terms.add_scaled(all, part, factor),
            };
        }
        all
    }
}

const FLOOR: Fun = Fun::Div(Sign::Signed, Rounding::Zero);

/// Returns the largest number of a part of a sum; the least one is 0.
fn largest(terms: &Terms, part: Term, extents: &[i64]) -> Option<i64> {
    match terms.node(part) {
        Node::Constant(value) => (*value >= 0).then_some(*value),
        Node::Var(Var::Lane(axis)) => extents.get(usize::from(*axis)).map(|extent| extent - 1),
        Node::Apply(Fun::Div(..), _, args) => {
            Some(largest(terms, args[0], extents)? / terms.as_constant(args[1]).filter(|&by| by > 0)?)
        }
        Node::Apply(Fun::Add, _, args) => {
            largest(terms, args[0], extents)?.checked_add(largest(terms, args[1], extents)?)
        }
        Node::Apply(Fun::Mul, _, args) => {
            largest(terms, args[0], extents)?.checked_mul(largest(terms, args[1], extents)?)
        }
        _ => None,
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    a = a.abs();
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}
