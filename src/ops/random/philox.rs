//! Random numbers as a function of seed, offset and position.
//!
//! The generator is Philox4x32-10 (J. Salmon, M. Moraes, R. Dror and D. Shaw, *Parallel random
//! numbers: as easy as 1, 2, 3*, SC 2011). Ten rounds of products compute four 32-bit words from a
//! counter of four words and a key of two words.

use super::distributions;
use crate::dtype::DType;
use crate::element::{ByteSized, Float, bf16, f16};
use crate::ir::{Opcode, Sign, Type, Value};
use crate::ops::create::construct::extents;
use crate::ops::support::expr_builder::formula;
use crate::ops::support::operand::{Operand, operand};
use crate::ops::support::tile_index::{Component, TileIndex};
use crate::ops::{arange_from, zeros};
use crate::tile::{Handle, Place, Scalar, Tile, Trace, caller_location, record, with_location};

/// An unbounded array of random numbers, from which a kernel loads tiles as by
/// [`load`](crate::Array::load).
///
/// The number at a position depends only on seed, offset and position, and not on tile extents,
/// grid or back end. Two kernels therefore obtain equal numbers at equal positions, for example in
/// the backward pass of a dropout. A different seed or offset results in different numbers.
///
/// Results are bit-identical on all back ends, with these exceptions:
///
/// * [`normal`](Philox::normal) and [`exponential`](Philox::exponential) in f64 use functions that
///   may differ in the last place.
/// * The same two methods in the scope of [`with_mode`](crate::with_mode) with
///   [`approx`](crate::FloatMode::approx) use the fast logarithm, square root, sine and cosine of
///   the GPU. Normal numbers then need two thirds of the instructions. The error in f32 is 2^-18 of
///   the distance from 0, or 2^-10 close to 0, and the last digits depend on the back end.
///
/// An index counts tiles, or elements with [`at`](crate::at()). Tiles have one to three axes.
/// Extents of the last axis that are multiples of 4 are the fastest, because four numbers are
/// computed together.
///
/// The words of the counter are column / 4 (f64: column / 2), row, and the two halves of the
/// offset. The position along the first of three axes is added to the offset. The key is the seed.
///
/// # Period
/// The numbers repeat after the counter wraps:
///
/// * along the last axis after 2^34 numbers (f64: 2^33),
/// * along the previous axis after 2^32,
/// * along the first of three axes after 2^64. The offset is added to the position along this axis.
///
/// A tile across the end of a period continues at its beginning. Negative positions count from the
/// end. A further offset or seed provides more numbers than one period.
///
/// ```
/// # use cutlet::doctest::*;
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).checks(ct::Checks::all()).launch(|| {
/// let (numbers, period) = (ct::random::Philox::new(42, 7), 1i64 << 34);
/// ct::assert!(numbers.bits(ct::at(5), [8]).eq(numbers.bits(ct::at(5 + period), [8])));
/// ct::assert!(numbers.bits(ct::at(-3), [8]).eq(numbers.bits(ct::at(period - 3), [8])));
/// ct::assert!(!numbers.bits(ct::at(5), [8]).eq(numbers.bits(ct::at(5 + period / 2), [8])).any(0));
/// let double = |first: i64| numbers.uniform::<f64, 1>(ct::at(first), [8]);
/// ct::assert!(double(5).eq(double(5 + period / 2)));
/// let row = |row: i64| numbers.bits((row, 0), [1, 8]);
/// ct::assert!(row(3).eq(row(3 + (1 << 32))));
/// let plane = |offset: u64, plane: i64| ct::random::Philox::new(42, offset).bits((plane, 0, 0), [1, 1, 8]);
/// ct::assert!(plane(7, 3).eq(plane(8, 2)) & plane(u64::MAX, 1).eq(plane(0, 0)));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Examples
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn dropout(x: Array<f32, 2>, y: ArrayMut<f32, 2>, keep: Scalar<f32>, seed: Scalar<u64>) {
///     let at = (ct::bid(0), ct::bid(1));
///     let x = x.load(at, [16, 64]);
///     let kept = ct::random::Philox::new(seed, 0).bernoulli(at, [16, 64], keep);
///     y.store(at, kept.select(x / keep, 0.0));
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([100, 100], 1.0f32)?, device.zeros([100, 100])?);
/// ct::launch(dropout, [7, 2], (&x, &mut y, 0.75f32, 42u64))?;
/// let sum: f32 = y.to_vec()?.iter().sum();
/// assert!((sum / 1e4 - 1.0).abs() < 0.03, "{sum}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    seed: Scalar<u64>,
    offset: Scalar<u64>,
}

/// The four words of one counter for each element of a tile.
type Words<const R: usize> = [Tile<u32, R>; 4];

/// Float types of random numbers: f16, bf16, f32, f64.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn noise<T: ct::random::RandomFloat>() -> Tile<T, 1> {
///     ct::random::Philox::new(1, 0).uniform::<T, 1>(0, [8])
/// }
/// ct::assert!(noise::<f16>().lt(1.0) & noise::<f64>().lt(1.0));
/// # });
/// ```
pub trait RandomFloat: Float {
    /// Number of random numbers from one counter.
    #[doc(hidden)]
    const LANES: usize;
    #[doc(hidden)]
    fn uniforms<const R: usize>(words: Words<R>) -> Vec<Tile<Self, R>>;
    #[doc(hidden)]
    fn normals<const R: usize>(words: Words<R>) -> Vec<Tile<Self, R>>;
    #[doc(hidden)]
    fn exponentials<const R: usize>(words: Words<R>) -> Vec<Tile<Self, R>>;
}

/// The 53 high bits of each pair of words.
fn doubles<const R: usize>([a, b, c, d]: Words<R>) -> [Tile<u64, R>; 2] {
    [[a, b], [c, d]].map(|[low, high]| (low.cast::<u64>() | (high.cast::<u64>() << 32)) >> 11)
}

fn normal_singles<const R: usize>([a, b, c, d]: Words<R>) -> [Tile<f32, R>; 4] {
    let ([x, y], [z, w]) = (distributions::normals(a, b), distributions::normals(c, d));
    [x, y, z, w]
}

impl RandomFloat for f32 {
    const LANES: usize = 4;
    fn uniforms<const R: usize>(words: Words<R>) -> Vec<Tile<f32, R>> {
        words.map(|word| (word >> 8).cast::<f32>() * 2f32.powi(-24)).to_vec()
    }
    fn normals<const R: usize>(words: Words<R>) -> Vec<Tile<f32, R>> {
        normal_singles(words).to_vec()
    }
    fn exponentials<const R: usize>(words: Words<R>) -> Vec<Tile<f32, R>> {
        words.map(distributions::exponential).to_vec()
    }
}

impl RandomFloat for f64 {
    const LANES: usize = 2;
    fn uniforms<const R: usize>(words: Words<R>) -> Vec<Tile<f64, R>> {
        doubles(words).map(|bits| bits.cast::<f64>() * 2f64.powi(-53)).to_vec()
    }
    fn normals<const R: usize>(words: Words<R>) -> Vec<Tile<f64, R>> {
        let [a, b] = doubles(words).map(|bits| (bits + 1).cast::<f64>() * 2f64.powi(-53));
        let (radius, angle) = ((a.log() * -2.0).sqrt(), b * std::f64::consts::TAU);
        vec![radius * angle.cos(), radius * angle.sin()]
    }
    fn exponentials<const R: usize>(words: Words<R>) -> Vec<Tile<f64, R>> {
        doubles(words).map(|bits| -((bits + 1).cast::<f64>() * 2f64.powi(-53)).log()).to_vec()
    }
}

macro_rules! halves {
    ($($name:ident $digits:literal;)+) => {$(
        impl RandomFloat for $name {
            const LANES: usize = 4;
            fn uniforms<const R: usize>(words: Words<R>) -> Vec<Tile<$name, R>> {
                // The number of bits is that of the mantissa, so that no number is rounded up to 1.
                words.map(|word| ((word >> (32 - $digits)).cast::<f32>() * 2f32.powi(-$digits)).cast()).to_vec()
            }
            fn normals<const R: usize>(words: Words<R>) -> Vec<Tile<$name, R>> {
                normal_singles(words).map(|x| x.cast()).to_vec()
            }
            fn exponentials<const R: usize>(words: Words<R>) -> Vec<Tile<$name, R>> {
                words.map(|word| distributions::exponential(word).cast()).to_vec()
            }
        }
    )+};
}
halves! { f16 11; bf16 8; }

impl Philox {
    /// Creates the generator for a seed and an offset. Different offsets result in different
    /// numbers. A kernel that draws repeatedly, for example in a loop, increments the offset.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let numbers = ct::random::Philox::new(42, 0);
    /// ct::assert!(numbers.bits(0, [8]).eq(ct::random::Philox::new(42, 0).bits(0, [8])));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn new(seed: impl Operand<Scalar<u64>>, offset: impl Operand<Scalar<u64>>) -> Philox {
        let place = caller_location();
        let seed = formula(place, "Philox::new", &[operand::<Scalar<u64>>(seed)], |_, v| v[0]);
        let offset = formula(place, "Philox::new", &[operand::<Scalar<u64>>(offset)], |_, v| v[0]);
        Philox { seed, offset }
    }

    /// Words of 32 random bits.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    ///
    /// fn kernel(y: ArrayMut<u32, 1>) {
    ///     y.store(0, ct::random::Philox::new(0, 0).bits(0, [4]));
    /// }
    ///
    /// let mut y = ct::Device::cpu().zeros([4])?;
    /// ct::launch(kernel, 1, (&mut y,))?;
    /// assert_eq!(y.to_vec()?, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn bits<const R: usize>(self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<u32, R> {
        self.lanes(caller_location(), "bits", index.components(), shape, 4, &|words| words.to_vec())
    }

    /// Uniform numbers in [0, 1): multiples of 2^-24 (f64: 2^-53, f16: 2^-11, bf16: 2^-8).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::random::Philox::new(42, 0).uniform::<f32, 1>(0, [64]);
    /// ct::assert!(x.ge(0.0) & x.lt(1.0));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn uniform<T: RandomFloat, const R: usize>(self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<T, R> {
        self.lanes(caller_location(), "uniform", index.components(), shape, T::LANES, &T::uniforms)
    }

    /// Numbers of the normal distribution with mean 0 and variance 1.
    ///
    /// In f32 the largest magnitude is 6.76 (f64: 8.57). The resolution is 24 bits of distance and
    /// 26 bits of direction. The error is 2^-20 of the distance, or 2^-20 if the distance is less
    /// than 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::random::Philox::new(42, 0).normal::<f32, 1>(0, [1024]);
    /// ct::assert!((x.sum(0) / 1024.0).abs().lt(0.1));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn normal<T: RandomFloat, const R: usize>(self, index: impl TileIndex<R>, shape: [usize; R]) -> Tile<T, R> {
        self.lanes(caller_location(), "normal", index.components(), shape, T::LANES, &T::normals)
    }

    /// Numbers of the exponential distribution with mean 1: in f32 from 1.5e-8 to 22.9, in f64 from
    /// 0 to 36.7.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let x = ct::random::Philox::new(42, 0).exponential::<f32, 1>(0, [1024]);
    /// ct::assert!((x.sum(0) / 1024.0 - 1.0).abs().lt(0.1));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn exponential<T: RandomFloat, const R: usize>(
        self,
        index: impl TileIndex<R>,
        shape: [usize; R],
    ) -> Tile<T, R> {
        self.lanes(caller_location(), "exponential", index.components(), shape, T::LANES, &T::exponentials)
    }

    /// Integers from `range.start` to before `range.end`, which must be greater. The probabilities
    /// of two integers differ by at most their number times 2^-32.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let dice = ct::random::Philox::new(42, 0).range(0, [64], 1..7);
    /// ct::assert!(dice.ge(1) & dice.le(6));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn range<const R: usize>(
        self,
        index: impl TileIndex<R>,
        shape: [usize; R],
        range: std::ops::Range<impl Operand<Scalar<i32>>>,
    ) -> Tile<i32, R> {
        let place = caller_location();
        let [start, end]: [Scalar<i32>; 2] =
            [range.start, range.end].map(|end| formula(place, "range", &[operand::<Scalar<i32>>(end)], |_, v| v[0]));
        let words = self.lanes(place, "range", index.components(), shape, 4, &|words| words.to_vec());
        with_location(place, || words.mul_hi((end - start).cast::<u32>()).cast::<i32>() + start)
    }

    /// `true` with this probability, from 0 to 1.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// # on_cpu(|| {
    /// let rare = ct::random::Philox::new(42, 0).bernoulli(0, [1024], 0.125);
    /// ct::assert!((rare.count(0) - 128).abs().lt(50));
    /// # });
    /// ```
    #[track_caller]
    #[must_use]
    pub fn bernoulli<const R: usize>(
        self,
        index: impl TileIndex<R>,
        shape: [usize; R],
        probability: impl Operand<Scalar<f32>>,
    ) -> Tile<bool, R> {
        let place = caller_location();
        let probability: Scalar<f32> = formula(place, "bernoulli", &[operand::<Scalar<f32>>(probability)], |_, v| v[0]);
        let numbers: Tile<f32, R> = self.lanes(place, "bernoulli", index.components(), shape, 4, &f32::uniforms);
        with_location(place, || numbers.lt(probability))
    }

    /// Makes numbers from words. One counter provides `lanes` numbers.
    fn lanes<T: ByteSized, const R: usize>(
        self,
        place: Place,
        name: &str,
        index: [Component; R],
        shape: [usize; R],
        lanes: usize,
        make: &dyn Fn(Words<R>) -> Vec<Tile<T, R>>,
    ) -> Tile<T, R> {
        let fine = record(|t| {
            t.at(place);
            if !(1..=3).contains(&R) {
                let message = format!("`{name}`: random numbers for {R} axes");
                t.report(place, message, &["they have 1 to 3 axes: `reshape` the tile"]);
                return false;
            }
            t.legal_shape(place, name, &extents(shape))
        });
        if !fine {
            return Tile::from_raw(record(|t| t.poison(Type::tile(T::DTYPE, vec![1; R]))));
        }
        with_location(place, || {
            let last = R - 1;
            let bits = lanes.trailing_zeros();
            let along = |axis: usize| positions::<R>(place, name, index[axis], axis, shape[axis]);
            let row = if R >= 2 { along(R - 2).cast::<u32>() } else { zeros([1; R]) };
            let mut offset = zeros::<u64, R>([1; R]) + self.offset;
            if R == 3 {
                offset += along(0).cast::<u64>();
            }
            let counters = |column: Tile<u32, R>| [column, row, offset.cast::<u32>(), (offset >> 32).cast::<u32>()];
            let aligned = matches!(index[last], Component::Tiles(_)) && shape[last].is_multiple_of(lanes);
            if aligned {
                // The tile begins with the first number of a counter.
                let mut narrow = shape;
                narrow[last] /= lanes;
                let column = positions::<R>(place, name, index[last], last, narrow[last]).cast::<u32>();
                let parts = make(self.words(counters(column)).map(|word| word.broadcast_to(narrow)));
                return interleaved(&parts, last);
            }
            let column = along(last);
            let parts = make(self.words(counters((column >> i64::from(bits)).cast::<u32>())));
            let lane = (column & (lanes as i64 - 1)).cast::<i32>();
            let mut parts = parts.into_iter().enumerate().rev();
            let (_, mut number) = parts.next().expect("a counter has numbers");
            for (position, part) in parts {
                number = lane.eq(position).broadcast_to(number.shape()).select(part, number);
            }
            number.broadcast_to(shape)
        })
    }

    /// The ten rounds of Philox.
    fn words<const R: usize>(self, counter: Words<R>) -> Words<R> {
        let [mut a, mut b, mut c, mut d] = counter;
        let (mut low, mut high) = (self.seed.cast::<u32>(), (self.seed >> 32).cast::<u32>());
        for round in 0..10 {
            if round > 0 {
                low += 0x9e37_79b9;
                high += 0xbb67_ae85;
            }
            let (first, second) = (0xd251_1f53u32, 0xcd9e_8d57u32);
            [a, b, c, d] = [c.mul_hi(second) ^ b ^ low, c * second, a.mul_hi(first) ^ d ^ high, a * first];
        }
        // The words are broadcast to one shape, because they depend on different axes.
        let shapes = [a, b, c, d].map(Tile::shape);
        let shape = std::array::from_fn(|axis| shapes.iter().map(|shape| shape[axis]).max().unwrap_or(1));
        [a, b, c, d].map(|word| word.broadcast_to(shape))
    }
}

/// Interleaves the parts: the first elements of all, the second elements of all, and so on.
fn interleaved<T: ByteSized, const R: usize>(parts: &[Tile<T, R>], axis: usize) -> Tile<T, R> {
    match *parts {
        [a, b, c, d] => a.interleave(c, axis).interleave(b.interleave(d, axis), axis),
        [a, b] => a.interleave(b, axis),
        _ => unreachable!("a counter has two or four numbers"),
    }
}

/// Positions of the elements of a tile along an axis, with extent 1 along the others.
fn positions<const R: usize>(place: Place, name: &str, index: Component, axis: usize, extent: usize) -> Tile<i64, R> {
    let mut shape = [1; R];
    shape[axis] = extent;
    if let Component::Sparse(number) = index {
        return Tile::from_raw(record(|t| {
            let shape = extents(shape);
            let ty = Type::tile(DType::I64, shape.as_slice());
            let Some(list) = t.periodic_list(place, number) else { return t.poison(ty) };
            let count = t.builder.module.shape(list).iter().product::<i64>();
            if count != shape[axis] {
                let message = format!("`{name}`: {count} positions for extent {extent} of axis {axis}");
                return t.fail(place, ty, message, &["a list of positions has one for each element along its axis"]);
            }
            let list = t.put(Opcode::Reshape, &[list], vec![], t.builder.module.dtype(list), &shape);
            let list = t.widened(list);
            t.raw(list)
        }));
    }
    let start: Scalar<i64> = Scalar::from_raw(record(|t| {
        let first = match index {
            Component::Tiles(number) => t.periodic_index(place, number, extents([extent])[0]),
            Component::Elements(number) | Component::Sparse(number) => t.periodic_index(place, number, 1),
        };
        match first {
            Some(first) => t.raw(first),
            None => t.poison(Type::scalar(DType::I64)),
        }
    }));
    let line: Tile<i64, 1> = if extent == 1 { zeros([1]) } else { arange_from(extent, 0i64, 1) };
    (line + start).reshape(shape)
}

impl Trace {
    /// Converts an integer to i64.
    fn widened(&mut self, value: Value) -> Value {
        match self.builder.module.dtype(value) {
            DType::I64 => value,
            _ => self.extended(value, Sign::Signed, DType::I64),
        }
    }
}
