//! Sums over all earlier tiles, by decoupled look-back (Merrill and Garland, "Single-pass Parallel
//! Prefix Scan with Decoupled Look-back", 2016).
//!
//! A block publishes the sum of its tile, adds up the published sums of earlier tiles until one
//! contains all before, and publishes its own sum of all. State and sum are one word, so that one
//! load reads both. Sums of 8 bytes are two words, which are read again while their states differ.
//!
//! A block has its tile by a ticket, so all earlier tiles belong to blocks that have begun.

use cutlet as ct;
use cutlet::prelude::*;

/// States of a word: nothing is known of the tile, its own sum, or the sum of all tiles up to it.
const UNKNOWN: u32 = 0;
const OWN: u32 = 1;
const ALL: u32 = 2;

/// Tiles that one step reads.
const WINDOW: usize = 32;

/// Operation of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Sums; those of integers wrap.
    Sum,
    /// The largest element. A NaN is ignored.
    Max,
    /// The smallest element. A NaN is ignored.
    Min,
}

mod sealed {
    pub trait Sealed {}
}

/// Element types of scans: u32, i32, f32, u64, i64, f64.
pub trait Scanned: Number + sealed::Sealed {
    #[doc(hidden)]
    const WORDS: usize;
    #[doc(hidden)]
    fn identity(op: Combine) -> Self;
    #[doc(hidden)]
    fn words(value: Scalar<Self>) -> Vec<Scalar<u32>>;
    #[doc(hidden)]
    fn of_words(words: &[Tile<u32, 1>]) -> Tile<Self, 1>;
}

macro_rules! scanned {
    ($($ty:ident $words:tt $bits:ident $least:expr, $most:expr;)+) => {$(
        impl sealed::Sealed for $ty {}
        impl Scanned for $ty {
            const WORDS: usize = $words;
            fn identity(op: Combine) -> $ty {
                match op {
                    Combine::Sum => 0 as $ty,
                    Combine::Max => $least,
                    Combine::Min => $most,
                }
            }
            fn words(value: Scalar<$ty>) -> Vec<Scalar<u32>> {
                let bits = value.bitcast::<$bits>();
                scanned!(@split $words, bits)
            }
            fn of_words(words: &[Tile<u32, 1>]) -> Tile<$ty, 1> {
                scanned!(@join $words, words).bitcast()
            }
        }
    )+};
    (@split 1, $bits:ident) => { vec![$bits] };
    (@split 2, $bits:ident) => { vec![$bits.wrapping_cast::<u32>(), ($bits >> 32).wrapping_cast::<u32>()] };
    (@join 1, $words:ident) => { $words[0] };
    (@join 2, $words:ident) => { $words[0].cast::<u64>() | ($words[1].cast::<u64>() << 32) };
}
scanned! {
    u32 1 u32 u32::MIN, u32::MAX;
    i32 1 u32 i32::MIN, i32::MAX;
    f32 1 u32 f32::NEG_INFINITY, f32::INFINITY;
    u64 2 u64 u64::MIN, u64::MAX;
    i64 2 u64 i64::MIN, i64::MAX;
    f64 2 u64 f64::NEG_INFINITY, f64::INFINITY;
}

/// Combines two scalars.
pub fn combined<T: Scanned>(op: Combine, a: Scalar<T>, b: Scalar<T>) -> Scalar<T> {
    match op {
        Combine::Sum => a + b,
        Combine::Max => a.max(b),
        Combine::Min => a.min(b),
    }
}

/// Returns the shape of the words for this many tiles, zeros before the launch. The last column has
/// the ticket.
pub fn words_shape<T: Scanned>(tiles: usize) -> [usize; 2] {
    [T::WORDS, tiles + 1]
}

/// Returns the next tile.
pub fn ticket(words: ArrayMut<u64, 2>) -> Scalar<i32> {
    let last = words.extent(1) - 1;
    let relaxed = ct::AtomicOptions::new().relaxed(ct::Scope::Device);
    words.entry((0, last)).atomic_add_with(1, relaxed).wrapping_cast::<i32>()
}

/// Publishes the sum of tile `mine`, and returns that of all earlier tiles.
pub fn before<T: Scanned>(words: ArrayMut<u64, 2>, mine: Scalar<i32>, own: Scalar<T>, op: Combine) -> Scalar<T> {
    let publish = |state: u32, sum: Scalar<T>| {
        for (i, word) in T::words(sum).into_iter().enumerate() {
            let options = ct::ScatterOptions::new().relaxed(ct::Scope::Device);
            words.entry((i, mine)).store_with(word.cast::<u64>() | (u64::from(state) << 32), options);
        }
    };
    publish(OWN, own);
    let identity = T::identity(op);
    let nearest_first = ct::arange(0..WINDOW);
    let options = ct::GatherOptions::<u64, 1>::new().relaxed(ct::Scope::Device);
    let (_, sum) = ct::loop_with_control((mine - 1, ct::scalar(identity)), |(last, sum), control| {
        let tiles = last - nearest_first;
        let read: Vec<_> = (0..T::WORDS).map(|i| words.gather_with((i, tiles), options)).collect();
        let mut state = (read[0] >> 32).cast::<u32>();
        for &word in &read[1..] {
            state = state.eq((word >> 32).cast::<u32>()).select(state, UNKNOWN);
        }
        // Before the first tile all is known, and nothing.
        state = tiles.lt(0).select(ALL, state);
        let parts: Vec<_> = read.iter().map(|word| word.wrapping_cast::<u32>()).collect();
        let parts = tiles.lt(0).select(identity, T::of_words(&parts));
        // From the nearest tile to the first one of which not only its own sum is known.
        let (state, part) = ct::reduce((state, parts), 0, (OWN, identity), |(state, sum), (further, part)| {
            let goes_on = state.eq(OWN);
            (goes_on.select(further, state), goes_on.select(combined(op, part, sum), sum))
        });
        let (state, part) = (state.item(), part.item());
        control.continue_if(state.eq(UNKNOWN), (last, sum));
        control.break_if(state.eq(ALL), (last, combined(op, part, sum)));
        (last - WINDOW, combined(op, part, sum))
    });
    publish(ALL, combined(op, sum, own));
    sum
}
