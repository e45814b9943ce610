//! Hadamard transform of rows: products with the matrix of Sylvester's construction, H(2n) = [H(n),
//! H(n); H(n), -H(n)].
//!
//! The columns are digits of at most 4 bits, 5 in the longest rows. A thread holds the numbers of
//! one digit, and adds and subtracts them in registers. Between two digits, threads exchange
//! numbers through shared memory once. All sums are f32.
//!
//! Rows of 2^14 and more numbers of 16 bits are products with exact matrices of tensor cores.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Least and most columns.
const COLUMNS: [usize; 2] = [1 << 5, 1 << 15];
/// Numbers of a tile, unless a row has more.
const TILE: usize = 4096;

/// Sums and differences of tiles, element by element and in place.
fn butterflies<const R: usize>(legs: &mut [Tile<f32, R>]) {
    let mut apart = 1;
    while apart < legs.len() {
        for i in (0..legs.len()).filter(|i| i & apart == 0) {
            (legs[i], legs[i + apart]) = (legs[i] + legs[i + apart], legs[i] - legs[i + apart]);
        }
        apart *= 2;
    }
}

/// Returns radices of at most `most` bits: as few as possible.
fn radices(columns: usize, most: u32) -> Vec<usize> {
    let bits = columns.ilog2();
    let steps = bits.div_ceil(most);
    (0..steps).map(|step| 1 << (bits / steps + u32::from(step < bits % steps))).collect()
}

fn rows<T: Number>(x: Array<T, 2>, y: ArrayMut<T, 2>, factor: Scalar<f32>, [rows, columns, most]: [usize; 3]) {
    ct::require_rowwise(0);
    let at = (ct::bid(0), 0);
    let mut all = x.load(at, [rows, columns]).cast::<f32>();
    let mut before = 1;
    for radix in radices(columns, most as u32) {
        let after = columns / before / radix;
        let digits = all.reshape([rows, before, radix, after]);
        let mut legs: Vec<Tile<f32, 4>> =
            (0..radix).map(|i| digits.extract((0, 0, i, 0), [rows, before, 1, after])).collect();
        butterflies(&mut legs);
        all = ct::cat(legs, 2).reshape([rows, columns]);
        before *= radix;
    }
    y.store(at, (all * factor).cast::<T>());
}

/// Columns of the last two factors of [`products`].
const LAST: usize = 16;

/// Parts of a row that one product has: 128 bytes of the result.
const GROUP: usize = 4;

/// The matrix of Sylvester's construction: its elements are 1 and -1 by the parity of common bits.
fn sylvester<T: Number>(n: usize) -> Tile<T, 2> {
    let [row, column] = [0, 1].map(|axis| ct::indices([n, n], axis));
    ((row & column).count_ones() % 2).eq(0).select(ct::full::<f32, 2>([n, n], 1.0), -1.0).cast::<T>()
}

/// Rows of shape (first, 16 x 16), for every n-th row. The first digit is a product with an exact
/// matrix. The second one is in registers. The last digit is a product of each sum in two parts of
/// bf16, whose error is below 2^-16.
fn products<T: Number>(x: Array<T, 3>, y: ArrayMut<T, 3>, factor: Scalar<f32>, first: usize) {
    let columns = LAST * LAST;
    let (of_first, of_last) = (sylvester::<T>(first), sylvester::<bf16>(LAST));
    ct::for_each(ct::range(ct::bid(0), x.extent(0)).step(ct::num_blocks(0)), |row| {
        let own = x.load((row, 0, 0), [1, first, columns]).reshape([first, columns]);
        let all = ct::mma(of_first, own, ct::zeros::<f32, 2>([first, columns]));
        let mut legs: Vec<Tile<f32, 2>> = (0..LAST).map(|i| all.extract((0, i), [first, LAST])).collect();
        butterflies(&mut legs);
        let zeros = ct::zeros::<f32, 2>([first * GROUP, LAST]);
        for (part, legs) in legs.chunks(GROUP).enumerate() {
            let legs = ct::cat(legs.iter().copied(), 0);
            let high = legs.cast::<bf16>();
            let low = (legs - high.cast::<f32>()).cast::<bf16>();
            let sums = (ct::mma(high, of_last, ct::mma(low, of_last, zeros)) * factor).cast::<T>();
            let sums = (0..GROUP).map(|i| sums.extract((i, 0), [first, LAST]));
            y.store((row, 0, part as i32), ct::cat(sums, 1).reshape([1, first, GROUP * LAST]));
        }
    });
}

/// Queues the Hadamard transform of each row of shape (rows, columns), times a factor. Columns are
/// a power of two from 2^5 to 2^15; the factor 1 / sqrt(columns) makes the transform its own
/// inverse.
///
/// ```
/// let device = cutlet::Device::cpu();
/// let (x, mut y) = (device.full([1, 64], 0.5f32)?, device.zeros([1, 64])?);
/// cutlet_kernels::numbers::hadamard(&device.default_stream(), x.view(), y.view_mut(), 0.125)?;
/// assert_eq!(y.to_vec()?[..3], [4.0, 0.0, 0.0]);
/// # Ok::<(), cutlet::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for different shapes or other numbers of columns; those of the launch.
#[track_caller]
pub fn hadamard<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    y: DeviceViewMut<T, 2>,
    factor: f32,
) -> ct::Result<()> {
    let shape @ [m, n] = x.shape();
    require(y.shape() == shape, || format!("Hadamard transform of {shape:?}: result of shape {:?}", y.shape()))?;
    let fits = n.is_power_of_two() && (COLUMNS[0]..=COLUMNS[1]).contains(&n);
    require(fits || m == 0, || format!("Hadamard transform of {n} columns: a power of two from 2^5 to 2^15"))?;
    if m == 0 {
        return Ok(());
    }
    if size_of::<T>() == 2 && n >= 64 * LAST * LAST {
        let first = n / LAST / LAST;
        let shape = [m, first, LAST * LAST];
        let blocks = m.min(num_multiprocessors(stream));
        let launch = ct::Launch::new(blocks).stream(stream);
        // 59 us for 1024 rows of 2^15 of bf16 on an H100, 86 us by digits.
        let launch = launch.hints(ct::Hints::new().num_warps(8));
        return launch.run(products::<T>, (x.reshape(shape)?, y.reshape(shape)?, factor, ct::Constant(first)));
    }
    // Three digits in place of four: 85 us for 1024 rows on an H100, 95 us with digits of 4 bits.
    let (most, hints) = if n == COLUMNS[1] { (5, ct::Hints::new().num_warps(16)) } else { (4, ct::Hints::new()) };
    let tile = [(TILE / n).max(1), n, most];
    ct::Launch::new(m.div_ceil(tile[0])).hints(hints).stream(stream).run(rows::<T>, (x, y, factor, ct::Constant(tile)))
}
