//! Matrix products: every pair of element types, tiles from 1x1x1 to 128x128x64, ragged matrices,
//! transposed operands, batches.

use anyhow::Result;
use cutlet as ct;
use cutlet::dtype::DType;
use cutlet::element::{MatmulInput, MmaInput, ScaledInput};
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::format::{Format, Real, Round};
use crate::harness::{Session, Suite, Want, ravel};
use crate::test_sample::one_in;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($a:ident $b:ident $acc:ident;)+) => {$(
            let name = |what| format!("product/{what}/{} {} {}", stringify!($a), stringify!($b), stringify!($acc));
            suite.test(name("tiles"), tiles::<$a, $b, $acc>);
            suite.test(name("ragged"), ragged::<$a, $b, $acc>);
            suite.test(name("wide"), wide::<$a, $b, $acc>);
            suite.test(name("batch"), batch::<$a, $b, $acc>);
        )+};
    }
    each! {
        f16 f16 f32;
        f16 f16 f16;
        bf16 bf16 f32;
        tf32 tf32 f32;
        f32 f32 f32;
        f64 f64 f64;
        f8e4m3fn f8e4m3fn f32;
        f8e4m3fn f8e4m3fn f16;
        f8e5m2 f8e5m2 f32;
        f8e5m2 f8e5m2 f16;
        i8 i8 i32;
        i8 u8 i32;
        u8 i8 i32;
        u8 u8 i32;
    }
    macro_rules! pairs {
        ($($a:ident $acc:ident;)+) => {$(
            let name = format!("product/pairs/{} {}", stringify!($a), stringify!($acc));
            suite.lean(name, pairs::<$a, $acc>);
        )+};
    }
    pairs! {
        f16 f32;
        bf16 f32;
        tf32 f32;
        f8e4m3fn f32;
        i8 i32;
    }
    suite.test("product/pairs/batch", pairs_of_a_batch);
    suite.test("product/f64 f64 f64/steps", steps_of_f64);
    suite.test("product/rounded", rounded);
    suite.test("product/precision", precision);
    suite.test("product/matmul", natural);
    suite.test("product/one_for_all", one_for_all);
    suite.test("product/vectors", vectors);
    suite.test("product/scaled/mxfp8 e4m3", scaled::<f8e4m3fn, f8e4m3fn, f8e8m0fnu, 32>);
    suite.test("product/scaled/mxfp8 e5m2", scaled::<f8e5m2, f8e5m2, f8e8m0fnu, 32>);
    suite.test("product/scaled/mxfp4", scaled::<f4e2m1fn, f4e2m1fn, f8e8m0fnu, 32>);
    suite.test("product/scaled/mxfp4 of 16", scaled::<f4e2m1fn, f4e2m1fn, f8e8m0fnu, 16>);
    suite.test("product/scaled/fp4 by e5m3", scaled::<f4e2m1fn, f4e2m1fn, f8e5m3fnu, 16>);
    suite.test("product/scaled/nvfp4", scaled::<f4e2m1fn, f4e2m1fn, f8e4m3fn, 16>);
    suite.test("product/scaled/e4m3 by e5m2", scaled::<f8e4m3fn, f8e5m2, f8e8m0fnu, 32>);
    suite.test("product/scaled/fp4 by e4m3", scaled::<f4e2m1fn, f8e4m3fn, f8e8m0fnu, 32>);
    suite.test("product/chained", chained);
    suite.test("product/branches", branches);
    suite.test("product/unhindered", unhindered);
}

fn kernel<A, B, C>(a: Array<A, 2>, b: Array<B, 2>, c: ArrayMut<C, 2>, [tm, tn, tk]: [usize; 3])
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<C, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc);
}

/// One matrix for all of a batch, on either side.
fn one_for_all(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 3>, b: Array<f16, 3>, c: ArrayMut<f32, 3>, d: ArrayMut<f32, 3>) {
        let (a, b) = (a.load([0, 0, 0], [4, 16, 32]), b.load([0, 0, 0], [1, 32, 8]));
        c.store([0, 0, 0], ct::mma(a, b, ct::zeros([4, 16, 8])));
        d.store([0, 0, 0], ct::matmul(b.transpose(), a.transpose()));
    }
    let (a, b) = (random::<f16>(1, 4 * 16 * 32, Spread::Whole(4)), random::<f16>(2, 32 * 8, Spread::Whole(4)));
    let (x, y) = (session.array(&a, [4, 16, 32])?, session.array(&b, [1, 32, 8])?);
    let (mut c, mut d) = (session.unwritten([4, 16, 8])?, session.unwritten([4, 8, 16])?);
    session.launch(kernel, [1], (&x, &y, &mut c, &mut d))?;
    let want = |n: usize, i: usize, j: usize| {
        let each = (0..32).map(|k| a[(n * 16 + i) * 32 + k].to_f64() * b[k * 8 + j].to_f64());
        Want::SumOf(each.sum())
    };
    session.check("right", &c, &|[n, i, j]| want(n, i, j))?;
    session.check("left", &d, &|[n, j, i]| want(n, i, j))
}

/// Blocks of elements with a scale each, in a loop over k; a ragged number of rows.
fn scaled<A, B, S, const BLOCK: usize>(session: Session) -> Result<()>
where
    A: ScaledInput<S>,
    B: ScaledInput<S>,
    S: Element,
{
    fn kernel<A: ScaledInput<S>, B: ScaledInput<S>, S: Element>(
        (a, a_scale): (Array<A, 2>, Array<S, 2>),
        (b, b_scale): (Array<B, 2>, Array<S, 2>),
        c: ArrayMut<f32, 2>,
        blocks: usize,
    ) {
        let row = ct::bid(0);
        let acc = ct::fold(..a.num_tiles(1, [32, 64]), ct::zeros([32, 16]), |acc, k| {
            let (x, s) = (a.load([row, k], [32, 64]), a_scale.load([row, k], [32, blocks]));
            let (y, t) = (b.load((k, 0), [64, 16]), b_scale.load((k, 0), [blocks, 16]));
            ct::mma_scaled(x, s, y, t, acc)
        });
        c.store((row, 0), acc);
    }
    let (m, k, n) = (50, 192, 16);
    let spread = |dtype: DType| if dtype.bits() == 4 { Spread::Any } else { Spread::Moderate };
    let (a, b) = (random::<A>(1, m * k, spread(A::DTYPE)), random::<B>(2, k * n, spread(B::DTYPE)));
    let scales = |seed, count| random::<S>(seed, count, Spread::Between(0.25, 8.0));
    let (s, t) = (scales(3, m * k / BLOCK), scales(4, k / BLOCK * n));
    let (of_a, of_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let (of_s, of_t) = (session.array(&s, [m, k / BLOCK])?, session.array(&t, [k / BLOCK, n])?);
    let mut c = session.unwritten([m, n])?;
    let blocks = Constant(64 / BLOCK);
    session.launch(kernel::<A, B, S>, [m.div_ceil(32)], ((&of_a, &of_s), (&of_b, &of_t), &mut c, blocks))?;
    session.check("scaled", &c, &|[i, j]| {
        let left = |l: usize| a[i * k + l].to_f64() * s[i * (k / BLOCK) + l / BLOCK].to_f64();
        let right = |l: usize| b[l * n + j].to_f64() * t[l / BLOCK * n + j].to_f64();
        let terms = (0..k).map(|l| left(l) * right(l));
        let magnitude: f64 = terms.clone().map(f64::abs).sum();
        Want::Within { value: terms.sum(), error: magnitude * 1e-5 }
    })
}

/// Matrices times vectors, from both sides.
fn vectors(session: Session) -> Result<()> {
    fn kernel(
        a: Array<f16, 2>,
        b: Array<i8, 2>,
        x: Array<f16, 1>,
        y: Array<u8, 1>,
        c: ArrayMut<f32, 1>,
        d: ArrayMut<i32, 1>,
    ) {
        c.store(0, ct::matvec(a.load([0, 0], [64, 128]), x.load(0, [128])));
        d.store(0, ct::vecmat(y.load(0, [64]), b.load([0, 0], [64, 128])));
    }
    let (a, x) = (random::<f16>(3, 64 * 128, Spread::Whole(9)), random::<f16>(4, 128, Spread::Whole(9)));
    let (b, y) = (random::<i8>(5, 64 * 128, Spread::Any), random::<u8>(6, 64, Spread::Any));
    let arrays = (session.array(&a, [64, 128])?, session.array(&b, [64, 128])?);
    let (of_x, of_y) = (session.array(&x, [128])?, session.array(&y, [64])?);
    let (mut c, mut d) = (session.unwritten([64])?, session.unwritten([128])?);
    session.launch(kernel, [1], (&arrays.0, &arrays.1, &of_x, &of_y, &mut c, &mut d))?;
    session.check("matvec", &c, &|[i]| Want::SumOf((0..128).map(|k| a[i * 128 + k].to_f64() * x[k].to_f64()).sum()))?;
    session.check("vecmat", &d, &|[j]| {
        Want::exactly((0..64).map(|k| i32::from(y[k]) * i32::from(b[k * 128 + j])).sum::<i32>())
    })
}

/// Two products an iteration, with a branch between them that may overlap with the second product
/// of the previous iteration: a branch that only selects, and one that converts a tile to another
/// layout.
fn branches(session: Session) -> Result<()> {
    const ROWS: usize = 128;
    const KEYS: usize = 128;
    const DIM: usize = 64;
    fn kernel(
        q: Array<f16, 2>,
        k: Array<f16, 2>,
        v: Array<f16, 2>,
        bias: Array<f32, 2>,
        c: ArrayMut<f32, 2>,
        whole: Scalar<i32>,
    ) {
        let q = q.load([0, 0], [ROWS, DIM]);
        let bias = bias.load([0, 0], [ROWS, KEYS]);
        let limits = ct::arange_from(ROWS, 1, 1).unsqueeze(1);
        let start = ct::zeros::<f32, 2>([ROWS, DIM]);
        let sum = ct::fold(..k.num_tiles(0, [KEYS, DIM]), start, |sum, j| {
            let (k, v) = (k.load((j, 0), [KEYS, DIM]), v.load((j, 0), [KEYS, DIM]));
            let scores = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([ROWS, KEYS]));
            let masked = || ct::select(ct::arange(0..KEYS).unsqueeze(0).lt(limits), scores, 1.0);
            let scores = ct::if_else(j.lt(whole), || scores, masked);
            let scores = ct::if_else((j % 3).eq(1), || scores + bias, || scores * 0.5);
            ct::mma(scores.cast::<f16>(), v, sum * 0.5)
        });
        c.store([0, 0], sum);
    }
    let numbers = |seed, rows, columns| random::<f16>(seed, rows * columns, Spread::Whole(1));
    let bias = random::<f32>(14, ROWS * KEYS, Spread::Whole(3));
    for (tiles, whole) in [(1, 1), (2, 0), (4, 3)] {
        let all = tiles * KEYS;
        let (q, k, v) = (numbers(11, ROWS, DIM), numbers(12, all, DIM), numbers(13, all, DIM));
        let device_q = session.array(&q, [ROWS, DIM])?;
        let (device_k, device_v) = (session.array(&k, [all, DIM])?, session.array(&v, [all, DIM])?);
        let device_bias = session.array(&bias, [ROWS, KEYS])?;
        let mut c = session.unwritten::<f32, 2>([ROWS, DIM])?;
        session.launch(kernel, [1], (&device_q, &device_k, &device_v, &device_bias, &mut c, whole))?;
        if !session.compares() {
            continue;
        }
        let mut sums = vec![(0.0, 0.0); ROWS * DIM];
        for tile in 0..tiles {
            let part = |values: &[f16]| values[tile * KEYS * DIM..][..KEYS * DIM].to_vec();
            let mut scores = Vec::new();
            for (place, (score, _)) in
                reference(&q, &flipped(&part(&k), KEYS, DIM), [ROWS, KEYS, DIM]).iter().enumerate()
            {
                let (row, key) = (place / KEYS, place % KEYS);
                let score = if tile < whole as usize || key <= row { *score } else { 1.0 };
                let score = if tile % 3 == 1 { score + f64::from(bias[place]) } else { score * 0.5 };
                scores.push(f16::from_f64(score));
            }
            let product = reference(&scores, &part(&v), [ROWS, DIM, KEYS]);
            for (sum, term) in sums.iter_mut().zip(product) {
                *sum = (sum.0 * 0.5 + term.0, sum.1 * 0.5 + term.1);
            }
        }
        session.check(&format!("{tiles} tiles, {whole} whole"), &c, &|[i, j]| {
            let (value, magnitude) = sums[i * DIM + j];
            Want::Within { value, error: magnitude * 2f64.powi(-20) }
        })?;
    }
    Ok(())
}

/// The driver's own compiler lets matrix instructions run on, too, and spills nothing: tiles as
/// they are used at full speed, with and without TMA (an address that is no multiple of 16 forbids
/// it).
fn unhindered(session: Session) -> Result<()> {
    let Session::Run(device) = session else { return Ok(()) };
    const N: usize = 272;
    let zeros = device.zeros::<bf16, 1>([N * N + 1])?;
    let a = device.zeros::<bf16, 2>([N, N])?;
    let rows = N - 16;
    for tile in [[128, 256, 64], [256, 128, 64], [128, 128, 64], [64, 256, 64], [64, 64, 32]] {
        let mut c = device.zeros::<f32, 2>([N, N])?;
        let aligned = ct::compile(kernel::<bf16, bf16, f32>, (&a, &a, &mut c, Constant(tile)))?;
        let view = zeros.slice(0, 1..1 + rows * N)?.reshape([rows, N])?;
        let shifted = ct::compile(kernel::<bf16, bf16, f32>, (&view, &a, &mut c, Constant(tile)))?;
        for (what, compiled) in [("aligned", aligned.remarks().notes()), ("shifted", shifted.remarks().notes())] {
            anyhow::ensure!(compiled.is_empty(), "{tile:?}, {what}: {compiled:?}");
        }
    }
    Ok(())
}

/// The product of two matrices in f64: values and sums of the magnitudes of the terms.
fn reference<A: Element, B: Element>(a: &[A], b: &[B], sides: [usize; 3]) -> Vec<(f64, f64)> {
    cutlet_reference::product_and_magnitudes(&numbers(a), &numbers(b), sides)
}

/// Inputs small and whole, so that every sum is exact, or any moderate ones.
fn spreads(acc: DType) -> &'static [Spread] {
    match acc {
        DType::F32 | DType::F64 => &[Spread::Whole(3), Spread::Moderate],
        _ => &[Spread::Whole(3)],
    }
}

fn want(acc: DType, spread: Spread, k: usize, (value, magnitude): (f64, f64), lost: f64) -> Want {
    match spread {
        Spread::Whole(_) => Want::SumOf(value),
        // Tensor cores may truncate where a processor rounds.
        _ => {
            let unit = if acc == DType::F64 { 2f64.powi(-52) } else { 2f64.powi(-22) };
            Want::Within { value, error: lost + magnitude * unit * (k as f64).sqrt().max(1.0) }
        }
    }
}

/// Returns the error bound of Hopper's tensor cores for a row times a column of 8-bit floats. It
/// also holds for Ada if NVIDIA's assembler uses its tensor cores.
///
/// An instruction adds 16 terms at a time to the sum so far. Terms and sums are cut off 13 bits
/// below the leading bit of the largest of them. The sum starts from zero at least with each tile
/// of `tk` terms (and in the ptx back end after 128), and those sums are added in f32.
fn lost_in_few_bits(terms: &[f64], tk: usize) -> f64 {
    let mut lost = 0.0;
    for tile in terms.chunks(tk) {
        let mut sum = 0.0f64;
        for added in tile.chunks(16) {
            let largest = added.iter().fold(sum.abs(), |largest, term| largest.max(term.abs()));
            sum += added.iter().sum::<f64>();
            // Earlier errors may have increased the sum.
            let largest = largest.max(sum.abs()) + lost;
            let unit = if largest == 0.0 { 0.0 } else { 2f64.powi(largest.log2().floor() as i32 - 13) };
            lost += unit * (added.len() + 2) as f64;
        }
    }
    lost
}

/// Column-major versions of operands.
fn flipped<T: Copy>(data: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..columns).flat_map(|j| (0..rows).map(move |i| data[i * columns + j])).collect()
}

fn check<A, B, C>(session: Session, [m, n, k]: [usize; 3], tile: [usize; 3], transposed: [bool; 2]) -> Result<()>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    for &spread in spreads(C::DTYPE) {
        let (a, b) = (random::<A>(1, m * k, spread), random::<B>(2, k * n, spread));
        let row_major_a = session.array(&a, [m, k])?;
        let row_major_b = session.array(&b, [k, n])?;
        let column_major_a = session.array(&flipped(&a, m, k), [k, m])?;
        let column_major_b = session.array(&flipped(&b, k, n), [n, k])?;
        let view_a = if transposed[0] { column_major_a.transpose()? } else { row_major_a.view() };
        let view_b = if transposed[1] { column_major_b.transpose()? } else { row_major_b.view() };
        let mut c = session.unwritten::<C, 2>([m, n])?;
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        session.launch(kernel::<A, B, C>, grid, (view_a, view_b, &mut c, Constant(tile)))?;
        let expected = session.expected(|| reference(&a, &b, [m, n, k]));
        let what = format!("{m}x{n}x{k} by {tile:?}, transposed {transposed:?}, {spread:?}");
        let few_bits = A::DTYPE.is_float() && A::DTYPE.bits() == 8 && session.keeps_few_bits();
        let lost = |[i, j]: [usize; 2]| match few_bits {
            true => {
                let terms: Vec<f64> = (0..k).map(|l| a[i * k + l].to_f64() * b[l * n + j].to_f64()).collect();
                lost_in_few_bits(&terms, tile[2])
            }
            false => 0.0,
        };
        session.check(&what, &c, &|at| want(C::DTYPE, spread, k, expected[ravel(at, [m, n])], lost(at)))?;
    }
    Ok(())
}

fn tiles<A, B, C>(session: Session) -> Result<()>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    for tile in [[16, 16, 16], [64, 64, 32], [128, 128, 64], [32, 8, 64], [16, 128, 8], [2, 4, 2], [1, 1, 1]]
        .into_iter()
        .step_by(one_in(2))
    {
        check::<A, B, C>(session, tile, tile, [false, false])?;
    }
    Ok(())
}

fn ragged<A, B, C>(session: Session) -> Result<()>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    check::<A, B, C>(session, [70, 50, 90], [32, 32, 32], [false, false])?;
    check::<A, B, C>(session, [64, 128, 96], [64, 64, 32], [true, false])?;
    check::<A, B, C>(session, [65, 33, 47], [32, 64, 16], [false, true])?;
    check::<A, B, C>(session, [48, 64, 64], [16, 32, 64], [true, true])
}

/// Tiles for whole warpgroups, of aligned arrays that they do not divide, in every order.
fn wide<A, B, C>(session: Session) -> Result<()>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    let size = [144, 176, 160];
    let ways = [
        ([64, 128, 64], [false, false]),
        ([128, 64, 32], [false, true]),
        ([128, 128, 32], [true, false]),
        ([64, 64, 128], [true, true]),
    ];
    ways.into_iter()
        .step_by(one_in(3))
        .try_for_each(|(tile, transposed)| check::<A, B, C>(session, size, tile, transposed))
}

/// Loops over tiles with two to eight steps along k, of which the last one follows in the next
/// iteration; one iteration, few, and many.
fn steps_of_f64(session: Session) -> Result<()> {
    let ways = [
        ([128, 128, 16], [130, 134, 70], [false, false]),
        ([64, 64, 16], [66, 70, 16], [true, false]),
        ([64, 128, 8], [98, 130, 90], [false, true]),
        ([32, 64, 32], [50, 66, 300], [true, true]),
        ([64, 32, 16], [64, 64, 2], [false, false]),
    ];
    ways.into_iter().try_for_each(|(tile, size, transposed)| check::<f64, f64, f64>(session, size, tile, transposed))
}

/// f32 by one and by three products of tf32, compared with f64: errors within the documented
/// limits.
fn precision(session: Session) -> Result<()> {
    fn kernel(
        a: Array<f32, 2>,
        b: Array<f32, 2>,
        c: ArrayMut<f32, 2>,
        (precision, [tm, tn, tk]): (ct::Precision, [usize; 3]),
    ) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
            ct::mma_with(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc, precision)
        });
        c.store([i, j], acc);
    }
    let [m, n, k] = [100, 72, 90];
    let (a, b) = (random::<f32>(41, m * k, Spread::Moderate), random::<f32>(42, k * n, Spread::Moderate));
    let (of_a, of_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let expected = session.expected(|| reference(&a, &b, [m, n, k]));
    let sums = |terms: f64| terms * k as f64 * 2f64.powi(-23);
    for tile in [[64, 64, 32], [32, 32, 16], [128, 64, 32]] {
        for (precision, unit) in [
            (ct::Precision::F32, sums(0.5)),
            (ct::Precision::TF32, 2f64.powi(-10) + 2f64.powi(-22) + sums(2.0)),
            (ct::Precision::TF32x3, 2f64.powi(-20) + sums(6.0)),
        ] {
            let mut c = session.unwritten::<f32, 2>([m, n])?;
            let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
            session.launch(kernel, grid, (&of_a, &of_b, &mut c, Constant((precision, tile))))?;
            session.check(&format!("{precision:?} by {tile:?}"), &c, &|at| {
                let (value, magnitude) = expected[ravel(at, [m, n])];
                Want::Within { value, error: magnitude * unit + 1e-30 }
            })?;
        }
    }
    Ok(())
}

/// f32 arrays multiplied as tf32: a product with the identity shows how they are rounded, on either
/// side.
fn rounded(session: Session) -> Result<()> {
    fn kernel(a: Array<f32, 2>, b: Array<f32, 2>, c: ArrayMut<f32, 2>, [tm, tn, tk]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
            ct::mma(a.load([i, k], [tm, tk]).cast::<tf32>(), b.load([k, j], [tk, tn]).cast::<tf32>(), acc)
        });
        c.store([i, j], acc);
    }
    const N: usize = 176;
    let mut numbers = random::<f32>(9, N * N, Spread::Moderate);
    // Halfway between two tf32, and one bit to either side.
    for (i, number) in numbers.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        *number =
            f32::from_bits((number.to_bits() & !0x1fff | 0x1000).wrapping_add((i / 3 % 3) as u32).wrapping_sub(1));
    }
    let identity: Vec<f32> = (0..N * N).map(|i| f32::from(u8::from(i / N == i % N))).collect();
    let (numbers_device, identity_device) = (session.array(&numbers, [N, N])?, session.array(&identity, [N, N])?);
    let flat = |turned: bool, at: [usize; 2]| if turned { ravel([at[1], at[0]], [N, N]) } else { ravel(at, [N, N]) };
    for tile in [[128, 128, 32], [64, 64, 64], [128, 64, 32], [32, 32, 32]] {
        for (turned, swapped) in [(false, false), (false, true), (true, false), (true, true)] {
            let view = if turned { numbers_device.transpose()? } else { numbers_device.view() };
            let mut c = session.unwritten::<f32, 2>([N, N])?;
            let (a, b) = if swapped { (identity_device.view(), view) } else { (view, identity_device.view()) };
            session.launch(kernel, [N.div_ceil(tile[0]), N.div_ceil(tile[1])], (a, b, &mut c, Constant(tile)))?;
            let what = format!("{tile:?}, transposed {turned}, on the right {swapped}");
            let tf32_of = |x: f32| Format::TF32.round(Real::exact(f64::from(x)), Round::NearestEven);
            session.check(&what, &c, &|at| Want::SumOf(tf32_of(numbers[flat(turned, at)])))?;
        }
    }
    Ok(())
}

fn batch<A, B, C>(session: Session) -> Result<()>
where
    A: MmaInput<B, C>,
    B: Element,
    C: Element,
{
    fn kernel<A, B, C>(a: Array<A, 3>, b: Array<B, 3>, c: ArrayMut<C, 3>)
    where
        A: MmaInput<B, C>,
        B: Element,
        C: Element,
    {
        let product = ct::mma(a.load([0; 3], [4, 16, 32]), b.load([0; 3], [4, 32, 8]), ct::ones([4, 16, 8]));
        c.store([0; 3], product);
    }
    let (a, b) = (random::<A>(3, 4 * 16 * 32, Spread::Whole(3)), random::<B>(4, 4 * 32 * 8, Spread::Whole(3)));
    let (device_a, device_b) = (session.array(&a, [4, 16, 32])?, session.array(&b, [4, 32, 8])?);
    let mut c = session.unwritten::<C, 3>([4, 16, 8])?;
    session.launch(kernel::<A, B, C>, [1], (&device_a, &device_b, &mut c))?;
    let pairs = a.chunks(16 * 32).zip(b.chunks(32 * 8));
    let expected: Vec<_> = session.expected(|| pairs.flat_map(|(a, b)| reference(a, b, [16, 8, 32])).collect());
    session.check("batch", &c, &|at| Want::SumOf(expected[ravel(at, [4, 16, 8])].0 + 1.0))
}

/// Assignment of tiles of the result to blocks. Adjacent blocks along x need the same columns, the
/// same rows, both or neither.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// x counts rows, y counts columns.
    Columns,
    /// x counts columns, y counts rows.
    Rows,
    /// x counts all tiles, column by column.
    ColumnByColumn,
    /// x counts all tiles, row by row.
    RowByRow,
    /// Every tile of rows is multiplied twice; x counts rows.
    Twice,
    /// Four blocks take tile after tile, row by row.
    Persistent,
    /// As persistent, and one tile more than there are: blocks of a pair do not all take as many.
    Uneven,
}

/// Tile blocks run in clusters of two that share their loads, if the grid permits it.
fn pairs<A, C>(session: Session) -> Result<()>
where
    A: MmaInput<A, C>,
    C: Element,
{
    use Order::*;
    const ORDERS: [Order; 7] = [Columns, Rows, ColumnByColumn, RowByRow, Twice, Persistent, Uneven];
    fn tile<A, C>(
        a: Array<A, 2>,
        b: Array<A, 2>,
        c: ArrayMut<C, 2>,
        [tm, tn, tk]: [usize; 3],
        from: Scalar<i32>,
        (i, j): (Scalar<i32>, Scalar<i32>),
    ) where
        A: MmaInput<A, C>,
        C: Element,
    {
        let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<C, 2>([tm, tn]), |acc, k| {
            ct::mma(a.load([from, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
        });
        c.store([i, j], acc);
    }
    fn kernel<A, C>(a: Array<A, 2>, b: Array<A, 2>, c: ArrayMut<C, 2>, [tm, tn, tk, order]: [usize; 4])
    where
        A: MmaInput<A, C>,
        C: Element,
    {
        let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [tm, tn]));
        let (extents, x, y) = ([tm, tn, tk], ct::bid(0), ct::bid(1));
        let (i, j) = match ORDERS[order] {
            Columns | Twice => (x, y),
            Rows => (y, x),
            ColumnByColumn => (x % rows, x / rows),
            RowByRow => (x / columns, x % columns),
            Persistent | Uneven => {
                let end = rows * columns + i32::from(matches!(ORDERS[order], Uneven));
                return ct::fold(ct::range(x, end).step(ct::num_blocks(0)), (), |(), index| {
                    tile(a, b, c, extents, index / columns, (index / columns, index % columns));
                });
            }
        };
        tile(a, b, c, extents, if let Twice = ORDERS[order] { i / 2 } else { i }, (i, j));
    }
    let tk = if A::DTYPE.bits() == 8 { 64 } else { 32 };
    // Long sums use each stage of a pipeline several times, which only a GPU does fast.
    let k = if session.device() == ct::Device::cpu() { 80 } else { 368 };
    // Three tiles by four, of which rows are left over, and four by three.
    for ([m, n], [tm, tn], transposed, stages) in
        [([144, 400], [64, 128], false, None), ([400, 144], [128, 64], true, Some(3))]
    {
        let (a, b) = (random::<A>(1, m * k, Spread::Whole(3)), random::<A>(2, k * n, Spread::Whole(3)));
        let expected = session.expected(|| Product::of(&numbers(&a), &numbers(&b), [m, n, k]));
        let device_a = session.array(&a, [m, k])?;
        let device_b =
            if transposed { session.array(&flipped(&b, k, n), [n, k])? } else { session.array(&b, [k, n])? };
        let (rows, columns) = (m.div_ceil(tm), n.div_ceil(tn));
        for (index, order) in ORDERS.into_iter().enumerate().step_by(if transposed { 3 } else { one_in(2) }) {
            let twice = matches!(order, Twice);
            let height = if twice { 2 * rows * tm } else { m };
            let mut c = session.unwritten::<C, 2>([height, n])?;
            let grid = match order {
                Columns => [rows, columns],
                Rows => [columns, rows],
                ColumnByColumn | RowByRow => [rows * columns, 1],
                Twice => [2 * rows, columns],
                Persistent | Uneven => [4, 1],
            };
            let mut hints = ct::Hints::new().num_ctas(2);
            hints.num_stages = stages;
            let view_b = if transposed { device_b.transpose()? } else { device_b.view() };
            let arguments = (&device_a, view_b, &mut c, Constant([tm, tn, tk, index]));
            session.launch_with(hints, kernel::<A, C>, grid, arguments)?;
            let what = format!("{m}x{n}x{k}, {order:?}, transposed {transposed}");
            session.check(&what, &c, &|[i, j]| {
                let from = if twice { i / tm / 2 * tm + i % tm } else { i };
                Want::SumOf(if from < m { expected.at([from, j]) } else { 0.0 })
            })?;
        }
    }
    Ok(())
}

/// Pairs of blocks along the rows of each matrix of a batch, and along the batch.
fn pairs_of_a_batch(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 3>, b: Array<f16, 3>, c: ArrayMut<f32, 3>, along_batch: bool) {
        let (x, y, z) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let (batch, i, j) = if along_batch { (x, y, z) } else { (z, x, y) };
        let acc = ct::fold(..a.num_tiles(2, [1, 64, 64]), ct::zeros::<f32, 2>([64, 128]), |acc, k| {
            let a = a.load([batch, i, k], [1, 64, 64]).squeeze(0);
            ct::mma(a, b.load([batch, k, j], [1, 64, 128]).squeeze(0), acc)
        });
        c.store([batch, i, j], acc.reshape([1, 64, 128]));
    }
    const BATCH: usize = 4;
    let [m, n, k] = [128, 144, if session.device() == ct::Device::cpu() { 80 } else { 656 }];
    let (a, b) = (random::<f16>(3, BATCH * m * k, Spread::Whole(3)), random::<f16>(4, BATCH * k * n, Spread::Whole(3)));
    let (device_a, device_b) = (session.array(&a, [BATCH, m, k])?, session.array(&b, [BATCH, k, n])?);
    let pairs = a.chunks(m * k).zip(b.chunks(k * n));
    let expected: Vec<_> = session.expected(|| pairs.flat_map(|(a, b)| reference(a, b, [m, n, k])).collect());
    for along_batch in [false, true] {
        let mut c = session.unwritten::<f32, 3>([BATCH, m, n])?;
        let (rows, columns) = (m.div_ceil(64), n.div_ceil(128));
        let grid = if along_batch { [BATCH, rows, columns] } else { [rows, columns, BATCH] };
        let hints = ct::Hints::new().num_ctas(2);
        session.launch_with(hints, kernel, grid, (&device_a, &device_b, &mut c, Constant(along_batch)))?;
        let what = format!("pairs of a batch, along it {along_batch}");
        session.check(&what, &c, &|at| Want::SumOf(expected[ravel(at, [BATCH, m, n])].0))?;
    }
    Ok(())
}

/// `matmul` chooses the accumulator type.
fn natural(session: Session) -> Result<()> {
    fn kernel<T: MatmulInput<T>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<T::Acc, 2>) {
        c.store([0, 0], ct::matmul(a.load([0, 0], [32, 64]), b.load([0, 0], [64, 16])));
    }
    fn check<T: MatmulInput<T>>(session: Session) -> Result<()> {
        let (a, b) = (random::<T>(5, 32 * 64, Spread::Whole(3)), random::<T>(6, 64 * 16, Spread::Whole(3)));
        let (device_a, device_b) = (session.array(&a, [32, 64])?, session.array(&b, [64, 16])?);
        let mut c = session.unwritten::<T::Acc, 2>([32, 16])?;
        session.launch(kernel::<T>, [1], (&device_a, &device_b, &mut c))?;
        let expected = reference(&a, &b, [32, 16, 64]);
        session.check("matmul", &c, &|at| Want::SumOf(expected[ravel(at, [32, 16])].0))
    }
    check::<f16>(session)?;
    check::<f64>(session)?;
    check::<i8>(session)
}

/// The result of one product is an operand of the next, as in attention.
fn chained(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f32, 2>) {
        let (a, b) = (a.load([0, 0], [64, 32]), b.load([0, 0], [32, 64]));
        let first = ct::matmul(a, b).cast::<f16>();
        let second = ct::matmul(first, b.transpose());
        c.store([0, 0], ct::matmul(second.cast::<f16>().transpose(), a) + second.sum(0).transpose());
    }
    let (a, b) = (random::<f16>(7, 64 * 32, Spread::Whole(1)), random::<f16>(8, 32 * 64, Spread::Whole(1)));
    let (device_a, device_b) = (session.array(&a, [64, 32])?, session.array(&b, [32, 64])?);
    let mut c = session.unwritten::<f32, 2>([32, 32])?;
    session.launch(kernel, [1], (&device_a, &device_b, &mut c))?;
    let rounded = |values: Vec<(f64, f64)>| values.into_iter().map(|(x, _)| f16::from_f64(x)).collect::<Vec<f16>>();
    let first = rounded(reference(&a, &b, [64, 64, 32]));
    let second = reference(&first, &flipped(&b, 32, 64), [64, 32, 64]);
    let sums: Vec<f64> = (0..32).map(|j| (0..64).map(|i| second[i * 32 + j].0).sum()).collect();
    let last = reference(&flipped(&rounded(second), 64, 32), &a, [32, 32, 64]);
    session.check("chain", &c, &|[i, j]| {
        let (value, magnitude) = last[i * 32 + j];
        Want::Within { value: value + sums[i], error: magnitude * 2f64.powi(-20) }
    })
}
