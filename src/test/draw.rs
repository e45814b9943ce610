//! Draws of a case: named extents, options and numbers, each a function of the seed and its name.

use std::collections::BTreeMap;
use std::fmt;

use super::random::Random;

/// A case of a property: the seed of all draws, and the values that replace draws.
#[derive(Clone, Default)]
pub(super) struct Case {
    pub seed: u64,
    /// Values of draws by name, set by the reduction of a failure and by laws.
    pub forced: BTreeMap<String, usize>,
    /// Contents of arrays by their number: extents, and bits of the elements.
    pub contents: BTreeMap<usize, (Vec<usize>, Vec<u64>)>,
}

/// A draw of a case.
#[derive(Clone)]
pub(super) struct Drawn {
    pub name: String,
    pub value: usize,
    /// The smallest permitted value.
    pub least: usize,
    /// The value as text, for reports.
    pub shown: String,
}

/// The source of extents, tile sizes and options of a case: the argument of the function that
/// [`Kernel::shapes`](super::Kernel::shapes) accepts.
///
/// Each draw has a name, which reports print. A draw depends on the seed of the case and on its
/// name, and not on other draws.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Kernel, Output};
///
/// fn fill(y: ArrayMut<f32, 1>, tile: usize) {
///     y.store(ct::bid(0), ct::ones([tile]));
/// }
///
/// Kernel::new(fill)
///     .shapes(|draw| {
///         let tile = draw.pick("tile", [16, 64]);
///         let n = draw.extent("n", tile);
///         (n.div_ceil(tile), (Output::new([n]), Constant(tile)))
///     })
///     .reference(|(y, _)| y.fill(|_| 1.0))
///     .run();
/// ```
pub struct Draw<'c> {
    case: &'c Case,
    drawn: Vec<Drawn>,
    is_rejected: bool,
}

impl fmt::Debug for Draw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draw")
            .field("draws", &self.drawn.len())
            .field("is_rejected", &self.is_rejected)
            .finish_non_exhaustive()
    }
}

impl<'c> Draw<'c> {
    pub(super) fn new(case: &'c Case) -> Draw<'c> {
        Draw { case, drawn: Vec::new(), is_rejected: false }
    }

    /// Returns the draws in their order.
    pub(super) fn drawn(&self) -> &[Drawn] {
        &self.drawn
    }

    /// Returns true if an assumption of the case does not hold.
    pub(super) fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// Returns the value of a draw: the forced one, or a random one of the name.
    pub(super) fn value(&mut self, name: &str, least: usize, random: impl FnOnce(&mut Random) -> usize) -> usize {
        let count = self.drawn.iter().filter(|drawn| drawn.name.split('#').next() == Some(name)).count();
        let name = if count == 0 { name.to_owned() } else { format!("{name}#{}", count + 1) };
        let value = match self.case.forced.get(&name) {
            Some(&value) => value.max(least),
            None => random(&mut Random::named(self.case.seed, &name)).max(least),
        };
        self.drawn.push(Drawn { name, value, least, shown: value.to_string() });
        value
    }

    /// Draws an extent at a boundary of a tile of `tile` elements: 0, 1, `tile - 1`, `tile`,
    /// `tile + 1`, several tiles, primes, and numbers in between.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// # fn fill(y: ArrayMut<f32, 1>) { y.store(ct::bid(0), ct::ones([16])); }
    /// Kernel::new(fill)
    ///     .shapes(|draw| {
    ///         let n = draw.extent("n", 16);
    ///         (n.div_ceil(16), (Output::new([n]),))
    ///     })
    ///     .reference(|(y,)| y.fill(|_| 1.0))
    ///     .run();
    /// ```
    pub fn extent(&mut self, name: &str, tile: usize) -> usize {
        self.value(name, 0, |random| boundary(random, tile))
    }

    /// Draws an extent as [`Draw::extent`] does, without 0: for kernels that do not accept empty
    /// arrays.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// fn total(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    ///     y.store(0, x.load(0, [64]).sum(0));
    /// }
    ///
    /// Kernel::new(total)
    ///     .shapes(|draw| (1, (Input::new([draw.nonzero_extent("n", 16)]), Output::new([1]))))
    ///     .reference(|(x, y)| y[[0]] = x.values().iter().sum())
    ///     .run();
    /// ```
    pub fn nonzero_extent(&mut self, name: &str, tile: usize) -> usize {
        self.value(name, 1, |random| boundary(random, tile))
    }

    /// Draws an integer of a range, its two ends most often.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// # fn fill(y: ArrayMut<i32, 1>, value: Scalar<i32>) { y.store(ct::bid(0), ct::full([16], value)); }
    /// Kernel::new(fill)
    ///     .shapes(|draw| (2, (Output::new([32]), draw.range("value", 0..=9) as i32)))
    ///     .reference(|(y, value)| y.fill(|_| value.into()))
    ///     .run();
    /// ```
    pub fn range(&mut self, name: &str, range: std::ops::RangeInclusive<usize>) -> usize {
        let (least, most) = (*range.start(), *range.end());
        let value = self.value(name, least, |random| match random.below(4) {
            0 => least,
            1 => most,
            _ => least + random.below(most - least + 1),
        });
        value.min(most)
    }

    /// Draws one of several options: a tile size, a flag, a scalar. The reduction of a failure
    /// prefers the first one.
    ///
    /// # Panics
    /// If there is no option.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Input, Kernel, Output};
    /// fn scale(x: Array<f32, 1>, y: ArrayMut<f32, 1>, factor: Scalar<f32>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [16]) * factor);
    /// }
    ///
    /// Kernel::new(scale)
    ///     .shapes(|draw| (1, (Input::new([16]), Output::new([16]), draw.pick("factor", [1.0, -0.5, 0.0]))))
    ///     .reference(|(x, y, factor)| y.fill(|i| x[i] * f64::from(factor)))
    ///     .run();
    /// ```
    pub fn pick<X: Clone + std::fmt::Debug, const N: usize>(&mut self, name: &str, options: [X; N]) -> X {
        const { assert!(N > 0, "a draw has at least one option") };
        let at = self.value(name, 0, |random| random.below(N)).min(N - 1);
        let picked = options[at].clone();
        if let Some(drawn) = self.drawn.last_mut() {
            (drawn.value, drawn.shown) = (at, format!("{picked:?}"));
        }
        picked
    }

    /// Rejects the case if the condition is false: another case replaces it.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # use cutlet::test::{Kernel, Output};
    /// # fn fill(y: ArrayMut<f32, 1>) { y.store(ct::bid(0), ct::ones([16])); }
    /// Kernel::new(fill)
    ///     .shapes(|draw| {
    ///         let n = draw.extent("n", 16);
    ///         draw.assume(n % 16 == 0);
    ///         (n.div_ceil(16), (Output::new([n]),))
    ///     })
    ///     .reference(|(y,)| y.fill(|_| 1.0))
    ///     .run();
    /// ```
    pub fn assume(&mut self, condition: bool) {
        self.is_rejected |= !condition;
    }
}

/// Returns an extent at a boundary of a tile.
fn boundary(random: &mut Random, tile: usize) -> usize {
    const PRIMES: [usize; 8] = [2, 3, 5, 7, 11, 13, 17, 31];
    match random.below(14) {
        0 => 0,
        1 => 1,
        2 => tile.saturating_sub(1),
        3 => tile,
        4 => tile + 1,
        5 => 2 * tile,
        6 => 2 * tile + 1,
        7 => 3 * tile - 1,
        8 => 3 * tile,
        9 | 10 => PRIMES[random.below(PRIMES.len())],
        11 => prime_above(tile + random.below(tile + 1)),
        _ => random.below(3 * tile + 2),
    }
}

/// Returns the smallest prime above a number.
fn prime_above(n: usize) -> usize {
    let is_prime = |n: &usize| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (n + 1..).find(is_prime).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_of_tiles_are_drawn() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            seen.insert(Draw::new(&Case { seed, ..Case::default() }).extent("n", 16));
        }
        for n in [0, 1, 15, 16, 17, 32, 33, 47, 48, 5, 19] {
            assert!(seen.contains(&n), "{n} of {seen:?}");
        }
        assert!(seen.last() <= Some(&49));
    }

    #[test]
    fn draws_depend_on_seed_and_name_alone() {
        let case = Case { seed: 3, ..Case::default() };
        let (mut one, mut other) = (Draw::new(&case), Draw::new(&case));
        let (a, b) = (one.extent("a", 100), one.extent("b", 100));
        assert_eq!((other.extent("b", 100), other.extent("a", 100)), (b, a));
        let forced = Case { forced: [("b".to_owned(), 0)].into(), ..case };
        let mut draw = Draw::new(&forced);
        assert_eq!((draw.extent("a", 100), draw.nonzero_extent("b", 100)), (a, 1));
        assert_eq!(draw.drawn().len(), 2);
    }

    #[test]
    fn equal_names_are_different_draws() {
        let case = Case { seed: 9, ..Case::default() };
        let mut draw = Draw::new(&case);
        let values: Vec<usize> = (0..8).map(|_| draw.range("n", 0..=1000)).collect();
        assert!(values.iter().any(|value| *value != values[0]), "{values:?}");
        assert_eq!(draw.drawn()[1].name, "n#2");
    }
}
