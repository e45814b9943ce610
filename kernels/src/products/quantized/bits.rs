//! Width of a quantised weight.

use cutlet::packed::{PackedView, i4};

/// Number of bits of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Integers from -7 to 7.
    Four,
    /// Integers from -127 to 127.
    Eight,
}

impl Bits {
    /// Returns the largest code.
    pub fn max_code(self) -> f32 {
        match self {
            Bits::Four => 7.0,
            Bits::Eight => 127.0,
        }
    }

    /// Returns the number of weights in a word.
    pub fn per_word(self) -> usize {
        match self {
            Bits::Four => 8,
            Bits::Eight => 4,
        }
    }

    /// Returns the number of words of a row of this many weights, padded as a [`PackedView`] needs
    /// it.
    pub fn words(self, row: usize) -> usize {
        match self {
            Bits::Four => PackedView::<i4, 1>::words([row])[0],
            Bits::Eight => PackedView::<i8, 1>::words([row])[0],
        }
    }
}
