//! Affine forms of terms, and the variables that a position determines.

use super::interval::{Interval, Ranges};
use super::term::{Fun, Node, Term, Terms, Var};
use crate::ir::Sign;

/// Sum of a constant and of products of variables with constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Affine {
    constant: i128,
    /// By variable, without factors of 0.
    factors: Vec<(Var, i128)>,
}

impl Affine {
    fn combined(&self, other: &Affine, factor: i128) -> Affine {
        let mut sum = self.clone();
        sum.constant += other.constant * factor;
        for &(var, own) in &other.factors {
            match sum.factors.iter_mut().find(|(known, _)| *known == var) {
                Some((_, known)) => *known += own * factor,
                None => sum.factors.push((var, own * factor)),
            }
        }
        sum.factors.retain(|&(_, factor)| factor != 0);
        sum
    }
}

/// Returns the affine form of a term that does not wrap.
fn affine(terms: &Terms, ranges: &Ranges, term: Term) -> Option<Affine> {
    let constant = |constant: i64| Affine { constant: constant.into(), factors: Vec::new() };
    let Node::Apply(fun, bits, args) = terms.node(term) else {
        return match terms.node(term) {
            Node::Constant(value) => Some(constant(*value)),
            Node::Var(var) => Some(Affine { constant: 0, factors: vec![(*var, 1)] }),
            _ => None,
        };
    };
    let of = |index: usize| affine(terms, ranges, args[index]);
    let factor = |index: usize| terms.as_constant(args[index]).map(i128::from);
    let form = match fun {
        Fun::Add => of(0)?.combined(&of(1)?, 1),
        Fun::Sub => of(0)?.combined(&of(1)?, -1),
        Fun::Negate => constant(0).combined(&of(0)?, -1),
        Fun::Mul => match (factor(0), factor(1)) {
            (Some(factor), _) => constant(0).combined(&of(1)?, factor),
            (_, Some(factor)) => constant(0).combined(&of(0)?, factor),
            _ => return None,
        },
        Fun::ShiftLeft => match factor(1) {
            Some(shift @ 0..=62) => constant(0).combined(&of(0)?, 1 << shift),
            _ => return None,
        },
        Fun::Extend(Sign::Signed, from) if *from > 1 => of(0)?,
        Fun::Extend(Sign::Unsigned, _) => of(0).filter(|form| bounds(form, ranges).is_some_and(|(lo, _)| lo >= 0))?,
        Fun::Truncate => of(0)?,
        _ => return None,
    };
    let (lo, hi) = bounds(&form, ranges)?;
    let limit = 1i128 << (bits - 1);
    (*bits > 1 && -limit <= lo && hi < limit).then_some(form)
}

fn bounds(form: &Affine, ranges: &Ranges) -> Option<(i128, i128)> {
    let mut sum = (form.constant, form.constant);
    for (var, factor) in &form.factors {
        let &(lo, hi): &Interval = ranges.get(var)?;
        let (a, b) = (i128::from(lo) * factor, i128::from(hi) * factor);
        sum = (sum.0 + a.min(b), sum.1 + a.max(b));
    }
    Some(sum)
}

/// Returns the variables that have one value for each position: two different values are at least
/// `len` elements apart, for all values of the other variables. Source: mixed radix numbers.
pub(super) fn determined(terms: &Terms, ranges: &Ranges, position: Term, len: i64) -> Vec<Var> {
    if terms.data_of(position).is_some() {
        return Vec::new();
    }
    let Some(form) = affine(terms, ranges, position) else { return Vec::new() };
    let size = |var: Var| ranges.get(&var).map(|&(lo, hi)| i128::from(hi) - i128::from(lo));
    let mut factors = form.factors;
    crate::util::sort::by_key(&mut factors, |(_, factor)| factor.abs());
    let (mut reach, mut vars) = (i128::from(len), Vec::new());
    for &(var, factor) in &factors {
        let Some(size) = size(var) else { return Vec::new() };
        // A smaller factor overlaps with those before it: they determine nothing together.
        if factor.abs() < reach {
            vars.clear();
        } else {
            vars.push(var);
        }
        reach += factor.abs() * size.max(0);
    }
    vars
}
