//! Elementwise integer ops: words are read as 64-bit integers, results are truncated to the width.
//!
//! A signed read extends the sign (a true i1 is -1), an unsigned read extends with zeros.

use crate::backend::cpu::interp::value::{Width, Word, Words, map};
use crate::dtype::DType;
use crate::ir::{CmpPred, Sign};

/// Reads and writes of words of one integer type.
pub(super) trait Kind {
    type Word: Word;
    fn signed(word: Self::Word) -> u64;
    fn unsigned(word: Self::Word) -> u64;
    fn cut(bits: u64) -> Self::Word;
}

macro_rules! kind {
    ($name:ident, $word:ty, $signed:expr, $cut:expr) => {
        pub(crate) struct $name;
        impl Kind for $name {
            type Word = $word;
            #[inline(always)]
            fn signed(word: $word) -> u64 {
                $signed(word)
            }
            #[inline(always)]
            fn unsigned(word: $word) -> u64 {
                word as u64
            }
            #[inline(always)]
            fn cut(bits: u64) -> $word {
                $cut(bits)
            }
        }
    };
}
kind!(I1, u8, |w| (w as u64).wrapping_neg(), |b| b as u8 & 1);
kind!(I4, u8, |w| ((w as i8) << 4 >> 4) as u64, |b| b as u8 & 15);
kind!(I8, u8, |w| w as i8 as u64, |b| b as u8);
kind!(I16, u16, |w| w as i16 as u64, |b| b as u16);
kind!(I32, u32, |w| w as i32 as u64, |b| b as u32);
kind!(I64, u64, |w| w, |b| b);

/// Runs `$body` with `$kind` as the kind of an integer type.
macro_rules! with_int {
    ($dtype:expr, $kind:ident => $body:expr) => {{
        use super::int;
        match $dtype {
            DType::I1 => {
                type $kind = int::I1;
                $body
            }
            DType::I4 => {
                type $kind = int::I4;
                $body
            }
            DType::I8 => {
                type $kind = int::I8;
                $body
            }
            DType::I16 => {
                type $kind = int::I16;
                $body
            }
            DType::I32 => {
                type $kind = int::I32;
                $body
            }
            DType::I64 => {
                type $kind = int::I64;
                $body
            }
            other => unreachable!("{other} is not an integer type"),
        }
    }};
}

/// Returns the elements as 64-bit integers.
pub(crate) fn read(dtype: DType, sign: Sign, words: &Words) -> Vec<u64> {
    with_int!(dtype, K => match sign {
        Sign::Signed => map(<K as Kind>::Word::of(words), K::signed),
        Sign::Unsigned => map(<K as Kind>::Word::of(words), K::unsigned),
    })
}

/// Returns one element as a 64-bit signed integer.
pub(crate) fn read_one(dtype: DType, sign: Sign, words: &Words, index: usize) -> i64 {
    with_int!(dtype, K => {
        let word = <K as Kind>::Word::of(words)[index];
        match sign {
            Sign::Signed => K::signed(word) as i64,
            Sign::Unsigned => K::unsigned(word) as i64,
        }
    })
}

/// Returns the low bits of 64-bit integers as elements.
pub(crate) fn write(dtype: DType, values: &[u64]) -> Words {
    let mut words = Words::with_capacity(Width::of(dtype), values.len());
    extend(&mut words, dtype, values);
    words
}

/// Computes an op of one operand, which is read as signed.
pub(crate) fn unary(dtype: DType, x: &Words, f: impl Fn(u64) -> u64) -> Words {
    in_parts(dtype, Sign::Signed, dtype, [x, x], &|a, _| a.iter_mut().for_each(|a| *a = f(*a)))
}

/// Computes an op of two operands, which are read by `sign`.
pub(crate) fn binary(dtype: DType, sign: Sign, operands: [&Words; 2], f: impl Fn(u64, u64) -> u64) -> Words {
    in_parts(dtype, sign, dtype, operands, &|a, b| each(a, b, &f))
}

/// Compares; the result is 0 or 1 per element.
pub(crate) fn compare(dtype: DType, sign: Sign, pred: CmpPred, operands: [&Words; 2]) -> Words {
    // A flipped sign bit turns the signed order into the unsigned one.
    let flip = if sign == Sign::Signed { 1 << 63 } else { 0 };
    in_parts(dtype, sign, DType::I1, operands, &|a, b| match pred {
        CmpPred::Eq => each(a, b, |a, b| (a == b) as u64),
        CmpPred::Ne => each(a, b, |a, b| (a != b) as u64),
        CmpPred::Lt => each(a, b, |a, b| (a ^ flip < b ^ flip) as u64),
        CmpPred::Le => each(a, b, |a, b| (a ^ flip <= b ^ flip) as u64),
        CmpPred::Gt => each(a, b, |a, b| (a ^ flip > b ^ flip) as u64),
        CmpPred::Ge => each(a, b, |a, b| (a ^ flip >= b ^ flip) as u64),
    })
}

fn each(a: &mut [u64], b: &[u64], f: impl Fn(u64, u64) -> u64) {
    a.iter_mut().zip(b).for_each(|(a, &b)| *a = f(*a, b));
}

/// Number of elements that are widened at a time.
const PART: usize = 64;

/// Widens the operands in parts, replaces those of the first one by `apply`, and truncates them to
/// the words of `to`.
///
/// The loops over words are here, once per type, and the loop of an op only handles 64-bit
/// integers. One loop per op and type would be hundreds, with a tenth of the compile time of this
/// crate.
fn in_parts(from: DType, sign: Sign, to: DType, [x, y]: [&Words; 2], apply: &dyn Fn(&mut [u64], &[u64])) -> Words {
    let count = match (x.len(), y.len()) {
        (n, m) if n == m => n,
        (1, n) | (n, 1) => n,
        (n, m) => unreachable!("elementwise op on {n} and {m} elements"),
    };
    let mut result = Words::with_capacity(Width::of(to), count);
    let (mut a, mut b) = ([0; PART], [0; PART]);
    for start in (0..count).step_by(PART) {
        let num = PART.min(count - start);
        let (a, b) = (&mut a[..num], &mut b[..num]);
        widen(from, sign, x, start, a);
        widen(from, sign, y, start, b);
        apply(a, b);
        extend(&mut result, to, a);
    }
    result
}

/// Writes the elements from `start` on as 64-bit integers to `part`, or repeats the only one.
fn widen(dtype: DType, sign: Sign, words: &Words, start: usize, part: &mut [u64]) {
    fn run<W: Word>(words: &[W], start: usize, part: &mut [u64], widen: impl Fn(W) -> u64) {
        match words {
            [word] => part.fill(widen(*word)),
            _ => part.iter_mut().zip(&words[start..]).for_each(|(wide, &word)| *wide = widen(word)),
        }
    }
    with_int!(dtype, K => {
        let words = <K as Kind>::Word::of(words);
        match sign {
            Sign::Signed => run(words, start, part, K::signed),
            Sign::Unsigned => run(words, start, part, K::unsigned),
        }
    })
}

/// Appends the low bits of 64-bit integers to a list of the type's words.
fn extend(words: &mut Words, dtype: DType, part: &[u64]) {
    with_int!(dtype, K => <K as Kind>::Word::of_mut(words).extend(part.iter().map(|&bits| K::cut(bits))));
}

/// Returns the quotient, rounded towards zero, down or up. A quotient by zero is 0, and `MIN / -1`
/// wraps.
pub(crate) fn div_signed(a: i64, b: i64, towards: Towards) -> i64 {
    if b == 0 {
        return 0;
    }
    let (quotient, remainder) = (a.wrapping_div(b), a.wrapping_rem(b));
    let negative = (a < 0) != (b < 0);
    match towards {
        Towards::Zero => quotient,
        Towards::Down => quotient - i64::from(remainder != 0 && negative),
        Towards::Up => quotient + i64::from(remainder != 0 && !negative),
    }
}

/// As [`div_signed`] for unsigned numbers.
pub(crate) fn div_unsigned(a: u64, b: u64, towards: Towards) -> u64 {
    match towards {
        _ if b == 0 => 0,
        Towards::Zero | Towards::Down => a / b,
        Towards::Up => a.div_ceil(b),
    }
}

/// Returns the remainder with the sign of the dividend. By zero it is the dividend, and `MIN % -1`
/// is 0.
pub(crate) fn rem_signed(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

/// Rounding direction of a quotient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Towards {
    Zero,
    Down,
    Up,
}
