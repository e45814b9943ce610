//! Random terms of few bits, which wrap often: a proof holds for all values. Planted faults of the
//! procedure are found.

use super::decide::Launches;
use super::linear::MAX_ROWS;
use super::system::{Execution, Fault, System};
use crate::ir::{CmpPred, Rounding, Sign};
use crate::pass::prove::interval::Ranges;
use crate::pass::prove::term::{Fun, Node, Term, Terms, Var, evaluate};

/// Width of the integers: wraps are frequent.
const BITS: u32 = 7;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// A random system: variables with ranges, conditions, and one more condition.
struct Case {
    terms: Terms,
    vars: Vec<Var>,
    ranges: Ranges,
    conditions: Vec<Term>,
    goal: Term,
}

fn index(random: &mut Random, terms: &mut Terms, vars: &[Var], depth: usize) -> Term {
    match random.below(if depth == 0 { 4 } else { 10 }) {
        0 => terms.constant(random.below(9) as i64),
        1..=3 => terms.var(vars[random.below(vars.len())]),
        code => {
            let (a, b) = (index(random, terms, vars, depth - 1), index(random, terms, vars, depth - 1));
            let sign = Sign::Signed;
            let rounding = [Rounding::Zero, Rounding::NegInf, Rounding::PosInf][random.below(3)];
            let fun = match code {
                4 => Fun::Add,
                5 => Fun::Sub,
                6 | 7 => Fun::Mul,
                8 => [Fun::Div(sign, rounding), Fun::Rem(sign)][random.below(2)].clone(),
                _ => [Fun::Min(sign), Fun::Max(sign)][random.below(2)].clone(),
            };
            terms.apply(fun, BITS, &[a, b])
        }
    }
}

fn condition(random: &mut Random, terms: &mut Terms, a: Term, b: Term) -> Term {
    let preds = [CmpPred::Lt, CmpPred::Lt, CmpPred::Le, CmpPred::Gt, CmpPred::Ge, CmpPred::Eq, CmpPred::Ne];
    let sign = [Sign::Signed, Sign::Signed, Sign::Unsigned][random.below(3)];
    terms.apply(Fun::Compare(preds[random.below(preds.len())], sign), BITS, &[a, b])
}

impl Case {
    fn new(seed: u64) -> Case {
        let (mut random, mut terms) = (Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)), Terms::default());
        let random = &mut random;
        let vars: Vec<Var> = (0..4).map(Var::Symbol).collect();
        let mut ranges = Ranges::default();
        for &var in &vars {
            let least = random.below(4) as i64 - 2;
            ranges.insert(var, (least, least + random.below(9) as i64));
        }
        let mut conditions = Vec::new();
        let goal = if random.below(2) == 0 {
            for _ in 0..random.below(3) {
                let (a, b) = (index(random, &mut terms, &vars, 1), index(random, &mut terms, &vars, 1));
                conditions.push(condition(random, &mut terms, a, b));
            }
            let (a, b) = (index(random, &mut terms, &vars, 3), index(random, &mut terms, &vars, 2));
            condition(random, &mut terms, a, b)
        } else {
            // row < height, column < width, and the position in the array.
            let [row, height, column, width] = [0, 1, 2, 3].map(|number| terms.var(vars[number]));
            let zero = terms.constant(0);
            for (pred, a, b) in [
                (CmpPred::Lt, row, height),
                (CmpPred::Lt, column, width),
                (CmpPred::Ge, row, zero),
                (CmpPred::Ge, column, zero),
            ] {
                if random.below(9) > 0 {
                    conditions.push(terms.apply(Fun::Compare(pred, Sign::Signed), BITS, &[a, b]));
                }
            }
            let line = terms.apply(Fun::Mul, BITS, &[row, width]);
            let position = terms.apply(Fun::Add, BITS, &[line, column]);
            let all = terms.apply(Fun::Mul, BITS, &[height, width]);
            match random.below(3) {
                0 => condition(random, &mut terms, position, all),
                1 => {
                    let back = terms.apply(Fun::Div(Sign::Signed, Rounding::Zero), BITS, &[position, width]);
                    condition(random, &mut terms, back, row)
                }
                _ => {
                    let back = terms.apply(Fun::Rem(Sign::Signed), BITS, &[position, width]);
                    condition(random, &mut terms, back, column)
                }
            }
        };
        Case { terms, vars, ranges, conditions, goal }
    }

    /// Returns true if the procedure shows that the goal follows.
    fn is_proved(&self, fault: Option<Fault>) -> bool {
        let (terms, ranges) = (&self.terms, &self.ranges);
        let mut system = System::new(terms).with_fault(fault);
        let mut execution = Execution::new(0, terms, ranges, &self.conditions);
        for &condition in &self.conditions {
            system.assume(&mut execution, condition, true);
        }
        system.implies(&mut execution, self.goal)
    }

    fn value(&self, term: Term, values: &[i64]) -> i64 {
        match self.terms.node(term) {
            Node::Constant(value) => *value,
            Node::Var(Var::Symbol(number)) => values[*number as usize],
            Node::Apply(fun, bits, args) => {
                let args: Vec<i64> = args.iter().map(|&arg| self.value(arg, values)).collect();
                evaluate(fun, *bits, &args)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns values that satisfy the conditions and not the goal.
    fn counterexample(&self) -> Option<Vec<i64>> {
        let ranges: Vec<(i64, i64)> = self.vars.iter().map(|var| self.ranges[var]).collect();
        let mut values: Vec<i64> = ranges.iter().map(|(lo, _)| *lo).collect();
        loop {
            let holds = |&condition: &Term| self.value(condition, &values) != 0;
            if self.conditions.iter().all(holds) && !holds(&self.goal) {
                return Some(values);
            }
            let next = (0..values.len()).find(|&place| values[place] < ranges[place].1)?;
            values[next] += 1;
            (0..next).for_each(|place| values[place] = ranges[place].0);
        }
    }

    fn is_possible(&self) -> bool {
        let launches =
            Launches { terms: &self.terms, ranges: &self.ranges, conditions: &self.conditions, most_rows: MAX_ROWS };
        !launches.is_impossible()
    }
}

/// Returns the numbers of goals that hold, of proofs, and of wrong proofs.
fn compared(seeds: std::ops::Range<u64>, fault: Option<Fault>) -> [usize; 3] {
    let mut counts = [0; 3];
    for seed in seeds {
        let case = Case::new(seed);
        let (proved, counterexample) = (case.is_proved(fault), case.counterexample());
        counts[0] += usize::from(counterexample.is_none());
        counts[1] += usize::from(proved && case.is_possible());
        if let (true, Some(values)) = (proved, counterexample) {
            if fault.is_none() {
                println!("{seed}: {values:?}");
            }
            counts[2] += 1;
        }
    }
    counts
}

#[test]
fn proofs_hold_for_all_values() {
    let first = std::env::var("CUTLET_RANDOM_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let count = std::env::var("CUTLET_RANDOM_COUNT").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let [hold, proved, wrong] = compared(first..first + count, None);
    println!("{count} goals: {hold} hold, {proved} are proved");
    assert_eq!(wrong, 0);
    assert!(proved as u64 * 12 > count, "{proved} of {hold}");
}

#[test]
fn planted_faults_of_the_procedure_are_found() {
    for fault in [Fault::Wrap, Fault::Sign, Fault::Remainder, Fault::Product, Fault::Negation] {
        let found = (0..1500).find(|&seed| compared(seed..seed + 1, Some(fault))[2] > 0);
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}
