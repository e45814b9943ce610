//! Values of the elements of arrays: numbers that are exact in sums and products, and special
//! values.

use super::element::{TestElement, specials};
use crate::test::random::Random;
use crate::util::collect::CollectVec as _;

/// The values that the elements of an array are drawn from.
///
/// ```
/// # use cutlet::doctest::*;
/// use cutlet::test::{Input, Kernel, Output, Values};
///
/// fn roots(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [16]).sqrt());
/// }
///
/// Kernel::new(roots)
///     .shapes(|draw| {
///         let n = draw.extent("n", 16);
///         (n.div_ceil(16), (Input::new([n]).values(Values::between(0.0, 9.0)), Output::new([n])))
///     })
///     .reference(|(x, y)| y.fill(|i| x[i].sqrt()))
///     .run();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    least: f64,
    most: f64,
    has_specials: bool,
    has_extremes: bool,
}

/// Number of contents of an array with the same values: zeros, one number, numbers, and numbers
/// with special values.
pub(in crate::test) const CONTENTS: usize = 4;

impl Values {
    /// Small numbers: multiples of 1/4 from -4 to 4 for floats, integers from -8 to 8 (0 to 8
    /// without a sign). Sums and products of some of them are exact.
    ///
    /// ```
    /// assert_eq!(cutlet::test::Values::numbers(), cutlet::test::Values::numbers());
    /// ```
    pub fn numbers() -> Values {
        Values { least: f64::NEG_INFINITY, most: f64::INFINITY, has_specials: false, has_extremes: false }
    }

    /// Small numbers, and in some cases NaN, infinities, -0 and the smallest subnormal number: the
    /// default.
    ///
    /// ```
    /// assert_ne!(cutlet::test::Values::specials(), cutlet::test::Values::numbers());
    /// ```
    pub fn specials() -> Values {
        Values { has_specials: true, ..Values::numbers() }
    }

    /// Small numbers, and in some cases also the least and the greatest finite value of the type.
    ///
    /// ```
    /// assert_ne!(cutlet::test::Values::extremes(), cutlet::test::Values::specials());
    /// ```
    pub fn extremes() -> Values {
        Values { has_specials: true, has_extremes: true, ..Values::numbers() }
    }

    /// Numbers of a range with both ends: integers, or 64 equal steps for floats.
    ///
    /// ```
    /// assert_ne!(cutlet::test::Values::between(0.0, 1.0), cutlet::test::Values::between(0.0, 2.0));
    /// ```
    pub fn between(least: f64, most: f64) -> Values {
        Values { least, most, ..Values::numbers() }
    }

    /// Returns the elements of an array: `content` is less than [`CONTENTS`].
    pub(in crate::test) fn elements<T: TestElement>(&self, count: usize, content: usize, mut random: Random) -> Vec<T> {
        match content {
            0 => vec![self.simplest(); count],
            1 => vec![self.number(&mut random); count],
            _ => {
                let mut values: Vec<T> = (0..count).map(|_| self.number(&mut random)).collect_vec();
                let special = self.special_values();
                if content == 3 && !special.is_empty() && count > 0 {
                    for _ in 0..1 + random.below(3) {
                        let at = match random.below(3) {
                            0 => count - 1,
                            _ => random.below(count),
                        };
                        values[at] = special[random.below(special.len())];
                    }
                }
                values
            }
        }
    }

    /// Returns values by which the reduction of a failure replaces others, the simplest one first.
    pub(in crate::test) fn simple<T: TestElement>(&self) -> [T; 2] {
        let (least, most) = self.ends::<T>();
        let one = 1f64.clamp(least, most);
        [self.simplest(), T::from_f64(one)]
    }

    fn simplest<T: TestElement>(&self) -> T {
        let (least, most) = self.ends::<T>();
        T::from_f64(0f64.clamp(least, most))
    }

    fn special_values<T: TestElement>(&self) -> Vec<T> {
        let mut values = if self.has_specials { specials() } else { Vec::new() };
        if self.has_extremes {
            values.extend(T::extremes());
        }
        values
    }

    fn ends<T: TestElement>(&self) -> (f64, f64) {
        if !self.least.is_infinite() {
            return (self.least, self.most.max(self.least));
        }
        match (T::ULP != 0.0, T::SIGNED) {
            (true, _) => (-4.0, 4.0),
            (false, true) => (-8.0, 8.0),
            (false, false) => (0.0, 8.0),
        }
    }

    fn number<T: TestElement>(&self, random: &mut Random) -> T {
        let (least, most) = self.ends::<T>();
        if T::DTYPE == crate::dtype::DType::I1 {
            return T::from_f64(random.below(2) as f64);
        }
        if T::ULP == 0.0 {
            let count = (most.floor() - least.ceil()).max(0.0) as usize;
            return T::from_f64(least.ceil() + random.below(count + 1) as f64);
        }
        let steps = if self.least.is_infinite() { 32 } else { 64 };
        T::from_f64(least + (most - least) * random.below(steps + 1) as f64 / steps as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<T: TestElement>(values: Values, content: usize) -> Vec<T> {
        values.elements(1000, content, Random::new(1))
    }

    #[test]
    fn numbers_are_in_their_range() {
        assert!(all::<f32>(Values::numbers(), 2).iter().all(|x| (x * 4.0).fract() == 0.0 && x.abs() <= 4.0));
        assert!(all::<u8>(Values::specials(), 3).iter().all(|&x| x <= 8));
        let between = all::<i32>(Values::between(3.0, 5.0), 2);
        assert!([3, 4, 5].iter().all(|n| between.contains(n)) && between.iter().all(|n| (3..=5).contains(n)));
        assert_eq!(Values::between(3.0, 5.0).simple::<i32>(), [3, 3]);
    }

    #[test]
    fn few_elements_are_special() {
        let values = all::<f32>(Values::specials(), 3);
        let special = values.iter().filter(|x| !x.is_normal() && x.to_bits() != 0).count();
        assert!((1..=3).contains(&special), "{special}");
        assert!(all::<f32>(Values::numbers(), 3).iter().all(|x| x.is_finite()));
        let seen: Vec<i8> = (0..20).flat_map(|seed| Values::extremes().elements(8, 3, Random::new(seed))).collect();
        assert!(seen.contains(&i8::MIN) && seen.contains(&i8::MAX));
    }
}
