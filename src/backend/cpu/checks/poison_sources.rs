//! Sources of poison: user-written arithmetic whose result differs from the mathematical one.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::options::Checks;
use super::poison::{Poison, Source};
use crate::backend::cpu::interp::value::Words;
use crate::backend::cpu::ops::float::to_f64;
use crate::backend::cpu::ops::int;
use crate::backend::cpu::ops::shape::strides_of;
use crate::dtype::DType;
use crate::ir::{Loc, Op, Opcode, Sign, Written, fits};

/// A checked op with the values of its operands.
pub(super) struct CheckedOp {
    code: Opcode,
    loc: Loc,
    from: DType,
    to: DType,
    signs: [Sign; 2],
    operands: Vec<Rc<Words>>,
    /// Extents of the result.
    shape: Vec<usize>,
    /// Operand of a conversion from floats; else empty.
    floats: Vec<f64>,
}

impl CheckedOp {
    pub fn new(op: &Op, written: Written, types: [DType; 2], operands: Vec<Rc<Words>>, shape: Vec<usize>) -> CheckedOp {
        let ([from, to], signs) = (types, [written.from, written.to]);
        let floats = if op.code == Opcode::FToI { to_f64(from, &operands[0]).into_owned() } else { Vec::new() };
        CheckedOp { code: op.code, loc: op.loc, from, to, signs, operands, shape, floats }
    }

    /// Returns the poison of the result. `count` is its number of elements, which can exceed that
    /// of the type in the body of a reduction.
    pub fn poison(self, checks: Checks, count: usize) -> Option<Poison> {
        use Opcode as O;
        let wanted = match self.code {
            O::AddI | O::SubI | O::MulI => checks.overflow,
            O::ShlI | O::ShrI => checks.shifts,
            O::DivI | O::RemI => checks.division || checks.overflow,
            O::FToI | O::TruncI | O::ExtI => checks.casts,
            _ => false,
        };
        if !wanted {
            return None;
        }
        let wrong: Vec<bool> = (0..count).map(|i| self.is_wrong(checks, i)).collect_vec();
        let loc = self.loc;
        Poison::new(|| Source { loc, tell: Box::new(move |i| self.tell(i)) }, count, |i| wrong[i])
    }

    fn is_wrong(&self, checks: Checks, i: usize) -> bool {
        use Opcode as O;
        match self.code {
            O::AddI | O::SubI | O::MulI => {
                let [a, b] = [0, 1].map(|operand| self.bits(operand, i));
                !fits(self.code, self.from.bits(), self.signs[0] == Sign::Signed, a, b)
            }
            O::ShlI | O::ShrI => self.amount(i) >= u64::from(self.from.bits()),
            O::DivI | O::RemI => match self.number(1, i) {
                0 => checks.division,
                -1 => checks.overflow && self.number(0, i) == self.range().0,
                _ => false,
            },
            O::FToI => {
                let (least, most) = self.range();
                let value = self.float(i).trunc();
                // Both ends are exact: most + 1 is a power of two.
                !(value >= least as f64 && value < (most + 1) as f64)
            }
            _ => {
                let (least, most) = self.range();
                !(least..=most).contains(&self.number(0, i))
            }
        }
    }

    fn tell(&self, i: usize) -> String {
        use Opcode as O;
        let of = type_name(self.to, self.signs[1]);
        let what = match self.code {
            O::AddI | O::SubI | O::MulI => {
                let (symbol, name) = match self.code {
                    O::AddI => ("+", "wrapping_add"),
                    O::SubI => ("-", "wrapping_sub"),
                    _ => ("*", "wrapping_mul"),
                };
                let [a, b] = [self.number(0, i), self.number(1, i)];
                format!("overflow: {a} {symbol} {b} does not fit {of} (`{name}` is for numbers that may wrap)")
            }
            O::ShlI | O::ShrI => {
                let symbol = if self.code == O::ShlI { "<<" } else { ">>" };
                let (a, n) = (self.number(0, i), self.amount(i));
                format!("a shift too far: {a} {symbol} {n} in {of}, which has {} bits", self.to.bits())
            }
            O::DivI | O::RemI => {
                let symbol = if self.code == O::DivI { "/" } else { "%" };
                let [a, b] = [self.number(0, i), self.number(1, i)];
                match b {
                    0 => format!("division by zero: {a} {symbol} 0 in {of}"),
                    _ => format!("overflow: {a} {symbol} {b} does not fit {of}"),
                }
            }
            O::FToI => format!("a cast out of range: {} does not fit {of}", self.float(i)),
            _ => {
                let a = self.number(0, i);
                format!("a cast out of range: {a} does not fit {of} (`wrapping_cast` keeps low bits)")
            }
        };
        what + &element(&self.shape, i)
    }

    fn at(&self, operand: usize, i: usize) -> (&Words, usize) {
        let words = &*self.operands[operand];
        (words, if words.len() == 1 { 0 } else { i })
    }

    fn bits(&self, operand: usize, i: usize) -> u64 {
        let (words, i) = self.at(operand, i);
        words.get(i)
    }

    fn number(&self, operand: usize, i: usize) -> i128 {
        let (words, i) = self.at(operand, i);
        let value = int::read_one(self.from, self.signs[0], words, i);
        if self.signs[0] == Sign::Signed { value.into() } else { (value as u64).into() }
    }

    /// Returns the shift amount, which is unsigned.
    fn amount(&self, i: usize) -> u64 {
        let (words, i) = self.at(1, i);
        int::read_one(self.from, Sign::Unsigned, words, i) as u64
    }

    fn float(&self, i: usize) -> f64 {
        self.floats[self.at(0, i).1]
    }

    /// Returns the least and the greatest number of the result's type.
    fn range(&self) -> (i128, i128) {
        let bits = self.to.bits();
        match self.signs[1] {
            Sign::Signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            Sign::Unsigned => (0, (1 << bits) - 1),
        }
    }
}

fn type_name(dtype: DType, sign: Sign) -> String {
    format!("{}{}", if sign == Sign::Signed { 'i' } else { 'u' }, dtype.bits())
}

/// Returns the suffix of a message that names an element of a tile; empty for a scalar.
pub(crate) fn element(shape: &[usize], i: usize) -> String {
    if shape.iter().product::<usize>() <= 1 {
        return String::new();
    }
    let place: Vec<usize> =
        strides_of(shape).iter().zip(shape).map(|(stride, extent)| i / stride % extent).collect_vec();
    format!(" at {place:?} of the tile")
}
