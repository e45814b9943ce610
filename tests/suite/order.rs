//! Orders between tile blocks: messages, a lock, a chain of blocks, and what one block sees of itself.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, GatherOptions, ScatterOptions, Scope};

use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("order/messages", messages);
    suite.test("order/chain", chain);
    suite.test("order/mutex", mutex);
    suite.test("order/tiles_of_flags", tiles_of_flags);
}

/// Waits until the element has this value or a higher one.
fn wait_for(flag: ct::EntryMut<i32, 1>, value: Scalar<i32>) {
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
    sum.store([0], sum.load([0], [256]) + ct::arange(256, 1, 1));
    lock.atomic_xchg(0);
}

/// A lock by compare-and-swap: what it protects is never lost.
fn mutex(session: Session) -> Result<()> {
    let (mut lock, mut sum) = (session.device().zeros([1])?, session.device().zeros([256])?);
    session.launch(locked, [50], (&mut lock, &mut sum))?;
    session.check("protected", &sum, &|[i]| Want::exactly(50 * (1 + i as i32)))?;
    session.check("lock", &lock, &|_| Want::exactly(0))
}

fn many_flags(flags: ArrayMut<u32, 1>, data: ArrayMut<u32, 1>, out: ArrayMut<u32, 1>) {
    let at = ct::arange(256, 0, 1);
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
