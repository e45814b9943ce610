//! Fourier transforms of tiles, by Stockham's algorithm with radices up to 16. Each thread holds
//! the elements of a butterfly in registers. Between two steps the elements are exchanged among
//! threads once.

use crate::element::Float;
use crate::ops::create::construct::indices;
use crate::ops::shape::cat_split::stack;
use crate::ops::support::axis::Axis;
use crate::tile::{Handle, Place, Tile, caller_location, record, with_location};
use crate::types::complex::Complex;
use crate::util::collect::CollectVec as _;

/// Part types of Fourier transforms: f32 and f64. Numbers of f16 are cast:
/// `z.map(|part| part.cast::<f32>())`.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn power<T: ct::math::FftElement>(z: ct::math::Complex<Tile<T, 1>>) -> Tile<T, 1> {
///     ct::math::fft(z, 0).norm_sqr()
/// }
/// let z = ct::math::Complex::full([4], ct::math::c64::new(1.0, 0.0));
/// ct::assert!(power(z).eq(ct::astile([16.0, 0.0, 0.0, 0.0])));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no Fourier transform of `{Self}` parts",
    note = "parts are f32 or f64: `z.map(|part| part.cast::<f32>())`"
)]
pub trait FftElement: Float {}
impl FftElement for f32 {}
impl FftElement for f64 {}

/// Discrete Fourier transform along an axis: element `k` of the result is the sum of
/// `x[n] exp(-2πi n k / N)` over the `N` elements. `N` is a power of two.
///
/// A thread holds 8 or 16 numbers, because the radices are at most 16. On GPUs a tile should
/// therefore have 1024 to 8192 numbers, of one or several transforms.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
/// use cutlet::math::{ComplexArray, ComplexArrayMut, c64};
///
/// /// Rows of 8 numbers, two a block.
/// fn transform(x: ComplexArray<f32, 2>, y: ComplexArrayMut<f32, 2>) {
///     let rows = (ct::bid(0), 0);
///     y.store(rows, ct::math::fft(x.load(rows, [2, 8]), 1));
/// }
///
/// let device = ct::Device::cpu();
/// // A wave of three periods in the first row, a pulse in the other ones.
/// let wave = |n: usize| c64::from_polar(1.0, std::f32::consts::TAU * (3 * n) as f32 / 8.0);
/// let pulse = |n: usize| c64::new(if n == 0 { 1.0 } else { 0.0 }, 0.0);
/// let host: Vec<c64> = (0..24).map(|i| if i < 8 { wave(i) } else { pulse(i % 8) }).collect();
/// let (x, mut y) = (device.complex(&host, [3, 8])?, device.complex_zeros([3, 8])?);
/// ct::launch(transform, 2, (&x, &mut y))?;
/// for (k, z) in y.to_vec()?.into_iter().enumerate() {
///     let expected = if k < 8 { if k == 3 { 8.0 } else { 0.0 } } else { 1.0 };
///     assert!((z - c64::new(expected, 0.0)).abs() < 1e-5);
/// }
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn fft<T: FftElement, const R: usize>(z: Complex<Tile<T, R>>, axis: impl Axis) -> Complex<Tile<T, R>> {
    let axis = axis.axis(R);
    transform(caller_location(), "fft", z, axis)
}

/// Inverse of [`fft`]: the sum of `x[k] exp(2πi n k / N)`, divided by `N`.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let z = ct::math::Complex::new(ct::astile([1.0f64, 2.0, 3.0, 5.0]), ct::astile([0.0, -1.0, 0.5, 2.0]));
/// let back = ct::math::ifft(ct::math::fft(z, 0), 0);
/// ct::assert!((back - z).abs().lt(1e-14));
/// # });
/// ```
#[track_caller]
#[must_use]
pub fn ifft<T: FftElement, const R: usize>(z: Complex<Tile<T, R>>, axis: impl Axis) -> Complex<Tile<T, R>> {
    let axis = axis.axis(R);
    let place = caller_location();
    // The exchange of the parts negates the angles.
    let turned = transform(place, "ifft", Complex { re: z.im, im: z.re }, axis);
    let count = z.re.shape().get(axis).copied().unwrap_or(1);
    let factor = T::from_f64(1.0 / count as f64);
    with_location(place, || Complex { re: turned.im * factor, im: turned.re * factor })
}

fn transform<T: FftElement, const R: usize>(
    place: Place,
    name: &str,
    z: Complex<Tile<T, R>>,
    axis: usize,
) -> Complex<Tile<T, R>> {
    let fits = record(|t| {
        let [re, im] = [z.re, z.im].map(|part| t.along(place, name, part.raw(), &[axis]));
        let shapes = [z.re, z.im].map(|part| t.shape(part.raw()));
        if re.is_none() || im.is_none() {
            return false;
        }
        if shapes[0] != shapes[1] {
            let message =
                format!("`{name}` of real parts of shape {:?} and imaginary parts of shape {:?}", shapes[0], shapes[1]);
            t.report(place, message, &["the shapes must be equal: use `broadcast_to`"]);
            return false;
        }
        t.power_along(place, name, &shapes[0], axis)
    });
    if !fits {
        return z;
    }
    with_location(place, || {
        let shape = z.re.shape();
        let last: [usize; R] = std::array::from_fn(|d| match d {
            d if d + 1 == R => axis,
            d if d < axis => d,
            d => d + 1,
        });
        let mut back = [0; R];
        last.iter().enumerate().for_each(|(position, &from)| back[from] = position);
        let permuted = last.map(|d| shape[d]);
        let (rows, n) = (permuted[..R - 1].iter().product::<usize>(), shape[axis]);
        let mut z = z.map(|part| part.permute(last).reshape([rows, n, 1]));
        for radix in radices(n) {
            z = step(z, radix);
        }
        z.map(|part| part.reshape(permuted).permute(back))
    })
}

/// Radices of at most 16: the smallest number of them, as equal as possible, the largest first.
fn radices(n: usize) -> Vec<usize> {
    let bits = n.ilog2();
    let steps = bits.div_ceil(4);
    (0..steps).map(|step| 1 << (bits / steps + u32::from(step < bits % steps))).collect_vec()
}

/// One step on [rows, n, done] elements. Each butterfly has elements at distance n / radix along
/// the second axis. The result has [rows, n / radix, radix * done] elements.
fn step<T: FftElement>(z: Complex<Tile<T, 3>>, radix: usize) -> Complex<Tile<T, 3>> {
    let [rows, n, done] = z.re.shape();
    let left = n / radix;
    let apart = z.map(|part| part.reshape([rows, radix, left, done]));
    let taken =
        |part: Tile<T, 4>, i: usize| part.extract((0, i, 0, 0), [rows, 1, left, done]).reshape([rows, left, done]);
    let mut legs: Vec<Complex<Tile<T, 3>>> = (0..radix).map(|i| apart.map(|part| taken(part, i))).collect_vec();
    butterfly(&mut legs);
    if left > 1 {
        let turns = twiddles(n, left, radix);
        for (leg, turn) in legs.iter_mut().skip(1).zip(turns) {
            *leg = *leg * turn;
        }
    }
    let joined = |part: fn(&Complex<Tile<T, 3>>) -> Tile<T, 3>| {
        stack(legs.iter().map(part), 2).reshape([rows, left, radix * done])
    };
    Complex { re: joined(|leg| leg.re), im: joined(|leg| leg.im) }
}

/// exp(-2πi j k / n) for j from 0 to `left - 1` along the second axis, for each k from 1 to
/// `radix - 1`. Powers of two are computed; the others are products of two or three of them.
fn twiddles<T: FftElement>(n: usize, left: usize, radix: usize) -> Vec<Complex<Tile<T, 3>>> {
    let j = indices([1, left, 1], 1).cast::<T>();
    let mut all: Vec<Complex<Tile<T, 3>>> = Vec::with_capacity(radix);
    for k in 1..radix {
        let high = 1 << k.ilog2();
        let turn = match k == high {
            true => {
                let angle = j * T::from_f64(2.0 * k as f64 / n as f64);
                Complex { re: angle.cospi(), im: -angle.sinpi() }
            }
            false => all[high - 1] * all[k - high - 1],
        };
        all.push(turn);
    }
    all
}

/// The transform across the tiles `legs`, element by element and in place.
fn butterfly<T: FftElement>(legs: &mut [Complex<Tile<T, 3>>]) {
    match legs.len() {
        1 => {}
        2 => (legs[0], legs[1]) = (legs[0] + legs[1], legs[0] - legs[1]),
        count => {
            // As a matrix with `first` rows: transforms of the columns, twiddle factors, transforms
            // of the rows.
            let first = if count >= 16 { 4 } else { 2 };
            let columns = count / first;
            let mut grid = vec![legs[0]; count];
            for column in 0..columns {
                let mut line: Vec<_> = (0..first).map(|row| legs[row * columns + column]).collect_vec();
                butterfly(&mut line);
                for (row, leg) in line.into_iter().enumerate() {
                    grid[row * columns + column] = by_root(leg, row * column, count);
                }
            }
            for row in 0..first {
                let mut line = grid[row * columns..(row + 1) * columns].to_vec();
                butterfly(&mut line);
                for (column, leg) in line.into_iter().enumerate() {
                    legs[row + first * column] = leg;
                }
            }
        }
    }
}

/// A tile times exp(-2πi k / n). Quarter turns exchange the parts.
fn by_root<T: FftElement>(z: Complex<Tile<T, 3>>, k: usize, n: usize) -> Complex<Tile<T, 3>> {
    let (quarter, rest) = (4 * k / n % 4, 4 * k % n);
    let z = match quarter {
        0 => z,
        1 => Complex { re: z.im, im: -z.re },
        2 => -z,
        _ => z.mul_i(),
    };
    if rest == 0 {
        return z;
    }
    let angle = std::f64::consts::FRAC_PI_2 * rest as f64 / n as f64;
    let number = |value: f64| T::from_f64(value);
    if 2 * rest == n {
        let half = number(std::f64::consts::FRAC_1_SQRT_2);
        return Complex { re: (z.re + z.im) * half, im: (z.im - z.re) * half };
    }
    let (sine, cosine) = angle.sin_cos();
    Complex { re: z.re.fma(number(cosine), z.im * number(sine)), im: z.im.fma(number(cosine), z.re * number(-sine)) }
}
