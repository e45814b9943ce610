//! Packing of the elements of a row into words.

use crate::types::packed_formats::{Narrow, NarrowFormat};

/// A format as a value, so that the recording code is compiled once and not for each format.
#[derive(Clone, Copy, Debug)]
pub struct Coded {
    pub format: NarrowFormat,
    pub bits: u32,
    pub name: &'static str,
}

impl Coded {
    pub fn of<F: Narrow>() -> Coded {
        Coded { format: F::FORMAT, bits: F::BITS, name: F::NAME }
    }
}

/// A group of elements that fills whole words: one word if the width divides it, otherwise as many
/// elements as a word has bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Bits of a word: 8, 16 or 32.
    pub unit: u32,
    /// Elements of a group.
    pub elements: u32,
    /// Words of a group.
    pub words: u32,
    /// Groups of a row of the tile.
    pub groups: i64,
}

impl Grouping {
    /// The grouping of rows of `extent` elements, in the largest words that they fill. `None` if a
    /// row is not a whole number of bytes.
    pub fn of(bits: u32, extent: i64) -> Option<Grouping> {
        let extent = u32::try_from(extent).ok()?;
        if bits == 8 {
            return Some(Grouping { unit: 8, elements: 1, words: 1, groups: extent.into() });
        }
        let divides = bits.is_power_of_two();
        let of = |unit: u32| {
            let (elements, words) = if divides { (unit / bits, 1) } else { (unit, bits) };
            Grouping { unit, elements, words, groups: (extent / elements).into() }
        };
        [32, 16, 8].map(of).into_iter().find(|grouping| extent.is_multiple_of(grouping.elements))
    }

    /// The divisor of the row extents of a tile: the least number of elements in whole bytes.
    pub fn least(bits: u32) -> u32 {
        if bits.is_power_of_two() { 8 / bits } else { 8 }
    }

    /// The position of an element's first bit in its group: the word, and the bit in it.
    pub fn place(self, bits: u32, element: u32) -> (u32, u32) {
        (element * bits / self.unit, element * bits % self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_whole_words() {
        let of = |bits, extent| Grouping::of(bits, extent).map(|g| (g.unit, g.elements, g.words, g.groups));
        assert_eq!(of(4, 64), Some((32, 8, 1, 8)));
        assert_eq!(of(4, 4), Some((16, 4, 1, 1)));
        assert_eq!(of(4, 1), None);
        assert_eq!(of(3, 64), Some((32, 32, 3, 2)));
        assert_eq!(of(3, 16), Some((16, 16, 3, 1)));
        assert_eq!(of(5, 4), None);
        assert_eq!(of(8, 4), Some((8, 1, 1, 4)));
        assert_eq!(of(1, 8), Some((8, 8, 1, 1)));
        assert_eq!(of(4, 96), Some((32, 8, 1, 12)));
        assert_eq!(of(4, 12), Some((16, 4, 1, 3)));
        assert_eq!(of(3, 24), Some((8, 8, 3, 3)));
        assert_eq!((of(3, 12), of(2, 6)), (None, None));
        for bits in 1..=8 {
            for extent in [1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 40, 64, 96, 128].map(i64::from) {
                let group = Grouping::of(bits, extent);
                assert_eq!(group.is_some(), extent % i64::from(Grouping::least(bits)) == 0, "{bits} {extent}");
                let Some(group) = group else { continue };
                assert_eq!(group.elements * bits, group.words * group.unit);
                assert_eq!(group.groups * i64::from(group.elements), extent);
            }
        }
    }
}
