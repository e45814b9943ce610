//! Arrays of random numbers, generated on their device.

use crate::element::{Element, bf16, f16};
use crate::error::{Error, Result};
use crate::kernel::Constant;
use crate::launch::launch::launch;
use crate::ops::{Philox, bid};
use crate::runtime::{Device, DeviceArray};
use crate::tile::{ArrayMut, Scalar, Tile};

/// Distribution of the numbers of [`Device::random`].
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::Device::cpu().random::<f32, 1>([1000], ct::random::Random::Uniform, 42)?.to_vec()?;
/// assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Random {
    /// Floats in [0, 1).
    Uniform,
    /// Floats of mean 0 and variance 1.
    Normal,
    /// Floats of mean 1.
    Exponential,
    /// Integers from the first number (inclusive) to the second one (exclusive).
    Range(i32, i32),
    /// Bools that are true with this probability.
    Bernoulli(f32),
}

/// Constant form of [`Random`], for which a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Random::Uniform`].
    Uniform,
    /// [`Random::Normal`].
    Normal,
    /// [`Random::Exponential`].
    Exponential,
    /// [`Random::Range`].
    Range,
    /// [`Random::Bernoulli`].
    Bernoulli,
}

impl Random {
    fn kind(self) -> Kind {
        match self {
            Random::Uniform => Kind::Uniform,
            Random::Normal => Kind::Normal,
            Random::Exponential => Kind::Exponential,
            Random::Range(..) => Kind::Range,
            Random::Bernoulli(_) => Kind::Bernoulli,
        }
    }
}

/// Ends of a range and a probability: the numbers that the kernel receives.
type Params = (Scalar<i32>, Scalar<i32>, Scalar<f32>);

/// Element types of [`Device::random`]: f16, bf16, f32, f64 for floats, i8 to i64 and u8 to u64 for
/// integers, bool.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// fn noise<T: ct::random::RandomElement>(device: ct::Device) -> ct::Result<ct::DeviceArray<T, 1>> {
///     device.random([100], ct::random::Random::Uniform, 7)
/// }
/// assert_eq!(noise::<f32>(ct::Device::cpu())?.len(), 100);
/// # Ok::<(), ct::Error>(())
/// ```
pub trait RandomElement: Element {
    #[doc(hidden)]
    fn takes(kind: Kind) -> bool;
    #[doc(hidden)]
    fn numbers(random: Philox, kind: Kind, params: Params) -> Tile<Self, 1>;
}

const TILE: usize = 1024;

macro_rules! floats {
    ($($name:ident)+) => {$(
        impl RandomElement for $name {
            fn takes(kind: Kind) -> bool {
                matches!(kind, Kind::Uniform | Kind::Normal | Kind::Exponential)
            }
            fn numbers(random: Philox, kind: Kind, _: Params) -> Tile<$name, 1> {
                match kind {
                    Kind::Normal => random.normal(bid(0), [TILE]),
                    Kind::Exponential => random.exponential(bid(0), [TILE]),
                    _ => random.uniform(bid(0), [TILE]),
                }
            }
        }
    )+};
}
floats!(f16 bf16 f32 f64);

macro_rules! integers {
    ($($name:ident)+) => {$(
        impl RandomElement for $name {
            fn takes(kind: Kind) -> bool {
                kind == Kind::Range
            }
            fn numbers(random: Philox, _: Kind, (first, end, _): Params) -> Tile<$name, 1> {
                random.range(bid(0), [TILE], first..end).cast()
            }
        }
    )+};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl RandomElement for bool {
    fn takes(kind: Kind) -> bool {
        kind == Kind::Bernoulli
    }
    fn numbers(random: Philox, _: Kind, (_, _, probability): Params) -> Tile<bool, 1> {
        random.bernoulli(bid(0), [TILE], probability)
    }
}

fn fill<T: RandomElement>(out: ArrayMut<T, 1>, seed: Scalar<u64>, params: Params, kind: Kind) {
    out.store(bid(0), T::numbers(Philox::new(seed, 0), kind, params));
}

impl Device {
    /// Returns an array of random numbers, generated on the device. Element k in row-major order is
    /// number k of [`Philox::new`](crate::random::Philox::new)`(seed, 0)` along one axis.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let device = ct::Device::cpu();
    /// let dice = device.random::<i32, 2>([100, 100], ct::random::Random::Range(1, 7), 42)?.to_vec()?;
    /// assert!(dice.iter().all(|n| (1..=6).contains(n)));
    /// assert!((1..=6).all(|n| dice.iter().filter(|&&m| m == n).count() > 1500));
    /// let noise = device.random::<f32, 1>([1000], ct::random::Random::Normal, 42)?.to_vec()?;
    /// assert!(noise.iter().sum::<f32>().abs() < 100.0);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a distribution of another element type or an empty range; else as
    /// [`Device::zeros`] and [`crate::launch`].
    #[track_caller]
    pub fn random<T: RandomElement, const R: usize>(
        &self,
        shape: [usize; R],
        numbers: Random,
        seed: u64,
    ) -> Result<DeviceArray<T, R>> {
        let kind = numbers.kind();
        if !T::takes(kind) {
            return Err(Error::argument(format!(
                "`random`: {numbers:?} does not make {}: floats are Uniform, Normal or Exponential, integers are of a \
                 Range, bools are Bernoulli",
                T::NAME
            )));
        }
        let (first, end) = if let Random::Range(first, end) = numbers { (first, end) } else { (0, 1) };
        if end <= first {
            return Err(Error::argument(format!("`random`: there is no number from {first} to before {end}")));
        }
        let probability = if let Random::Bernoulli(probability) = numbers { probability } else { 0.0 };
        let array = self.zeros::<T, R>(shape)?;
        let count = array.len();
        let mut line = array.into_shape([count])?;
        launch(fill::<T>, count.div_ceil(TILE), (&mut line, seed, (first, end, probability), Constant(kind)))?;
        line.into_shape(shape)
    }
}
