//! Where tile blocks tell each other what the tiles along a line come to.
//!
//! A word of 64 bits holds 32 bits of an element, and a bit that says that they are known: who reads the one reads the
//! other, so that relaxed accesses suffice. An element of 64 bits takes two words. Each word is written once: two that are
//! known belong together, and what is read does not depend on when.
//!
//! Words lie in windows, which are read at once. On the first level a word stands for a tile, on the second for a window of
//! the first, and on the third for a window of the second and all before it. So what is before a tile takes three
//! reads, of its own window on each level, wherever in the line it is.

use super::combine::Combine;
use super::reduce::CutLines;
use crate::element::ByteSized;
use crate::ops::{AtomicOptions, Scope, from_words, if_then, indices, scalar, to_words, while_loop};
use crate::runtime::NewArray;
use crate::tile::{ArrayMut, Scalar, Tile};

/// Words that are read at once.
const WINDOW: usize = 32;

/// The bit of a word that says that the low half is known.
const KNOWN: u64 = 1 << 32;

/// Windows of the first and the second level, and the row where tickets are drawn.
pub type Levels<N> = (N, N, N);

/// The words of a window, or of one place in it: as many tiles as an element takes words.
type Words<const R: usize> = Vec<Tile<u64, R>>;

/// Words of an element.
const fn planes<T: ByteSized>() -> usize {
    T::DTYPE.bits().div_ceil(32) as usize
}

/// For lines of `tiles` tiles of elements `T`: words of which none is known, and what the kernel has to know about them.
/// Along the other axes they are as many as the elements of all tiles, which `all` says.
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

/// The words of lines.
#[derive(Clone, Copy)]
pub struct Board<const R: usize> {
    pub words: ArrayMut<u64, R>,
    pub levels: Levels<Scalar<i32>>,
    pub cut: CutLines<R>,
}

impl<const R: usize> Board<R> {
    /// The next number: who has it knows that those before are at work.
    pub fn ticket(self) -> Scalar<i32> {
        let mut at = [scalar(0); R];
        at[self.cut.axis] = self.levels.2;
        self.words.entry(at).atomic_add_with(1, AtomicOptions::new().relaxed(Scope::Device)).wrapping_cast::<i32>()
    }

    /// Tells what a place of a window comes to, for the lines of the tile at `at`.
    fn tell<T: ByteSized>(self, at: [Scalar<i32>; R], [window, place]: [Scalar<i32>; 2], elements: Tile<T, R>) {
        let bits = to_words(elements);
        for plane in 0..planes::<T>() {
            let word = if planes::<T>() == 1 { bits } else { (bits >> (32 * plane as u64)) & (KNOWN - 1) };
            let mut at = at;
            at[self.cut.axis] = (window * planes::<T>() + plane) * WINDOW + place;
            self.words.tiled(self.cut.flat).relaxed(Scope::Device).store(at, word | KNOWN);
        }
    }

    /// The words of a window; of one place alone, if one is given.
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
        (0..planes::<T>()).map(words).collect()
    }

    /// Which places of a window are before one.
    fn places_before(self, place: Scalar<i32>) -> Tile<bool, R> {
        let (mut along, mut shape) = ([1; R], self.cut.flat);
        (along[self.cut.axis], shape[self.cut.axis]) = (WINDOW, WINDOW);
        indices(along, self.cut.axis).lt(place).broadcast_to(shape)
    }

    /// Tells what a tile comes to, and gives what all before it along the line do. Who waits for that waits for earlier
    /// tiles alone. How tiles are grouped does not depend on who is first.
    pub fn before<T: ByteSized, C: Combine<T>>(self, at: [Scalar<i32>; R], own: Tile<T, R>, combine: C) -> Tile<T, R> {
        let (axis, identity) = (self.cut.axis, T::from_bits(self.cut.identity));
        let (first, second, _) = self.levels;
        // Tiles, windows of them, and windows of those.
        let near = [at[axis] / WINDOW, at[axis] % WINDOW];
        let far = [near[0] / WINDOW + first, near[0] % WINDOW];
        let all = near[0] / WINDOW;
        let place_of_all = |k: Scalar<i32>| [k / WINDOW + first + second, k % WINDOW];
        let before_all = place_of_all(all - 1);
        self.tell(at, near, own);

        // All of them are asked at once, and most often known.
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

/// Is one of the words unknown that are needed?
fn lacks<const R: usize>(words: &Words<R>, needed: Tile<bool, R>) -> Scalar<bool> {
    let unknown = words.iter().map(|&word| word.lt(KNOWN)).reduce(|a, b| a | b).expect("an element takes a word");
    (unknown & needed).any(..).item()
}

/// The elements of those that are needed, and the identity elsewhere.
fn elements<T: ByteSized, const R: usize>(words: Words<R>, needed: Tile<bool, R>, identity: T) -> Tile<T, R> {
    let low = |word: Tile<u64, R>| word & (KNOWN - 1);
    let bits = words.iter().rev().fold(None, |above: Option<Tile<u64, R>>, &word| {
        Some(above.map_or(low(word), |above| above << 32 | low(word)))
    });
    needed.select(from_words(bits.expect("an element takes a word")), identity)
}
