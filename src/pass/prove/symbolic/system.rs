//! Linear forms of terms, with the inequalities that hold for their variables.
//!
//! * A term that does not wrap has the linear form of its operands. Intervals show that, or the
//!   inequalities that are known before.
//! * Products of variables are variables (`product`).
//! * A quotient is a variable between two products. A remainder follows from it.
//! * Minima and maxima are variables with two cases.
//! * Any other term is a variable in its interval.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::linear::{Linear, MAX_ROWS, Unknown, is_contradictory};
use super::product::Products;
use crate::ir::{CmpPred, Rounding, Sign};
use crate::pass::prove::interval::{Intervals, Ranges};
use crate::pass::prove::term::{Fun, Node, Term, Terms, Var};

/// Limit of cases that are distinguished one inside of another.
const MAX_CASES: usize = 6;

/// Rows of an elimination for each wrap that inequalities may exclude: a limit of both limits all
/// costs.
const ROWS_OF_A_WRAP: usize = 12;

/// Rows of an elimination for each pair of variables that is compared.
const ROWS_OF_A_PAIR: usize = 40;

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
    /// The quotient of a term by another one, rounded down, or up.
    Ratio(usize, Term, Term, bool),
}

/// Planted fault of the procedure, for its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Wraps are overlooked.
    Wrap,
    /// A row is multiplied by a variable of any sign.
    Sign,
    /// A remainder is less than the divisor minus 1.
    Remainder,
    /// A product is that of other variables.
    Product,
    /// A condition is false only if it is violated by 2 or more.
    Negation,
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
    products: Products,
    /// Number of wraps that inequalities may still exclude.
    wraps: usize,
    /// Quotients that are known.
    ratios: FxHashMap<(usize, Term, Term), Linear>,
    fault: Option<Fault>,
    most_rows: usize,
}

/// One execution of an access.
pub struct Execution<'t> {
    number: usize,
    ranges: &'t Ranges,
    intervals: Intervals<'t>,
    /// Values of variables that are given.
    given: FxHashMap<Var, Linear>,
    /// Forms of terms.
    forms: FxHashMap<Term, Linear>,
}

impl<'t> Execution<'t> {
    /// Returns execution `number`, for which these conditions hold.
    pub fn new(number: usize, terms: &'t Terms, ranges: &'t Ranges, conditions: &[Term]) -> Execution<'t> {
        let intervals = Intervals::new(terms, ranges, conditions);
        Execution { number, ranges, intervals, given: FxHashMap::default(), forms: FxHashMap::default() }
    }

    /// Sets the value of a variable.
    pub fn set(&mut self, var: Var, value: Linear) {
        self.given.insert(var, value);
        self.forms.clear();
    }
}

fn limits(bits: u32) -> (i128, i128) {
    let limit = 1i128 << (bits - 1);
    (-limit, limit - 1)
}

impl<'t> System<'t> {
    pub fn new(terms: &'t Terms) -> System<'t> {
        System {
            terms,
            vars: FxHashMap::default(),
            count: 0,
            rows: Vec::new(),
            cases: Vec::new(),
            products: Products::default(),
            wraps: MAX_ROWS / ROWS_OF_A_WRAP,
            ratios: FxHashMap::default(),
            fault: None,
            most_rows: MAX_ROWS,
        }
    }

    pub fn terms(&self) -> &'t Terms {
        self.terms
    }

    /// Limits the inequalities of an elimination.
    pub fn with_most_rows(self, most_rows: usize) -> System<'t> {
        System { most_rows, wraps: most_rows / ROWS_OF_A_WRAP, ..self }
    }

    /// Plants a fault.
    #[cfg(test)]
    pub fn with_fault(self, fault: Option<Fault>) -> System<'t> {
        System { fault, ..self }
    }

    fn has(&self, fault: Fault) -> bool {
        cfg!(test) && self.fault == Some(fault)
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
            Node::Apply(fun, bits, args) => {
                if let Some(known) = of.forms.get(&term) {
                    return known.clone();
                }
                let form = self.applied(of, fun, *bits, args);
                let is_final = form.is_some() || self.products.is_empty();
                let form = form.unwrap_or_else(|| self.opaque(of, term));
                if is_final {
                    of.forms.insert(term, form.clone());
                }
                form
            }
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

    /// Returns the form of a result if it does not wrap: by its interval, else by the known rows.
    fn exact(&mut self, form: Linear, (lo, hi): (i128, i128), bits: u32) -> Option<Linear> {
        if bits <= 1 {
            return None;
        }
        let (least, most) = limits(bits);
        if least <= lo && hi <= most || self.has(Fault::Wrap) {
            return Some(form);
        }
        // Without products, the rows seldom know more than the interval.
        if self.products.is_empty() || self.wraps == 0 {
            return None;
        }
        self.wraps -= 1;
        let (below, above) = (Linear::constant(least - 1).minus(&form), form.clone().shifted(-most - 1));
        (self.excludes(&[below]) && self.excludes(&[above])).then_some(form)
    }

    /// Returns true if the known rows show that a form is at least 0.
    fn is_nonnegative(&mut self, form: &Linear) -> bool {
        if self.wraps == 0 {
            return false;
        }
        self.wraps -= 1;
        self.excludes(&[Linear::constant(-1).minus(form)])
    }

    /// Returns the form of a product.
    pub fn product(&mut self, a: &Linear, b: &Linear) -> Option<Linear> {
        if self.has(Fault::Product) {
            return self.products.product(a, a, &mut self.count);
        }
        self.products.product(a, b, &mut self.count)
    }

    fn applied(&mut self, of: &mut Execution<'t>, fun: &Fun, bits: u32, args: &[Term]) -> Option<Linear> {
        let wide = |interval: (i64, i64)| (i128::from(interval.0), i128::from(interval.1));
        let interval: Vec<(i128, i128)> = args.iter().map(|&arg| wide(of.intervals.of(arg))).collect_vec();
        let number = |index: usize| self.terms.as_constant(args[index]).map(i128::from);
        let fits = |(lo, hi): (i128, i128)| bits > 1 && limits(bits).0 <= lo && hi <= limits(bits).1;
        let is_plain = |sign: Sign| bits > 1 && (sign == Sign::Signed || interval.iter().all(|(lo, _)| *lo >= 0));
        match fun {
            Fun::Add | Fun::Sub => {
                let (a, b) = (self.linear(of, args[0]), self.linear(of, args[1]));
                let ((lo, hi), (least, most)) = (interval[0], interval[1]);
                match fun {
                    Fun::Add => self.exact(a.plus(&b, 1), (lo + least, hi + most), bits),
                    _ => self.exact(a.minus(&b), (lo - most, hi - least), bits),
                }
            }
            Fun::Mul => {
                let ends = [interval[0].0, interval[0].1].map(|x| [interval[1].0, interval[1].1].map(|y| x * y));
                let (least, most) =
                    ends.iter().flatten().fold((i128::MAX, i128::MIN), |(lo, hi), &end| (lo.min(end), hi.max(end)));
                let (a, b) = (self.linear(of, args[0]), self.linear(of, args[1]));
                let form = self.product(&a, &b)?;
                let form = self.exact(form, (least, most), bits)?;
                if number(0).or(number(1)).is_none() {
                    self.require(form.clone().shifted(-least));
                    self.require(Linear::constant(most).minus(&form));
                }
                Some(form)
            }
            Fun::ShiftLeft => {
                let factor = 1i128 << number(1).filter(|shift| (0..i128::from(bits).min(63)).contains(shift))?;
                let form = self.linear(of, args[0]);
                self.exact(
                    Linear::default().plus(&form, factor),
                    (interval[0].0 * factor, interval[0].1 * factor),
                    bits,
                )
            }
            Fun::Negate if fits((-interval[0].1, -interval[0].0)) => {
                let form = self.linear(of, args[0]);
                Some(Linear::default().minus(&form))
            }
            Fun::Extend(Sign::Signed, from) if *from > 1 => Some(self.linear(of, args[0])),
            Fun::Extend(Sign::Unsigned, from) if *from > 1 && interval[0].0 >= 0 => Some(self.linear(of, args[0])),
            Fun::Truncate => {
                let form = self.linear(of, args[0]);
                self.exact(form, interval[0], bits)
            }
            Fun::Div(sign, rounding) if is_plain(*sign) && interval[1].0 > 0 => match rounding {
                Rounding::NegInf => self.quotient(of, args[0], args[1], false),
                Rounding::PosInf => self.quotient(of, args[0], args[1], true),
                _ if interval[0].0 >= 0 => self.quotient(of, args[0], args[1], false),
                _ => None,
            },
            Fun::Rem(sign) if is_plain(*sign) && interval[0].0 >= 0 && interval[1].0 > 0 => {
                let quotient = self.quotient(of, args[0], args[1], false)?;
                let divisor = self.linear(of, args[1]);
                let whole = self.product(&quotient, &divisor)?;
                Some(self.linear(of, args[0]).minus(&whole))
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

    /// Returns the quotient of a term by a positive one, rounded down, or `up`.
    fn quotient(&mut self, of: &mut Execution<'t>, term: Term, by: Term, up: bool) -> Option<Linear> {
        let side = self.side(of, term).min(self.side(of, by));
        if let Some(known) = self.ratios.get(&(side, term, by)).filter(|_| !up) {
            return Some(known.clone());
        }
        let (form, divisor) = (self.linear(of, term), self.linear(of, by));
        let form = if up { form.plus(&divisor, 1).shifted(-1) } else { form };
        let key = match self.terms.as_constant(by) {
            // A negative key apart from that of the quotient rounded down.
            Some(number) => Key::Quotient(side, term, if up { -number } else { number }),
            None => Key::Ratio(side, term, by, up),
        };
        let (quotient, is_new) = self.var(key);
        if is_new {
            self.divide(&form, &quotient, &divisor)?;
            if of.intervals.of(term).0 >= 0 {
                self.require(quotient.clone());
            }
        }
        Some(quotient)
    }

    /// States the quotient of two terms, rounded down.
    pub fn set_quotient(&mut self, of: &mut Execution<'t>, (term, by): (Term, Term), quotient: Linear) {
        of.forms.clear();
        self.ratios.insert((self.side(of, term).min(self.side(of, by)), term, by), quotient);
    }

    /// States that a form is the quotient of two other ones, rounded down. The divisor is positive.
    pub fn divide(&mut self, form: &Linear, quotient: &Linear, by: &Linear) -> Option<()> {
        let rest = form.minus(&self.product(quotient, by)?);
        let most = by.clone().shifted(if self.has(Fault::Remainder) { -2 } else { -1 });
        self.require(most.minus(&rest));
        self.require(rest);
        Some(())
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
                let (a, b) = (self.linear(of, args[0]), self.linear(of, args[1]));
                let is_plain = *sign == Sign::Signed
                    || [(args[0], &a), (args[1], &b)]
                        .into_iter()
                        .all(|(arg, form)| of.intervals.of(arg).0 >= 0 || self.is_nonnegative(form));
                if !is_plain {
                    return None;
                }
                let pred = if value { *pred } else { pred.negated() };
                let (up, down) = (b.minus(&a), a.minus(&b));
                let strictly = if self.has(Fault::Negation) && !value { -2 } else { -1 };
                let (below, above) = (up.clone().shifted(strictly), down.clone().shifted(strictly));
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
        let mut all = rows.to_vec();
        all.extend_from_slice(&self.rows);
        if self.products.is_empty() {
            return self.is_impossible(&mut all, 0, MAX_CASES);
        }
        let mut more = all.clone();
        more.extend(self.derived(&all));
        if self.is_impossible(&mut more, 0, MAX_CASES) {
            return true;
        }
        // Relations of variables that products differ in are multiplied, too.
        let relations = self.relations(&more);
        if relations.is_empty() {
            return false;
        }
        let rows = [relations.as_slice(), &all].concat();
        more.extend(self.derived(&rows));
        more.extend(relations);
        self.is_impossible(&mut more, 0, MAX_CASES)
    }

    /// Returns products of rows.
    fn derived(&self, rows: &[Linear]) -> Vec<Linear> {
        let mut least: FxHashMap<Unknown, i128> = FxHashMap::default();
        for row in rows {
            // f x + c >= 0 with f > 0: x is at least -c / f, rounded up.
            if let [(var, factor @ 1..)] = row.factors[..] {
                let bound = -row.constant.div_euclid(factor);
                let known = least.entry(var).or_insert(bound);
                *known = bound.max(*known);
            }
        }
        let any = self.has(Fault::Sign).then_some(0);
        self.products.derived(rows, &|var| least.get(&var).copied().or(any))
    }

    /// Returns relations `x >= y` and `x > y` that follow from rows, of variables that products
    /// differ in.
    fn relations(&self, rows: &[Linear]) -> Vec<Linear> {
        let mut found = Vec::new();
        let mut rows = rows.to_vec();
        let mut follows = |relation: &Linear| {
            rows.push(Linear::constant(-1).minus(relation));
            let is_impossible = is_contradictory(&rows, self.most_rows);
            rows.pop();
            is_impossible
        };
        for (x, y) in self.products.pairs().into_iter().take(self.most_rows / ROWS_OF_A_PAIR) {
            for (x, y) in [(x, y), (y, x)] {
                let relation = Linear::var(x).minus(&Linear::var(y));
                let strict = relation.clone().shifted(-1);
                if follows(&strict) {
                    found.push(strict);
                } else if follows(&relation) {
                    found.push(relation);
                }
            }
        }
        found
    }

    /// Returns true if the rows, and the cases from `first` on, contradict each other. `most`: the
    /// number of cases that may be distinguished.
    fn is_impossible(&self, rows: &mut Vec<Linear>, first: usize, most: usize) -> bool {
        if is_contradictory(rows, self.most_rows) {
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
