//! Radix select in a row: the key at which the weights of all larger keys reach a number.
//!
//! Passes over digits of 12, 10 and 10 bits, from the highest one on, add up the weights of keys
//! by digits in shared memory. Each pass regards the keys with the digits that the earlier ones
//! have found.

use cutlet as ct;
use cutlet::prelude::*;

/// Keys of a tile, and which elements are regarded.
pub struct Keys {
    pub keys: Tile<u32, 1>,
    /// Numbers of which the sum of a row is below 2^32. None: all are 1.
    pub weights: Option<Tile<u32, 1>>,
    pub regarded: Tile<bool, 1>,
}

/// First bit and number of bits of each digit.
const DIGITS: [(u32, usize); 3] = [(20, 12), (10, 10), (0, 10)];

/// Digits that are found.
#[derive(Clone, Copy)]
pub struct Found {
    /// The upper bits of the key.
    pub prefix: Scalar<u32>,
    /// The part of the target that the larger prefixes leave.
    pub left: Scalar<u32>,
    /// The weights of all keys with the prefix.
    pub equal: Scalar<u32>,
}

/// Finds the next digit of the key for the target of a sum of all weights.
fn digit(
    tiles: Scalar<i32>,
    load: impl Fn(Scalar<i32>) -> Keys,
    prefix: Scalar<u32>,
    target: impl Fn(Scalar<u32>) -> Scalar<u32>,
    (first, count): (u32, usize),
) -> Found {
    let bins = 1usize << count;
    let sums = ct::scratch::<u32, 1>([bins]);
    sums.store(0, ct::zeros([bins]));
    ct::fold(..tiles, (), |(), i| {
        let Keys { keys, weights, mut regarded } = load(i);
        if first + (count as u32) < 32 {
            regarded &= (keys >> (first + count as u32)).eq(prefix);
        }
        let options = ct::AtomicOptions::new().relaxed(ct::Scope::Block).mask(regarded);
        let digits = (keys >> first) & (bins as u32 - 1);
        match weights {
            Some(weights) => sums.atomic_add_with(digits, weights, options),
            None => sums.atomic_add_with(digits, 1, options),
        };
    });
    let sums = sums.load(0, [bins]);
    let left = target(sums.sum(0).item());
    let above = sums.cumsum_with(0, ct::ScanOptions::new().exclusive().reverse());
    let is_digit = above.lt(left) & (above + sums).ge(left);
    let of_digit = |values: Tile<u32, 1>| is_digit.select(values, 0).sum(0).item();
    Found {
        prefix: (prefix << count as u32) | of_digit(ct::arange_from(bins, 0u32, 1)),
        left: left - of_digit(above),
        equal: of_digit(sums),
    }
}

/// Finds the upper 12 bits of the smallest key for which the weights of all keys from it on are
/// the target or more. The target is a function of the sum of all weights, from 1 to this sum.
pub fn select_prefix(
    tiles: Scalar<i32>,
    load: impl Fn(Scalar<i32>) -> Keys,
    target: impl Fn(Scalar<u32>) -> Scalar<u32>,
) -> Found {
    digit(tiles, load, ct::scalar(0u32), target, DIGITS[0])
}

/// Returns the whole key, and the part of the target that the larger keys leave.
pub fn select_rest(tiles: Scalar<i32>, load: impl Fn(Scalar<i32>) -> Keys, found: Found) -> (Scalar<u32>, Scalar<u32>) {
    let found = DIGITS[1..].iter().fold(found, |found, &of| digit(tiles, &load, found.prefix, |_| found.left, of));
    (found.prefix, found.left)
}

/// Returns the smallest key for which the weights of all keys from it on are the target or more.
pub fn select(
    tiles: Scalar<i32>,
    load: impl Fn(Scalar<i32>) -> Keys,
    target: impl Fn(Scalar<u32>) -> Scalar<u32>,
) -> Scalar<u32> {
    let found = select_prefix(tiles, &load, target);
    select_rest(tiles, load, found).0
}
