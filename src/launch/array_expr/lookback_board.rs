//! Decoupled look-back (Merrill and Garland, 2016): tile blocks publish the aggregates of the tiles
//! of a line.
//!
//! A word of 64 bits holds 32 bits of an element and a flag that they are valid. Both are read by
//! one access, so relaxed accesses suffice. An element of 64 bits needs two words. Each word is
//! written once, so two valid words belong together, and the result does not depend on timing.
//!
//! Words are grouped in windows of 32, which are read by one load:
//! * first level: a word is the aggregate of a tile;
//! * second level: a word is the aggregate of a window of the first level;
//! * third level: a word is the inclusive prefix of a window of the second level.
//!
//! The exclusive prefix of a tile needs three reads, one for each level, at any position of the
//! line.

use super::combine::Combine;
use super::reduce::CutLines;
use crate::element::ByteSized;
use crate::ops::{AtomicOptions, Scope, from_words, if_then, indices, scalar, to_words, while_loop};
use crate::runtime::NewArray;
use crate::tile::{ArrayMut, Scalar, Tile};
use crate::util::collect::CollectVec as _;

/// Words of a window, which one load reads.
const WINDOW: usize = 32;

/// Flag of a word: its low half is valid.
const KNOWN: u64 = 1 << 32;

/// Numbers of windows of the first and the second level, and the row of the ticket counter.
pub type Levels<N> = (N, N, N);

/// Words of a window, or of one place in it: one tile for each word of an element.
type Words<const R: usize> = Vec<Tile<u64, R>>;

/// Returns the number of words of an element.
const fn planes<T: ByteSized>() -> usize {
    T::DTYPE.bits().div_ceil(32) as usize
}

/// Returns the invalid words for lines of `tiles` tiles of elements `T`, and the levels as kernel
/// arguments. Along the other axes the extents are those of `all`.
pub fn blank<T: ByteSized, const R: usize>(
    tiles: usize,
    axis: usize,
    all: [usize; R],
) -> (NewArray<u64, R>, Levels<i32>) {
    let first = tiles.div_ceil(WINDOW);
    let second = first.div_ceil(WINDOW);
    let rows = (first + second + second.div_ceil(WINDOW)) * planes::<T>() * WINDOW;
    let shape = std::array::from_fn(|d| if d == axis { rows + 1 } else { all[d] });
    (NewArray::zeros(shape), (first as i32, second as i32, rows as i32))
}

/// Published words of lines.
#[derive(Clone, Copy)]
pub struct Board<const R: usize> {
    pub words: ArrayMut<u64, R>,
    pub levels: Levels<Scalar<i32>>,
    pub cut: CutLines<R>,
}

impl<const R: usize> Board<R> {
    /// Returns the next ticket. The tile blocks of all smaller tickets have already started.
    pub fn ticket(self) -> Scalar<i32> {
        let mut at = [scalar(0); R];
        at[self.cut.axis] = self.levels.2;
        self.words.entry(at).atomic_add_with(1, AtomicOptions::new().relaxed(Scope::Device)).wrapping_cast::<i32>()
    }

    /// Publishes the aggregate at a place of a window, for the lines of the tile at `at`.
    fn tell<T: ByteSized>(self, at: [Scalar<i32>; R], [window, place]: [Scalar<i32>; 2], elements: Tile<T, R>) {
        let bits = to_words(elements);
        for plane in 0..planes::<T>() {
            let word = if planes::<T>() == 1 { bits } else { (bits >> (32 * plane as u64)) & (KNOWN - 1) };
            let mut at = at;
            at[self.cut.axis] = (window * planes::<T>() + plane) * WINDOW + place;
            self.words.tiled(self.cut.flat).relaxed(Scope::Device).store(at, word | KNOWN);
        }
    }

    /// Loads the words of a window, or of one place in it.
    fn ask<T: ByteSized>(self, at: [Scalar<i32>; R], window: Scalar<i32>, place: Option<Scalar<i32>>) -> Words<R> {
        let words = |plane| {
            let (mut at, mut shape) = (at, self.cut.flat);
            let window = window * planes::<T>() + plane;
            match place {
                Some(place) => at[self.cut.axis] = window * WINDOW + place,
                None => (at[self.cut.axis], shape[self.cut.axis]) = (window, WINDOW),
            }
            self.words.tiled(shape).relaxed(Scope::Device).load(at)
        };
        (0..planes::<T>()).map(words).collect_vec()
    }

    /// Returns the mask of the places of a window that precede `place`.
    fn places_before(self, place: Scalar<i32>) -> Tile<bool, R> {
        let (mut along, mut shape) = ([1; R], self.cut.flat);
        (along[self.cut.axis], shape[self.cut.axis]) = (WINDOW, WINDOW);
        indices(along, self.cut.axis).lt(place).broadcast_to(shape)
    }

    /// Publishes the aggregate of a tile and returns the exclusive prefix of the tile along the
    /// line. It waits for earlier tiles only. The grouping of the tiles does not depend on timing.
    pub fn before<T: ByteSized, C: Combine<T>>(self, at: [Scalar<i32>; R], own: Tile<T, R>, combine: C) -> Tile<T, R> {
        let (axis, identity) = (self.cut.axis, T::from_bits(self.cut.identity));
        let (first, second, _) = self.levels;
        // Tile, window of the tile, and window of that window.
        let near = [at[axis] / WINDOW, at[axis] % WINDOW];
        let far = [near[0] / WINDOW + first, near[0] % WINDOW];
        let all = near[0] / WINDOW;
        let place_of_all = |k: Scalar<i32>| [k / WINDOW + first + second, k % WINDOW];
        let before_all = place_of_all(all - 1);
        self.tell(at, near, own);

        // All levels are loaded before the first wait. In most cases the words are valid.
        let ask_near = || self.ask::<T>(at, near[0], None);
        let ask_far = || (self.ask::<T>(at, far[0], None), self.ask::<T>(at, before_all[0], Some(before_all[1])));
        let (near_words, far_words) = (ask_near(), ask_far());

        let needed = self.places_before(near[1]);
        let words = while_loop(near_words, |words| lacks(&words, needed), |_| ask_near());
        let of_near = combine.along(elements(words, needed, identity), axis, identity);
        let of_window = combine.join(of_near, own);
        if_then(near[1].eq(WINDOW - 1), || self.tell(at, far, of_window));

        let needed = self.places_before(far[1]);
        let not_first = all.gt(0).broadcast_to(self.cut.flat);
        let (words, before) =
            while_loop(far_words, |(words, before)| lacks(&words, needed) | lacks(&before, not_first), |_| ask_far());
        let of_far = combine.along(elements(words, needed, identity), axis, identity);
        let of_all = combine.join(elements(before, not_first, identity), of_far);
        let is_last = near[1].eq(WINDOW - 1) & far[1].eq(WINDOW - 1);
        if_then(is_last, || self.tell(at, place_of_all(all), combine.join(of_all, of_window)));
        combine.join(of_all, of_near)
    }
}

/// Returns true if a needed word is not valid.
fn lacks<const R: usize>(words: &Words<R>, needed: Tile<bool, R>) -> Scalar<bool> {
    let unknown = words.iter().map(|&word| word.lt(KNOWN)).reduce(|a, b| a | b).expect("an element takes a word");
    (unknown & needed).any(..).item()
}

/// Returns the elements at the needed places, and the identity elsewhere.
fn elements<T: ByteSized, const R: usize>(words: Words<R>, needed: Tile<bool, R>, identity: T) -> Tile<T, R> {
    let low = |word: Tile<u64, R>| word & (KNOWN - 1);
    let bits = words.iter().rev().fold(None, |above: Option<Tile<u64, R>>, &word| {
        Some(above.map_or(low(word), |above| above << 32 | low(word)))
    });
    needed.select(from_words(bits.expect("an element takes a word")), identity)
}
