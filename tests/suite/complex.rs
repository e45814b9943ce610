//! Complex numbers: arithmetic, functions, products, arrays of pairs; Fourier transforms.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::Float;
use cutlet::math::{Complex, ComplexArray, ComplexArrayMut, Interleaved};
use cutlet::prelude::*;

use crate::data::{Spread, format_of, random};
use crate::format::{Real, Round};
use crate::harness::{Session, Suite, Want, ravel};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("complex/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(arithmetic: f64 f32 f16 bf16);
    each!(quotient: f64 f32 f16);
    each!(polar: f64 f32);
    each!(sums: f32);
    each!(access: f64 f32);
    suite.test("complex/product/f16", product::<f16, f32>);
    suite.test("complex/product/f32", product::<f32, f32>);
    suite.test("complex/product/f64", product::<f64, f64>);
    for n in (1..=13).map(|bits| 1 << bits) {
        // Few of the long programs are assembled.
        let fits = move |session: Session| match session {
            Session::AssembleTileIr(_) => [4, 16].contains(&n),
            Session::Assemble(..) => [2, 4, 32, 256, 8192].contains(&n),
            _ => true,
        };
        suite.test(format!("fft/f32/{n}"), move |session| if fits(session) { fft::<f32>(session, n) } else { Ok(()) });
    }
    suite.test("fft/f64/32", |session| fft::<f64>(session, 32));
    suite.test("fft/columns", columns);
}

/// Extents that are no multiples of tiles; tiles of complex numbers.
const SHAPE: [usize; 2] = [7, 50];
const PARTS: [usize; 2] = [7, 100];
const TILE: [usize; 2] = [4, 32];
const GRID: [usize; 2] = [2, 2];

type Numbers<T> = Complex<Tile<T, 2>>;

/// A name, an operation, and its reference for each pair of numbers.
type Row<T> = (&'static str, fn(Numbers<T>, Numbers<T>) -> Numbers<T>, fn([f64; 2], [f64; 2]) -> [Want; 2]);

fn at<T: Float>(data: &[T], [i, j]: [usize; 2]) -> [f64; 2] {
    [0, 1].map(|part| data[ravel([i, 2 * j + part], PARTS)].to_f64())
}

/// Checks the results of the operations on each pair of numbers, in one kernel.
fn check_pairs<T: Float>(session: Session, [a, b]: [&[T]; 2], rows: &[Row<T>]) -> Result<()> {
    let ops: Vec<_> = rows.iter().map(|row| row.1).collect();
    let kernel = move |a: ComplexArray<T, 2>, b: ComplexArray<T, 2>, results: Vec<ComplexArrayMut<T, 2>>| {
        let at = [ct::bid(0), ct::bid(1)];
        let (a, b) = (a.load(at, TILE), b.load(at, TILE));
        for (op, result) in ops.iter().zip(results) {
            result.store(at, op(a, b));
        }
    };
    let (x, y) = (session.array(a, PARTS)?, session.array(b, PARTS)?);
    let mut results = rows.iter().map(|_| session.unwritten::<T, 2>(PARTS)).collect::<Result<Vec<_>>>()?;
    let arrays: Vec<_> = results.iter_mut().map(Interleaved).collect();
    session.launch(kernel, GRID, (Interleaved(&x), Interleaved(&y), arrays))?;
    for ((name, _, want), result) in rows.iter().zip(&results) {
        session.check(name, result, &|[i, j]| want(at(a, [i, j / 2]), at(b, [i, j / 2]))[j % 2])?;
    }
    Ok(())
}

fn numbers<T: Float>(seed: u64, spread: Spread) -> Vec<T> {
    random(seed, PARTS[0] * PARTS[1], spread)
}

fn nearest(value: Real) -> Want {
    Want::Rounded(value, Round::NearestEven)
}

/// A product of two numbers, rounded.
fn rounded<T: Float>(a: f64, b: f64) -> f64 {
    format_of(T::DTYPE).expect("a float").round(Real::product(a, b), Round::NearestEven)
}

fn exactly<T: Float>(parts: [f64; 2]) -> [Want; 2] {
    parts.map(|part| Want::exactly(T::from_f64(part)))
}

/// Operators, rounded as it is documented.
fn arithmetic<T: Float>(session: Session) -> Result<()> {
    let (a, b) = (numbers::<T>(1, Spread::Any), numbers::<T>(2, Spread::Any));
    let rows: [Row<T>; 8] = [
        ("sum", |a, b| a + b, |a, b| [0, 1].map(|i| nearest(Real::sum(a[i], b[i])))),
        ("difference", |a, b| a - b, |a, b| [0, 1].map(|i| nearest(Real::sum(a[i], -b[i])))),
        ("negated", |a, _| -a, |[re, im], _| exactly::<T>([-re, -im])),
        ("conjugate", |a, _| a.conj(), |[re, im], _| exactly::<T>([re, -im])),
        ("turned", |a, _| a.mul_i(), |[re, im], _| exactly::<T>([-im, re])),
        ("scaled", |a, b| a.scale(b.re), |a, b| a.map(|part| nearest(Real::product(part, b[0])))),
        (
            "product",
            |a, b| a * b,
            |a, b| {
                let re = Real::fused(a[0], b[0], -rounded::<T>(a[1], b[1]));
                [nearest(re), nearest(Real::fused(a[0], b[1], rounded::<T>(a[1], b[0])))]
            },
        ),
        (
            "norm_sqr",
            |a, _| Complex { re: a.norm_sqr(), im: a.norm_sqr() },
            |a, _| [0, 1].map(|_| nearest(Real::fused(a[0], a[0], rounded::<T>(a[1], a[1])))),
        ),
    ];
    check_pairs(session, [&a, &b], &rows)
}

fn magnitude([re, im]: [f64; 2]) -> f64 {
    re.hypot(im)
}

/// So far from a number of this magnitude at most.
fn within<T: Float>(value: f64, magnitude: f64, ulps: f64) -> Want {
    let format = format_of(T::DTYPE).expect("a float");
    Want::Within { value, error: ulps * format.ulp(magnitude.abs().max(format.smallest_normal())) }
}

/// Quotients of moderate numbers, and of very large and very small ones: nothing overflows on the
/// way.
fn quotient<T: Float>(session: Session) -> Result<()> {
    let format = format_of(T::DTYPE).expect("a float");
    let scales = [1.0, format.largest() / 16.0, format.smallest_normal() * 16.0].map(|s: f64| s.log2().floor().exp2());
    let scaled = |seed| -> Vec<T> {
        let parts = numbers::<T>(seed, Spread::Moderate).into_iter().enumerate();
        parts.map(|(i, part)| T::from_f64(part.to_f64() * scales[i / 2 % 3])).collect()
    };
    let (a, b) = (scaled(3), scaled(4));
    let quotient: Row<T> = (
        "quotient",
        |a, b| a / b,
        |a, b| {
            // Both numbers have the scale: without it, squares are ordinary numbers.
            let scale = b[0].abs().max(b[1].abs());
            let (a, b) = (a.map(|part| part / scale), b.map(|part| part / scale));
            let square = b[0] * b[0] + b[1] * b[1];
            let parts = [(a[0] * b[0] + a[1] * b[1]) / square, (a[1] * b[0] - a[0] * b[1]) / square];
            parts.map(|part| within::<T>(part, magnitude(parts), 6.0))
        },
    );
    check_pairs(session, [&a, &b], &[quotient])
}

/// Absolute values, angles, exponentials.
fn polar<T: Float>(session: Session) -> Result<()> {
    let (a, b) = (numbers::<T>(5, Spread::Moderate), numbers::<T>(6, Spread::Between(-3.0, 3.0)));
    let rows: [Row<T>; 3] = [
        (
            "to_polar",
            |a, _| Complex { re: a.to_polar().0, im: a.to_polar().1 },
            |a, _| {
                let angle = a[1].atan2(a[0]);
                [within::<T>(magnitude(a), magnitude(a), 3.0), within::<T>(angle, angle, 4.0)]
            },
        ),
        (
            "from_polar",
            |a, b| Complex::from_polar(a.re, b.re),
            |a, b| [b[0].cos(), b[0].sin()].map(|part| within::<T>(a[0] * part, a[0], 4.0)),
        ),
        (
            "exp",
            |_, b| b.exp(),
            |_, b| {
                let abs = b[0].exp();
                [b[1].cos(), b[1].sin()].map(|part| within::<T>(abs * part, abs, 5.0))
            },
        ),
    ];
    check_pairs(session, [&a, &b], &rows)
}

/// Sums along axes, and through a loop.
fn sums<T: Float>(session: Session) -> Result<()> {
    fn kernel<T: Float>(x: ComplexArray<T, 2>, rows: ComplexArrayMut<T, 2>, total: ComplexArrayMut<T, 1>) {
        let i = ct::bid(0);
        let tiles = x.num_tiles(1, TILE);
        let zero = Complex::full(TILE, Complex::new(T::from_f64(0.0), T::from_f64(0.0)));
        let sum = ct::fold(..tiles, zero, |sum, j| sum + x.load((i, j), TILE));
        rows.store((i, 0), sum.sum(1));
        // Numbers that are not there are zeros.
        total.store(i, sum.sum([0, 1]).map(|part| part.reshape([1])));
    }
    let a = numbers::<T>(7, Spread::Whole(5));
    let x = session.array(&a, PARTS)?;
    let (mut rows, mut total) = (session.unwritten::<T, 2>([7, 2])?, session.unwritten::<T, 1>([4])?);
    session.launch(kernel::<T>, [2], (Interleaved(&x), Interleaved(&mut rows), Interleaved(&mut total)))?;
    let sum = |i: usize, part: usize| (0..SHAPE[1]).map(|j| at(&a, [i, j])[part]).sum::<f64>();
    session.check("rows", &rows, &|[i, part]| Want::SumOf(sum(i, part)))?;
    session.check("totals", &total, &|[at]| {
        let rows = if at < 2 { 0..4 } else { 4..7 };
        Want::SumOf(rows.map(|i| sum(i, at % 2)).sum())
    })
}

/// Parts of non-adjacent rows, element offsets, and elements that must not be written.
fn access<T: Float>(session: Session) -> Result<()> {
    fn kernel<T: Float>(x: ComplexArray<T, 2>, y: ComplexArrayMut<T, 2>, z: ArrayMut<T, 2>) {
        let from = ct::bid(0);
        y.store((0, ct::at(from + 1)), x.load((ct::at(1), ct::at(from)), [8, 16]).conj());
        let rows = ct::astile([5, 0, -1, 2]);
        z.complex().store((ct::at(ct::arange(0..4)), 0), x.load((ct::at(rows), 0), [4, 8]));
    }
    let a = numbers::<T>(8, Spread::Any);
    let x = session.array(&a, PARTS)?;
    // The numbers from 3 to 20 of each row.
    let view = x.slice(1, 6..40)?;
    let (mut y, mut z) = (session.unwritten::<T, 2>([6, 40])?, session.unwritten::<T, 2>([4, 11])?);
    session.launch(kernel::<T>, [1], (Interleaved(view), Interleaved(&mut y), &mut z))?;
    let old = crate::harness::unwritten::<T>();
    session.check("offsets", &y, &|[i, j]| match j / 2 {
        1..=16 => {
            let part = a[ravel([i + 1, j - 2 + 6], PARTS)];
            Want::exactly(if j % 2 == 1 { T::from_f64(-part.to_f64()) } else { part })
        }
        _ => Want::SameBits(old.to_bits()),
    })?;
    let rows = [Some(5), Some(0), None, Some(2)];
    session.check("lists", &z, &|[i, j]| {
        Want::exactly(rows[i].map_or(T::from_f64(0.0), |row| a[ravel([row, j + 6], PARTS)]))
    })
}

/// Matrix products of small whole numbers, exactly.
fn product<T, C>(session: Session) -> Result<()>
where
    T: Float + ct::element::MatmulInput<T, Acc = C>,
    C: Float,
{
    fn kernel<T, C>(a: ComplexArray<T, 2>, b: ComplexArray<T, 2>, c: ComplexArrayMut<C, 2>, d: ComplexArrayMut<C, 2>)
    where
        T: Float + ct::element::MatmulInput<T, Acc = C>,
        C: Float,
    {
        let (a, b) = (a.load((0, 0), [32, 16]), b.load((0, 0), [16, 32]));
        let product = a.matmul(b);
        c.store((0, 0), product);
        d.store((0, 0), a.mma(b, product.mul_i()));
    }
    let [m, n, k] = [20, 25, 13];
    let a = random::<T>(9, m * k * 2, Spread::Whole(4));
    let b = random::<T>(10, k * n * 2, Spread::Whole(4));
    let (x, y) = (session.array(&a, [m, 2 * k])?, session.array(&b, [k, 2 * n])?);
    let (mut c, mut d) = (session.unwritten::<C, 2>([m, 2 * n])?, session.unwritten::<C, 2>([m, 2 * n])?);
    let arrays = (Interleaved(&x), Interleaved(&y), Interleaved(&mut c), Interleaved(&mut d));
    session.launch(kernel::<T, C>, [1], arrays)?;
    let sum = |i: usize, j: usize| {
        (0..k).fold([0.0, 0.0], |[re, im], l| {
            let [a, b] = [&a[2 * (i * k + l)..], &b[2 * (l * n + j)..]].map(|z| [z[0].to_f64(), z[1].to_f64()]);
            [re + a[0] * b[0] - a[1] * b[1], im + a[0] * b[1] + a[1] * b[0]]
        })
    };
    session.check("matmul", &c, &|[i, j]| Want::SumOf(sum(i, j / 2)[j % 2]))?;
    session.check("mma", &d, &|[i, j]| {
        let [re, im] = sum(i, j / 2);
        Want::SumOf(if j % 2 == 0 { re - im } else { im + re })
    })
}

/// The sum itself, in f64: element k.
fn dft(x: &[[f64; 2]], k: usize, sign: f64) -> [f64; 2] {
    let n = x.len();
    x.iter().enumerate().fold([0.0, 0.0], |[re, im], (i, x)| {
        let (sine, cosine) = (sign * std::f64::consts::TAU * (i * k % n) as f64 / n as f64).sin_cos();
        [re + x[0] * cosine - x[1] * sine, im + x[0] * sine + x[1] * cosine]
    })
}

/// Non-adjacent rows, one more than blocks have; short rows in both directions.
fn fft<T: ct::math::FftElement>(session: Session, n: usize) -> Result<()> {
    fn kernel<T: ct::math::FftElement>(
        x: ComplexArray<T, 2>,
        y: ComplexArrayMut<T, 2>,
        back: ComplexArrayMut<T, 2>,
        shape: [usize; 2],
    ) {
        let at = (ct::bid(0), 0);
        let transformed = ct::math::fft(x.load(at, shape), 1);
        y.store(at, transformed);
        if shape[1] <= 256 {
            back.store(at, ct::math::ifft(transformed, 1));
        }
    }
    let rows = (256 / n).max(1);
    let (count, row) = (rows + 1, 2 * n + 16);
    let data = random::<T>(11, count * row, Spread::Moderate);
    let x = session.array(&data, [count, row])?;
    let view = x.slice(1, 8..8 + 2 * n)?;
    let (mut y, mut back) = (session.unwritten::<T, 2>([count, 2 * n])?, session.unwritten::<T, 2>([count, 2 * n])?);
    let arguments = (Interleaved(view), Interleaved(&mut y), Interleaved(&mut back), ct::Constant([rows, n]));
    session.launch(kernel::<T>, [2], arguments)?;
    if session.only_compiles() {
        return Ok(());
    }
    let inputs: Vec<Vec<[f64; 2]>> = (0..count)
        .map(|i| (0..n).map(|j| [0, 1].map(|part| data[i * row + 8 + 2 * j + part].to_f64())).collect())
        .collect();
    let power = |i: usize| inputs[i].iter().flatten().map(|part| part * part).sum::<f64>().sqrt();
    // Errors grow with the number of steps. Sums in f64 are no better than transforms in f64.
    let ulp = format_of(T::DTYPE).expect("a float").ulp(if T::DTYPE == ct::dtype::DType::F64 { 4.0 } else { 1.0 });
    let error = ulp * (2.0 + 0.7 * f64::from(n.ilog2()));
    // Some elements of long rows.
    session.check("forward", &y, &|[i, j]| match n > 512 && j / 2 % 37 != 1 {
        true => Want::Open,
        false => Want::Within { value: dft(&inputs[i], j / 2, -1.0)[j % 2], error: error * power(i) },
    })?;
    if n > 256 {
        return Ok(());
    }
    session.check("forth and back", &back, &|[i, j]| Want::Within {
        value: inputs[i][j / 2][j % 2],
        error: 2.0 * error * power(i) / (n as f64).sqrt(),
    })
}

/// Along the middle axis of three.
fn columns(session: Session) -> Result<()> {
    fn kernel(x: ComplexArray<f32, 3>, y: ComplexArrayMut<f32, 3>) {
        let at = (ct::bid(0), 0, 0);
        y.store(at, ct::math::fft(x.load(at, [2, 32, 4]), 1));
    }
    let shape = [3, 32, 6];
    let data = random::<f32>(12, 3 * 32 * 6, Spread::Moderate);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<f32, 3>(shape)?;
    session.launch(kernel, [2], (Interleaved(&x), Interleaved(&mut y)))?;
    session.check("columns", &y, &|[i, k, j]| {
        let column: Vec<[f64; 2]> =
            (0..32).map(|row| [0, 1].map(|part| data[ravel([i, row, j / 2 * 2 + part], shape)].into())).collect();
        Want::Within { value: dft(&column, k, -1.0)[j % 2], error: 1e-5 }
    })
}
