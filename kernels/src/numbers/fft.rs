//! Fourier transforms of rows of complex numbers.
//!
//! Rows of up to 2^14 numbers are transformed in the registers of a block. Longer ones are matrices
//! of n1 x n2 numbers, and have two passes (Bailey, "FFTs in External or Hierarchical Memory",
//! 1989):
//!
//! 1. Transforms of columns, times the twiddle factors exp(-2πi k1 j2 / n).
//! 2. Transforms of rows, which are stored as columns.
//!
//! The inverse is the transform of numbers with exchanged parts, over n.

use cutlet as ct;
use cutlet::math::{Complex, ComplexArray, ComplexArrayMut, Interleaved, fft};
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};

use crate::check::require;
use crate::launch::Run;

/// Longest row of one pass, and longest row.
const ONE_PASS: usize = 1 << 14;
const LONGEST: usize = 1 << 20;
/// Numbers of a tile, unless a row has more.
const TILE: usize = 4096;

/// Direction of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Sums with exp(-2πi n k / N).
    Forward,
    /// Sums with exp(2πi n k / N), over N.
    Inverse,
}

/// Exchanges the parts for the inverse.
fn turned<const R: usize>(z: Complex<Tile<f32, R>>, transform: Transform) -> Complex<Tile<f32, R>> {
    match transform {
        Transform::Forward => z,
        Transform::Inverse => Complex { re: z.im, im: z.re },
    }
}

fn rows(x: ComplexArray<f32, 2>, y: ComplexArrayMut<f32, 2>, (tile, transform): ([usize; 2], Transform)) {
    ct::require_rowwise(0);
    let at = (ct::bid(0), 0);
    let z = fft(turned(x.load(at, tile), transform), 1);
    let scale = if transform == Transform::Inverse { 1.0 / tile[1] as f32 } else { 1.0 };
    y.store(at, turned(z, transform).map(|part| part * scale));
}

/// Numbers of rows and columns of a long row, and its transform.
type Long = ([usize; 2], usize, Transform);

/// exp(-πi x).
fn root(x: Tile<f32, 3>) -> Complex<Tile<f32, 3>> {
    Complex { re: x.cospi(), im: -x.sinpi() }
}

/// Numbers of rows that are powers of one twiddle factor: a thread has them after a transform.
const POWERS: usize = 8;

fn columns(x: ComplexArray<f32, 3>, y: ComplexArrayMut<f32, 3>, ([n1, n2], count, transform): Long) {
    let at = (ct::bid(1), 0, ct::bid(0));
    let z = fft(turned(x.load(at, [1, n1, count]), transform), 1);
    // Row r + h n1/8 has the factor w^(r column) (w^(n1/8 column))^h.
    let part = n1 / POWERS;
    let column = (ct::indices([1, 1, count], 2) + ct::bid(0) * count).cast::<f32>();
    let first = root(ct::indices([1, part, 1], 1).cast::<f32>() * column * (2.0 / (n1 * n2) as f32));
    let step = root(column * (2.0 * part as f32 / (n1 * n2) as f32));
    let mut powers = vec![step];
    (2..POWERS).for_each(|h| powers.push(powers[h / 2 - 1] * powers[h - h / 2 - 1]));
    let rows: Vec<Complex<Tile<f32, 3>>> = (0..POWERS)
        .map(|h| {
            let rows = z.map(|all| all.extract((0, h, 0), [1, part, count])) * first;
            if h == 0 { rows } else { rows * powers[h - 1].map(|power| power.broadcast_to([1, part, count])) }
        })
        .collect();
    let joined = |of: fn(&Complex<Tile<f32, 3>>) -> Tile<f32, 3>| ct::cat(rows.iter().map(of), 1);
    y.store(at, Complex { re: joined(|rows| rows.re), im: joined(|rows| rows.im) });
}

fn rows_to_columns(x: ComplexArray<f32, 3>, y: ComplexArrayMut<f32, 3>, ([n1, n2], count, transform): Long) {
    let z = fft(x.load((ct::bid(1), ct::bid(0), 0), [1, count, n2]), 2);
    let scale = if transform == Transform::Inverse { 1.0 / (n1 * n2) as f32 } else { 1.0 };
    let z = turned(z, transform).map(|part| part.permute([0, 2, 1]) * scale);
    y.store((ct::bid(1), 0, ct::bid(0)), z);
}

/// Transforms of rows of n complex numbers of f32; n is a power of two up to 2^20.
///
/// ```
/// use cutlet_kernels::numbers::{Fft, Transform};
///
/// let device = cutlet::Device::cpu();
/// // Pairs of real and imaginary parts.
/// let x = device.array(&[1.0f32, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0], [1, 8])?;
/// let mut y = device.zeros([1, 8])?;
/// Fft::new(device, [1, 4])?.run(&device.default_stream(), x.view(), y.view_mut(), Transform::Forward)?;
/// assert_eq!(y.to_vec()?, [10.0, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Debug)]
pub struct Fft {
    shape: [usize; 2],
    /// Results of the first pass.
    between: Option<DeviceArray<f32, 2>>,
}

impl Fft {
    /// Allocates the memory for transforms of this many rows of n numbers, if they need any.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for an unsupported length, and that of the allocation.
    #[track_caller]
    pub fn new(device: Device, [rows, n]: [usize; 2]) -> ct::Result<Fft> {
        let fits = n.is_power_of_two() && n <= LONGEST;
        require(fits, || format!("Fourier transform of {n} numbers: a power of two up to 2^20 is supported"))?;
        let between = if n > ONE_PASS && rows > 0 { Some(device.zeros([rows, 2 * n])?) } else { None };
        Ok(Fft { shape: [rows, n], between })
    }

    /// Queues the transforms of rows of shape (rows, 2 n): pairs of real and imaginary parts.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for other shapes; those of the launch.
    #[track_caller]
    pub fn run(
        &mut self,
        stream: &Stream,
        x: DeviceView<f32, 2>,
        y: DeviceViewMut<f32, 2>,
        transform: Transform,
    ) -> ct::Result<()> {
        let [m, n] = self.shape;
        for shape in [x.shape(), y.shape()] {
            require(shape == [m, 2 * n], || {
                format!("Fourier transform of {m} rows of {n} numbers: array of {shape:?}")
            })?;
        }
        if m == 0 {
            return Ok(());
        }
        let Some(between) = &mut self.between else {
            let tile = [(TILE / n).max(1).min(m.next_power_of_two()), n];
            let launch = ct::Launch::new(m.div_ceil(tile[0])).stream(stream);
            // A thread has at most 32 numbers: 126 us for 1024 rows of 2^14 on an H100, 193 us by
            // two passes.
            let launch = if n == ONE_PASS { launch.hints(ct::Hints::new().num_warps(16)) } else { launch };
            return launch.run(rows, (Interleaved(x), Interleaved(y), ct::Constant((tile, transform))));
        };
        let bits = n.ilog2();
        let [n1, n2] = [1usize << bits.div_ceil(2), 1 << (bits / 2)];
        let shape = [m, n1, 2 * n2];
        // Columns of 128 bytes of a row, if registers hold them: 207 us for 64 rows of 2^18, 226 us
        // by 4096 numbers.
        let count = ((16 * n1).clamp(TILE, 2 * TILE) / n1).min(n2);
        let form = ct::Constant(([n1, n2], count, transform));
        let to = Interleaved(between.view_mut().reshape(shape)?);
        let launch = ct::Launch::new([n2 / count, m]).stream(stream);
        launch.run(columns, (Interleaved(x.reshape(shape)?), to, form))?;
        let count = (TILE / n2).min(n1);
        let form = ct::Constant(([n1, n2], count, transform));
        let (from, to) = (Interleaved(between.view().reshape(shape)?), Interleaved(y.reshape([m, n2, 2 * n1])?));
        ct::Launch::new([n1 / count, m]).stream(stream).run(rows_to_columns, (from, to, form))
    }
}
