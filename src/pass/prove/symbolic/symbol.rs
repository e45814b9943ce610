//! Symbols: integers of a launch that a proof leaves open.

use std::cell::Cell;
use std::fmt;
use std::ops::{Add, Mul, RangeInclusive, Sub};
use std::sync::{Mutex, PoisonError};

/// Expression of a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expr {
    /// Any integer of this range.
    Any {
        name: &'static str,
        lo: i64,
        hi: i64,
    },
    Constant(i64),
    Sum(Symbol, Symbol),
    Difference(Symbol, Symbol),
    Product(Symbol, Symbol),
    /// Quotient by a positive number, rounded up.
    Quotient(Symbol, i64),
}

/// Integer of a launch that [`prove_for_all`](crate::prove_for_all) leaves open: an extent, a
/// scalar, a number of tile blocks.
///
/// A symbol is any integer of a range, or an expression of such integers: sums, differences,
/// products, and quotients rounded up ([`Symbol::div_ceil`]). A multiple of 16 is `m * 16`.
///
/// Symbols of a process are never freed.
///
/// ```
/// use cutlet as ct;
///
/// let n = ct::Symbol::new("n", 1..=1 << 20);
/// assert_eq!((n * 4 + 3).to_string(), "n * 4 + 3");
/// assert_eq!(n.div_ceil(256).to_string(), "ceil(n / 256)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(u32);

/// Word of a parameter, and its symbol if it has one.
type SymbolicWord = (u64, Option<Symbol>);

/// Launch whose grid and words are symbols.
#[derive(Clone, Debug)]
pub(crate) struct SymbolicLaunch {
    pub grid: [Symbol; 3],
    pub words: Vec<SymbolicWord>,
}

static TABLE: Mutex<Vec<Expr>> = Mutex::new(Vec::new());

thread_local! {
    /// Symbol of the word that is being packed.
    static PACKED: Cell<Option<Symbol>> = const { Cell::new(None) };
}

impl Symbol {
    /// Returns a new symbol: any integer of this range. The name is for messages.
    ///
    /// # Panics
    /// If the range is empty, or has a negative number.
    ///
    /// ```
    /// let n = cutlet::Symbol::new("n", 1..=1000);
    /// assert_ne!(n, cutlet::Symbol::new("n", 1..=1000));
    /// ```
    pub fn new(name: &'static str, range: RangeInclusive<i64>) -> Symbol {
        let (lo, hi) = range.into_inner();
        assert!(0 <= lo && lo <= hi, "the symbol `{name}` is any of {lo}..={hi}: no negative number, and at least one");
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        table.push(Expr::Any { name, lo, hi });
        Symbol(table.len() as u32 - 1)
    }

    /// Returns the symbol of an expression. Equal expressions have equal symbols.
    fn of(expr: Expr) -> Symbol {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = table.iter().position(|known| *known == expr).unwrap_or_else(|| {
            table.push(expr);
            table.len() - 1
        });
        Symbol(place as u32)
    }

    /// Returns the quotient by a number, rounded up: the number of tiles of an extent.
    ///
    /// # Panics
    /// If the divisor is 0.
    ///
    /// ```
    /// assert_eq!(cutlet::Symbol::from(1000).div_ceil(256).to_string(), "4");
    /// ```
    #[must_use]
    pub fn div_ceil(self, divisor: usize) -> Symbol {
        assert!(divisor > 0, "a quotient by 0");
        let divisor = i64::try_from(divisor).unwrap_or(i64::MAX);
        match self.expr() {
            Expr::Constant(value) => Symbol::of(Expr::Constant(ceil(value, divisor))),
            _ => Symbol::of(Expr::Quotient(self, divisor)),
        }
    }

    pub(crate) fn expr(self) -> Expr {
        TABLE.lock().unwrap_or_else(PoisonError::into_inner)[self.0 as usize].clone()
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the least and the greatest value.
    pub(crate) fn range(self) -> (i64, i64) {
        let clamp = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        match self.expr() {
            Expr::Any { lo, hi, .. } => (lo, hi),
            Expr::Constant(value) => (value, value),
            Expr::Sum(a, b) => (a.range().0.saturating_add(b.range().0), a.range().1.saturating_add(b.range().1)),
            Expr::Difference(a, b) => {
                (a.range().0.saturating_sub(b.range().1), a.range().1.saturating_sub(b.range().0))
            }
            Expr::Product(a, b) => {
                let ((a, b), (c, d)) = (a.range(), b.range());
                let all = [(a, c), (a, d), (b, c), (b, d)].map(|(x, y)| i128::from(x) * i128::from(y));
                (clamp(all.into_iter().fold(i128::MAX, i128::min)), clamp(all.into_iter().fold(i128::MIN, i128::max)))
            }
            Expr::Quotient(a, by) => (ceil(a.range().0, by), ceil(a.range().1, by)),
        }
    }

    /// Returns true if all values are multiples of a number.
    fn is_multiple_of(self, number: i64) -> bool {
        match self.expr() {
            Expr::Any { lo, hi, .. } => lo == hi && lo % number == 0,
            Expr::Constant(value) => value % number == 0,
            Expr::Sum(a, b) | Expr::Difference(a, b) => a.is_multiple_of(number) && b.is_multiple_of(number),
            Expr::Product(a, b) => a.is_multiple_of(number) || b.is_multiple_of(number),
            Expr::Quotient(..) => false,
        }
    }

    /// Returns a number that has the width of the greatest value, and is a multiple of 16 if all
    /// values are.
    pub(crate) fn representative(self) -> usize {
        let most = self.range().1.max(0);
        let is_accidental = most > 0 && most % 16 == 0 && !self.is_multiple_of(16);
        (most - i64::from(is_accidental)) as usize
    }

    /// Returns the value for values of the open symbols; `None` if it exceeds 64 bits.
    pub(crate) fn value(self, of: &dyn Fn(Symbol) -> i64) -> Option<i64> {
        match self.expr() {
            Expr::Any { .. } => Some(of(self)),
            Expr::Constant(value) => Some(value),
            Expr::Sum(a, b) => a.value(of)?.checked_add(b.value(of)?),
            Expr::Difference(a, b) => a.value(of)?.checked_sub(b.value(of)?),
            Expr::Product(a, b) => a.value(of)?.checked_mul(b.value(of)?),
            Expr::Quotient(a, by) => Some(ceil(a.value(of)?, by)),
        }
    }

    /// Adds the open symbols of the expression.
    pub(crate) fn open(self, all: &mut Vec<Symbol>) {
        match self.expr() {
            Expr::Any { .. } if !all.contains(&self) => all.push(self),
            Expr::Any { .. } | Expr::Constant(_) => {}
            Expr::Sum(a, b) | Expr::Difference(a, b) | Expr::Product(a, b) => {
                a.open(all);
                b.open(all);
            }
            Expr::Quotient(a, _) => a.open(all),
        }
    }

    /// Passes the word of a parameter that has this symbol.
    pub(crate) fn pack(self, word: u64, params: &mut dyn FnMut(u64)) {
        PACKED.set(Some(self));
        params(word);
        PACKED.set(None);
    }

    /// Returns the symbol of the word that is being packed.
    pub(crate) fn packed() -> Option<Symbol> {
        PACKED.get()
    }
}

fn ceil(value: i64, by: i64) -> i64 {
    value.div_euclid(by) + i64::from(value.rem_euclid(by) != 0)
}

impl From<usize> for Symbol {
    fn from(value: usize) -> Symbol {
        Symbol::of(Expr::Constant(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident $expr:ident $saturating:ident;)+) => {$(
        impl $operator for Symbol {
            type Output = Symbol;

            fn $method(self, other: Symbol) -> Symbol {
                let both = Expr::$expr(self, other);
                match (self.expr(), other.expr()) {
                    (Expr::Constant(a), Expr::Constant(b)) => {
                        Symbol::of(Expr::Constant(i64::$saturating(a, b)))
                    }
                    (_, Expr::Constant(1)) if matches!(both, Expr::Product(..)) => self,
                    _ => Symbol::of(both),
                }
            }
        }

        impl $operator<usize> for Symbol {
            type Output = Symbol;

            fn $method(self, other: usize) -> Symbol {
                $operator::$method(self, Symbol::from(other))
            }
        }
    )+};
}
operators! { Add add Sum saturating_add; Sub sub Difference saturating_sub; Mul mul Product saturating_mul; }

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factor = |symbol: Symbol| match symbol.expr() {
            Expr::Sum(..) | Expr::Difference(..) => format!("({symbol})"),
            _ => symbol.to_string(),
        };
        match self.expr() {
            Expr::Any { name, .. } => f.write_str(name),
            Expr::Constant(value) => write!(f, "{value}"),
            Expr::Sum(a, b) => write!(f, "{a} + {b}"),
            Expr::Difference(a, b) => write!(f, "{a} - {}", factor(b)),
            Expr::Product(a, b) => write!(f, "{} * {}", factor(a), factor(b)),
            Expr::Quotient(a, by) => write!(f, "ceil({} / {by})", factor(a)),
        }
    }
}
