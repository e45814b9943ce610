//! Arrays of random numbers, by the counter-based generator Philox4x32-10 (Salmon et al., "Parallel
//! Random Numbers: As Easy as 1, 2, 3", 2011).
//!
//! The number at a position depends on seed, offset and position alone: it is that of
//! [`ct::random::Philox`] along one axis.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::random::{Philox, RandomFloat};
use cutlet::{DeviceViewMut, Stream};

use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Numbers of a tile. Four of them are computed together.
const TILE: usize = 4096;

/// Distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// From a number to before another one.
    Uniform(f32, f32),
    /// Mean and standard deviation.
    Normal(f32, f32),
    /// 1 with a probability, else 0.
    Bernoulli(f32),
}

/// Seed and offset of random numbers. Other offsets are other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    /// Key of the generator.
    pub seed: u64,
    /// Upper words of the counter.
    pub offset: u64,
}

/// Stores the tiles of a block.
fn each_tile<T: ByteSized>(y: ArrayMut<T, 1>, numbers: impl Fn(Scalar<i32>) -> Tile<T, 1>) {
    let tiles = ct::range(ct::bid(0), y.num_tiles(0, [TILE])).step(ct::num_blocks(0));
    ct::fold(tiles, (), |(), i| y.store(i, numbers(i)));
}

fn floats<T: RandomFloat>(
    y: ArrayMut<T, 1>,
    (seed, offset): (Scalar<u64>, Scalar<u64>),
    [a, b]: [Scalar<f32>; 2],
    form: u8,
) {
    let all = Philox::new(seed, offset);
    each_tile(y, |i| match form {
        0 => all.uniform::<T, 1>(i, [TILE]) * (b - a).cast::<T>() + a.cast::<T>(),
        1 => all.normal::<T, 1>(i, [TILE]) * b.cast::<T>() + a.cast::<T>(),
        _ => all.bernoulli(i, [TILE], a).cast::<T>(),
    });
}

fn integers(y: ArrayMut<i32, 1>, (seed, offset): (Scalar<u64>, Scalar<u64>), [start, end]: [Scalar<i32>; 2]) {
    let all = Philox::new(seed, offset);
    each_tile(y, |i| all.range(i, [TILE], start..end));
}

fn launch(stream: &Stream, n: usize) -> ct::Launch<'_> {
    ct::Launch::new(n.div_ceil(TILE).min(16 * num_multiprocessors(stream))).stream(stream)
}

#[track_caller]
fn check(n: usize) -> ct::Result<()> {
    require(n < 1 << 31, || format!("{n} random numbers: there may be 2^31 - 1"))
}

/// Queues the fill of an array of shape (n) with random numbers: f32, f64, f16 or bf16.
///
/// ```
/// use cutlet_kernels::numbers::{Distribution, Seed, fill_random};
///
/// let device = cutlet::Device::cpu();
/// let mut y = device.zeros::<f32, 1>([1000])?;
/// let seed = Seed { seed: 42, offset: 0 };
/// fill_random(&device.default_stream(), y.view_mut(), Distribution::Uniform(-1.0, 1.0), seed)?;
/// assert!(y.to_vec()?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for 2^31 numbers; those of the launch.
#[track_caller]
pub fn fill_random<T: RandomFloat>(
    stream: &Stream,
    y: DeviceViewMut<T, 1>,
    distribution: Distribution,
    Seed { seed, offset }: Seed,
) -> ct::Result<()> {
    check(y.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let (numbers, form) = match distribution {
        Distribution::Uniform(a, b) => ([a, b], 0u8),
        Distribution::Normal(mean, deviation) => ([mean, deviation], 1),
        Distribution::Bernoulli(p) => ([p, 0.0], 2),
    };
    launch(stream, y.len()).run(floats::<T>, (y, (seed, offset), numbers, ct::Constant(form)))
}

/// Queues the fill of an array of shape (n) with random integers of a range.
///
/// ```
/// use cutlet_kernels::numbers::{Seed, fill_integers};
///
/// let device = cutlet::Device::cpu();
/// let mut y = device.zeros([100])?;
/// fill_integers(&device.default_stream(), y.view_mut(), -3..3, Seed { seed: 1, offset: 2 })?;
/// assert!(y.to_vec()?.iter().all(|x| (-3..3).contains(x)));
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for an empty range or 2^31 numbers; those of the launch.
#[track_caller]
pub fn fill_integers(
    stream: &Stream,
    y: DeviceViewMut<i32, 1>,
    range: std::ops::Range<i32>,
    Seed { seed, offset }: Seed,
) -> ct::Result<()> {
    check(y.len())?;
    require(!range.is_empty(), || format!("random integers of the empty range {range:?}"))?;
    if y.is_empty() {
        return Ok(());
    }
    launch(stream, y.len()).run(integers, (y, (seed, offset), [range.start, range.end]))
}
