//! Radix select in a row: the key at which the weights of all larger keys reach a number.
//!
//! Three passes over digits of 11, 11 and 10 bits, from the highest one on, add up the weights of keys by digits in shared
//! memory. Each pass regards the keys with the digits that the earlier ones have found.

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
const DIGITS: [(u32, usize); 3] = [(21, 11), (10, 11), (0, 10)];

/// Returns the smallest key for which the weights of all keys from it on are `target` or more, and the part of the target
/// that the larger keys leave. The target is 1 or more, and at most the sum.
pub fn select(
    tiles: Scalar<i32>,
    load: impl Fn(Scalar<i32>) -> Keys,
    target: Scalar<u32>,
) -> (Scalar<u32>, Scalar<u32>) {
    let (mut found, mut left) = (ct::scalar(0u32), target);
    for (first, count) in DIGITS {
        let bins = 1usize << count;
        let sums = ct::scratch::<u32, 1>([bins]);
        sums.store(0, ct::zeros([bins]));
        ct::fold(..tiles, (), |(), i| {
            let Keys { keys, weights, mut regarded } = load(i);
            if first + (count as u32) < 32 {
                regarded = regarded & (keys >> (first + count as u32)).eq(found);
            }
            let options = ct::AtomicOptions::new().relaxed(ct::Scope::Block).mask(regarded);
            let digits = (keys >> first) & (bins as u32 - 1);
            match weights {
                Some(weights) => sums.atomic_add_with(digits, weights, options),
                None => sums.atomic_add_with(digits, 1, options),
            };
        });
        let sums = sums.load(0, [bins]);
        let above = sums.cumsum_with(0, ct::ScanOptions::new().exclusive().reverse());
        let is_digit = above.lt(left) & (above + sums).ge(left);
        let digit = is_digit.select(ct::arange_from(bins, 0u32, 1), 0).sum(0).item();
        left = left - is_digit.select(above, 0).sum(0).item();
        found = (found << count as u32) | digit;
    }
    (found, left)
}
