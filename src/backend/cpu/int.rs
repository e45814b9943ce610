//! Elementwise integer ops: words read as 64-bit integers, results cut to the width.
//!
//! Signed reading extends the sign (a true i1 is -1), unsigned reading extends with zeros.

use super::value::{Word, Words, map, zip};
use crate::dtype::DType;
use crate::ir::{CmpPred, Sign};

/// How words of one integer type are read and written.
pub(super) trait Kind {
    type Word: Word;
    fn signed(word: Self::Word) -> u64;
    fn unsigned(word: Self::Word) -> u64;
    fn cut(bits: u64) -> Self::Word;
}

macro_rules! kind {
    ($name:ident, $word:ty, $signed:expr, $cut:expr) => {
        pub(super) struct $name;
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

/// Runs `$body` with `$kind` standing for the kind of an integer type.
macro_rules! with_int {
    ($dtype:expr, $kind:ident => $body:expr) => {{
        use $crate::backend::cpu::int;
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

/// The elements as 64-bit integers.
pub(super) fn read(dtype: DType, sign: Sign, words: &Words) -> Vec<u64> {
    with_int!(dtype, K => match sign {
        Sign::Signed => map(<K as Kind>::Word::of(words), K::signed),
        Sign::Unsigned => map(<K as Kind>::Word::of(words), K::unsigned),
    })
}

/// One element as a 64-bit signed integer.
pub(super) fn read_one(dtype: DType, sign: Sign, words: &Words, index: usize) -> i64 {
    with_int!(dtype, K => {
        let word = <K as Kind>::Word::of(words)[index];
        match sign {
            Sign::Signed => K::signed(word) as i64,
            Sign::Unsigned => K::unsigned(word) as i64,
        }
    })
}

/// The low bits of 64-bit integers as elements.
pub(super) fn write(dtype: DType, values: impl Iterator<Item = u64>) -> Words {
    with_int!(dtype, K => Word::list(values.map(K::cut).collect()))
}

/// An op of one operand.
pub(super) fn unary(dtype: DType, x: &Words, f: impl Fn(u64) -> u64) -> Words {
    with_int!(dtype, K => Word::list(map(<K as Kind>::Word::of(x), |a| K::cut(f(K::signed(a))))))
}

/// An op of two operands that reads both by `sign`.
pub(super) fn binary(dtype: DType, sign: Sign, [x, y]: [&Words; 2], f: impl Fn(u64, u64) -> u64) -> Words {
    with_int!(dtype, K => {
        let (x, y) = (<K as Kind>::Word::of(x), <K as Kind>::Word::of(y));
        Word::list(match sign {
            Sign::Signed => zip(x, y, |a, b| K::cut(f(K::signed(a), K::signed(b)))),
            Sign::Unsigned => zip(x, y, |a, b| K::cut(f(K::unsigned(a), K::unsigned(b)))),
        })
    })
}

/// Compares; the answer is 0 or 1 an element.
pub(super) fn compare(dtype: DType, sign: Sign, pred: CmpPred, [x, y]: [&Words; 2]) -> Words {
    fn run<K: Kind>(pred: CmpPred, x: &[K::Word], y: &[K::Word], key: impl Fn(K::Word) -> u64) -> Vec<u8> {
        match pred {
            CmpPred::Eq => zip(x, y, |a, b| (key(a) == key(b)) as u8),
            CmpPred::Ne => zip(x, y, |a, b| (key(a) != key(b)) as u8),
            CmpPred::Lt => zip(x, y, |a, b| (key(a) < key(b)) as u8),
            CmpPred::Le => zip(x, y, |a, b| (key(a) <= key(b)) as u8),
            CmpPred::Gt => zip(x, y, |a, b| (key(a) > key(b)) as u8),
            CmpPred::Ge => zip(x, y, |a, b| (key(a) >= key(b)) as u8),
        }
    }
    // Flipping the sign bit makes the unsigned order the signed one.
    const FLIP: u64 = 1 << 63;
    Words::W8(with_int!(dtype, K => {
        let (x, y) = (<K as Kind>::Word::of(x), <K as Kind>::Word::of(y));
        match sign {
            Sign::Signed => run::<K>(pred, x, y, |w| K::signed(w) ^ FLIP),
            Sign::Unsigned => run::<K>(pred, x, y, K::unsigned),
        }
    }))
}

/// Quotient towards zero, down or up; by zero it is 0, and `MIN / -1` wraps.
pub(super) fn div_signed(a: i64, b: i64, towards: Towards) -> i64 {
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
pub(super) fn div_unsigned(a: u64, b: u64, towards: Towards) -> u64 {
    match towards {
        _ if b == 0 => 0,
        Towards::Zero | Towards::Down => a / b,
        Towards::Up => a.div_ceil(b),
    }
}

/// Remainder with the sign of the dividend; by zero it is the dividend, and `MIN % -1` is 0.
pub(super) fn rem_signed(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { a.wrapping_rem(b) }
}

/// Direction of a quotient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Towards {
    Zero,
    Down,
    Up,
}
