//! Products of variables of a system. Each one is a variable of its own.
//!
//! * The product of two linear forms is a linear form of products.
//! * A form and a product that are both at least 0 have a product that is at least 0 (McCormick,
//!   1976). Such rows are derived only if each of their products is a variable already.
//!
//! All forms are sums of integers without a width: the caller shows that a term does not wrap.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::linear::{Linear, Unknown};

/// Limit of variables of one product.
const MAX_FACTORS: usize = 4;

/// Limit of products of one system.
const MAX_PRODUCTS: usize = 48;

/// Limit of products of variables in the product of two forms.
const MAX_PAIRS: usize = 16;

/// Limit of derived rows.
const MAX_ROWS: usize = 60;

/// Products of variables.
#[derive(Default)]
pub struct Products {
    /// The variables of each product in increasing order, by the variable of the product.
    factors: BTreeMap<Unknown, Vec<Unknown>>,
    vars: FxHashMap<Vec<Unknown>, Unknown>,
}

impl Products {
    pub fn is_empty(&self) -> bool {
        self.vars.is_empty()
    }

    /// Returns the product of two forms, `None` at a limit. `count`: the number of variables of the
    /// system.
    pub fn product(&mut self, a: &Linear, b: &Linear, count: &mut usize) -> Option<Linear> {
        if a.factors.len() * b.factors.len() > MAX_PAIRS {
            return None;
        }
        let alone = |form: &Linear| Linear { constant: 0, factors: form.factors.clone() };
        let mut sum = Linear::constant(a.constant.checked_mul(b.constant)?);
        sum = sum.plus(&alone(a), b.constant).plus(&alone(b), a.constant);
        for &(x, own) in &a.factors {
            for &(y, other) in &b.factors {
                let product = self.var(merged(&self.list(x), &self.list(y)), count)?;
                sum = sum.plus(&Linear::var(product), own.checked_mul(other)?);
            }
        }
        Some(sum)
    }

    /// Returns the variable of a product. The products of some of its variables are declared, too.
    fn var(&mut self, list: Vec<Unknown>, count: &mut usize) -> Option<Unknown> {
        if let Some(known) = self.find(&list) {
            return Some(known);
        }
        if list.len() > MAX_FACTORS || self.vars.len() >= MAX_PRODUCTS {
            return None;
        }
        if list.len() > 2 {
            for place in 0..list.len() {
                let mut part = list.clone();
                part.remove(place);
                self.var(part, count)?;
            }
        }
        let var = *count;
        *count += 1;
        self.factors.insert(var, list.clone());
        self.vars.insert(list, var);
        Some(var)
    }

    fn list(&self, var: Unknown) -> Vec<Unknown> {
        self.factors.get(&var).cloned().unwrap_or_else(|| vec![var])
    }

    fn find(&self, list: &[Unknown]) -> Option<Unknown> {
        if let [one] = list { Some(*one) } else { self.vars.get(list).copied() }
    }

    /// Returns pairs of variables that two products differ in.
    pub fn pairs(&self) -> Vec<(Unknown, Unknown)> {
        let mut found = Vec::new();
        for (number, a) in self.factors.values().enumerate() {
            for b in self.factors.values().skip(number + 1).filter(|b| b.len() == a.len()) {
                let (mut own, mut other) = (a.clone(), b.clone());
                own.retain(|var| !b.contains(var));
                other.retain(|var| !a.contains(var));
                if let ([x], [y]) = (own.as_slice(), other.as_slice())
                    && !found.contains(&(*x, *y))
                {
                    found.push((*x, *y));
                }
            }
        }
        found
    }

    /// Returns products of rows with products of variables that are at least 0.
    ///
    /// `least`: the lower bound of a variable.
    pub fn derived(&self, rows: &[Linear], least: &dyn Fn(Unknown) -> Option<i128>) -> Vec<Linear> {
        let (mut found, mut done) = (Vec::new(), FxHashSet::default());
        for (number, row) in rows.iter().enumerate() {
            for &(var, _) in &row.factors {
                let own = self.list(var);
                for list in self.factors.values() {
                    let Some(by) = without(list, &own) else { continue };
                    if by.is_empty() || !done.insert((number, by.clone())) {
                        continue;
                    }
                    found.extend(self.multiplied(row, &by, least));
                    if found.len() >= MAX_ROWS {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// Returns the product of a row that is at least 0 with a product of variables that is at least
    /// 0; with `u - l` for one variable `u >= l >= 0`.
    fn multiplied(&self, row: &Linear, by: &[Unknown], least: &dyn Fn(Unknown) -> Option<i128>) -> Option<Linear> {
        if !by.iter().all(|&var| least(var).is_some_and(|bound| bound >= 0)) {
            return None;
        }
        let mut result = Linear::default();
        if row.constant != 0 {
            result = result.plus(&Linear::var(self.find(by)?), row.constant);
        }
        for &(var, factor) in &row.factors {
            result = result.plus(&Linear::var(self.find(&merged(&self.list(var), by))?), factor);
        }
        match by {
            [one] => Some(result.plus(row, -least(*one)?)),
            _ => Some(result),
        }
    }
}

/// Returns the variables of both lists in increasing order.
fn merged(a: &[Unknown], b: &[Unknown]) -> Vec<Unknown> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all
}

/// Returns a list without the variables of a part, `None` if it does not contain them.
fn without(list: &[Unknown], part: &[Unknown]) -> Option<Vec<Unknown>> {
    let mut rest = list.to_vec();
    for var in part {
        rest.remove(rest.iter().position(|other| other == var)?);
    }
    Some(rest)
}
