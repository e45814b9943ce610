//! Globals: initial values of every type, values for other tile blocks and for the next launch,
//! tables, host reads and writes, instances.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, Global, Scope};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($name:ident: $values:expr;)+) => {$(
            suite.lean(concat!("global/values/", stringify!($name)), |session| {
                static VALUES: Global<$name, 5> = Global::new($values);
                values(session, $values, |y, z| {
                    let array = VALUES.array();
                    y.store(0, array.load(0, [8]));
                    array.store(0, array.load(0, [8]) + array.gather(ct::arange_from(8, 4, -1)));
                    z.store(0, array.load(0, [8]));
                })
            });
        )+};
    }
    each! {
        i8: [1, -2, 3, i8::MIN, 5];
        u16: [7; 5];
        i32: [0; 5];
        u32: [1, 2, 3, 4, u32::MAX];
        i64: [i64::MIN, 2, -3, 4, 5];
        f16: [f16::ONE, f16::ZERO, f16::NEG_ONE, f16::MAX, f16::MIN];
        f32: [1.5, -0.0, 3.0, f32::MAX, 5.0];
        f64: [1e300, 2.0, 3.0, -4.0, 0.5];
    }
    suite.lean("global/tickets", tickets);
    suite.lean("global/table", table);
    suite.lean("global/two_of_them", two_of_them);
    suite.test("global/from_the_host", from_the_host);
    suite.test("global/launch_after_launch", launch_after_launch);
}

/// `kernel` returns the initial values, and the sums of the values with those in reverse order.
fn values<T: Number>(
    session: Session,
    initial: [T; 5],
    kernel: impl Fn(ArrayMut<T, 1>, ArrayMut<T, 1>) + Copy,
) -> Result<()> {
    let (mut y, mut z) = (session.unwritten::<T, 1>([8])?, session.unwritten::<T, 1>([8])?);
    session.launch(kernel, [1], (&mut y, &mut z))?;
    let zero = T::from_f64(0.0);
    let want = |[i]: [usize; 1]| Want::SameBits(initial.get(i).copied().unwrap_or(zero).to_bits());
    session.check("initial values", &y, &want)?;
    let mask = u64::MAX >> (64 - T::DTYPE.bits());
    let want = |[i]: [usize; 1]| match initial.get(i) {
        None => Want::exactly(zero),
        Some(&x) if T::DTYPE.is_float() => Want::nearest(x.to_f64() + initial[4 - i].to_f64()),
        Some(&x) => Want::Bits(x.to_bits().wrapping_add(initial[4 - i].to_bits()) & mask),
    };
    session.check("sums", &z, &want)
}

fn draw(y: ArrayMut<u32, 1>, z: ArrayMut<u32, 1>) {
    static TICKETS: Global<u32, 2> = Global::new([0, 500]);
    let tickets = TICKETS.array();
    let ticket = tickets.entry(0).atomic_add(1);
    y.entry(ct::bid(0)).store(ticket);
    let many = tickets.atomic_add_with(ct::full::<i32, 1>([4], 1), 1, AtomicOptions::new().relaxed(Scope::Device));
    z.store(ct::bid(0), many);
}

fn are_consecutive(what: &str, mut numbers: Vec<u32>) -> Result<()> {
    numbers.sort_unstable();
    ensure!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{what}: {numbers:?}");
    Ok(())
}

/// A ticket is drawn once.
fn tickets(session: Session) -> Result<()> {
    let (mut y, mut z) = (session.unwritten::<u32, 1>([300])?, session.unwritten::<u32, 1>([1200])?);
    session.launch(draw, [300], (&mut y, &mut z))?;
    if session.only_compiles() {
        return Ok(());
    }
    are_consecutive("tickets", y.to_vec()?)?;
    are_consecutive("tickets of tiles", z.to_vec()?)
}

const SQUARES: [i32; 1000] = {
    let (mut all, mut i) = ([0; 1000], 0);
    while i < 1000 {
        all[i] = (i * i) as i32;
        i += 1;
    }
    all
};

fn look_up(x: Array<i32, 1>, y: ArrayMut<i32, 1>, z: ArrayMut<i32, 1>) {
    static TABLE: Global<i32, 1000> = Global::new(SQUARES);
    let table = TABLE.array();
    y.store(ct::bid(0), table.gather(x.load(ct::bid(0), [256])));
    z.store(ct::bid(0), table.load(ct::bid(0), [256]));
}

/// A table that is only read, by wide accesses and one by one.
fn table(session: Session) -> Result<()> {
    let at = random::<i32>(1, 1024, Spread::Between(-9.0, 1009.0));
    let x = session.array(&at, [1024])?;
    let (mut y, mut z) = (session.unwritten::<i32, 1>([1024])?, session.unwritten::<i32, 1>([1024])?);
    session.launch(look_up, [4], (&x, &mut y, &mut z))?;
    let square = |i: i32| if (0..1000).contains(&i) { i * i } else { 0 };
    session.check("one by one", &y, &|[i]| Want::exactly(square(at[i])))?;
    session.check("in order", &z, &|[i]| Want::exactly(square(i as i32)))
}

fn swap(y: ArrayMut<f32, 1>) {
    static HERE: Global<f32, 64> = Global::new([1.0; 64]);
    static THERE: Global<f32, 64> = Global::new([2.0; 64]);
    let (here, there) = (HERE.array(), THERE.array());
    let (a, b) = (here.load(0, [64]), there.load(0, [64]));
    here.store(0, b);
    there.store(0, a * 3.0);
    // By other threads than those that wrote.
    let back = ct::arange_from(64, 63, -1);
    y.store(0, here.gather(back) * 100.0 + there.gather(back));
}

fn two_of_them(session: Session) -> Result<()> {
    let mut y = session.unwritten::<f32, 1>([64])?;
    session.launch(swap, [1], (&mut y,))?;
    session.check("swapped", &y, &|_| Want::exactly(203.0f32))
}

static COUNT: Global<i64, 3> = Global::new([10, 20, 30]);

fn count_up(y: ArrayMut<i64, 1>) {
    COUNT.array().entry(1).atomic_add(1);
    y.store(0, COUNT.array().load(0, [4]));
}

fn count_down(y: ArrayMut<i64, 1>) {
    COUNT.array().entry(1).atomic_sub(1);
    y.store(0, COUNT.array().load(0, [4]));
}

/// The launch of the ways that run: compiled once.
fn way(session: Session) -> Option<ct::Launch<'static>> {
    match session {
        Session::Run(_) => Some(ct::Launch::new(1)),
        Session::RunTileIr(_) => Some(ct::Launch::new(1).backend(ct::Backend::TileIr)),
        _ => None,
    }
}

fn from_the_host(session: Session) -> Result<()> {
    let mut y = session.unwritten::<i64, 1>([4])?;
    let Some(launch) = way(session) else { return session.launch(count_up, [1], (&mut y,)) };
    let (up, down) = (launch.compile(count_up, (&mut y,))?, launch.compile(count_down, (&mut y,))?);
    ensure!(COUNT.read(&up)? == [10, 20, 30]);
    up.launch(1, (&mut y,))?;
    up.launch(7, (&mut y,))?;
    down.launch(1, (&mut y,))?;
    ensure!(y.to_vec()? == [10, 19, 30, 0], "{:?}", y.to_vec()?);
    ensure!(COUNT.read(&up)? == [10, 28, 30] && COUNT.read(&down)? == [10, 19, 30]);
    COUNT.write(&up, [-1, i64::MIN, 1 << 40])?;
    up.launch(1, (&mut y,))?;
    ensure!(y.to_vec()? == [-1, i64::MIN + 1, 1 << 40, 0], "{:?}", y.to_vec()?);
    ensure!(COUNT.read(&down)? == [10, 19, 30]);
    Ok(())
}

fn alternate(x: Array<f16, 2>, y: ArrayMut<f16, 2>, calls: ArrayMut<i32, 1>) {
    static CALLS: Global<i32, 1> = Global::new([0]);
    let (i, j) = (ct::bid(0), ct::bid(1));
    y.store((i, j), x.load((i, j), [64, 64]) + f16::ONE);
    ct::if_then((i + j).eq(0), || {
        let before = CALLS.array().entry(0).atomic_add(1);
        calls.entry(0).store(before);
    });
}

/// All launches of a compiled kernel share its globals, whichever way the arrays are accessed.
fn launch_after_launch(session: Session) -> Result<()> {
    let data = vec![f16::ONE; 512 * 128];
    let (x, mut y) = (session.array(&data, [512, 128])?, session.unwritten::<f16, 2>([512, 128])?);
    let mut calls = session.unwritten::<i32, 1>([1])?;
    let Some(launch) = way(session) else { return session.launch(alternate, [8, 2], (&x, &mut y, &mut calls)) };
    let compiled = launch.compile(alternate, (&x, &mut y, &mut calls))?;
    for (call, grid) in [[8, 2], [8, 2], [1, 1], [9, 3], [8, 2]].into_iter().enumerate() {
        compiled.launch(grid, (&x, &mut y, &mut calls))?;
        ensure!(calls.to_vec()? == [call as i32], "{:?} instead of {call}", calls.to_vec()?);
    }
    session.check("copy", &y, &|_| Want::exactly(f16::from_f32(2.0)))
}
