//! Properties of accesses for all values of the symbols.
//!
//! Each property is a contradiction of linear inequalities:
//!
//! * bounds: the conditions of an access, and a position outside;
//! * conflicts: two executions in different tile blocks, and an element of both;
//! * coverage: an element, and the tile block, iteration and lane that its position determines as
//!   mixed radix digits; each condition of the store follows for them.

use super::linear::Linear;
use super::system::{Execution, System};
use crate::pass::prove::access::Access;
use crate::pass::prove::interval::{Intervals, Ranges};
use crate::pass::prove::term::{Fun, Node, Term, Terms, Var};

/// Positions of an access along one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub start: Term,
    pub len: i64,
    pub extent: Term,
}

/// Kind of the bounds of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// All elements are inside.
    Whole,
    /// Some element is inside.
    Part,
}

fn begun<'t>(
    system: &mut System<'t>,
    number: usize,
    terms: &'t Terms,
    ranges: &'t Ranges,
    access: &Access,
) -> Execution<'t> {
    let mut execution = Execution::new(number, terms, ranges, &access.conditions);
    for &condition in &access.conditions {
        system.assume(&mut execution, condition, true);
    }
    execution
}

/// Returns true if an access is inside along dimension `dim`.
pub fn is_inside(
    terms: &Terms,
    ranges: &Ranges,
    access: &Access,
    places: &[Place],
    (dim, inside): (usize, Inside),
) -> bool {
    let ranges = access.ranges(ranges);
    let mut system = System::new(terms);
    let mut execution = begun(&mut system, 0, terms, &ranges, access);
    // An array without elements has no tiles that could be outside.
    if inside == Inside::Part {
        for place in places {
            let extent = system.linear(&mut execution, place.extent);
            system.require(extent.shifted(-1));
        }
    }
    let Place { start, len, extent } = places[dim];
    let (start, extent) = (system.linear(&mut execution, start), system.linear(&mut execution, extent));
    let len = i128::from(len);
    let (before, after) = match inside {
        // start < 0; start + len > extent
        Inside::Whole => (Linear::constant(-1).minus(&start), start.clone().shifted(len - 1).minus(&extent)),
        // start + len <= 0; start >= extent
        Inside::Part => (Linear::constant(-len).minus(&start), start.minus(&extent)),
    };
    system.excludes(&[before]) && system.excludes(&[after])
}

/// Returns true if no element is accessed by `a` and `b` in different tile blocks.
pub fn never_meet(terms: &Terms, ranges: &Ranges, a: (&Access, &[Place]), b: (&Access, &[Place])) -> bool {
    let (own, other) = (a.0.ranges(ranges), b.0.ranges(ranges));
    let mut system = System::new(terms);
    let mut first = begun(&mut system, 0, terms, &own, a.0);
    let mut second = begun(&mut system, 1, terms, &other, b.0);
    for (x, y) in a.1.iter().zip(b.1) {
        let (s, t) = (system.linear(&mut first, x.start), system.linear(&mut second, y.start));
        let extent = system.linear(&mut first, x.extent);
        let element = system.fresh();
        for (start, len) in [(s, x.len), (t, y.len)] {
            system.require(element.minus(&start));
            system.require(start.shifted(i128::from(len) - 1).minus(&element));
        }
        system.require(extent.shifted(-1).minus(&element));
        system.require(element);
    }
    (0..3).map(Var::Block).filter(|block| ranges.get(block).is_some_and(|(lo, hi)| lo < hi)).all(|block| {
        let Some(term) = terms.find_var(block) else { return false };
        let (own, other) = (system.linear(&mut first, term), system.linear(&mut second, term));
        let (less, more) = (other.minus(&own).shifted(-1), own.minus(&other).shifted(-1));
        system.excludes(&[less]) && system.excludes(&[more])
    })
}

/// Returns true if a store reaches each element of its array.
pub fn covers(terms: &Terms, ranges: &Ranges, store: &Access, places: &[Place]) -> bool {
    if store.unknown(terms).is_some() {
        return false;
    }
    let ranges = store.ranges(ranges);
    let mut system = System::new(terms);
    // The conditions are goals, and no assumptions.
    let mut execution = Execution::new(0, terms, &ranges, &[]);
    let mut elements = Vec::new();
    for place in places {
        let extent = system.linear(&mut execution, place.extent);
        let element = system.fresh();
        system.require(extent.shifted(-1).minus(&element));
        system.require(element.clone());
        elements.push(element);
    }
    let mut determined: Vec<Var> = Vec::new();
    for (place, element) in places.iter().zip(&elements) {
        let Some((constant, digits)) = mixed_radix(terms, &ranges, place.start) else { return false };
        let mut rest = element.clone().shifted(-constant);
        for (var, factor) in digits {
            if determined.contains(&var) {
                return false;
            }
            let digit = system.fresh();
            let Ok(by) = i64::try_from(factor) else { return false };
            system.divide(&rest, &digit, by);
            rest = rest.plus(&digit, -factor);
            execution.set(var, digit);
            determined.push(var);
        }
        // The rest is a position in the tile.
        let beyond = rest.clone().shifted(-i128::from(place.len));
        if !(system.excludes(&[beyond]) && system.excludes(&[Linear::constant(-1).minus(&rest)])) {
            return false;
        }
    }
    for &var in ranges.keys().filter(|var| !matches!(var, Var::Symbol(_))) {
        if !determined.contains(&var) {
            execution.set(var, Linear::constant(0));
        }
    }
    let is_in_range = |(var, &(lo, hi)): (&Var, &(i64, i64))| {
        let Some(term) = terms.find_var(*var).filter(|_| !matches!(var, Var::Symbol(_))) else { return true };
        let value = system.linear(&mut execution, term);
        let (below, above) = (Linear::constant(i128::from(lo) - 1).minus(&value), value.shifted(-i128::from(hi) - 1));
        is_used(terms, store, *var) == Some(false) || system.excludes(&[below]) && system.excludes(&[above])
    };
    ranges.iter().all(is_in_range)
        && store.conditions.iter().all(|&condition| system.implies(&mut execution, condition))
}

/// Returns whether a store depends on an iteration or lane; `None` for tile blocks and symbols,
/// whose ranges always matter.
fn is_used(terms: &Terms, store: &Access, var: Var) -> Option<bool> {
    if matches!(var, Var::Block(_) | Var::Symbol(_)) {
        return None;
    }
    let all = store.dims.iter().map(|dim| dim.start).chain(store.conditions.iter().copied());
    Some(all.into_iter().any(|term| terms.vars(term).contains(&var)))
}

/// Returns a position as a constant and variables with positive factors, the largest one first.
fn mixed_radix(terms: &Terms, ranges: &Ranges, position: Term) -> Option<(i128, Vec<(Var, i128)>)> {
    let mut intervals = Intervals::new(terms, ranges, &[]);
    let (constant, mut digits) = affine(terms, &mut intervals, position)?;
    digits.retain(|(_, factor)| *factor != 0);
    digits.sort_by_key(|&(_, factor)| std::cmp::Reverse(factor));
    let is_digit = |(var, factor): &(Var, i128)| *factor > 0 && !matches!(var, Var::Symbol(_));
    digits.iter().all(is_digit).then_some((constant, digits))
}

/// Returns the constant and the factors of a term that does not wrap.
fn affine(terms: &Terms, intervals: &mut Intervals<'_>, term: Term) -> Option<(i128, Vec<(Var, i128)>)> {
    let (fun, bits, args) = match terms.node(term) {
        Node::Constant(value) => return Some((i128::from(*value), Vec::new())),
        Node::Var(var) => return Some((0, vec![(*var, 1)])),
        Node::Data(..) => return None,
        Node::Apply(fun, bits, args) => (fun, *bits, args),
    };
    let number = |index: usize| terms.as_constant(args[index]).map(i128::from);
    let (constant, factors) = match fun {
        Fun::Add | Fun::Sub => {
            let sign = if *fun == Fun::Add { 1 } else { -1 };
            let (mut constant, mut factors) = affine(terms, intervals, args[0])?;
            let (other, others) = affine(terms, intervals, args[1])?;
            constant += sign * other;
            for (var, factor) in others {
                match factors.iter_mut().find(|(known, _)| *known == var) {
                    Some((_, known)) => *known += sign * factor,
                    None => factors.push((var, sign * factor)),
                }
            }
            (constant, factors)
        }
        Fun::Mul => {
            let (factor, of) = number(0).map(|n| (n, 1)).or_else(|| number(1).map(|n| (n, 0)))?;
            let (constant, factors) = affine(terms, intervals, args[of])?;
            (constant * factor, factors.into_iter().map(|(var, own)| (var, own * factor)).collect())
        }
        Fun::Extend(sign, from) if *from > 1 => {
            let is_equal = *sign == crate::ir::Sign::Signed || intervals.of(args[0]).0 >= 0;
            return affine(terms, intervals, args[0]).filter(|_| is_equal);
        }
        Fun::Truncate => affine(terms, intervals, args[0])?,
        _ => return None,
    };
    // Without a wrap, the interval of the sum is that of its term.
    let (mut lo, mut hi) = (constant, constant);
    for &(var, factor) in &factors {
        let term = terms.find_var(var)?;
        let (from, to) = intervals.of(term);
        let ends = [i128::from(from) * factor, i128::from(to) * factor];
        lo += ends[0].min(ends[1]);
        hi += ends[0].max(ends[1]);
    }
    let limit = 1i128 << (bits - 1);
    (bits > 1 && -limit <= lo && hi < limit).then_some((constant, factors))
}
