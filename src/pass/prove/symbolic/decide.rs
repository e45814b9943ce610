//! Properties of accesses for all values of the symbols.
//!
//! Each property is a contradiction of linear inequalities:
//!
//! * bounds: the conditions of an access, and a position outside;
//! * conflicts: two executions in different tile blocks, and an element of both;
//! * coverage: an element, and the tile block, iteration and lane that its position determines as
//!   mixed radix digits (`digits`). The position contains the element, and each condition of the
//!   store follows for them.

use super::digits::{Part, digits, is_symbolic};
use super::linear::Linear;
use super::system::{Execution, System};
use crate::pass::prove::access::Access;
use crate::pass::prove::interval::Ranges;
use crate::pass::prove::term::{Fun, Node, Term, Terms, Var};
use crate::util::collect::CollectVec as _;

/// Terms of a kernel, and what is known about its launches.
#[derive(Clone, Copy)]
pub struct Launches<'t> {
    pub terms: &'t Terms,
    pub ranges: &'t Ranges,
    /// Conditions that hold in each launch.
    pub conditions: &'t [Term],
    /// Limit of the inequalities of one elimination.
    pub most_rows: usize,
}

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

impl<'t> Launches<'t> {
    fn system(self) -> System<'t> {
        System::new(self.terms).with_most_rows(self.most_rows)
    }

    /// Returns execution `number` of an access, with these conditions about it.
    fn execution(
        self,
        system: &mut System<'t>,
        number: usize,
        ranges: &'t Ranges,
        conditions: &[Term],
    ) -> Execution<'t> {
        let all = [self.conditions, conditions].concat();
        let mut execution = Execution::new(number, self.terms, ranges, &all);
        // Those of the launch concern all executions.
        let known = if number == 0 { all.as_slice() } else { conditions };
        for &condition in known {
            system.assume(&mut execution, condition, true);
        }
        execution
    }

    /// Returns true if no launch satisfies the conditions.
    pub fn is_impossible(self) -> bool {
        let mut system = self.system();
        self.execution(&mut system, 0, self.ranges, &[]);
        system.excludes(&[])
    }
}

/// Returns true if an access is inside along dimension `dim`.
pub fn is_inside(launches: Launches<'_>, access: &Access, places: &[Place], (dim, inside): (usize, Inside)) -> bool {
    let ranges = access.ranges(launches.ranges);
    let launches = Launches { ranges: &ranges, ..launches };
    let mut system = launches.system();
    let mut execution = launches.execution(&mut system, 0, &ranges, &access.conditions);
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

/// Returns true if the last condition of an access follows from the other ones.
pub fn is_implied(launches: Launches<'_>, access: &Access) -> bool {
    let Some((&last, others)) = access.conditions.split_last() else { return true };
    let ranges = access.ranges(launches.ranges);
    let launches = Launches { ranges: &ranges, ..launches };
    let mut system = launches.system();
    let mut execution = launches.execution(&mut system, 0, &ranges, others);
    system.implies(&mut execution, last)
}

/// Returns true if no element is accessed by `a` and `b` in different tile blocks.
pub fn are_disjoint(launches: Launches<'_>, a: (&Access, &[Place]), b: (&Access, &[Place])) -> bool {
    let Launches { terms, ranges, .. } = launches;
    let (own, other) = (a.0.ranges(ranges), b.0.ranges(ranges));
    let mut system = launches.system();
    let mut first = Launches { ranges: &own, ..launches }.execution(&mut system, 0, &own, &a.0.conditions);
    let mut second = Launches { ranges: &other, ..launches }.execution(&mut system, 1, &other, &b.0.conditions);
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
    let several = |block: &Var| ranges.get(block).is_some_and(|(lo, hi)| lo < hi);
    let mut open: Vec<Var> = (0..3).map(Var::Block).filter(several).collect_vec();
    // Equal coordinates along one axis help to prove those along another one.
    loop {
        let before = open.len();
        open.retain(|&block| {
            let Some(term) = terms.find_var(block) else { return true };
            let (own, other) = (system.linear(&mut first, term), system.linear(&mut second, term));
            let (up, down) = (other.minus(&own), own.minus(&other));
            let is_equal = system.excludes(&[up.clone().shifted(-1)]) && system.excludes(&[down.clone().shifted(-1)]);
            if is_equal {
                system.require(up);
                system.require(down);
            }
            !is_equal
        });
        if open.is_empty() || open.len() == before {
            return open.is_empty();
        }
    }
}

/// Returns true if a store reaches each element of its array.
pub fn covers(launches: Launches<'_>, store: &Access, places: &[Place]) -> bool {
    let terms = launches.terms;
    if store.unknown(terms).is_some() {
        return false;
    }
    let ranges = store.ranges(launches.ranges);
    let launches = Launches { ranges: &ranges, ..launches };
    let mut system = launches.system();
    // The conditions of the store are goals, and no assumptions.
    let mut execution = launches.execution(&mut system, 0, &ranges, &[]);
    let mut elements = Vec::new();
    for place in places {
        let extent = system.linear(&mut execution, place.extent);
        let element = system.fresh();
        system.require(extent.shifted(-1).minus(&element));
        system.require(element.clone());
        elements.push(element);
    }
    let mut values: Vec<(Part, Linear)> = Vec::new();
    for (place, element) in places.iter().zip(&elements) {
        let Some((constant, digits)) = digits(terms, place.start) else { return false };
        let mut rest = element.clone().shifted(-constant);
        for (number, digit) in digits.into_iter().enumerate() {
            let mut by = Linear::constant(digit.factor);
            for &symbol in &digit.symbols {
                let symbol = system.linear(&mut execution, symbol);
                let Some(product) = system.product(&by, &symbol) else { return false };
                by = product;
            }
            let value = system.fresh();
            if !system.excludes(&[Linear::default().minus(&by)]) || system.divide(&rest, &value, &by).is_none() {
                return false;
            }
            let Some(whole) = system.product(&value, &by) else { return false };
            if number > 0 || constant == 0 {
                // The dividend is an element, or a remainder.
                system.require(value.clone());
            }
            rest = rest.minus(&whole);
            values.push((digit.part, value));
        }
    }
    if set_parts(&mut system, &mut execution, &values).is_none() {
        return false;
    }
    for &var in ranges.keys().filter(|var| !matches!(var, Var::Symbol(_))) {
        if !values.iter().any(|(part, _)| *part.var() == var) {
            execution.set(var, Linear::constant(0));
        }
    }
    // Terms of symbols alone, such as the grid, are known without the values of variables.
    for &condition in &store.conditions {
        if let Node::Apply(Fun::Compare(..), _, args) = terms.node(condition) {
            for &arg in args.iter().filter(|&&arg| is_symbolic(terms, arg)) {
                system.linear(&mut execution, arg);
            }
        }
    }
    // First: the linear forms of other terms rely on the ranges of their variables.
    let is_in_range = |(var, &(lo, hi)): (&Var, &(i64, i64))| {
        let Some(term) = terms.find_var(*var).filter(|_| !matches!(var, Var::Symbol(_))) else { return true };
        let value = system.linear(&mut execution, term);
        let (below, above) = (Linear::constant(i128::from(lo) - 1).minus(&value), value.shifted(-i128::from(hi) - 1));
        is_used(terms, store, *var) == Some(false) || system.excludes(&[below]) && system.excludes(&[above])
    };
    if !ranges.iter().all(is_in_range) {
        return false;
    }
    let is_reached = |(place, element): (&Place, &Linear)| {
        let start = system.linear(&mut execution, place.start);
        let (before, after) = (start.minus(element), element.minus(&start).shifted(1 - i128::from(place.len)));
        system.excludes(&[before.shifted(-1)]) && system.excludes(&[after.shifted(-1)])
    };
    places.iter().zip(&elements).all(is_reached)
        && store.conditions.iter().all(|&condition| system.implies(&mut execution, condition))
}

/// Sets variables whose parts have these values. Returns `None` if no value has these parts.
fn set_parts<'t>(system: &mut System<'t>, execution: &mut Execution<'t>, values: &[(Part, Linear)]) -> Option<()> {
    let find = |wanted: Part| values.iter().find(|(part, _)| *part == wanted).map(|(_, value)| value.clone());
    let mut quotients = Vec::new();
    for (number, (part, value)) in values.iter().enumerate() {
        let is_other = |(other, _): &&(Part, Linear)| other.var() == part.var();
        match part {
            Part::Whole(var) => {
                if values.iter().filter(is_other).count() > 1 {
                    return None;
                }
                execution.set(*var, value.clone());
            }
            Part::Quotient(var, by) | Part::Remainder(var, by) => {
                let (quotient, rest) = (Part::Quotient(*var, *by), Part::Remainder(*var, *by));
                if values.iter().filter(is_other).any(|(other, _)| ![quotient, rest].contains(other))
                    || values[..number].iter().any(|(other, _)| other == part)
                {
                    return None;
                }
                let (quotient, rest) = (find(quotient).unwrap_or_default(), find(rest).unwrap_or_default());
                let divisor = system.linear(execution, *by);
                // 0 <= rest < divisor and a quotient that is not negative: the parts are exact.
                let exceeds = rest.minus(&divisor);
                let is_negative = |form: &Linear| Linear::constant(-1).minus(form);
                if ![exceeds, is_negative(&rest), is_negative(&quotient)]
                    .iter()
                    .all(|row| system.excludes(std::slice::from_ref(row)))
                {
                    return None;
                }
                let whole = system.product(&quotient, &divisor)?.plus(&rest, 1);
                execution.set(*var, whole);
                quotients.push((*var, *by, quotient));
            }
        }
    }
    for (var, by, quotient) in quotients {
        let term = system.terms().find_var(var)?;
        system.set_quotient(execution, (term, by), quotient);
    }
    Some(())
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
