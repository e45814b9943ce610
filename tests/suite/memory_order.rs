//! Orders between tile blocks: messages, a lock, a chain of blocks, by element index and by tile
//! index.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, GatherOptions, LoadOptions, ScatterOptions, Scope, StoreOptions};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("memory_order/messages", messages);
    suite.test("memory_order/chain", chain);
    suite.test("memory_order/mutex", mutex);
    suite.test("memory_order/tiles_of_flags", tiles_of_flags);
    for (name, how) in [("tiles", How::Tiles), ("transposed", How::Turned), ("at", How::At), ("listed", How::Listed)] {
        suite.test(format!("memory_order/{name}/u8"), move |session| by_tile_index::<u8>(session, how));
        suite.test(format!("memory_order/{name}/f16"), move |session| by_tile_index::<f16>(session, how));
        suite.test(format!("memory_order/{name}/i32"), move |session| by_tile_index::<i32>(session, how));
        suite.test(format!("memory_order/{name}/f64"), move |session| by_tile_index::<f64>(session, how));
    }
    suite.test("memory_order/relay", relay);
    suite.test("memory_order/coherence", coherence);
    suite.test("memory_order/alias_fence", alias_fence);
    suite.test("memory_order/written_again", written_again);
}

/// Waits until the element has this value or a higher one.
fn wait_for(flag: ct::ops::EntryMut<i32, 1>, value: Scalar<i32>) {
    let acquire = GatherOptions::new().acquire(Scope::Device);
    ct::while_loop((), |()| flag.load_with(acquire).lt(value), |()| ());
}

fn exchange(data: ArrayMut<f32, 1>, flags: ArrayMut<i32, 1>, out: ArrayMut<f32, 1>) {
    let me = ct::bid(0);
    let other = 1 - me;
    data.store([me], ct::full([512], 1.5) + me.cast::<f32>());
    flags.entry(me).store_with(1, ScatterOptions::new().release(Scope::Device));
    wait_for(flags.entry(other), ct::scalar(1));
    out.store([me], data.load([other], [512]) * 2.0);
}

/// Two blocks wait for each other: both have to run at the same time.
fn messages(session: Session) -> Result<()> {
    let (mut data, mut flags) = (session.unwritten::<f32, 1>([1024])?, session.device().zeros([2])?);
    let mut out = session.unwritten::<f32, 1>([1024])?;
    session.launch(exchange, [2], (&mut data, &mut flags, &mut out))?;
    session.check("exchanged", &out, &|[i]| Want::exactly(if i < 512 { 5.0f32 } else { 3.0 }))
}

fn pass_on(flags: ArrayMut<i32, 1>, sums: ArrayMut<i32, 2>) {
    // The last block begins the chain.
    let me = ct::num_blocks(0) - 1 - ct::bid(0);
    let columns = 0..128;
    let before = ct::if_else(
        me.gt(0),
        || {
            wait_for(flags.entry(me - 1), ct::scalar(1));
            sums.gather((me - 1, columns.clone()))
        },
        || ct::zeros::<i32, 2>([1, 128]).reshape([128]).reshape([1, 128]),
    );
    sums.scatter((me, columns.clone()), before + me);
    flags.entry(me).atomic_xchg_with(1, AtomicOptions::new().release(Scope::Device));
}

/// Each block waits for a later one: none may be starved.
fn chain(session: Session) -> Result<()> {
    let blocks = 24;
    let mut flags = session.device().zeros([blocks])?;
    let mut sums = session.unwritten::<i32, 2>([blocks, 128])?;
    session.launch(pass_on, [blocks], (&mut flags, &mut sums))?;
    session.check("sums", &sums, &|[i, _]| Want::exactly((i * (i + 1) / 2) as i32))
}

fn locked(lock: ArrayMut<i32, 1>, sum: ArrayMut<i32, 1>) {
    let lock = lock.entry(0);
    ct::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
    sum.store([0], sum.load([0], [256]) + ct::arange_from(256, 1, 1));
    lock.atomic_xchg(0);
}

/// A lock by compare-and-swap: no protected update is lost.
fn mutex(session: Session) -> Result<()> {
    let (mut lock, mut sum) = (session.device().zeros([1])?, session.device().zeros([256])?);
    session.launch(locked, [50], (&mut lock, &mut sum))?;
    session.check("protected", &sum, &|[i]| Want::exactly(50 * (1 + i as i32)))?;
    session.check("lock", &lock, &|_| Want::exactly(0))
}

fn many_flags(flags: ArrayMut<u32, 1>, data: ArrayMut<u32, 1>, out: ArrayMut<u32, 1>) {
    let at = ct::arange(0..256);
    ct::if_else(
        ct::bid(0).eq(0),
        || {
            data.scatter(255 - at, at.cast::<u32>());
            flags.scatter_with(at, 1u32, ScatterOptions::new().release(Scope::System));
        },
        || {
            let acquire = GatherOptions::new().acquire(Scope::System);
            ct::while_loop((), |()| flags.gather_with(at, acquire).eq(0).any(0).item(), |()| ());
            out.scatter(at, data.gather(at));
        },
    );
}

/// A tile of flags that release and acquire.
fn tiles_of_flags(session: Session) -> Result<()> {
    let mut flags = session.device().zeros([256])?;
    let [mut data, mut out] = [session.unwritten::<u32, 1>([256])?, session.unwritten::<u32, 1>([256])?];
    session.launch(many_flags, [2], (&mut flags, &mut data, &mut out))?;
    session.check("data", &out, &|[i]| Want::exactly(255 - i as u32))
}

/// Form of the access to a tile of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum How {
    Tiles,
    Turned,
    At,
    Listed,
}

const FLAGS: [usize; 2] = [8, 64];

fn load_flags<T: Number>(flags: ArrayMut<T, 2>, how: How) -> Tile<T, 2> {
    let options = LoadOptions::new().acquire(Scope::Device);
    let rows = 7 - ct::arange(0..8);
    match how {
        How::Tiles => flags.load_with((0, 0), FLAGS, options),
        How::Turned => flags.load_with((0, 0), [64, 8], options.order([1, 0])).transpose(),
        How::At => flags.load_with((ct::at(-1), ct::at(-3)), FLAGS, options),
        How::Listed => flags.load_with((ct::at(rows), 0), FLAGS, options),
    }
}

fn store_flags<T: Number>(flags: ArrayMut<T, 2>, how: How) {
    let options = StoreOptions::new().release(Scope::Device);
    let (ones, rows) = (ct::ones::<T, 2>(FLAGS), ct::arange(0..8));
    match how {
        How::Tiles => flags.store_with((0, 0), ones, options),
        How::Turned => flags.store_with((0, 0), ones.transpose(), options.order([1, 0])),
        How::At => flags.store_with((ct::at(-1), ct::at(-3)), ones, options),
        How::Listed => flags.store_with((ct::at(rows), 0), ones, options),
    }
}

fn flagged<T: Number>(flags: ArrayMut<T, 2>, data: ArrayMut<i32, 1>, out: ArrayMut<i32, 1>, how: How, count: usize) {
    let send = || {
        data.store([0], ct::arange_from(512, 7, 3));
        store_flags(flags, how);
    };
    let receive = || {
        let seen = || load_flags(flags, how).ne(T::from_f64(0.0)).count(..).item();
        ct::while_loop((), |()| seen().ne(count), |()| ());
        out.store([0], data.load([0], [512]));
    };
    ct::if_else(ct::bid(0).eq(0), send, receive);
}

/// Tiles of flags by tile index, inside of the array and beyond its edges, in one access a thread
/// and in several.
fn by_tile_index<T: Number>(session: Session, how: How) -> Result<()> {
    for columns in [64, 57] {
        let shape = if how == How::At { [7, columns - 3] } else { [8, columns] };
        let mut flags = session.device().zeros::<T, 2>(shape)?;
        let [mut data, mut out] = [session.unwritten::<i32, 1>([512])?, session.unwritten::<i32, 1>([512])?];
        let constants = (ct::Constant(how), ct::Constant(shape[0] * shape[1]));
        session.launch(flagged::<T>, [2], (&mut flags, &mut data, &mut out, constants.0, constants.1))?;
        session.check("flags", &flags, &|_| Want::exactly(T::from_f64(1.0)))?;
        session.check("data", &out, &|[i]| Want::exactly(7 + 3 * i as i32))?;
    }
    Ok(())
}

fn relay_kernel(tiles: ArrayMut<i32, 2>, ready: ArrayMut<u64, 1>) {
    let me = ct::bid(0);
    let ready = ready.tiled([1]).acquire(Scope::Device).release(Scope::Device);
    ct::while_loop((), |()| ready.load(me).item().eq(0), |()| ());
    let tiles = tiles.tiled([1, 100usize.next_power_of_two()]);
    tiles.store((me + 1, 0), tiles.load((me, 0)) + me);
    ready.store(me + 1, 1u64);
}

/// Each block adds to the sum of the previous one.
fn relay(session: Session) -> Result<()> {
    let blocks = 20;
    let mut ready = vec![0u64; blocks + 1];
    ready[0] = 1;
    let mut ready = session.array(&ready, [blocks + 1])?;
    let mut tiles = session.device().zeros::<i32, 2>([blocks + 1, 100])?;
    session.launch(relay_kernel, [blocks], (&mut tiles, &mut ready))?;
    session.check("sums", &tiles, &|[i, _]| Want::exactly((i * i.saturating_sub(1) / 2) as i32))
}

fn counting(counter: ArrayMut<i32, 1>, steps: ArrayMut<i32, 1>, last: i32) {
    let view = counter.tiled([4]).relaxed(Scope::Device);
    let count = || ct::fold(1..last + 1, (), |(), i| view.store(0, i));
    let watch = || {
        let start = (ct::zeros::<i32, 1>([4]), ct::zeros::<i32, 1>([4]));
        let (_, smallest) = ct::while_loop(
            start,
            |(seen, _)| seen.lt(last).any(0).item(),
            |(seen, smallest)| {
                let first = view.load(0);
                let second = view.load(0);
                (second, smallest.min(first - seen).min(second - first))
            },
        );
        steps.store([ct::bid(0) - 1], smallest);
    };
    ct::if_else(ct::bid(0).eq(0), count, watch);
}

/// A second read returns no older value, and a write of another block becomes visible.
fn coherence(session: Session) -> Result<()> {
    let mut counter = session.device().zeros([4])?;
    let mut steps = session.unwritten::<i32, 1>([4 * 7])?;
    session.launch(counting, [8], (&mut counter, &mut steps, ct::Constant(1000)))?;
    session.check("steps back", &steps, &|_| Want::exactly(0))
}

fn fenced(x: ArrayMut<i32, 2>, y: ArrayMut<i32, 2>, z: Array<i32, 2>) {
    let i = ct::bid(0);
    ct::fold(0..3, (), |(), k| {
        x.store((i, 0), z.load((i, 0), [16, 64]) + k);
        ct::alias_fence();
        y.store((0, i), y.load((0, i), [64, 16]) + x.load((i, 0), [16, 64]).transpose());
        ct::if_then(k.eq(1), || ct::alias_fence());
    });
}

/// Fences in loops and branches change nothing where all memory has one address.
fn alias_fence(session: Session) -> Result<()> {
    let data = random::<i32>(1, 50 * 60, Spread::Whole(1000));
    let z = session.array(&data, [50, 60])?;
    let (mut x, mut y) = (session.unwritten::<i32, 2>([50, 60])?, session.device().zeros::<i32, 2>([60, 50])?);
    session.launch(fenced, [4], (&mut x, &mut y, &z))?;
    session.check("x", &x, &|[i, j]| Want::exactly(data[60 * i + j] + 2))?;
    session.check("y", &y, &|[j, i]| Want::exactly(3 * data[60 * i + j] + 3))
}

/// Elements that are written in order by other threads: the last write remains.
fn written_again(session: Session) -> Result<()> {
    fn kernel(x: Array<i64, 2>, scattered: ArrayMut<i64, 2>, added: ArrayMut<i64, 2>, stored: ArrayMut<i64, 2>) {
        let at = [ct::bid(0), ct::bid(1)];
        let x = x.load(at, [64, 16]);
        let columns = at[1] * 16 + (ct::indices([64, 16], 1) ^ 1);
        let place = (at[0] * 64 + ct::indices([64, 16], 0), columns);
        scattered.scatter_with(place, x.cummax(0), ScatterOptions::new().release(Scope::Device));
        scattered.store(at, ct::zeros([64, 16]));
        added.atomic_add(place, x);
        added.store(at, ct::ones([64, 16]));
        stored.store_with(at, x, StoreOptions::new().release(Scope::Device));
        stored.scatter(place, ct::zeros([64, 16]));
    }
    let shape = [300, 170];
    let x = session.array(&random::<i64>(5, shape.iter().product(), Spread::Any), shape)?;
    for _ in 0..10 {
        let [mut a, mut b, mut c] = [session.unwritten(shape)?, session.unwritten(shape)?, session.unwritten(shape)?];
        session.launch(kernel, [5, 11], (&x, &mut a, &mut b, &mut c))?;
        session.check("stored over a scatter", &a, &|_| Want::exactly(0i64))?;
        session.check("stored over additions", &b, &|_| Want::exactly(1i64))?;
        session.check("scattered over a store", &c, &|_| Want::exactly(0i64))?;
    }
    Ok(())
}
