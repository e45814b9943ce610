//! Linear forms of terms, with the inequalities that hold for their variables.
//!
//! * A term that does not wrap has the linear form of its operands.
//! * A quotient by a number is a variable between two products. A remainder follows from it.
//! * Minima and maxima are variables with two cases.
//! * Any other term is a variable in its interval.

use rustc_hash::FxHashMap;

use super::linear::{Linear, Unknown, is_contradictory};
use crate::ir::{CmpPred, Rounding, Sign};
use crate::pass::prove::interval::{Intervals, Ranges};
use crate::pass::prove::term::{Fun, Node, Term, Terms, Var};

/// Limit of cases that are distinguished one inside of another.
const MOST_CASES: usize = 6;

/// Variable of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A symbol, which is equal on all sides.
    Symbol(u32),
    /// A variable of one execution.
    Var(usize, Var),
    /// A term that has no linear form.
    Term(usize, Term),
    /// The quotient of a term by a number, rounded down.
    Quotient(usize, Term, i64),
}

/// Inequalities about one or several executions of accesses.
pub struct System<'t> {
    terms: &'t Terms,
    vars: FxHashMap<Key, Unknown>,
    count: usize,
    /// Forms that are at least 0.
    rows: Vec<Linear>,
    /// Pairs of cases, one of which holds.
    cases: Vec<[Vec<Linear>; 2]>,
}

/// One execution of an access.
pub struct Execution<'t> {
    number: usize,
    ranges: &'t Ranges,
    intervals: Intervals<'t>,
    /// Values of variables that are given.
    given: FxHashMap<Var, Linear>,
}

impl<'t> Execution<'t> {
    /// Returns execution `number`, for which these conditions hold.
    pub fn new(number: usize, terms: &'t Terms, ranges: &'t Ranges, conditions: &[Term]) -> Execution<'t> {
        let intervals = Intervals::new(terms, ranges, conditions);
        Execution { number, ranges, intervals, given: FxHashMap::default() }
    }

    /// Sets the value of a variable.
    pub fn set(&mut self, var: Var, value: Linear) {
        self.given.insert(var, value);
    }
}

fn limits(bits: u32) -> (i128, i128) {
    let limit = 1i128 << (bits - 1);
    (-limit, limit - 1)
}

impl<'t> System<'t> {
    pub fn new(terms: &'t Terms) -> System<'t> {
        System { terms, vars: FxHashMap::default(), count: 0, rows: Vec::new(), cases: Vec::new() }
    }

    /// Returns a new variable.
    pub fn fresh(&mut self) -> Linear {
        self.count += 1;
        Linear::var(self.count - 1)
    }

    /// States that a form is at least 0.
    pub fn require(&mut self, row: Linear) {
        self.rows.push(row);
    }

    /// Returns the variable of a key, and whether it is new.
    fn var(&mut self, key: Key) -> (Linear, bool) {
        if let Some(&var) = self.vars.get(&key) {
            return (Linear::var(var), false);
        }
        self.vars.insert(key, self.count);
        (self.fresh(), true)
    }

    fn bounded(&mut self, key: Key, (lo, hi): (i64, i64)) -> Linear {
        let (var, is_new) = self.var(key);
        if is_new {
            self.require(var.clone().shifted(-i128::from(lo)));
            self.require(Linear::constant(hi.into()).minus(&var));
        }
        var
    }

    /// Returns the linear form of a term.
    pub fn linear(&mut self, of: &mut Execution<'t>, term: Term) -> Linear {
        let terms = self.terms;
        match terms.node(term) {
            Node::Constant(value) => Linear::constant((*value).into()),
            Node::Var(var) => {
                if let Some(value) = of.given.get(var) {
                    return value.clone();
                }
                let range = of.ranges.get(var).copied().unwrap_or((i64::MIN, i64::MAX));
                let key = if let Var::Symbol(number) = var { Key::Symbol(*number) } else { Key::Var(of.number, *var) };
                self.bounded(key, range)
            }
            Node::Data(..) => self.opaque(of, term),
            Node::Apply(fun, bits, args) => self.applied(of, fun, *bits, args).unwrap_or_else(|| self.opaque(of, term)),
        }
    }

    fn opaque(&mut self, of: &mut Execution<'t>, term: Term) -> Linear {
        let interval = of.intervals.of(term);
        self.bounded(Key::Term(self.side(of, term), term), interval)
    }

    /// Returns the number of the execution that a term belongs to, one number for terms of symbols.
    fn side(&self, of: &Execution<'t>, term: Term) -> usize {
        let is_symbol = |var: &Var| matches!(var, Var::Symbol(_));
        let is_shared = self.terms.data_of(term).is_none() && self.terms.vars(term).iter().all(is_symbol);
        if is_shared { usize::MAX } else { of.number }
    }

    fn applied(&mut self, of: &mut Execution<'t>, fun: &Fun, bits: u32, args: &[Term]) -> Option<Linear> {
        let wide = |interval: (i64, i64)| (i128::from(interval.0), i128::from(interval.1));
        let interval: Vec<(i128, i128)> = args.iter().map(|&arg| wide(of.intervals.of(arg))).collect();
        let number = |index: usize| self.terms.as_constant(args[index]).map(i128::from);
        let fits = |(lo, hi): (i128, i128)| bits > 1 && limits(bits).0 <= lo && hi <= limits(bits).1;
        let scaled = |(lo, hi): (i128, i128), by: i128| ((lo * by).min(hi * by), (lo * by).max(hi * by));
        let is_plain = |sign: Sign| bits > 1 && (sign == Sign::Signed || interval.iter().all(|(lo, _)| *lo >= 0));
        match fun {
            Fun::Add if fits((interval[0].0 + interval[1].0, interval[0].1 + interval[1].1)) => {
                let other = self.linear(of, args[1]);
                Some(self.linear(of, args[0]).plus(&other, 1))
            }
            Fun::Sub if fits((interval[0].0 - interval[1].1, interval[0].1 - interval[1].0)) => {
                let other = self.linear(of, args[1]);
                Some(self.linear(of, args[0]).minus(&other))
            }
            Fun::Mul => {
                let (factor, other) = match (number(0), number(1)) {
                    (Some(factor), _) => (factor, 1),
                    (_, Some(factor)) => (factor, 0),
                    _ => return None,
                };
                let form = fits(scaled(interval[other], factor)).then(|| self.linear(of, args[other]))?;
                Some(Linear::default().plus(&form, factor))
            }
            Fun::ShiftLeft => {
                let factor = 1i128 << number(1).filter(|shift| (0..i128::from(bits).min(63)).contains(shift))?;
                let form = fits(scaled(interval[0], factor)).then(|| self.linear(of, args[0]))?;
                Some(Linear::default().plus(&form, factor))
            }
            Fun::Negate if fits((-interval[0].1, -interval[0].0)) => {
                let form = self.linear(of, args[0]);
                Some(Linear::default().minus(&form))
            }
            Fun::Extend(Sign::Signed, from) if *from > 1 => Some(self.linear(of, args[0])),
            Fun::Extend(Sign::Unsigned, from) if *from > 1 && interval[0].0 >= 0 => Some(self.linear(of, args[0])),
            Fun::Truncate if fits(interval[0]) => Some(self.linear(of, args[0])),
            Fun::Div(sign, rounding) if is_plain(*sign) => {
                let by = number(1).filter(|by| *by > 0)? as i64;
                match rounding {
                    Rounding::NegInf => Some(self.quotient(of, args[0], by)),
                    Rounding::PosInf => Some(self.quotient_up(of, args[0], by)),
                    _ if interval[0].0 >= 0 => Some(self.quotient(of, args[0], by)),
                    _ => None,
                }
            }
            Fun::Rem(sign) if is_plain(*sign) && interval[0].0 >= 0 => {
                let by = number(1).filter(|by| *by > 0)? as i64;
                let quotient = self.quotient(of, args[0], by);
                Some(self.linear(of, args[0]).plus(&quotient, -i128::from(by)))
            }
            Fun::Min(sign) | Fun::Max(sign) if is_plain(*sign) => {
                let (a, b) = (self.linear(of, args[0]), self.linear(of, args[1]));
                let result = self.fresh();
                let towards = if matches!(fun, Fun::Min(_)) { 1 } else { -1 };
                let beyond = |x: &Linear, y: &Linear| Linear::default().plus(&x.minus(y), towards);
                let (below_a, below_b) = (beyond(&a, &result), beyond(&b, &result));
                self.require(below_a.clone());
                self.require(below_b.clone());
                let negated = |row: &Linear| Linear::default().minus(row);
                self.cases.push([vec![negated(&below_a)], vec![negated(&below_b)]]);
                Some(result)
            }
            _ => None,
        }
    }

    /// Returns the quotient of a term, rounded down.
    fn quotient(&mut self, of: &mut Execution<'t>, term: Term, by: i64) -> Linear {
        let form = self.linear(of, term);
        let (quotient, is_new) = self.var(Key::Quotient(self.side(of, term), term, by));
        if is_new {
            self.divide(&form, &quotient, by);
        }
        quotient
    }

    fn quotient_up(&mut self, of: &mut Execution<'t>, term: Term, by: i64) -> Linear {
        let form = self.linear(of, term).shifted(i128::from(by) - 1);
        // A negative key apart from that of the quotient rounded down.
        let (quotient, is_new) = self.var(Key::Quotient(self.side(of, term), term, -by));
        if is_new {
            self.divide(&form, &quotient, by);
        }
        quotient
    }

    /// States that a form is the quotient of another one, rounded down.
    pub fn divide(&mut self, form: &Linear, quotient: &Linear, by: i64) {
        let rest = form.plus(quotient, -i128::from(by));
        self.require(Linear::constant(i128::from(by) - 1).minus(&rest));
        self.require(rest);
    }

    /// States that a condition has this value. Conditions without a linear form are left out.
    pub fn assume(&mut self, of: &mut Execution<'t>, condition: Term, value: bool) {
        for alternative in self.rows_of(of, condition, value).unwrap_or_default() {
            match <[Vec<Linear>; 2]>::try_from(alternative) {
                Ok(both) => self.cases.push(both),
                Err(one) => self.rows.extend(one.into_iter().flatten()),
            }
        }
    }

    /// Returns true if a condition follows.
    pub fn implies(&mut self, of: &mut Execution<'t>, condition: Term) -> bool {
        if let Some(known) = self.terms.as_constant(condition) {
            return known != 0;
        }
        let is_all = |fun: &Fun, bits: u32| matches!(fun, Fun::And) && bits == 1;
        match self.terms.node(condition) {
            Node::Apply(fun, bits, args) if is_all(fun, *bits) => args.iter().all(|&arg| self.implies(of, arg)),
            _ => {
                let Some(negated) = self.rows_of(of, condition, false) else { return false };
                let [cases] = negated.as_slice() else { return false };
                cases.iter().all(|rows| self.excludes(rows))
            }
        }
    }

    /// Returns the forms of a condition: a list of which each entry holds, as a list of cases.
    fn rows_of(&mut self, of: &mut Execution<'t>, condition: Term, value: bool) -> Option<Vec<Vec<Vec<Linear>>>> {
        let terms = self.terms;
        let Node::Apply(fun, bits, args) = terms.node(condition) else { return None };
        match fun {
            Fun::And | Fun::Or if *bits == 1 && value == matches!(fun, Fun::And) => {
                let mut all = Vec::new();
                for &arg in args {
                    all.extend(self.rows_of(of, arg, value).unwrap_or_default());
                }
                Some(all)
            }
            Fun::Xor if *bits == 1 && terms.as_constant(args[1]) == Some(1) => self.rows_of(of, args[0], !value),
            Fun::Compare(pred, sign) if *bits > 1 => {
                let is_plain = *sign == Sign::Signed || args.iter().all(|&arg| of.intervals.of(arg).0 >= 0);
                if !is_plain {
                    return None;
                }
                let pred = if value { *pred } else { pred.negated() };
                let (a, b) = (self.linear(of, args[0]), self.linear(of, args[1]));
                let (up, down) = (b.minus(&a), a.minus(&b));
                let (below, above) = (up.clone().shifted(-1), down.clone().shifted(-1));
                Some(vec![match pred {
                    CmpPred::Lt => vec![vec![below]],
                    CmpPred::Le => vec![vec![up]],
                    CmpPred::Gt => vec![vec![above]],
                    CmpPred::Ge => vec![vec![down]],
                    CmpPred::Eq => vec![vec![up, down]],
                    CmpPred::Ne => vec![vec![below], vec![above]],
                }])
            }
            _ => None,
        }
    }

    /// Returns true if these forms cannot all be at least 0.
    pub fn excludes(&self, rows: &[Linear]) -> bool {
        let mut all = self.rows.clone();
        all.extend_from_slice(rows);
        self.is_impossible(&mut all, 0, MOST_CASES)
    }

    /// Returns true if the rows, and the cases from `first` on, contradict each other. `most`: the
    /// number of cases that may be distinguished.
    fn is_impossible(&self, rows: &mut Vec<Linear>, first: usize, most: usize) -> bool {
        if is_contradictory(rows) {
            return true;
        }
        let Some(cases) = self.cases.get(first).filter(|_| most > 0) else { return false };
        cases.iter().all(|case| {
            let depth = rows.len();
            rows.extend_from_slice(case);
            let is_impossible = self.is_impossible(rows, first + 1, most - 1);
            rows.truncate(depth);
            is_impossible
        })
    }
}
