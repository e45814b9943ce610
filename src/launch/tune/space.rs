//! Spaces of configurations: Cartesian products of ranges.

use crate::sealed::Sealed;
use crate::util::collect::CollectVec as _;

/// Ranges whose Cartesian product is a list of configurations: a tuple of one to six lists or
/// ranges.
///
/// This trait is sealed.
pub trait Ranges: Sealed {
    /// Tuple of one value of each range.
    type Point;

    /// Returns all tuples; the last range varies fastest.
    fn points(self) -> Vec<Self::Point>;
}

macro_rules! ranges {
    ($($first:ident $first_index:tt $($name:ident $index:tt)*;)+) => {$(
        impl<$first: IntoIterator, $($name: IntoIterator),*> Ranges for ($first, $($name,)*)
        where
            $first::Item: Clone,
            $($name::Item: Clone,)*
        {
            type Point = ($first::Item, $($name::Item,)*);

            fn points(self) -> Vec<Self::Point> {
                #[allow(non_snake_case)]
                let ($first, $($name,)*) = (listed(self.$first_index), $(listed(self.$index),)*);
                let mut all: Vec<Self::Point> = Vec::new();
                ranges!(@loop all [] $first $($name)*);
                all
            }
        }
    )+};
    (@loop $all:ident [$($done:ident)*] $name:ident $($rest:ident)*) => {
        #[allow(non_snake_case)]
        for $name in &$name {
            ranges!(@loop $all [$($done)* $name] $($rest)*);
        }
    };
    (@loop $all:ident [$($done:ident)*]) => {
        $all.push(($($done.clone(),)*));
    };
}
ranges! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
}

/// Returns the values of a range as a list, because inner ranges are repeated.
fn listed<I: IntoIterator>(range: I) -> Vec<I::Item> {
    range.into_iter().collect_vec()
}

/// Returns all combinations of the values of some ranges, as tuples: configurations for a
/// [`Tuner`](crate::Tuner).
///
/// ```
/// let all = cutlet::tune::space(([64, 128], 1..=3u32));
/// assert_eq!(all, [(64, 1), (64, 2), (64, 3), (128, 1), (128, 2), (128, 3)]);
/// assert_eq!(cutlet::tune::space(([32usize, 64], [false, true], ["a"])).len(), 4);
/// ```
#[must_use]
pub fn space<R: Ranges>(ranges: R) -> Vec<R::Point> {
    ranges.points()
}
