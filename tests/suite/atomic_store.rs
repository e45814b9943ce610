//! Reductions into arrays by tile index: every operation and element type, blocks with common
//! elements, tiles beyond the edges, transposed, overlapping, at offsets and at listed positions.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::CastTo;
use cutlet::prelude::*;

use crate::atomic::{mask, order_key};
use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("atomic_store/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(additions: i32 i64 u32 u64 f16 bf16 f32 f64);
    each!(places: i32 f16 bf16 f32);
    each!(extrema: i32 i64 u32 u64 f16 bf16 f32 f64);
    each!(bits: i32 i64 u32 u64);
    each!(products: i32 f16 bf16 f32);
    suite.test("atomic_store/filled", filled);
    suite.test("atomic_store/no_axes", no_axes);
    suite.test("atomic_store/assumed", assumed);
    suite.test("atomic_store/then_read", then_read);
    suite.test("atomic_store/then_stored", then_stored);
}

const TILE: [usize; 2] = [8, 32];

fn additions_kernel<T: ct::ops::AtomicAdd>(x: Array<T, 2>, sums: ArrayMut<T, 2>, turned: ArrayMut<T, 2>) {
    let tile = x.load((ct::bid(0), ct::bid(1)), TILE);
    sums.atomic_store_add((0, ct::bid(1)), tile);
    let view = turned.tiled([TILE[0], TILE[1]]).order([1, 0]);
    view.atomic_store_add((0, ct::bid(1)), tile + tile);
}

/// Ten blocks add to each tile; whole numbers, so that sums are exact in all orders.
fn additions<T: ct::ops::AtomicAdd>(session: Session) -> Result<()> {
    for width in [128, 121, 96] {
        let data = random::<T>(21, 80 * width, Spread::Whole(4));
        let start = random::<T>(22, 7 * width, Spread::Whole(4));
        let x = session.array(&data, [80, width])?;
        // The last row of the tiles is outside.
        let mut sums = session.array(&start, [7, width])?;
        let mut turned = session.device().zeros::<T, 2>([width, 8])?;
        let grid = [10, width.div_ceil(TILE[1])];
        session.launch(additions_kernel::<T>, grid, (&x, &mut sums, &mut turned))?;
        let sum = |i: usize, j: usize| (0..10).map(|k| data[(8 * k + i) * width + j].to_f64() as i64).sum::<i64>();
        let exactly = |total: i64| match T::DTYPE.is_float() {
            true => Want::exactly(T::from_f64(total as f64)),
            false => Want::exactly(T::from_bits(total as u64 & mask::<T>())),
        };
        let first = |i: usize, j: usize| start[i * width + j].to_f64() as i64;
        session.check("sums", &sums, &|[i, j]| exactly(first(i, j) + sum(i, j)))?;
        session.check("turned", &turned, &|[j, i]| exactly(2 * sum(i, j)))?;
    }
    Ok(())
}

const SUMS: [usize; 2] = [128, 64];
const DEPTH: usize = 16;

fn products_kernel<T: ct::ops::AtomicAdd>(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<T, 2>, twice: Scalar<bool>)
where
    f32: CastTo<T>,
{
    let block = ct::bid(0);
    let b = b.load((0, block), [DEPTH, SUMS[1]]);
    ct::fold(..a.num_tiles(0, [SUMS[0], DEPTH]), (), |(), i| {
        let product = ct::mma(a.load((i, 0), [SUMS[0], DEPTH]), b, ct::zeros::<f32, 2>(SUMS)).cast::<T>();
        y.atomic_store_add((i, block % 2), product);
        // A uniform branch: the shared memory of boxes is used again.
        ct::if_then(twice, || y.atomic_store_add((i, block % 2), product + product));
    });
}

/// Products that four blocks add to two columns of tiles, which TMA can do where rows are whole
/// grains of 16 bytes.
fn products<T: ct::ops::AtomicAdd>(session: Session) -> Result<()>
where
    f32: CastTo<T>,
{
    for (rows, width, twice) in [(256, 128, false), (300, 120, true), (130, 121, false)] {
        let a = random::<f16>(31, rows * DEPTH, Spread::Whole(2));
        let b = random::<f16>(32, DEPTH * 4 * SUMS[1], Spread::Whole(2));
        let start = random::<T>(33, rows * width, Spread::Whole(2));
        let (device_a, device_b) = (session.array(&a, [rows, DEPTH])?, session.array(&b, [DEPTH, 4 * SUMS[1]])?);
        let mut y = session.array(&start, [rows, width])?;
        session.launch(products_kernel::<T>, [4], (&device_a, &device_b, &mut y, twice))?;
        let term = |i: usize, k: usize, j: usize| a[i * DEPTH + k].to_f64() * b[k * 4 * SUMS[1] + j].to_f64();
        session.check("sums", &y, &|[i, j]| {
            let columns = [j, j + 2 * SUMS[1]];
            let sum: f64 = columns.iter().map(|&j| (0..DEPTH).map(|k| term(i, k, j)).sum::<f64>()).sum();
            Want::exactly(T::from_f64(start[i * width + j].to_f64() + if twice { 3.0 } else { 1.0 } * sum))
        })?;
    }
    Ok(())
}

type Sums<T> = (ArrayMut<T, 2>, ArrayMut<T, 2>, ArrayMut<T, 2>);

fn places_kernel<T: ct::ops::AtomicAdd>(
    x: Array<T, 2>,
    rows: Array<i32, 1>,
    by: Scalar<i32>,
    (over, moved, listed): Sums<T>,
) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let tile = x.load((i, j), TILE);
    over.tiled(TILE).step([3, 32]).atomic_store_add((i, j), tile);
    moved.atomic_store_add((ct::at(i * 8 + by), ct::at(j * 32 - 5)), tile);
    listed.atomic_store_add((ct::at(rows.load(i, [8])), j), tile);
}

/// Tiles that overlap, at element offsets before and beyond the array, and in listed rows, some of
/// them twice.
fn places<T: ct::ops::AtomicAdd>(session: Session) -> Result<()> {
    let (rows, width) = (40, 75);
    let data = random::<T>(23, rows * width, Spread::Whole(4));
    let list = random::<i32>(24, rows, Spread::Between(-2.0, 11.0));
    let (x, at) = (session.array(&data, [rows, width])?, session.array(&list, [rows])?);
    for by in [-3i32, 2] {
        let [mut over, mut moved, mut listed] = [
            session.device().zeros::<T, 2>([18, width])?,
            session.device().zeros::<T, 2>([rows, width])?,
            session.device().zeros::<T, 2>([10, width])?,
        ];
        let sums = (&mut over, &mut moved, &mut listed);
        session.launch(places_kernel::<T>, [5, width.div_ceil(32)], (&x, &at, by, sums))?;
        let at = |i: usize, j: usize| data[i * width + j].to_f64();
        let want = |sum: f64| Want::exactly(T::from_f64(sum));
        let over_at = |i: usize| (0..5).filter_map(move |k| i.checked_sub(3 * k).filter(|r| *r < 8).map(|r| 8 * k + r));
        session.check("overlapping", &over, &|[i, j]| want(over_at(i).map(|row| at(row, j)).sum()))?;
        let moved_from = |i: usize| usize::try_from(i as i64 - i64::from(by)).ok().filter(|&row| row < rows);
        let from = |[i, j]: [usize; 2]| moved_from(i).filter(|_| j + 5 < width).map_or(0.0, |row| at(row, j + 5));
        session.check("moved", &moved, &|index| want(from(index)))?;
        let rows_at = |i: usize| (0..rows).filter(|&row| list[row] == i as i32).collect::<Vec<_>>();
        session.check("listed", &listed, &|[i, j]| want(rows_at(i).into_iter().map(|row| at(row, j)).sum()))?;
    }
    Ok(())
}

fn extrema_kernel<T: ct::ops::AtomicMinMax>(x: Array<T, 2>, high: ArrayMut<T, 2>, low: ArrayMut<T, 2>) {
    let tile = x.load((ct::bid(0), ct::bid(1)), TILE);
    high.atomic_store_max((0, ct::bid(1)), tile);
    low.tiled(TILE).atomic_store_min((0, ct::bid(1)), tile);
}

/// All patterns: NaNs change nothing, -0 is below +0.
fn extrema<T: ct::ops::AtomicMinMax>(session: Session) -> Result<()> {
    let width = 45;
    let (data, start) = (random::<T>(25, 48 * width, Spread::Any), random::<T>(26, 8 * width, Spread::Moderate));
    let x = session.array(&data, [48, width])?;
    let (mut high, mut low) = (session.array(&start, [8, width])?, session.array(&start, [8, width])?);
    session.launch(extrema_kernel::<T>, [6, 2], (&x, &mut high, &mut low))?;
    let of = |i: usize, j: usize| {
        let all = (0..6).map(|k| data[(8 * k + i) * width + j]).filter(|x| !x.to_f64().is_nan());
        all.chain([start[i * width + j]]).collect::<Vec<T>>()
    };
    let largest = |i, j| of(i, j).into_iter().max_by_key(|&x| order_key(x)).expect("a value");
    let smallest = |i, j| of(i, j).into_iter().min_by_key(|&x| order_key(x)).expect("a value");
    session.check("largest", &high, &|[i, j]| Want::SameBits(largest(i, j).to_bits()))?;
    session.check("smallest", &low, &|[i, j]| Want::SameBits(smallest(i, j).to_bits()))
}

fn bits_kernel<T: ct::ops::AtomicBits>(x: Array<T, 1>, all: (ArrayMut<T, 1>, ArrayMut<T, 1>, ArrayMut<T, 1>)) {
    let tile = x.load(ct::bid(0), [128]);
    let (and, or, xor) = (all.0.tiled([128]), all.1, all.2.tiled([128]).step([1]));
    and.atomic_store_and(0, tile);
    or.atomic_store_or(0, tile);
    xor.atomic_store_xor(ct::bid(0), tile);
}

fn bits<T: ct::ops::AtomicBits>(session: Session) -> Result<()> {
    let (data, start) = (random::<T>(27, 128 * 5, Spread::Any), random::<T>(28, 113, Spread::Any));
    let x = session.array(&data, [data.len()])?;
    let [mut and, mut or, mut xor] =
        [session.array(&start, [113])?, session.array(&start, [113])?, session.array(&start, [113])?];
    session.launch(bits_kernel::<T>, [5], (&x, (&mut and, &mut or, &mut xor)))?;
    let fold = |i: usize, shift: usize, f: fn(u64, u64) -> u64| {
        let all = (0..5).filter_map(|k| i.checked_sub(k * shift).map(|at| data[128 * k + at].to_bits()));
        Want::SameBits(all.fold(start[i].to_bits(), f))
    };
    session.check("and", &and, &|[i]| fold(i, 0, |a, b| a & b))?;
    session.check("or", &or, &|[i]| fold(i, 0, |a, b| a | b))?;
    session.check("xor", &xor, &|[i]| fold(i, 1, |a, b| a ^ b))
}

fn filled_kernel(counts: ArrayMut<i32, 1>, sums: ArrayMut<f32, 1>) {
    counts.tiled([16]).atomic_store_add(ct::bid(0) % 3, 1);
    sums.tiled([4]).step([2]).atomic_store_add(ct::bid(0), ct::bid(0).cast::<f32>());
}

fn filled(session: Session) -> Result<()> {
    let (mut counts, mut sums) = (session.device().zeros([40])?, session.device().zeros([20])?);
    session.launch(filled_kernel, [9], (&mut counts, &mut sums))?;
    session.check("counts", &counts, &|_| Want::exactly(3))?;
    let sum = |i: usize| (0..9).filter(|k| (2 * k..2 * k + 4).contains(&i)).sum::<usize>();
    session.check("sums", &sums, &|[i]| Want::exactly(sum(i) as f32))
}

fn no_axes_kernel(sum: ArrayMut<i32, 0>, largest: ArrayMut<f32, 0>) {
    sum.tiled([]).atomic_store_add([0; 0], ct::bid(0));
    sum.entry([0; 0]).atomic_add(1);
    largest.tiled([]).atomic_store_max([0; 0], 2.5 - ct::bid(0).cast::<f32>());
}

fn no_axes(session: Session) -> Result<()> {
    let (mut sum, mut largest) = (session.device().zeros([])?, session.device().full([], -8.0f32)?);
    session.launch(no_axes_kernel, [10], (&mut sum, &mut largest))?;
    session.check("sum", &sum, &|[]| Want::exactly(55))?;
    session.check("largest", &largest, &|[]| Want::exactly(2.5f32))
}

fn promised_kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
    // SAFETY: launched with arrays of whole tiles.
    let view = unsafe { y.tiled([64]).check_bounds(false) };
    view.atomic_store_add(ct::bid(0) % 2, x.load(ct::bid(0), [64]));
    // SAFETY: the same.
    unsafe { y.tiled([64]).check_bounds(false) }.atomic_store_max(ct::bid(0) % 2, -100.0);
}

fn assumed(session: Session) -> Result<()> {
    let data = random::<f32>(29, 64 * 6, Spread::Whole(8));
    let (x, mut y) = (session.array(&data, [data.len()])?, session.device().zeros([128])?);
    session.launch(promised_kernel, [6], (&x, &mut y))?;
    let sum = |i: usize| (0..3).map(|k| data[128 * k + i]).sum::<f32>();
    session.check("sums", &y, &|[i]| Want::SumOf(sum(i).into()))
}

fn then_read_kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, out: ArrayMut<f32, 2>) {
    let i = ct::bid(0);
    y.store((i, 0), ct::ones([16, 64]));
    y.atomic_store_add((i, 0), x.load((i, 0), [16, 64]));
    // Other threads have these elements.
    out.store((0, i), y.load((i, 0), [16, 64]).transpose());
}

/// A block observes its own additions.
fn then_read(session: Session) -> Result<()> {
    let data = random::<f32>(30, 48 * 64, Spread::Whole(8));
    let x = session.array(&data, [48, 64])?;
    let (mut y, mut out) = (session.unwritten::<f32, 2>([48, 64])?, session.unwritten::<f32, 2>([64, 48])?);
    session.launch(then_read_kernel, [3], (&x, &mut y, &mut out))?;
    session.check("read", &out, &|[j, i]| Want::exactly(data[64 * i + j] + 1.0))
}

fn then_stored_kernel(x: Array<i64, 2>, y: ArrayMut<i64, 2>) {
    let at = (ct::bid(0), ct::bid(1));
    let tile = x.load(at, [4, 64]);
    let rows = at.0 * 4 + ct::indices([4, 64], 0) / 2;
    let columns = at.1 * 64 + ct::indices([4, 64], 1) / 4;
    y.atomic_add((rows, columns), tile);
    y.store(at, tile);
}

/// A store of a block overwrites its own additions by other threads.
fn then_stored(session: Session) -> Result<()> {
    let data = random::<i64>(31, 8 * 128, Spread::Any);
    let x = session.array(&data, [8, 128])?;
    let mut y = session.device().zeros::<i64, 2>([8, 128])?;
    session.launch(then_stored_kernel, [2, 2], (&x, &mut y))?;
    session.check("stored", &y, &|[i, j]| Want::exactly(data[128 * i + j]))
}
