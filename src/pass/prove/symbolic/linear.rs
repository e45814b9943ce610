//! Systems of linear inequalities over integers.
//!
//! Fourier-Motzkin elimination with the tightening of constants by the greatest common divisor of
//! the factors (Pugh, "The Omega test", 1991: real shadows). A contradiction is certain; its
//! absence proves nothing. Equalities are substituted before.

use crate::util::collect::CollectVec as _;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Number of a variable of a system.
pub type Unknown = usize;

/// Limit of inequalities of one system.
pub const MAX_ROWS: usize = 300;

/// Limit of factors. Larger ones end the elimination.
const LARGEST: i128 = 1 << 90;

/// Sum of a constant and of products of variables with factors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linear {
    pub constant: i128,
    /// In the order of the variables, without factors of 0.
    pub factors: Vec<(Unknown, i128)>,
}

impl Linear {
    pub fn constant(constant: i128) -> Linear {
        Linear { constant, factors: Vec::new() }
    }

    pub fn var(var: Unknown) -> Linear {
        Linear { constant: 0, factors: vec![(var, 1)] }
    }

    /// Returns the sum of this form and the product of another one.
    pub fn plus(&self, other: &Linear, factor: i128) -> Linear {
        let mut sum = Linear::constant(self.constant.saturating_add(other.constant.saturating_mul(factor)));
        let (mut own, mut others) = (self.factors.iter().peekable(), other.factors.iter().peekable());
        loop {
            let (var, value) = match (own.peek(), others.peek()) {
                (None, None) => return sum,
                (Some(&&(a, x)), Some(&&(b, y))) if a == b => {
                    own.next();
                    others.next();
                    (a, x.saturating_add(y.saturating_mul(factor)))
                }
                (Some(&&(a, x)), other) if other.is_none_or(|&&(b, _)| a < b) => {
                    own.next();
                    (a, x)
                }
                (_, Some(&&(b, y))) => {
                    others.next();
                    (b, y.saturating_mul(factor))
                }
                (Some(_), None) => unreachable!("the second arm has this case"),
            };
            if value != 0 {
                sum.factors.push((var, value));
            }
        }
    }

    pub fn minus(&self, other: &Linear) -> Linear {
        self.plus(other, -1)
    }

    pub fn shifted(mut self, by: i128) -> Linear {
        self.constant = self.constant.saturating_add(by);
        self
    }

    pub fn factor(&self, var: Unknown) -> i128 {
        self.factors.iter().find(|(known, _)| *known == var).map_or(0, |&(_, factor)| factor)
    }

    /// Divides by the common divisor of the factors, and rounds the constant down.
    fn tightened(mut self) -> Linear {
        let divisor = self.factors.iter().fold(0u128, |all, &(_, factor)| gcd(all, factor.unsigned_abs()));
        if divisor > 1 {
            let divisor = divisor as i128;
            self.constant = self.constant.div_euclid(divisor);
            self.factors.iter_mut().for_each(|(_, factor)| *factor /= divisor);
        }
        self
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Inequalities: the constant of each list of factors. Of equal lists the smallest constant
/// implies the other ones.
type Rows = IndexMap<Vec<(Unknown, i128)>, i128, FxBuildHasher>;

/// Returns true if no integers make all these forms at least 0. False if that is not decided, or
/// would need more than `most_rows` inequalities.
pub fn is_contradictory(forms: &[Linear], most_rows: usize) -> bool {
    let mut rows = Rows::default();
    if !forms.iter().all(|form| add(&mut rows, form.clone())) {
        return true;
    }
    loop {
        if rows.len() > most_rows || !rows.iter().all(|(factors, &constant)| is_small(factors, constant)) {
            return false;
        }
        match equality(&rows) {
            Equality::Contradiction => return true,
            Equality::None => {}
            Equality::Found(equal, var) => {
                let Some(next) = substituted(rows, &equal, var) else { return true };
                rows = next;
                continue;
            }
        }
        let Some(var) = cheapest(&rows) else { return false };
        let (mut lower, mut upper, mut rest) = (Vec::new(), Vec::new(), Rows::default());
        for (factors, constant) in rows {
            let row = Linear { constant, factors };
            match row.factor(var) {
                0 => {
                    rest.insert(row.factors, constant);
                }
                1.. => lower.push(row),
                _ => upper.push(row),
            }
        }
        for low in &lower {
            for high in &upper {
                // low: a x + p >= 0, high: -b x + q >= 0, so b p + a q >= 0.
                let (a, b) = (low.factor(var), -high.factor(var));
                let divisor = gcd(a.unsigned_abs(), b.unsigned_abs()) as i128;
                if !add(&mut rest, Linear::default().plus(low, b / divisor).plus(high, a / divisor)) {
                    return true;
                }
            }
            if rest.len() > most_rows {
                return false;
            }
        }
        rows = rest;
    }
}

fn is_small(factors: &[(Unknown, i128)], constant: i128) -> bool {
    constant.abs() < LARGEST && factors.iter().all(|(_, factor)| factor.abs() < LARGEST)
}

/// Adds an inequality. Returns false for a number below 0.
fn add(rows: &mut Rows, row: Linear) -> bool {
    let row = row.tightened();
    if row.factors.is_empty() {
        return row.constant >= 0;
    }
    let known = rows.entry(row.factors).or_insert(row.constant);
    *known = row.constant.min(*known);
    true
}

enum Equality {
    None,
    /// A form that is 0, and a variable with the factor 1 or -1 in it.
    Found(Linear, Unknown),
    Contradiction,
}

/// Returns an equality that is stated by two inequalities.
fn equality(rows: &Rows) -> Equality {
    for (factors, &constant) in rows {
        let negated: Vec<(Unknown, i128)> = factors.iter().map(|&(var, factor)| (var, -factor)).collect_vec();
        let Some(&other) = rows.get(&negated) else { continue };
        if constant + other < 0 {
            return Equality::Contradiction;
        }
        let unit = factors.iter().find(|(_, factor)| factor.abs() == 1);
        if let Some(&(var, _)) = unit.filter(|_| constant + other == 0) {
            return Equality::Found(Linear { constant, factors: factors.clone() }, var);
        }
    }
    Equality::None
}

/// Returns the rows without a variable that an equality determines, `None` for a contradiction.
/// Unlike an elimination by inequalities, this is exact for integers.
fn substituted(rows: Rows, equal: &Linear, var: Unknown) -> Option<Rows> {
    let own = equal.factor(var);
    let mut next = Rows::default();
    for (factors, constant) in rows {
        let row = Linear { constant, factors };
        let factor = row.factor(var);
        add(&mut next, row.plus(equal, -factor * own)).then_some(())?;
    }
    Some(next)
}

/// Returns the variable whose elimination makes the fewest inequalities.
fn cheapest(rows: &Rows) -> Option<Unknown> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for &(var, factor) in rows.keys().flatten() {
        counts.resize(counts.len().max(var + 1), (0, 0));
        let (lower, upper) = &mut counts[var];
        *(if factor > 0 { lower } else { upper }) += 1;
    }
    let used = counts.iter().enumerate().filter(|(_, (lower, upper))| lower + upper > 0);
    used.min_by_key(|(_, (lower, upper))| lower * upper).map(|(var, _)| var)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(constant: i128, factors: &[(Unknown, i128)]) -> Linear {
        Linear { constant, factors: factors.to_vec() }
    }

    #[test]
    fn contradictions_are_certain() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        let (mut found, mut possible) = (0, 0);
        for _ in 0..2000 {
            let mut rows = Vec::new();
            for var in 0..3 {
                rows.push(row(4, &[(var, 1)]));
                rows.push(row(4, &[(var, -1)]));
            }
            for _ in 0..1 + below(5) {
                let constant = below(13) as i128 - 9;
                let factors = (0..3).map(|var| (var, below(9) as i128 - 4)).filter(|(_, factor)| *factor != 0);
                rows.push(Linear { constant, factors: factors.collect() });
            }
            let holds = |x: [i128; 3]| {
                rows.iter().all(|row| row.factors.iter().fold(row.constant, |sum, &(var, f)| sum + f * x[var]) >= 0)
            };
            let any = (0..729).any(|n| holds([n / 81 - 4, n / 9 % 9 - 4, n % 9 - 4]));
            let refuted = is_contradictory(&rows, MAX_ROWS);
            assert!(!(any && refuted), "{rows:?}");
            found += usize::from(refuted);
            possible += usize::from(!any);
        }
        assert!(found * 10 > possible * 9, "{found} of {possible}");
    }

    #[test]
    fn constants_are_rounded() {
        // 0 < 4 x < 4 has no integer.
        assert!(is_contradictory(&[row(-1, &[(0, 4)]), row(3, &[(0, -4)])], MAX_ROWS));
        assert!(!is_contradictory(&[row(-1, &[(0, 4)]), row(4, &[(0, -4)])], MAX_ROWS));
    }
}
