//! Run-time values: tiles as lists of words, and arrays as addresses with extents and strides.
//!
//! A tile is a row-major list of words as wide as the storage of its element type ([`Width`]).
//! Movement of data does not depend on the type. Arithmetic reads the words as the op defines. The
//! types i1, i4 and the 4- and 8-bit floats use the low bits of a byte. The word of tf32 is an f32
//! pattern, that of a pointer is its address. The types contain the shapes.
//!
//! Elementwise ops repeat a one-element list if the other operands are longer. Reductions use this
//! to run their scalar body on whole slices.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::dtype::DType;
use crate::ir::{ConstData, Elem};

/// List of words of one width.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Words {
    W8(Vec<u8>),
    W16(Vec<u16>),
    W32(Vec<u32>),
    W64(Vec<u64>),
}

/// Storage width of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    W8,
    W16,
    W32,
    W64,
}

/// Word type of one width.
pub(crate) trait Word: Copy + Default + PartialEq + std::fmt::Debug + 'static {
    /// Returns the words of a list. Another width is a defect of this back end.
    fn of(words: &Words) -> &[Self];
    /// Returns the list for modification.
    fn of_mut(words: &mut Words) -> &mut Vec<Self>;
    fn list(words: Vec<Self>) -> Words;
    fn from_u64(bits: u64) -> Self;
    fn to_u64(self) -> u64;
}

macro_rules! word {
    ($word:ty, $variant:ident) => {
        impl Word for $word {
            fn of(words: &Words) -> &[$word] {
                match words {
                    Words::$variant(list) => list,
                    other => unreachable!("{} words, got {other:?}", stringify!($word)),
                }
            }
            fn of_mut(words: &mut Words) -> &mut Vec<$word> {
                match words {
                    Words::$variant(list) => list,
                    other => unreachable!("{} words, got {other:?}", stringify!($word)),
                }
            }
            fn list(words: Vec<$word>) -> Words {
                Words::$variant(words)
            }
            fn from_u64(bits: u64) -> $word {
                bits as $word
            }
            fn to_u64(self) -> u64 {
                self as u64
            }
        }
    };
}
word!(u8, W8);
word!(u16, W16);
word!(u32, W32);
word!(u64, W64);

/// Runs `$body` with `$list` bound to the typed list.
macro_rules! each_width {
    ($words:expr, $list:ident => $body:expr) => {
        match $words {
            $crate::backend::cpu::interp::value::Words::W8($list) => $body,
            $crate::backend::cpu::interp::value::Words::W16($list) => $body,
            $crate::backend::cpu::interp::value::Words::W32($list) => $body,
            $crate::backend::cpu::interp::value::Words::W64($list) => $body,
        }
    };
}
/// Runs `$body` with `$word` as the word type of a [`Width`].
macro_rules! with_width {
    ($width:expr, $word:ident => $body:expr) => {
        match $width {
            $crate::backend::cpu::interp::value::Width::W8 => {
                type $word = u8;
                $body
            }
            $crate::backend::cpu::interp::value::Width::W16 => {
                type $word = u16;
                $body
            }
            $crate::backend::cpu::interp::value::Width::W32 => {
                type $word = u32;
                $body
            }
            $crate::backend::cpu::interp::value::Width::W64 => {
                type $word = u64;
                $body
            }
        }
    };
}
pub(crate) use {each_width, with_width};

impl Width {
    pub fn of(dtype: DType) -> Width {
        match dtype.storage_bits() {
            ..=8 => Width::W8,
            16 => Width::W16,
            32 => Width::W32,
            _ => Width::W64,
        }
    }

    pub fn of_elem(elem: Elem) -> Width {
        elem.dtype().map_or(Width::W64, Width::of)
    }
}

impl Words {
    pub fn len(&self) -> usize {
        each_width!(self, list => list.len())
    }

    pub fn splat(width: Width, bits: u64, count: usize) -> Words {
        with_width!(width, W => W::list(vec![W::from_u64(bits); count]))
    }

    /// Creates an empty list with capacity for `count` words.
    pub fn with_capacity(width: Width, count: usize) -> Words {
        with_width!(width, W => W::list(Vec::with_capacity(count)))
    }

    pub fn from_data(width: Width, data: &ConstData, count: usize) -> Words {
        match data {
            ConstData::Splat(bits) => Words::splat(width, *bits, count),
            ConstData::Dense(all) => {
                with_width!(width, W => W::list(all.iter().map(|&b| W::from_u64(b)).collect_vec()))
            }
        }
    }

    /// Appends another list of the same width.
    pub fn append(&mut self, other: &Words) {
        each_width!(self, list => list.extend_from_slice(Word::of(other)));
    }

    /// Returns the bits of one element.
    pub fn get(&self, index: usize) -> u64 {
        each_width!(self, list => list[index].to_u64())
    }

    /// Returns the low bits of each word, in the width of a type.
    pub fn cut(&self, dtype: DType) -> Words {
        with_width!(Width::of(dtype), W => W::list((0..self.len()).map(|i| W::from_u64(self.get(i))).collect_vec()))
    }

    /// Returns this list, or `count` copies of its only word.
    pub fn repeated(self: &Rc<Words>, count: usize) -> Rc<Words> {
        if self.len() == count {
            return self.clone();
        }
        Rc::new(each_width!(&**self, list => Word::list(vec![list[0]; count])))
    }
}

/// Array at run time. A view has the data of its array; its type contains the rest.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Array {
    pub base: u64,
    /// Extents in elements.
    pub shape: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
}

/// Computes one result per element.
pub(crate) fn map<A: Copy, R>(a: &[A], f: impl Fn(A) -> R) -> Vec<R> {
    a.iter().map(|&x| f(x)).collect_vec()
}

/// Computes one result per element; a one-element operand is repeated.
pub(crate) fn zip<A: Copy, B: Copy, R>(a: &[A], b: &[B], f: impl Fn(A, B) -> R) -> Vec<R> {
    match (a.len(), b.len()) {
        (n, m) if n == m => a.iter().zip(b).map(|(&x, &y)| f(x, y)).collect_vec(),
        (1, _) => map(b, |y| f(a[0], y)),
        (_, 1) => map(a, |x| f(x, b[0])),
        (n, m) => unreachable!("elementwise op on {n} and {m} elements"),
    }
}

/// As [`zip`], for three operands.
pub(crate) fn zip3<A: Copy, B: Copy, C: Copy, R>(a: &[A], b: &[B], c: &[C], f: impl Fn(A, B, C) -> R) -> Vec<R> {
    let count = a.len().max(b.len()).max(c.len());
    if a.len() == count && b.len() == count && c.len() == count {
        return a.iter().zip(b).zip(c).map(|((&x, &y), &z)| f(x, y, z)).collect_vec();
    }
    let at = |len: usize, i: usize| if len == 1 { 0 } else { i };
    (0..count).map(|i| f(a[at(a.len(), i)], b[at(b.len(), i)], c[at(c.len(), i)])).collect_vec()
}
