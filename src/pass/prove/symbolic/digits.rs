//! Digits of a position: variables with factors, some of which are symbols.
//!
//! The digits are a guess. The caller computes the position again from the values of the digits,
//! and compares.

use crate::pass::prove::term::{Fun, Node, Term, Terms, Var};

/// Part of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole(Var),
    /// The quotient by a term of symbols, rounded down.
    Quotient(Var, Term),
    /// The remainder of this division.
    Remainder(Var, Term),
}

impl Part {
    pub fn var(&self) -> &Var {
        match self {
            Part::Whole(var) | Part::Quotient(var, _) | Part::Remainder(var, _) => var,
        }
    }
}

/// Part of a variable with its factor: a number and terms of symbols.
#[derive(Clone, Debug)]
pub struct Digit {
    pub part: Part,
    pub factor: i128,
    pub symbols: Vec<Term>,
}

/// Returns a position as a constant and digits with positive factors, the largest one first.
pub fn digits(terms: &Terms, position: Term) -> Option<(i128, Vec<Digit>)> {
    let (constant, mut digits) = sum(terms, position)?;
    digits.retain(|digit| digit.factor != 0);
    // A factor with more symbols is assumed to be larger.
    crate::util::sort::by_key(&mut digits, |digit| std::cmp::Reverse((digit.symbols.len(), digit.factor)));
    digits.iter().all(|digit| digit.factor > 0).then_some((constant, digits))
}

/// Returns true if a term depends on symbols alone.
pub fn is_symbolic(terms: &Terms, term: Term) -> bool {
    terms.data_of(term).is_none() && terms.vars(term).iter().all(|var| matches!(var, Var::Symbol(_)))
}

/// Returns the constant and the digits of a term.
fn sum(terms: &Terms, term: Term) -> Option<(i128, Vec<Digit>)> {
    let (fun, args) = match terms.node(term) {
        Node::Constant(value) => return Some((i128::from(*value), Vec::new())),
        Node::Var(Var::Symbol(_)) | Node::Data(..) => return None,
        Node::Var(var) => return Some((0, vec![Digit { part: Part::Whole(*var), factor: 1, symbols: Vec::new() }])),
        Node::Apply(fun, _, args) => (fun, args),
    };
    match fun {
        Fun::Add | Fun::Sub => {
            let sign = if *fun == Fun::Add { 1 } else { -1 };
            let (constant, mut digits) = sum(terms, args[0])?;
            let (other, others) = sum(terms, args[1])?;
            for digit in others {
                let is_same = |known: &&mut Digit| known.part == digit.part && known.symbols == digit.symbols;
                match digits.iter_mut().find(is_same) {
                    Some(known) => known.factor += sign * digit.factor,
                    None => digits.push(Digit { factor: sign * digit.factor, ..digit }),
                }
            }
            Some((constant + sign * other, digits))
        }
        Fun::Mul => {
            let (by, of) = if is_symbolic(terms, args[0]) { (args[0], args[1]) } else { (args[1], args[0]) };
            let (constant, mut digits) = sum(terms, of)?;
            match terms.as_constant(by) {
                Some(number) => {
                    digits.iter_mut().for_each(|digit| digit.factor = digit.factor.saturating_mul(number.into()));
                    Some((constant.saturating_mul(number.into()), digits))
                }
                None if is_symbolic(terms, by) && constant == 0 => {
                    digits.iter_mut().for_each(|digit| digit.symbols.push(by));
                    Some((0, digits))
                }
                None => None,
            }
        }
        Fun::Div(..) | Fun::Rem(_) if is_symbolic(terms, args[1]) => {
            let Node::Var(var) = terms.node(args[0]) else { return None };
            let part =
                if matches!(fun, Fun::Rem(_)) { Part::Remainder(*var, args[1]) } else { Part::Quotient(*var, args[1]) };
            Some((0, vec![Digit { part, factor: 1, symbols: Vec::new() }]))
        }
        Fun::Extend(..) | Fun::Truncate => sum(terms, args[0]),
        _ => None,
    }
}
