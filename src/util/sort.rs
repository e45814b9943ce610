//! Stable sorts of lists of any type by one copy of the algorithm.
//!
//! `slice::sort_by_key` is compiled again for each closure, which is some 12 KB of code each.
//! These functions sort positions, and then move the elements. They are for short lists.

use crate::util::collect::CollectVec as _;
use std::cmp::Ordering;

/// Sorts a list by a key. Equal elements keep their order.
pub(crate) fn by_key<T, K: Ord>(list: &mut [T], mut key: impl FnMut(&T) -> K) {
    let order = order_of(list.len(), &mut |a, b| key(&list[a]).cmp(&key(&list[b])));
    permute(list, order);
}

/// Sorts a list by a comparison. Equal elements keep their order.
pub(crate) fn by<T>(list: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let order = order_of(list.len(), &mut |a, b| compare(&list[a], &list[b]));
    permute(list, order);
}

/// Sorts a list. Equal elements keep their order.
pub(crate) fn natural<T: Ord>(list: &mut [T]) {
    by(list, T::cmp);
}

/// Returns the positions in the order of a comparison.
fn order_of(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect_vec();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

/// Moves the element at `order[i]` to position i.
fn permute<T>(list: &mut [T], order: Vec<usize>) {
    for at in 0..order.len() {
        // Earlier swaps have moved this element if it was at one of their positions.
        let mut from = order[at];
        while from < at {
            from = order[from];
        }
        list.swap(at, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_as_by_the_standard_library() {
        let mut state = 1u32;
        for count in 0..40 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 28
            };
            let list: Vec<(u32, usize)> = (0..count).map(|at| (next(), at)).collect();
            let (mut expected, mut keyed, mut compared, mut sorted) = (list.clone(), list.clone(), list.clone(), list);
            expected.sort_by_key(|element| element.0);
            by_key(&mut keyed, |element| element.0);
            by(&mut compared, |a, b| a.0.cmp(&b.0));
            assert_eq!((&keyed, &compared), (&expected, &expected));
            natural(&mut sorted);
            assert!(sorted.is_sorted());
        }
    }
}
