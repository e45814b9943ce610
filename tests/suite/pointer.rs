//! Pointers: every element type through pointers of arrays and through addresses of the host.
//! Masks, casts, arrays made of pointers, addresses past 2^31 elements, pointers carried by loops,
//! memory that is known under two names.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, DeviceArray, GatherOptions, Ptr, PtrTile, RawPtr, ScatterOptions, Scope};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("pointer/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(copies: f64 f32 tf32 f16 bf16 f8e4m3fn i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(offsets: i8 i16 i32 i64 u8 u16 u32 u64);
    suite.lean("pointer/masks_all_false", masks_all_false);
    suite.lean("pointer/padding", padding);
    suite.lean("pointer/casts", casts);
    suite.lean("pointer/arrays", arrays);
    suite.lean("pointer/starts_before", starts_before);
    suite.lean("pointer/broadcast", broadcast);
    suite.lean("pointer/past_2_31", past_2_31);
    suite.lean("pointer/carried", carried);
    suite.lean("pointer/two_names", two_names);
    suite.lean("pointer/table_of_addresses", table_of_addresses);
    suite.test("pointer/atomics", atomics);
    suite.test("pointer/atomics_in_a_loop", atomics_in_a_loop);
}

fn raw<T: ByteSized, const R: usize>(array: &DeviceArray<T, R>) -> RawPtr<T> {
    RawPtr::new(array.address())
}

fn copy<T: ByteSized>(x: Ptr<T>, y: ArrayMut<T, 1>, from: Scalar<i32>) {
    let at = ct::bid(0) * 256 + ct::arange(0..256);
    let inside = at.lt(y.extent(0));
    // SAFETY: `x` has as many elements from `from` on as `y`, beyond which the mask does not reach.
    unsafe {
        let found = x.offset(from).offset(at).load_with(GatherOptions::new().mask(inside));
        y.pointer().offset(at).store_with(found, ScatterOptions::new().mask(inside));
    }
}

/// Addresses from the host have no known alignment, and may be those of any element.
fn copies<T: ByteSized>(session: Session) -> Result<()> {
    let data = random::<T>(1, 1010, Spread::Any);
    let x = session.array(&data, [1010])?;
    for (extent, first, from) in [(1000, 0, 0), (1000, 1, 0), (512, 16, 0), (777, 3, 4), (300, 100, -100)] {
        let bytes = first * (T::DTYPE.storage_bits() / 8) as usize;
        let mut y = session.unwritten::<T, 1>([extent])?;
        let start = RawPtr::<T>::new(x.address() + bytes as u64);
        session.launch(copy::<T>, [extent.div_ceil(256)], (start, &mut y, from))?;
        let want = |[i]: [usize; 1]| Want::SameBits(data[(i + first).wrapping_add_signed(from as isize)].to_bits());
        session.check(&format!("copy from {first} and {from}"), &y, &want)?;
    }
    Ok(())
}

fn distances<I: Int>(by: Array<I, 1>, y: ArrayMut<i64, 1>, z: ArrayMut<i64, 1>) {
    let by = by.load(ct::bid(0), [64]);
    // SAFETY: nothing is accessed.
    unsafe {
        let base = Ptr::<f32>::from_addr(ct::scalar(1 << 40));
        y.store(ct::bid(0), base.offset(by).addr() - base.addr());
        let one = base.offset(by.get([5])).addr() - base.addr();
        z.store(ct::bid(0), one.to_tile());
    }
}

/// Offsets of every width: signed ones may be negative, unsigned ones are not.
fn offsets<I: Int>(session: Session) -> Result<()> {
    // No product with 4 leaves 64 bits.
    let least = if I::SIGNED { -1e15 } else { 0.0 };
    let mut by = random::<I>(2, 128, Spread::Any);
    for by in by.iter_mut().filter(|by| by.to_f64() < least || by.to_f64() > 1e15) {
        *by = I::from_f64(1e15);
    }
    let index = session.array(&by, [128])?;
    let (mut y, mut z) = (session.unwritten::<i64, 1>([128])?, session.unwritten::<i64, 1>([2])?);
    session.launch(distances::<I>, [2], (&index, &mut y, &mut z))?;
    session.check("distances", &y, &|[i]| Want::exactly(by[i].to_f64() as i64 * 4))?;
    session.check("one distance", &z, &|[i]| Want::exactly(by[64 * i + 5].to_f64() as i64 * 4))
}

fn nowhere(y: ArrayMut<f32, 1>, z: ArrayMut<i32, 1>, n: Scalar<i32>) {
    let at = ct::arange(0..128);
    let never = at.lt(n);
    // SAFETY: all masks are false.
    unsafe {
        let null = PtrTile::<f32, 1>::from_addr(at.cast::<i64>() * 3);
        y.store(0, null.load_with(GatherOptions::new().mask(never).padding(2.5)));
        null.store_with(1.0, ScatterOptions::new().mask(never));
        null.store_with(1.0, ScatterOptions::new().mask(never & !never));
        let numbers = null.cast::<i32>();
        let before = numbers.atomic_add_with(1, AtomicOptions::new().mask(never));
        let seen = numbers.atomic_cas_with(7, 1, AtomicOptions::new().mask(never));
        z.store(0, before + seen);
        let one = Ptr::<i32>::from_addr(ct::scalar(1i64));
        one.store_with(1, ScatterOptions::new().mask(n.gt(0)));
        z.store_scalar(ct::at(3), one.load_with(GatherOptions::new().mask(n.gt(0)).padding(-9)));
    }
}

fn masks_all_false(session: Session) -> Result<()> {
    let (mut y, mut z) = (session.unwritten::<f32, 1>([128])?, session.unwritten::<i32, 1>([128])?);
    session.launch(nowhere, [1], (&mut y, &mut z, 0))?;
    session.check("padding", &y, &|_| Want::exactly(2.5f32))?;
    session.check("values before", &z, &|[i]| Want::exactly(if i == 3 { -9 } else { 7 }))
}

fn padded(x: Ptr<f16>, m: Array<bool, 2>, p: Array<f16, 2>, y: ArrayMut<f16, 2>) {
    let tile = [8, 64];
    let (m, p) = (m.load((0, 0), tile), p.load((0, 0), tile));
    let at = ct::indices(tile, 0) * 64 + ct::indices(tile, 1);
    // SAFETY: `x` has 8 by 64 elements.
    let found = unsafe { x.offset(at).load_with(GatherOptions::new().mask(m).padding(p)) };
    y.store((0, 0), found);
}

fn padding(session: Session) -> Result<()> {
    let (data, mask) = (random::<f16>(3, 512, Spread::Any), random::<bool>(4, 512, Spread::Any));
    let padding = random::<f16>(5, 512, Spread::Any);
    let (x, m) = (session.array(&data, [512])?, session.array(&mask, [8, 64])?);
    let (p, mut y) = (session.array(&padding, [8, 64])?, session.unwritten::<f16, 2>([8, 64])?);
    session.launch(padded, [1], (raw(&x), &m, &p, &mut y))?;
    let want = |[i, j]: [usize; 2]| {
        let at = i * 64 + j;
        Want::SameBits(if mask[at] { data[at] } else { padding[at] }.to_bits().into())
    };
    session.check("padded", &y, &want)
}

fn as_bits(x: ArrayMut<f32, 1>, y: ArrayMut<u32, 1>, bytes: ArrayMut<u8, 1>) {
    let n = 0..256;
    // SAFETY: the arrays have 256 elements; a f32 has 4 bytes.
    unsafe {
        let floats = x.pointer().offset(n);
        let bits = floats.cast::<u32>();
        y.store(0, bits.load());
        bits.store(bits.load() ^ 0x8000_0000);
        let halves = x.pointer().cast::<u8>().offset(ct::arange(0..256) * 4 + 3);
        bytes.store(0, halves.load());
        y.pointer()
            .cast::<f32>()
            .offset(ct::arange(0..256))
            .store_with(floats.load(), ScatterOptions::new().mask(ct::arange(0..256).ge(128)));
    }
}

/// One memory read as floats, as integers and as bytes.
fn casts(session: Session) -> Result<()> {
    let data = random::<f32>(6, 256, Spread::Any);
    let mut x = session.array(&data, [256])?;
    let (mut y, mut bytes) = (session.unwritten::<u32, 1>([256])?, session.unwritten::<u8, 1>([256])?);
    session.launch(as_bits, [1], (&mut x, &mut y, &mut bytes))?;
    let flipped = |i: usize| data[i].to_bits() ^ 0x8000_0000;
    session.check("floats", &x, &|[i]| Want::SameBits(flipped(i).into()))?;
    session.check("bits", &y, &|[i]| Want::exactly(if i < 128 { data[i].to_bits() } else { flipped(i) }))?;
    session.check("bytes", &bytes, &|[i]| Want::exactly((flipped(i) >> 24) as u8))
}

fn described(x: Ptr<f32>, y: ArrayMut<f32, 2>, (rows, columns): (Scalar<i64>, Scalar<i32>)) {
    // SAFETY: `x` has rows * columns elements, column by column; so does the half of `y` that is
    // written.
    unsafe {
        let turned = x.array((rows, columns), (1, rows));
        let to = y.pointer().offset(y.stride(0)).array_mut((rows, columns), (y.stride(0) * 2, 1));
        let tile = [16, 32];
        to.store((ct::bid(0), ct::bid(1)), turned.load((ct::bid(0), ct::bid(1)), tile));
    }
}

/// Arrays that the kernel describes itself: a matrix column by column, and every other row of one.
fn arrays(session: Session) -> Result<()> {
    for [rows, columns] in [[32, 64], [19, 45], [1, 7]] {
        let data = random::<f32>(7, rows * columns, Spread::Any);
        let x = session.array(&data, [columns, rows])?;
        let mut y = session.unwritten::<f32, 2>([2 * rows, columns])?;
        let grid = [rows.div_ceil(16), columns.div_ceil(32)];
        session.launch(described, grid, (raw(&x), &mut y, (rows as i64, columns as i32)))?;
        let want = |[i, j]: [usize; 2]| {
            let element = if i % 2 == 1 { data[j * rows + i / 2] } else { unwritten() };
            Want::SameBits(element.to_bits().into())
        };
        session.check("turned", &y, &want)?;
    }
    Ok(())
}

fn shifted(x: Ptr<i32>, y: ArrayMut<i32, 3>, (row, column, stride): (Scalar<i32>, Scalar<i64>, Scalar<i32>)) {
    let tile = [16, 32];
    // SAFETY: `x` has 12 elements, of which these arrays are parts.
    let tiles = unsafe {
        let (fixed, by_stride) = (x.array((3, 4), (1, 3)), x.array((3, 4), (1, stride)));
        [
            fixed.load((ct::at(-1), ct::at(-2)), tile),
            fixed.load((ct::at(row), ct::at(column)), tile),
            fixed.load((ct::at(-1), ct::at(column)), tile),
            fixed.load((ct::at(row), 0), tile),
            fixed.load((0, ct::at(column)), tile),
            by_stride.load((ct::at(row), ct::at(-2)), tile),
            by_stride.load((ct::at(row), ct::at(column)), tile),
            x.array((5, 4), (1, 3)).slice(0, 0..3).load((ct::at(row), ct::at(column)), tile),
            fixed.load((0, 0), tile),
        ]
    };
    for (number, found) in tiles.into_iter().enumerate() {
        y.store((number, 0, 0), found.unsqueeze(0));
    }
}

/// Arrays with constant extents and 64-bit indices, loaded from before their first element on.
fn starts_before(session: Session) -> Result<()> {
    let data = random::<i32>(14, 12, Spread::Any);
    let x = session.array(&data, [12])?;
    for [row, column] in [[-1, -2], [0, 0], [2, 3], [-15, -31], [-16, -32], [3, 4]] {
        let starts = [[-1, -2], [row, column], [-1, column], [row, 0], [0, column], [row, -2]];
        let starts = starts.into_iter().chain([[row, column]; 2]).chain([[0, 0]]).collect::<Vec<_>>();
        let mut y = session.unwritten::<i32, 3>([9, 16, 32])?;
        session.launch(shifted, [1], (raw(&x), &mut y, (row as i32, column, 3)))?;
        let want = |[number, i, j]: [usize; 3]| {
            let [row, column] = [starts[number][0] + i as i64, starts[number][1] + j as i64];
            let inside = (0..3).contains(&row) && (0..4).contains(&column);
            Want::exactly(if inside { data[(row + 3 * column) as usize] } else { 0 })
        };
        session.check(&format!("from {row}, {column}"), &y, &want)?;
    }
    Ok(())
}

fn outer(x: Ptr<i16>, y: ArrayMut<i16, 2>) {
    let (rows, columns) = (ct::arange_from(8, 0i64, 1).unsqueeze(1), ct::arange_from(32, 0u8, 1).unsqueeze(0));
    // SAFETY: `x` has 8 rows of 50 elements.
    unsafe {
        let starts = x.offset(rows * 50);
        y.store((0, 0), starts.offset(columns).offset(3).load());
        starts.offset(columns).store_with(5i16, ScatterOptions::new().mask(columns.gt(29)));
    }
}

/// Pointers and offsets are stretched together.
fn broadcast(session: Session) -> Result<()> {
    let data = random::<i16>(8, 400, Spread::Any);
    let x = session.array(&data, [400])?;
    let mut y = session.unwritten::<i16, 2>([8, 32])?;
    session.launch(outer, [1], (raw(&x), &mut y))?;
    session.check("rows and columns", &y, &|[i, j]| Want::exactly(data[50 * i + j + 3]))?;
    session.check("where the mask was true", &x, &|[i]| {
        Want::exactly(if i < 400 && (30..32).contains(&(i % 50)) { 5 } else { data[i] })
    })
}

fn far(base: Ptr<f64>, by: Array<i64, 1>, y: ArrayMut<i64, 1>, z: ArrayMut<i64, 1>) {
    let by = by.load(0, [4]);
    // SAFETY: nothing is accessed.
    unsafe {
        y.store(0, base.offset(by).offset(by).addr() - base.addr());
        let narrow = by.cast::<i32>();
        z.store(0, base.offset(narrow).offset(narrow).addr() - base.addr());
    }
}

/// Addresses of elements more than 2^31 away.
fn past_2_31(session: Session) -> Result<()> {
    let by = [(1i64 << 31) + 5, -(1 << 33), i32::MAX.into(), i32::MIN.into()];
    let index = session.array(&by, [4])?;
    let (mut y, mut z) = (session.unwritten::<i64, 1>([4])?, session.unwritten::<i64, 1>([4])?);
    session.launch(far, [1], (RawPtr::<f64>::new(1 << 50), &index, &mut y, &mut z))?;
    session.check("far", &y, &|[i]| Want::exactly(by[i] * 16))?;
    session.check("by i32", &z, &|[i]| Want::exactly(i64::from(by[i] as i32) * 16))
}

fn walk(x: Ptr<i32>, z: Ptr<i32>, y: ArrayMut<i32, 1>) {
    // SAFETY: both have 20 rows of 64 elements.
    unsafe {
        let start = (x.offset(0..64), x, ct::zeros::<i32, 1>([64]));
        let (rows, first, sum) = ct::fold(0..10, start, |(rows, first, sum), i| {
            let sum = sum + rows.load() * first.load();
            rows.store(ct::full::<i32, 1>([64], i));
            (rows.offset(64), first.offset(64), sum)
        });
        let other = ct::if_else(ct::bid(0).eq(0), || (z.offset(0..64), first), || (rows, z));
        y.store(ct::bid(0), sum + other.0.load() + other.1.load());
    }
}

/// Pointers that loops carry and branches choose.
fn carried(session: Session) -> Result<()> {
    let (data, others) = (random::<i32>(9, 1280, Spread::Whole(99)), random::<i32>(10, 1280, Spread::Whole(99)));
    let (x, z) = (session.array(&data, [1280])?, session.array(&others, [1280])?);
    let mut y = session.unwritten::<i32, 1>([64])?;
    session.launch(walk, [1], (raw(&x), raw(&z), &mut y))?;
    let sum = |j: usize| (0..10).map(|i| data[64 * i + j] * data[64 * i]).sum::<i32>();
    session.check("sum", &y, &|[j]| Want::exactly(sum(j) + others[j] + data[640]))?;
    session.check("rows", &x, &|[i]| Want::exactly(if i < 640 { (i / 64) as i32 } else { data[i] }))
}

fn twice(x: ArrayMut<i32, 1>, same: Ptr<i32>, y: ArrayMut<i32, 1>) {
    let tile = 512;
    // SAFETY: `same` is where `x` begins, which has 512 elements.
    unsafe {
        let back = same.offset(ct::arange_from(tile, 511, -1));
        let before = x.load(0, [tile]);
        back.store(before);
        let between = x.load(0, [tile]);
        x.store(0, between + 1);
        let view = same.array(512, 1);
        y.store(0, view.load(0, [tile]) + back.load());
        x.store(0, before);
        y.store(1, view.load(0, [tile]));
    }
}

/// Elements that are written through one pointer and read through another one, also by other
/// threads of the block.
fn two_names(session: Session) -> Result<()> {
    let data = random::<i32>(11, 512, Spread::Whole(9999));
    let mut x = session.array(&data, [512])?;
    let mut y = session.unwritten::<i32, 1>([1024])?;
    let same = raw(&x);
    session.launch(twice, [1], (&mut x, same, &mut y))?;
    let want = |[i]: [usize; 1]| match i {
        0..512 => Want::exactly(data[511 - i] + data[i] + 2),
        _ => Want::exactly(data[i - 512]),
    };
    session.check("both", &y, &want)?;
    session.check("x", &x, &|[i]| Want::exactly(data[i]))
}

fn by_address(rows: Array<u64, 1>, y: ArrayMut<f32, 2>) {
    let row = rows.load_scalar(ct::bid(0)).cast::<i64>();
    // SAFETY: addresses of 128 floats each.
    let found = unsafe { Ptr::<f32>::from_addr(row).offset(ct::arange(0..128)).load() };
    y.store((ct::bid(0), 0), found.unsqueeze(0));
}

/// Addresses that are loaded from memory.
fn table_of_addresses(session: Session) -> Result<()> {
    let data = random::<f32>(12, 1024, Spread::Any);
    let x = session.array(&data, [1024])?;
    let starts = [512usize, 3, 800, 17];
    let rows: Vec<u64> = starts.iter().map(|&start| x.address() + 4 * start as u64).collect();
    let (rows, mut y) = (session.array(&rows, [4])?, session.unwritten::<f32, 2>([4, 128])?);
    session.launch(by_address, [4], (&rows, &mut y))?;
    session.check("rows", &y, &|[i, j]| Want::SameBits(data[starts[i] + j].to_bits().into()))
}

fn count(x: Array<i32, 1>, bins: Ptr<i32>, floats: Ptr<f32>, y: ArrayMut<i32, 1>) {
    let x = x.load(ct::bid(0), [256]);
    // SAFETY: `bins` and `floats` have 8 elements, and x is at least 0; the mask excludes larger
    // numbers.
    unsafe {
        let inside = AtomicOptions::new().relaxed(Scope::Device).mask(x.lt(8));
        bins.offset(x).atomic_add_with(1, inside);
        floats.offset(x).atomic_max_with(x.cast::<f32>() + 0.5, inside);
        let ticket = bins.offset(8).atomic_add(1);
        y.store_scalar(ct::at(ct::bid(0)), ticket);
        bins.offset(9).atomic_cas(-1, 77);
        bins.offset(10).atomic_xchg(ct::bid(0));
    }
}

fn atomics(session: Session) -> Result<()> {
    let data = random::<i32>(13, 1024, Spread::Between(0.0, 12.0));
    let x = session.array(&data, [1024])?;
    let (bins, floats) = (session.array(&[[0; 9], [-1; 9]].concat(), [18])?, session.array(&[-1.0f32; 8], [8])?);
    let mut y = session.unwritten::<i32, 1>([4])?;
    session.launch(count, [4], (&x, raw(&bins), raw(&floats), &mut y))?;
    let of = |i: usize| data.iter().filter(|&&x| x == i as i32).count() as i32;
    session.check("bins", &bins, &|[i]| match i {
        0..8 => Want::exactly(of(i)),
        8 => Want::exactly(4),
        9 => Want::exactly(77),
        10 => Want::Open,
        _ => Want::exactly(-1),
    })?;
    session.check("maxima", &floats, &|[i]| Want::exactly(if of(i) > 0 { i as f32 + 0.5 } else { -1.0 }))?;
    if !session.only_compiles() {
        let mut tickets = y.to_vec()?;
        tickets.sort_unstable();
        anyhow::ensure!(tickets == [0, 1, 2, 3], "tickets {tickets:?}");
    }
    Ok(())
}

fn histogram(x: Array<i32, 1>, bins: ArrayMut<i32, 1>, others: Ptr<i32>) {
    ct::fold(0..4, others, |others, i| {
        let x = x.load(ct::bid(0) * 4 + i, [1024]);
        // SAFETY: `bins` has 64 elements, `others` 64 in each of 4 rows.
        unsafe {
            bins.pointer().offset(x).atomic_add_with(1, AtomicOptions::new().relaxed(Scope::Device));
            others.offset(x).atomic_add_with(1, AtomicOptions::new().relaxed(Scope::Device));
            others.offset(64)
        }
    });
}

/// A loop that increments its pointer.
fn atomics_in_a_loop(session: Session) -> Result<()> {
    let data = random::<i32>(14, 8192, Spread::Between(0.0, 64.0));
    let data: Vec<i32> = data.iter().map(|&x| x.clamp(0, 63)).collect();
    let (x, mut bins) = (session.array(&data, [8192])?, session.array(&[0i32; 64], [64])?);
    let others = session.array(&[0i32; 256], [256])?;
    session.launch(histogram, [2], (&x, &mut bins, raw(&others)))?;
    let of = |part: &[i32], bin: usize| part.iter().filter(|&&x| x == bin as i32).count() as i32;
    session.check("bins", &bins, &|[i]| Want::exactly(of(&data, i)))?;
    session.check("rows of bins", &others, &|[i]| {
        let parts = [i / 64, i / 64 + 4].map(|part| of(&data[1024 * part..][..1024], i % 64));
        Want::exactly(parts[0] + parts[1])
    })
}
