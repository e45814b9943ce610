//! Atomics: every operation and element type, by index tiles with duplicates, masked and outside,
//! results read and not. Many tile blocks on few elements, sums over a grid, ordered messages
//! between blocks.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, Scope};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.test(concat!("atomic/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(additions: i32 i64 u32 u64 f16 bf16 f32 f64);
    each!(extrema: i32 i64 u32 u64 f16 bf16 f32 f64);
    each!(extrema_before: i32 u64 f16 bf16 f32);
    each!(extrema_of_patterns: f16 bf16 f32 f64);
    each!(small_sums: f16 bf16 f32 f64);
    each!(bits: i32 i64 u32 u64);
    each!(exchanges: i32 i64 u32 u64 f32 f64);
    each!(adjacent: i32 f16 bf16 f32 f64);
    suite.test("atomic/values_before", values_before);
    suite.test("atomic/histogram", histogram);
    suite.test("atomic/grid_sum", grid_sum);
    suite.test("atomic/in_order", in_order);
    suite.test("atomic/single", single);
    suite.test("atomic/in_branches", in_branches);
}

const BINS: usize = 37;
const COUNT: usize = 3000;

/// Returns the bin of each value: one of a few bins, or a number outside on either side.
fn bins(seed: u64) -> Vec<i32> {
    random::<i32>(seed, COUNT, Spread::Between(-3.0, BINS as f64 + 3.0))
}

fn add_kernel<T: ct::ops::AtomicAdd>(x: Array<T, 1>, at: Array<i32, 1>, up: ArrayMut<T, 1>, down: ArrayMut<T, 1>) {
    let (x, at) = (x.load([ct::bid(0)], [256]), at.load([ct::bid(0)], [256]));
    up.atomic_add(at, x);
    down.atomic_sub_with(at, x, AtomicOptions::new().relaxed(Scope::Device).mask(x.ne(T::from_f64(1.0))));
}

/// Whole numbers: sums are exact in all orders.
fn additions<T: ct::ops::AtomicAdd>(session: Session) -> Result<()> {
    let limit = if matches!(T::NAME, "f16" | "bf16") { 1 } else { 100 };
    let (data, at) = (random::<T>(1, COUNT, Spread::Whole(limit)), bins(2));
    let (x, index) = (session.array(&data, [COUNT])?, session.array(&at, [COUNT])?);
    let start = random::<T>(3, BINS, Spread::Whole(1));
    let (mut up, mut down) = (session.array(&start, [BINS])?, session.array(&start, [BINS])?);
    session.launch(add_kernel::<T>, [COUNT.div_ceil(256)], (&x, &index, &mut up, &mut down))?;
    // Beyond the data, zeros go to bin 0.
    let sum = |i: usize, sign: i64| {
        let all = data.iter().zip(&at).filter(|(x, at)| **at == i as i32 && (sign > 0 || x.to_f64() != 1.0));
        // Through i64: unsigned sums wrap below zero.
        let total = all.map(|(x, _)| x.to_f64() as i64).sum::<i64>() * sign + start[i].to_f64() as i64;
        if T::DTYPE.is_float() { T::from_f64(total as f64) } else { T::from_bits(total as u64 & mask::<T>()) }
    };
    session.check("added", &up, &|[i]| Want::exactly(sum(i, 1)))?;
    session.check("subtracted", &down, &|[i]| Want::exactly(sum(i, -1)))
}

/// All bits of an element.
pub fn mask<T: Element>() -> u64 {
    u64::MAX >> (64 - T::DTYPE.bits())
}

/// Returns the rank of a value in the order of atomic extrema: integers by value, floats by sign
/// and magnitude.
pub fn order_key<T: Number>(x: T) -> i128 {
    let bits = x.to_bits() & mask::<T>();
    let up = 64 - T::DTYPE.bits();
    match (T::DTYPE.is_float(), T::SIGNED) {
        (true, _) if bits >> (T::DTYPE.bits() - 1) == 1 => -1 - i128::from(bits & (mask::<T>() >> 1)),
        (_, true) => i128::from(((bits << up) as i64) >> up),
        _ => i128::from(bits),
    }
}

fn extrema_kernel<T: ct::ops::AtomicMinMax>(
    x: Array<T, 1>,
    at: Array<i32, 1>,
    high: ArrayMut<T, 1>,
    low: ArrayMut<T, 1>,
) {
    let (x, at) = (x.load([ct::bid(0)], [256]), at.load([ct::bid(0)], [256]));
    let inside = (ct::bid(0) * 256 + ct::arange(0..256)).lt(COUNT);
    high.atomic_max_with(at, x, AtomicOptions::new().mask(inside));
    low.atomic_min_with(at, x, AtomicOptions::new().relaxed(Scope::System).mask(inside));
}

/// All patterns: NaNs change nothing, -0 is below +0.
fn extrema<T: ct::ops::AtomicMinMax>(session: Session) -> Result<()> {
    let (data, at) = (random::<T>(4, COUNT, Spread::Any), bins(5));
    let (x, index) = (session.array(&data, [COUNT])?, session.array(&at, [COUNT])?);
    let start = random::<T>(6, BINS, Spread::Moderate);
    let (mut high, mut low) = (session.array(&start, [BINS])?, session.array(&start, [BINS])?);
    session.launch(extrema_kernel::<T>, [COUNT.div_ceil(256)], (&x, &index, &mut high, &mut low))?;
    let of_bin = |i: usize| {
        let all = data.iter().zip(&at).filter(move |(x, at)| **at == i as i32 && !x.to_f64().is_nan());
        all.map(|(x, _)| *x).chain([start[i]]).collect::<Vec<T>>()
    };
    let largest = |i: usize| of_bin(i).into_iter().max_by_key(|&x| order_key(x)).expect("a value");
    let smallest = |i: usize| of_bin(i).into_iter().min_by_key(|&x| order_key(x)).expect("a value");
    session.check("largest", &high, &|[i]| Want::SameBits(largest(i).to_bits()))?;
    session.check("smallest", &low, &|[i]| Want::SameBits(smallest(i).to_bits()))
}

/// Patterns of a float type at which its kinds of numbers begin and end: zeros, subnormal and
/// normal numbers, infinities, signaling and quiet NaNs, and NaNs with all bits set; of both signs.
pub fn patterns<T: Element>() -> Vec<T> {
    let infinity = T::from_f64(f64::INFINITY).to_bits();
    let (normal, last) = (infinity & infinity.wrapping_neg(), mask::<T>() >> 1);
    let one = T::from_f64(1.0).to_bits();
    let sizes =
        [0, 1, normal - 1, normal, normal + 1, one, infinity - 1, infinity, infinity + 1, infinity | normal >> 1, last];
    sizes.iter().flat_map(|&bits| [bits, bits | (last + 1)]).map(T::from_bits).collect()
}

fn pairs_kernel<T: ct::ops::AtomicMinMax>(
    x: Array<T, 1>,
    (high, low): (ArrayMut<T, 1>, ArrayMut<T, 1>),
    (before, fixed): (ArrayMut<T, 1>, ArrayMut<T, 1>),
) {
    let (at, x) = (ct::bid(0) * 64 + ct::arange(0..64), x.load(ct::bid(0), [64]));
    before.scatter(at, high.atomic_max(at, x));
    low.atomic_store_min(ct::bid(0), x);
    // A NaN that is known while the kernel is traced.
    fixed.atomic_max(at, T::from_f64(f64::NAN));
    fixed.atomic_min(at, T::from_f64(f64::NAN));
}

/// Each pattern in memory with each as a value: a value that is NaN changes no pattern, and all
/// others are in order.
fn extrema_of_patterns<T: ct::ops::AtomicMinMax>(session: Session) -> Result<()> {
    let all = patterns::<T>();
    let (count, n) = (all.len() * all.len(), all.len());
    let old: Vec<T> = (0..count).map(|i| all[i / n]).collect();
    let new: Vec<T> = (0..count).map(|i| all[i % n]).collect();
    let x = session.array(&new, [count])?;
    let [mut high, mut low, mut fixed] =
        [session.array(&old, [count])?, session.array(&old, [count])?, session.array(&old, [count])?];
    let mut before = session.unwritten::<T, 1>([count])?;
    let arrays = ((&mut high, &mut low), (&mut before, &mut fixed));
    session.launch(pairs_kernel::<T>, [count.div_ceil(64)], (&x, arrays.0, arrays.1))?;
    let of_two = |i: usize, larger: bool| {
        let changes = !new[i].to_f64().is_nan() && (order_key(new[i]) > order_key(old[i])) == larger;
        Want::SameBits(if changes { new[i] } else { old[i] }.to_bits())
    };
    session.check("largest", &high, &|[i]| of_two(i, true))?;
    session.check("smallest", &low, &|[i]| of_two(i, false))?;
    session.check("before", &before, &|[i]| Want::SameBits(old[i].to_bits()))?;
    session.check("with NaN", &fixed, &|[i]| Want::SameBits(old[i].to_bits()))
}

fn small_sums_kernel<T: ct::ops::AtomicAdd>(
    (x, first): (Array<T, 1>, Array<T, 1>),
    (y, z): (ArrayMut<T, 1>, ArrayMut<T, 1>),
    own: ArrayMut<T, 1>,
) {
    let (block, x) = (ct::bid(0), x.load(ct::bid(0), [64]));
    let at = ct::arange(0..64);
    y.atomic_add(block * 64 + at, x);
    z.atomic_store_add(block, x);
    let shared = ct::scratch::<T, 1>([64]);
    shared.store(0, first.load(block, [64]));
    shared.atomic_add(at, x);
    own.store(block, shared.load(0, [64]));
}

/// Subnormal numbers in memory, as values and as sums: of f32 they are zeros, but in memory of the
/// tile block's own.
fn small_sums<T: ct::ops::AtomicAdd>(session: Session) -> Result<()> {
    let all: Vec<T> = patterns::<T>().into_iter().filter(|x| x.to_f64().abs() <= 1.0).collect();
    let (count, n) = (all.len() * all.len(), all.len());
    let old: Vec<T> = (0..count).map(|i| all[i / n]).collect();
    let new: Vec<T> = (0..count).map(|i| all[i % n]).collect();
    let (x, first) = (session.array(&new, [count])?, session.array(&old, [count])?);
    let (mut y, mut z) = (session.array(&old, [count])?, session.array(&old, [count])?);
    let mut own = session.unwritten::<T, 1>([count])?;
    session.launch(small_sums_kernel::<T>, [count.div_ceil(64)], ((&x, &first), (&mut y, &mut z), &mut own))?;
    let flushed =
        |x: f64| if T::NAME == "f32" && x.abs() < f64::from(f32::MIN_POSITIVE) { 0f64.copysign(x) } else { x };
    let sum = |i: usize, flushed: &dyn Fn(f64) -> f64| {
        // Rounded once: numbers of this size are a few bits long, or far below the last one of the
        // other.
        let sum = T::from_f64(flushed(old[i].to_f64()) + flushed(new[i].to_f64()));
        Want::SameBits(T::from_f64(flushed(sum.to_f64())).to_bits())
    };
    session.check("sums", &y, &|[i]| sum(i, &flushed))?;
    session.check("sums of tiles", &z, &|[i]| sum(i, &flushed))?;
    // The compiler of Tile IR selects the location of such memory.
    session.check("own", &own, &|[i]| if session.through_tile_ir() { Want::Open } else { sum(i, &|x| x) })
}

fn climb_kernel<T: ct::ops::AtomicMinMax>(top: ArrayMut<T, 1>, before: ArrayMut<T, 2>) {
    let at = ct::arange(0..64);
    let steps = (at % 4 + ct::bid(0) * 4).cast::<T>();
    let inside = at.lt(61);
    let old = top.atomic_max_with(at / 4, steps, AtomicOptions::new().mask(inside));
    before.scatter((ct::bid(0), at), old);
}

/// Previous values are at most the later ones, and never decrease; 0 for elements that were not
/// read. Adjacent elements of a word are independent.
fn extrema_before<T: ct::ops::AtomicMinMax>(session: Session) -> Result<()> {
    let blocks = 6;
    let mut top = session.device().zeros::<T, 1>([16])?;
    let mut before = session.unwritten::<T, 2>([blocks, 64])?;
    session.launch(climb_kernel::<T>, [blocks], (&mut top, &mut before))?;
    let last = |i: usize| 4 * (blocks - 1) + if i == 15 { 0 } else { 3 };
    session.check("top", &top, &|[i]| Want::exactly(T::from_f64(last(i) as f64)))?;
    if session.only_compiles() {
        return Ok(());
    }
    let old = before.to_vec()?;
    for (i, old) in old.iter().enumerate() {
        let limit = if i % 64 < 61 { last(i % 64 / 4) as f64 } else { 0.0 };
        anyhow::ensure!((0.0..=limit).contains(&old.to_f64()), "at {i}: {old:?} before, at most {limit} afterwards");
    }
    Ok(())
}

fn bits_kernel<T: ct::ops::AtomicBits>(
    x: Array<T, 1>,
    at: Array<i32, 1>,
    (and, or, xor): (ArrayMut<T, 1>, ArrayMut<T, 1>, ArrayMut<T, 1>),
) {
    let (x, at) = (x.load([ct::bid(0)], [128]), at.load([ct::bid(0)], [128]));
    let inside = (ct::bid(0) * 128 + ct::arange(0..128)).lt(COUNT);
    let options = AtomicOptions::new().mask(inside);
    and.atomic_and_with(at, x, options);
    or.atomic_or_with(at, x, options);
    xor.atomic_xor_with(at, x, options);
}

fn bits<T: ct::ops::AtomicBits>(session: Session) -> Result<()> {
    let (data, at) = (random::<T>(7, COUNT, Spread::Any), bins(8));
    let (x, index) = (session.array(&data, [COUNT])?, session.array(&at, [COUNT])?);
    let start = random::<T>(9, BINS, Spread::Any);
    let [mut and, mut or, mut xor] =
        [session.array(&start, [BINS])?, session.array(&start, [BINS])?, session.array(&start, [BINS])?];
    let arrays = (&mut and, &mut or, &mut xor);
    session.launch(bits_kernel::<T>, [COUNT.div_ceil(128)], (&x, &index, arrays))?;
    let fold = |i: usize, f: fn(u64, u64) -> u64| {
        let all = data.iter().zip(&at).filter(|(_, at)| **at == i as i32);
        Want::SameBits(all.fold(start[i].to_bits(), |bits, (x, _)| f(bits, x.to_bits())))
    };
    session.check("and", &and, &|[i]| fold(i, |a, b| a & b))?;
    session.check("or", &or, &|[i]| fold(i, |a, b| a | b))?;
    session.check("xor", &xor, &|[i]| fold(i, |a, b| a ^ b))
}

fn exchange_kernel<T: ct::ops::AtomicXchg>(
    x: Array<T, 1>,
    y: ArrayMut<T, 1>,
    old: ArrayMut<T, 1>,
    kept: ArrayMut<T, 1>,
) {
    let at = ct::bid(0) * 128 + ct::arange(0..128);
    let x = x.gather(at);
    let options = AtomicOptions::new().relaxed(Scope::Device);
    let before = y.atomic_xchg_with(at, x, options);
    old.scatter(at, before);
    // Restores the previous value in every second place.
    let expected = ((at % 2).eq(0)).select(x, before);
    kept.scatter(at, y.atomic_cas_with(at, expected, before, options));
}

/// Each element once, so that the results are defined.
fn exchanges<T: ct::ops::AtomicXchg>(session: Session) -> Result<()> {
    let count = 500;
    // Numbers that differ, by their bits.
    let data: Vec<T> = (0..count).map(|i| T::from_f64(i as f64 + 1.0)).collect();
    let start: Vec<T> = (0..count).map(|i| T::from_f64(1000.0 + i as f64)).collect();
    let (x, mut y) = (session.array(&data, [count])?, session.array(&start, [count])?);
    let (mut old, mut kept) = (session.unwritten::<T, 1>([count])?, session.unwritten::<T, 1>([count])?);
    session.launch(exchange_kernel::<T>, [4], (&x, &mut y, &mut old, &mut kept))?;
    session.check("before the exchange", &old, &|[i]| Want::exactly(start[i]))?;
    session.check("before the comparison", &kept, &|[i]| Want::exactly(data[i]))?;
    session.check("at last", &y, &|[i]| Want::exactly(if i % 2 == 0 { start[i] } else { data[i] }))
}

fn neighbours_kernel<T: ct::ops::AtomicAdd>(x: Array<T, 2>, y: ArrayMut<T, 2>) {
    let tile = x.load((ct::bid(0), ct::bid(1)), [16, 64]);
    let rows = ct::arange(0..16).unsqueeze(1);
    y.atomic_add((rows, ct::span(ct::bid(1) * 64, 64)), tile);
}

/// Additions to neighbours: several at once where the target can.
fn adjacent<T: ct::ops::AtomicAdd>(session: Session) -> Result<()> {
    for width in [128, 121] {
        let data = random::<T>(10, 80 * width, Spread::Whole(4));
        let x = session.array(&data, [80, width])?;
        let mut y = session.device().zeros::<T, 2>([16, width])?;
        session.launch(neighbours_kernel::<T>, [5, 2], (&x, &mut y))?;
        let want = |[i, j]: [usize; 2]| {
            Want::exactly(T::from_f64((0..5).map(|k| data[(16 * k + i) * width + j].to_f64()).sum()))
        };
        session.check("sums", &y, &want)?;
    }
    Ok(())
}

fn tickets(counter: ArrayMut<u32, 1>, taken: ArrayMut<i32, 1>, masked: ArrayMut<u32, 1>) {
    let at = ct::arange(0..64) % 2;
    let ticket = counter.atomic_add(at, 1u32);
    taken.scatter((ticket.cast::<i32>() * 2 + at,), 1);
    let some = ct::arange(0..64).lt(3);
    let before = counter.atomic_add_with(at + 1, 5u32, AtomicOptions::new().mask(some));
    masked.scatter(ct::bid(0) * 64 + ct::arange(0..64), some.select(0u32, before));
}

/// Values before: each ticket is given out once. Nothing comes back where nothing happened.
fn values_before(session: Session) -> Result<()> {
    let mut counter = session.device().zeros::<u32, 1>([4])?;
    let mut taken = session.device().zeros::<i32, 1>([64 * 8])?;
    let mut masked = session.unwritten::<u32, 1>([64 * 8])?;
    session.launch(tickets, [8], (&mut counter, &mut taken, &mut masked))?;
    // Element 1 also gets the masked additions, so its tickets jump.
    session.check("tickets", &taken, &|[i]| if i % 2 == 0 && i < 512 { Want::exactly(1) } else { Want::Open })?;
    session.check("masked", &masked, &|_| Want::exactly(0u32))
}

fn histogram_kernel(x: Array<u8, 1>, bins: ArrayMut<i32, 1>) {
    let steps = x.num_tiles(0, [1024]);
    ct::fold(ct::range(ct::bid(0), steps).step(ct::num_blocks(0)), (), |(), i| {
        bins.atomic_add(x.load([i], [1024]).cast::<i32>(), 1);
    });
}

fn histogram(session: Session) -> Result<()> {
    let data = random::<u8>(11, 20 * 1024, Spread::Any);
    let x = session.array(&data, [data.len()])?;
    let mut bins = session.device().zeros::<i32, 1>([256])?;
    session.launch(histogram_kernel, [7], (&x, &mut bins))?;
    session.check("bins", &bins, &|[i]| Want::exactly(data.iter().filter(|&&x| usize::from(x) == i).count() as i32))
}

fn grid_sum_kernel(x: Array<f32, 1>, sum: ArrayMut<f32, 1>) {
    let part = x.load([ct::bid(0)], [512]).sum(0);
    sum.atomic_add(ct::zeros::<i32, 1>([1]), part);
}

fn grid_sum(session: Session) -> Result<()> {
    let data = random::<f32>(12, 10_000, Spread::Whole(50));
    let x = session.array(&data, [data.len()])?;
    let mut sum = session.device().zeros::<f32, 1>([1])?;
    session.launch(grid_sum_kernel, [data.len().div_ceil(512)], (&x, &mut sum))?;
    session.check("sum", &sum, &|_| Want::exactly(data.iter().sum::<f32>()))
}

fn in_order_kernel(x: ArrayMut<i32, 1>, y: ArrayMut<i32, 1>) {
    let at = ct::arange(0..256);
    let back = ct::arange_from(256, 255, -1);
    x.scatter(at, at);
    x.atomic_add(back, 1000);
    x.atomic_max(at, 1200);
    let before = x.atomic_xchg(back, 7);
    y.store([0], x.gather(at) + before);
}

/// Accesses of one tile block to one array stay in order.
fn in_order(session: Session) -> Result<()> {
    let (mut x, mut y) = (session.unwritten::<i32, 1>([256])?, session.unwritten::<i32, 1>([256])?);
    session.launch(in_order_kernel, [1], (&mut x, &mut y))?;
    session.check("in order", &y, &|[i]| Want::exactly(7 + (255 - i as i32 + 1000).max(1200)))
}

fn single_kernel(x: ArrayMut<i64, 2>, y: ArrayMut<i64, 1>) {
    let entry = x.entry((1, ct::bid(0)));
    let before = entry.atomic_add(5);
    let swapped = entry.atomic_cas(before + 5, 100);
    entry.store(entry.load() + swapped);
    y.entry(ct::bid(0)).store(before);
    // Outside: nothing.
    x.entry((2, 0)).store(1);
    y.entry(3 + ct::bid(0)).atomic_max(x.entry((-1, 0)).load());
}

fn single(session: Session) -> Result<()> {
    let mut x = session.array(&[1i64, 2, 3, 4, 5, 6], [2, 3])?;
    let mut y = session.unwritten::<i64, 1>([3])?;
    session.launch(single_kernel, [3], (&mut x, &mut y))?;
    session.check("before", &y, &|[i]| Want::exactly(4 + i as i64))?;
    let want = |[i, j]: [usize; 2]| Want::exactly(if i == 0 { 1 + j as i64 } else { 100 + 9 + j as i64 });
    session.check("elements", &x, &want)
}

fn in_branches_kernel(flags: Array<i32, 2>, turns: Scalar<i32>, totals: ArrayMut<i32, 1>, marks: ArrayMut<i32, 2>) {
    let flags = flags.load((ct::bid(0), 0), [1, 32]).ne(0);
    let swapped = flags.flip(1);
    ct::fold(ct::range(0, turns).unroll(2), (flags, swapped), |(flags, swapped), k| {
        ct::if_then(flags.any([0, 1]).item(), || {
            totals.atomic_sub(ct::arange(0..4), k + 1);
            marks.entry((ct::bid(0), k & 3)).atomic_add(k + 1);
        });
        (swapped, flags)
    });
}

/// One lane adds at the end of a branch: the others, which have nothing to do, do not wait for it
/// for ever.
fn in_branches(session: Session) -> Result<()> {
    let flags = random::<i32>(1, 9 * 32, Spread::Between(0.0, 1.0));
    let flags: Vec<i32> = flags.iter().enumerate().map(|(i, flag)| if i / 32 % 3 == 0 { 0 } else { *flag }).collect();
    let x = session.array(&flags, [9, 32])?;
    for turns in [0, 1, 2, 7, 8] {
        let mut marks = session.array(&[0; 9 * 3], [9, 3])?;
        let mut totals = session.array(&[0; 4], [4])?;
        session.launch(in_branches_kernel, [9], (&x, turns, &mut totals, &mut marks))?;
        let sum = |j: usize| (0..turns).filter(|k| k & 3 == j as i32).map(|k| k + 1).sum::<i32>();
        let any = |i: usize| flags[32 * i..][..32].iter().any(|&flag| flag != 0);
        let blocks = (0..9).filter(|&i| any(i)).count() as i32;
        session.check("totals", &totals, &|_| Want::exactly(-blocks * (1..=turns).sum::<i32>()))?;
        session.check("marks", &marks, &|[i, j]| Want::exactly(if any(i) { sum(j) } else { 0 }))?;
    }
    Ok(())
}
