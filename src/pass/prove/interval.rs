//! Intervals of terms, refined by conditions.
//!
//! A condition that compares a term with another one bounds every occurrence of the term. The
//! bounds of an expression are those of interval arithmetic; a result that may wrap has those of
//! its type.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::term::{Fun, Node, Term, Terms, Var, evaluate};
use crate::ir::{CmpPred, Rounding, Sign};

/// Closed interval.
pub(super) type Interval = (i64, i64);

/// Ranges of variables.
pub(super) type Ranges = FxHashMap<Var, Interval>;

/// Intervals of terms under conditions.
pub(super) struct Intervals<'t> {
    terms: &'t Terms,
    ranges: &'t Ranges,
    known: FxHashMap<Term, Interval>,
    bounds: FxHashMap<Term, Interval>,
}

/// Returns the numbers of a type.
pub(super) fn type_bounds(bits: u32) -> Interval {
    match bits {
        1 => (0, 1),
        64.. => (i64::MIN, i64::MAX),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// Returns the interval, or that of the type if it exceeds the type.
fn fitting((lo, hi): (i128, i128), bits: u32) -> Interval {
    let (least, most) = type_bounds(bits);
    if lo < i128::from(least) || hi > i128::from(most) { (least, most) } else { (lo as i64, hi as i64) }
}

fn wide((lo, hi): Interval) -> (i128, i128) {
    (lo.into(), hi.into())
}

/// Returns the bounds of a function that is monotonic in each operand.
fn corners(a: (i128, i128), b: (i128, i128), f: impl Fn(i128, i128) -> i128) -> (i128, i128) {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    (all.into_iter().fold(i128::MAX, i128::min), all.into_iter().fold(i128::MIN, i128::max))
}

impl<'t> Intervals<'t> {
    /// Returns the intervals under the conjunction of these conditions.
    pub fn new(terms: &'t Terms, ranges: &'t Ranges, conditions: &[Term]) -> Intervals<'t> {
        let mut intervals = Intervals { terms, ranges, known: FxHashMap::default(), bounds: FxHashMap::default() };
        for _ in 0..2 {
            for &condition in conditions {
                intervals.assume(condition, true);
            }
            intervals.known.clear();
        }
        intervals
    }

    /// Refines the intervals by a condition.
    fn assume(&mut self, condition: Term, value: bool) {
        let terms = self.terms;
        let Node::Apply(fun, bits, args) = terms.node(condition) else { return };
        match fun {
            Fun::And if *bits == 1 && value => args.iter().for_each(|&arg| self.assume(arg, true)),
            Fun::Or if *bits == 1 && !value => args.iter().for_each(|&arg| self.assume(arg, false)),
            Fun::Xor if *bits == 1 && terms.as_constant(args[1]) == Some(1) => self.assume(args[0], !value),
            Fun::Compare(pred, sign) if *bits > 1 => {
                let pred = if value { *pred } else { pred.negated() };
                self.compared(pred, *sign, args[0], args[1]);
                self.compared(pred.swapped(), *sign, args[1], args[0]);
            }
            _ => {}
        }
    }

    /// Bounds `a` by the interval of `b`.
    fn compared(&mut self, pred: CmpPred, sign: Sign, a: Term, b: Term) {
        let (lo, hi) = self.of(b);
        let own = self.of(a);
        if sign == Sign::Unsigned && (lo < 0 || own.0 < 0 && !matches!(pred, CmpPred::Lt | CmpPred::Le | CmpPred::Eq)) {
            return;
        }
        // An unsigned number below one without the sign bit has no sign bit.
        let least = if sign == Sign::Unsigned { 0 } else { i64::MIN };
        let bound = match pred {
            CmpPred::Eq => (lo, hi),
            CmpPred::Lt => (least, hi.saturating_sub(1)),
            CmpPred::Le => (least, hi),
            CmpPred::Gt => (lo.saturating_add(1), i64::MAX),
            CmpPred::Ge => (lo, i64::MAX),
            CmpPred::Ne => return,
        };
        let (from, to) = self.bounds.get(&a).copied().unwrap_or((i64::MIN, i64::MAX));
        self.bounds.insert(a, (from.max(bound.0), to.min(bound.1)));
        self.known.clear();
    }

    /// Returns the interval of a term. It is empty (the first number exceeds the second one) only
    /// if the conditions contradict each other.
    pub fn of(&mut self, term: Term) -> Interval {
        if let Some(&known) = self.known.get(&term) {
            return known;
        }
        let (lo, hi) = self.derived(term);
        let (from, to) = self.bounds.get(&term).copied().unwrap_or((i64::MIN, i64::MAX));
        let interval = (lo.max(from), hi.min(to));
        self.known.insert(term, interval);
        interval
    }

    fn derived(&mut self, term: Term) -> Interval {
        let terms = self.terms;
        match terms.node(term) {
            Node::Constant(value) => (*value, *value),
            Node::Var(var) => self.ranges.get(var).copied().unwrap_or((i64::MIN, i64::MAX)),
            Node::Data(..) => (i64::MIN, i64::MAX),
            Node::Apply(fun, bits, args) => {
                let operands: Vec<Interval> = args.iter().map(|&arg| self.of(arg)).collect_vec();
                if operands.iter().any(|(lo, hi)| lo > hi) {
                    return type_bounds(*bits);
                }
                applied(fun, *bits, &operands)
            }
        }
    }
}

/// Returns the interval of a function of operands in these intervals.
fn applied(fun: &Fun, bits: u32, of: &[Interval]) -> Interval {
    let any = type_bounds(bits);
    if of.iter().all(|(lo, hi)| lo == hi) {
        let value = evaluate(fun, bits, &of.iter().map(|&(lo, _)| lo).collect_vec());
        return (value, value);
    }
    let nonnegative = of.iter().all(|(lo, _)| *lo >= 0);
    // Unsigned operands without a sign bit are signed ones.
    let plain = |sign: Sign| (nonnegative || sign == Sign::Signed) && bits > 1;
    match fun {
        Fun::Add => fitting((wide(of[0]).0 + wide(of[1]).0, wide(of[0]).1 + wide(of[1]).1), bits),
        Fun::Sub => fitting((wide(of[0]).0 - wide(of[1]).1, wide(of[0]).1 - wide(of[1]).0), bits),
        Fun::Mul => fitting(corners(wide(of[0]), wide(of[1]), i128::wrapping_mul), bits),
        Fun::Negate => fitting((-wide(of[0]).1, -wide(of[0]).0), bits),
        Fun::Min(sign) if plain(*sign) => (of[0].0.min(of[1].0), of[0].1.min(of[1].1)),
        Fun::Max(sign) if plain(*sign) => (of[0].0.max(of[1].0), of[0].1.max(of[1].1)),
        Fun::Div(sign, rounding) if plain(*sign) && of[1].0 > 0 => {
            let divided = |x: i128, y: i128| match rounding {
                Rounding::NegInf => x.div_euclid(y),
                Rounding::PosInf => -(-x).div_euclid(y),
                _ => x / y,
            };
            fitting(corners(wide(of[0]), wide(of[1]), divided), bits)
        }
        Fun::Rem(sign) if plain(*sign) && of[1].0 > 0 => {
            let most = of[1].1 - 1;
            (if of[0].0 >= 0 { 0 } else { of[0].0.max(-most) }, if of[0].1 <= 0 { 0 } else { of[0].1.min(most) })
        }
        Fun::And if nonnegative => (0, of[0].1.min(of[1].1)),
        Fun::And if bits > 1 && (of[0].0 >= 0 || of[1].0 >= 0) => (0, if of[0].0 >= 0 { of[0].1 } else { of[1].1 }),
        Fun::Or | Fun::Xor if nonnegative => {
            let most = of[0].1.max(of[1].1) as u64;
            (0, ((most + 1).next_power_of_two() - 1).min(any.1 as u64) as i64)
        }
        Fun::ShiftLeft if of[1].0 >= 0 && of[1].1 < i64::from(bits.min(63)) => {
            fitting(corners(wide(of[0]), wide(of[1]), |x, y| x << y), bits)
        }
        Fun::ShiftRight(sign) if plain(*sign) && of[1].0 >= 0 => {
            fitting(corners(wide(of[0]), wide(of[1]), |x, y| x >> y.min(127)), bits)
        }
        Fun::Compare(pred, sign) if *sign == Sign::Signed || nonnegative => {
            let ((a, b), (c, d)) = (of[0], of[1]);
            let (always, never) = match pred {
                CmpPred::Lt => (b < c, a >= d),
                CmpPred::Le => (b <= c, a > d),
                CmpPred::Gt => (a > d, b <= c),
                CmpPred::Ge => (a >= d, b < c),
                CmpPred::Eq => (false, b < c || d < a),
                CmpPred::Ne => (b < c || d < a, false),
            };
            if bits == 1 || !(always || never) { (0, 1) } else { (always.into(), always.into()) }
        }
        Fun::Compare(..) => (0, 1),
        Fun::Extend(sign, from) => match (sign, *from) {
            (Sign::Signed, 1) => (-1, 0),
            (Sign::Signed, _) => of[0],
            (Sign::Unsigned, _) if of[0].0 >= 0 => of[0],
            (Sign::Unsigned, 64..) => any,
            (Sign::Unsigned, from) => (0, (1 << from) - 1),
        },
        Fun::Truncate => fitting(wide(of[0]), bits),
        Fun::Select if of[0].0 > 0 || of[0].1 < 0 => of[1],
        Fun::Select => (of[1].0.min(of[2].0), of[1].1.max(of[2].1)),
        Fun::Table(table) => {
            let least = table.iter().copied().min().unwrap_or(0);
            (least.min(0), table.iter().copied().max().unwrap_or(0).max(0))
        }
        _ => any,
    }
}
